"""Keeps keys pressed in the bench from the notebook's shortcuts, and names its fields for screen readers."""

from __future__ import annotations

import anywidget

# The notebook handles every key before the page's elements do, and takes "x" on a focused button for "cut the cell".
# It ignores elements with this mark, which must be on the element that has the focus. Shortcuts with Ctrl, Alt or Cmd,
# such as saving the notebook, stay the notebook's. The graph marks its own elements.
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
    // A field without a label beside it is called what its tip says: screen readers pass over tips.
    const name = () => {
      for (const field of el.closest(".qdq-bench")?.querySelectorAll("select, input, textarea") ?? []) {
        const labels = [...(field.labels ?? [])].some((label) => label.textContent.trim());
        const tip = field.title || field.placeholder;
        if (!labels && tip && field.ariaLabel !== tip) field.ariaLabel = tip;
      }
    };
    let frame = 0;
    const later = new MutationObserver(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(name);
    });
    let wait = 0;
    const start = () => {
      const bench = el.closest(".qdq-bench");
      if (bench) later.observe(bench, { childList: true, subtree: true, attributeFilter: ["title", "placeholder"] });
      else wait = requestAnimationFrame(start);
    };
    start();
    return () => {
      window.removeEventListener("keydown", onKey, true);
      later.disconnect();
      cancelAnimationFrame(wait);
      cancelAnimationFrame(frame);
    };
  },
};
"""


class KeepKeys(anywidget.AnyWidget):
    """An invisible widget that keeps keys in the bench from the notebook's shortcuts, and names its fields."""

    _esm = _KEEP
