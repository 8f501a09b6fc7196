"""Keys pressed in the bench belong to the bench: no letter cuts a cell, and arrows go from tab to tab."""

from __future__ import annotations

import anywidget

# The notebook looks at every key before the page's elements do, and takes "x" on a focused button for "cut the cell".
# It leaves alone what is marked; the mark must stand on the very element that has the focus. Shortcuts with Ctrl, Alt
# or Cmd, such as saving the notebook, stay the notebook's. The graph marks its own elements.
_KEEP = """
export default {
  render({ el }) {
    const mark = "data-lm-suppress-shortcuts";
    const onKey = (event) => {
      const target = event.target;
      const isOurs = target instanceof Element && el.closest(".qdq-bench")?.contains(target);
      if (!isOurs || target.closest(".qdqw-root")) return;
      if (event.ctrlKey || event.metaKey || event.altKey) target.removeAttribute(mark);
      else target.setAttribute(mark, "true");
    };
    window.addEventListener("keydown", onKey, true);
    return () => window.removeEventListener("keydown", onKey, true);
  },
};
"""


class KeepKeys(anywidget.AnyWidget):
    """Invisible; keeps keys that are pressed in the bench from the notebook's shortcuts."""

    _esm = _KEEP
