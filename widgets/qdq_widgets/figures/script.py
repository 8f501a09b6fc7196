"""plotly's script, of five megabytes, sent once for all figures of a process instead of with each of them.

JupyterLab (4.6) shows no widgets in a page that is loaded again if restoring them takes longer than two seconds, and
seven figures with a script each take six.
"""

from __future__ import annotations

import threading

import anywidget
import traitlets

#: Script of a figure: it runs plotly's script, which the page evaluates once and keeps with the model that holds it.
LOADER = """
export default () => {
  let figure;
  return {
    async initialize(context) {
      const holder = await context.model.widget_manager.get_model(context.model.get("_script"));
      if (!holder.plotly) {
        const url = URL.createObjectURL(new Blob([holder.get("text")], { type: "text/javascript" }));
        holder.plotly = import(url).finally(() => URL.revokeObjectURL(url));
      }
      const { default: script } = await holder.plotly;
      figure = typeof script === "function" ? await script() : script;
      return figure.initialize?.(context);
    },
    render: (context) => figure.render(context),
  };
};
"""


class PlotlyScript(anywidget.AnyWidget):
    """Invisible; holds plotly's script for the figures of the process."""

    _esm = "export default {};"
    text = traitlets.Unicode().tag(sync=True)


class _Holder:
    """The widget of this process with the script, made on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._script: PlotlyScript | None = None

    def script(self) -> PlotlyScript:
        """Return the open widget, the same one for all figures."""
        from plotly.basewidget import BaseFigureWidget

        with self._lock:
            if self._script is None or self._script.comm is None:  # `Widget.close_all` closes it
                self._script = PlotlyScript(text=str(BaseFigureWidget._esm))  # noqa: SLF001 - a trait of anywidget
            return self._script


shared_script = _Holder().script
