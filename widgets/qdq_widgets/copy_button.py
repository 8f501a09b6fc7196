"""A button that copies a text to the clipboard of the page."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

# Without https, and in frames without the permission, there is no `navigator.clipboard`; `execCommand` still works.
_COPY = """
async function copy(text, host) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    host.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export default {
  render({ model, el }) {
    const button = document.createElement("button");
    button.className = "jupyter-button widget-button qdq-alone";
    button.dataset.lmSuppressShortcuts = "true";
    button.title = "Copy this code";
    button.setAttribute("aria-live", "polite");
    const show = (text) => {
      button.textContent = text;
    };
    show("Copy");
    let timer = 0;
    button.addEventListener("click", async () => {
      show((await copy(model.get("text"), el)) ? "Copied" : "Select the code and press Ctrl+C");
      button.focus();
      clearTimeout(timer);
      timer = setTimeout(() => show("Copy"), 2000);
    });
    el.append(button);
    return () => clearTimeout(timer);
  },
};
"""


class CopyButton(anywidget.AnyWidget):
    """Copies its text, also without a kernel.

    Attributes:
        text: What a click copies.
    """

    _esm = _COPY

    text = traitlets.Unicode(help="What a click copies.").tag(sync=True)

    def __init__(self, text: str = "", **kwargs: Any) -> None:
        super().__init__(text=text, **kwargs)
