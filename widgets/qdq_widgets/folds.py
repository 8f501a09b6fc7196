"""Folds of the report's page: titles with a number, whose content is shown after a click and on paper."""

from __future__ import annotations

import html

FOLD_STYLE = """<style>
summary { cursor: pointer; font-size: 1.17em; font-weight: 600; margin: 20px 0 8px; }
.qdq-bench details pre { max-height: none; }
</style>"""
# A closed fold stays closed on paper, where nobody can open it.
OPENED_FOR_PRINT = """<script>
{
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const fold of opened) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of opened) fold.open = false;
  });
}
</script>"""


def folded(title: str, count: int, content: str) -> str:
    """Return content under a fold, closed at first, as HTML; the title, plain text, shows the number of its rows.

    Example:
        >>> folded("History", 2, "<p>two steps</p>")
        '<details><summary>History (2)</summary><p>two steps</p></details>'
    """
    return f"<details><summary>{html.escape(title)} ({count:,})</summary>{content}</details>"
