"""The size of the bench: the full page, and handles that divide width and height between graph and panes."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

# The button is in the bar; it finds the bench around it in the page. On the full page the bench is a popover, since
# the top layer covers everything, also if an ancestor of the cell clips or moves its content.
_ROOM = """
const KEYS = { ArrowLeft: [-0.02, 0], ArrowRight: [0.02, 0], ArrowUp: [0, -0.02], ArrowDown: [0, 0.02] };

function handle(bench, model, name, isAcross, first, last) {
  const most = isAcross ? 0.85 : 1; // below the graph, the tabs of the panes stay
  const bar = document.createElement("div");
  bar.className = `qdq-handle ${isAcross ? "qdq-across" : "qdq-down"}`;
  bar.tabIndex = 0;
  bar.setAttribute("role", "separator");
  bar.setAttribute("aria-orientation", isAcross ? "vertical" : "horizontal");
  bar.setAttribute("aria-label", isAcross ? "Width of the graph" : "Height of the graph on the whole page");
  bar.title = "Drag, or use the arrow keys; double click: as at first";
  bar.dataset.lmSuppressShortcuts = "true";
  const set = (value) => {
    model.set(name, Math.round(1000 * Math.min(most, Math.max(0.15, value))) / 1000);
    model.save_changes();
  };
  const drag = (event) => {
    if (event.buttons === 0) return;
    const [{ left, top }, { right, bottom }] = [first, last].map((part) => part.getBoundingClientRect());
    set(isAcross ? (event.clientX - left) / (right - left) : (event.clientY - top) / (bottom - top));
  };
  bar.addEventListener("pointerdown", (event) => bar.setPointerCapture(event.pointerId));
  bar.addEventListener("pointermove", drag);
  bar.addEventListener("dblclick", () => set(isAcross ? 0.5 : 0.62));
  bar.addEventListener("keydown", (event) => {
    const step = KEYS[event.key]?.[isAcross ? 0 : 1];
    if (!step) return;
    set(model.get(name) + step);
    event.preventDefault();
    event.stopPropagation();
  });
  const show = () => {
    if (isAcross) bench.style.setProperty("--qdq-split", `${100 * model.get(name)}%`);
    else bench.style.setProperty("--qdq-upper", model.get(name));
    bar.setAttribute("aria-valuenow", String(Math.round(100 * model.get(name))));
  };
  bar.setAttribute("aria-valuemin", "15");
  bar.setAttribute("aria-valuemax", String(100 * most));
  model.on(`change:${name}`, show);
  show();
  return { bar, end: () => model.off(`change:${name}`, show) };
}

export default {
  render({ model, el }) {
    const button = document.createElement("button");
    button.className = "jupyter-button widget-button qdq-whole qdq-alone";
    button.dataset.lmSuppressShortcuts = "true";
    button.addEventListener("click", () => {
      model.set("full_page", !model.get("full_page"));
      model.save_changes();
    });
    el.append(button);
    let [bench, frame, ends] = [null, 0, []];
    const show = () => {
      const isFull = model.get("full_page");
      button.textContent = isFull ? "Back to the notebook" : "Whole page";
      button.title = isFull ? "Show the bench in its cell again" : "Give the bench the whole page";
      button.setAttribute("aria-pressed", String(isFull));
      if (!bench || bench.classList.contains("qdq-full") === isFull) return;
      bench.classList.toggle("qdq-full", isFull);
      if (isFull) {
        bench.popover = "manual";
        bench.showPopover?.();
      } else {
        bench.hidePopover?.();
        bench.removeAttribute("popover");
      }
    };
    // The page puts widgets into their places one after the other, some long after this one was made.
    const start = () => {
      bench = el.closest(".qdq-bench");
      const [graph, side, work] = ["graph", "side", "work"].map((name) => bench?.querySelector(`.qdq-${name}`));
      if (!graph || !side || !work) {
        frame = requestAnimationFrame(start);
        return;
      }
      const main = bench.querySelector(".qdq-main");
      const across = handle(bench, model, "split", true, main, main);
      const down = handle(bench, model, "upper", false, main, work);
      side.before(across.bar);
      main.after(down.bar);
      ends = [across, down];
      show();
    };
    model.on("change:full_page", show);
    show();
    start();
    return () => {
      cancelAnimationFrame(frame);
      model.off("change:full_page", show);
      for (const { bar, end } of ends) {
        end();
        bar.remove();
      }
    };
  },
};
"""


class Room(anywidget.AnyWidget):
    """A button that gives a bench the whole page, and handles between its parts.

    Attributes:
        full_page: Whether the bench takes the whole page.
        split: The graph's share of the width, 0.15 to 0.85.
        upper: On the full page, the share of graph and inspector in the height of graph and panes, 0.15 to 1; with 1
            only the tabs of the panes are left.
    """

    _esm = _ROOM

    full_page = traitlets.Bool(default_value=False, help="Whether the bench takes the whole page.").tag(sync=True)
    split = traitlets.Float(0.5, min=0.15, max=0.85, help="The graph's share of the width.").tag(sync=True)
    upper = traitlets.Float(0.62, min=0.15, max=1.0, help="The upper share of the whole page.").tag(sync=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_class("qdq-room")
