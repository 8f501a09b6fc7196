"""The bench as a user sees it: finds its parts in the page."""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Callable
from typing import Any

from browser.jupyter import PATIENCE

SIDE_PANES = ("Inspector", "Spec", "Cases", "Target", "History", "Variants", "Inspector")
WORK_PANES = (
    "Calibration",
    "Corrections",
    "Values",
    "Sensitivity",
    "Diagnosis",
    "Speed",
    "Training",
    "Export",
    "Netron",
    "Code & files",
)
# Netron tries these; the policy of our server makes the browser block it. Nothing else may even try.
CALLS_HOME = ("https://ipinfo.io/", "https://www.google-analytics.com", "https://analytics.google.com")
# Whether every visible figure is as wide as its place.
FILLS = """() => {
  const figures = [...document.querySelectorAll('.qdq-figure')].filter((figure) => figure.clientWidth > 0);
  return figures.length > 0 && figures.every((figure) =>
    Math.abs(figure.clientWidth - (figure.querySelector('.main-svg')?.clientWidth ?? 0)) <= 2);
}"""
HERE = re.compile(r"(https?|wss?)://(localhost|127\.0\.0\.1)[:/]|blob:|data:")


class PageWatch:
    """Notes what goes wrong in a page, and whom it asks for anything.

    Args:
        page: The Playwright page.
    """

    def __init__(self, page: Any) -> None:
        self.problems: list[str] = []
        self.requests: set[str] = set()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.requests.add(request.url))

    def assert_nothing_was_wrong(self) -> None:
        """Fail where a script raised an error, or where the page asked another host."""
        assert self.problems == [], self.problems
        elsewhere = {url for url in self.requests if not HERE.match(url)}
        assert all(url.startswith(CALLS_HOME) for url in elsewhere), elsewhere


class BenchPage:
    """The bench in a page.

    Args:
        notebook: The `Notebook`.
        index: The cell that shows the bench.
        screenshots: Where pictures go.
    """

    def __init__(self, notebook: Any, index: int, screenshots: pathlib.Path) -> None:
        self.notebook, self.index = notebook, index
        self.page = notebook.page
        self.root = self.page.locator(".qdq-bench").first
        self.root.wait_for()
        self._screenshots = screenshots
        notebook.scroll_to(index)

    def screenshot(self, name: str) -> None:
        """Keep a picture of the bench."""
        self.page.wait_for_timeout(300)  # transitions
        self.root.screenshot(path=self._screenshots / f"{name}.png")

    def layer(self, name: str) -> Any:
        """Return a layer of the graph, searching for it first where it is out of sight."""
        found = self.root.locator("g.qdqw-unit", has=self.page.locator("text.name", has_text=name)).first
        if not found.count():
            search = self.root.locator("input[type=search], input[placeholder^=Find]").first
            search.fill(name)
            search.press("Enter")
        found.wait_for()
        return found

    def badge(self, layer: str, site: str) -> Any:
        """Return a badge of a layer: site is "input", "weight" or "output"."""
        return self.layer(layer).locator(f".qdqw-badge.{site}").first

    def open(self, title: str) -> None:
        """Open the pane behind a tab."""
        self.root.locator(".lm-TabBar-tab").get_by_text(title, exact=True).first.click()
        self.page.wait_for_timeout(300)

    def field(self, label: str) -> Any:
        """Return the visible field with this label: "the first number" is another one until a pane is drawn whole."""
        return self.root.get_by_label(label, exact=True).locator("visible=true").first

    def click(self, text: str) -> None:
        """Click the visible button that says just this."""
        buttons = self.root.locator("button:visible").filter(has_text=re.compile(rf"^\s*{re.escape(text)}\s*$"))
        buttons.first.click()

    def value(self, expression: str) -> str:
        """Return what an expression prints in the kernel; it may use `wb`."""
        from browser.jupyter import text_of

        return text_of(self.notebook.ask(f"print({expression})")).strip()

    def wait_until(self, expression: str) -> None:
        """Wait until an expression is true in the kernel."""
        self.wait_for(lambda: self.value(f"bool({expression})") == "True", expression)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is so on the page, which is drawn some time after the kernel has answered."""
        end, pause = time.monotonic() + PATIENCE, 100.0
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"not so after {PATIENCE} s: {what}")
            self.page.wait_for_timeout(pause)
            pause = min(1.2 * pause, 1000.0)  # asking takes time that the kernel could have
