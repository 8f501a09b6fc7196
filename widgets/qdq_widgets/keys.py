"""Keeps keys pressed in the bench from the notebook's shortcuts, keeps the focus, and names fields."""

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
    // A button that starts long work is disabled meanwhile, and a row may be drawn anew: the page then drops the focus.
    // It comes back with the button, or with the field of the same name, unless the user has gone elsewhere.
    let last = null;
    const said = (field) => field.ariaLabel || field.title || field.textContent.trim() || field.placeholder;
    const part = (field) => field.closest(".qdq-side, .qdq-work, .qdq-bar, .qdqw-root");
    const onFocus = ({ target }) => {
      const isOurs = el.closest(".qdq-bench")?.contains(target);
      last = isOurs ? { field: target, said: said(target), part: part(target) } : null;
    };
    const onPointer = () => (last = null);
    const back = () => {
      if (!last || document.activeElement !== document.body) return;
      const twins = last.field.isConnected ? [last.field] : last.part?.querySelectorAll(last.field.localName) ?? [];
      const field = [...twins].find((twin) => said(twin) === last.said || twin === last.field);
      if (field && !field.disabled && field.checkVisibility()) field.focus({ preventScroll: true });
    };
    window.addEventListener("focusin", onFocus);
    window.addEventListener("pointerdown", onPointer, true);
    let frame = 0;
    const later = new MutationObserver(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => {
        name();
        back();
      });
    });
    let wait = 0;
    const start = () => {
      const bench = el.closest(".qdq-bench");
      const attributeFilter = ["title", "placeholder", "disabled"];
      if (bench) later.observe(bench, { childList: true, subtree: true, attributeFilter });
      else wait = requestAnimationFrame(start);
    };
    start();
    return () => {
      window.removeEventListener("keydown", onKey, true);
      window.removeEventListener("focusin", onFocus);
      window.removeEventListener("pointerdown", onPointer, true);
      later.disconnect();
      cancelAnimationFrame(wait);
      cancelAnimationFrame(frame);
    };
  },
};
"""


class KeepKeys(anywidget.AnyWidget):
    """An invisible widget that keeps keys and the focus in the bench, and names its fields."""

    _esm = _KEEP
