"""The bench without a kernel: a banner, and a view that can be read but not changed."""

from __future__ import annotations

import anywidget
import traitlets

# The host marks every widget whose kernel is gone with a class. From then on nothing answers: fields and buttons are
# disabled, the status line is hidden (it would say "fine-tuning ..." for ever), and the banner says what to do. The
# name of the running task is read from that line, so that no extra message is needed. What the page does by itself
# has the class `qdq-alone` and goes on: the way back from the whole page, and the copy of the code.
_WATCH = """
const GONE = "jupyter-widgets-disconnected";
export default {
  render({ model, el }) {
    const switched = new Set();
    let frame = 0;
    const sentence = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
    const banner = () => {
      const [job, saved] = [bench.querySelector(".qdq-foot > :first-child b")?.textContent, model.get("saved")];
      const rows = [
        sentence("b", "The kernel is gone. "),
        sentence("span", "This is the bench as it was: it can be read, tabs show what they showed last, but nothing "
          + "in it can be changed any more." + (job ? ` Running then, and ended with it: ${job}.` : "")),
        sentence("div", "What to do: restart the kernel if it has not restarted by itself, and run the notebook's "
          + "cells again, from the top. " + (saved
            ? `In place of Workbench(model, ...), Workbench.load(${saved}, ...) brings back what was saved last.`
            : "This bench was not saved, so it starts anew; the code under Code & files rebuilds its plan.")),
      ];
      const box = document.createElement("div");
      box.className = "qdq-gone-banner";
      box.setAttribute("role", "alert");
      box.append(...rows);
      return box;
    };
    let bench = null;
    const apply = () => {
      const gone = bench.classList.contains(GONE);
      bench.classList.toggle("qdq-gone", gone);
      el.replaceChildren(...(gone ? [banner()] : []));
      for (const field of gone ? bench.querySelectorAll("button, input, select, textarea") : switched) {
        const isOurs = field.closest(".qdqw-root, .js-plotly-plot, .qdq-alone");
        const name = field.localName === "textarea" ? "readOnly" : "disabled";
        if (isOurs || (gone && field[name])) continue;
        field[name] = gone;
        if (gone) switched.add(field);
      }
      if (!gone) switched.clear();
    };
    const observer = new MutationObserver(apply);
    const begin = () => {
      bench = el.closest(".qdq-bench");
      if (!bench) {
        frame = requestAnimationFrame(begin); // the page puts widgets into their places one after the other
        return;
      }
      observer.observe(bench, { attributes: true, attributeFilter: ["class"] });
      apply();
    };
    begin();
    return () => {
      observer.disconnect();
      cancelAnimationFrame(frame);
    };
  },
};
"""


class KernelWatch(anywidget.AnyWidget):
    """Shows nothing while there is a kernel; else disables the bench around it and shows a banner."""

    _esm = _WATCH

    saved = traitlets.Unicode(help="The folder to which the bench was saved last, as Python; empty before.").tag(
        sync=True
    )
