"""Figures as widgets that fill the width of their pane."""

from __future__ import annotations

import functools
import threading
from typing import Any

import anywidget
import ipywidgets as widgets
import traitlets

from qdq_widgets.figures.script import LOADER, shared_script

#: What every figure of the bench is drawn with: no button leads to the makers of plotly or uploads a chart to them.
QUIET_CONFIG = {"displaylogo": False, "showSendToCloud": False}

# plotly draws a new figure 700 pixels wide and checks its pane only when the window changes its size. So this script
# observes the pane, and dispatches "resize" whenever a drawing is not as wide as its place.
_FIT = """
export default {
  render({ el }) {
    const pane = () => el.closest(".qdq-figure");
    let [timer, tries, frame] = [0, 0, 0];
    const check = (wait = 80) => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        const drawing = pane()?.querySelector(".js-plotly-plot .main-svg");
        const place = drawing?.closest(".js-plotly-plot")?.parentElement;
        if (!place || place.clientWidth === 0) return; // not drawn yet, or out of sight: the observers tell
        if (Math.abs(drawing.clientWidth - place.clientWidth) <= 2) {
          tries = 0;
        } else if (tries++ < 40) {
          // plotly may still be drawing and let this pass, so look again; each event puts its own work off by 0.1 s.
          window.dispatchEvent(new Event("resize"));
          check(500);
        }
      }, wait);
    };
    const sizes = new ResizeObserver(() => check());
    const drawings = new MutationObserver(() => check());
    // The page puts widgets into their places one after the other, some long after this one was made.
    const start = () => {
      if (!pane()) {
        frame = requestAnimationFrame(start);
        return;
      }
      sizes.observe(pane());
      drawings.observe(pane(), { childList: true, subtree: true });
      check();
    };
    start();
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
      sizes.disconnect();
      drawings.disconnect();
    };
  },
};
"""


_UNDRAWN = "The figure is drawn in JupyterLab, Notebook and Voila, not here."


class FitWidth(anywidget.AnyWidget):
    """Invisible; makes the plotly figures beside it as wide as their pane."""

    _esm = _FIT


@functools.cache
def _figure_class() -> type[Any]:
    """Return a subclass of plotly's figure widget that is sent complete, with a lock for changes."""
    import plotly.graph_objects as go

    class LiveFigure(go.FigureWidget):
        """A figure that another thread may change while the page answers an earlier change."""

        _esm = LOADER
        # The model with plotly's script; no reference, so that a figure is closed without it.
        _script = traitlets.Unicode().tag(sync=True)

        def __init__(self, figure: Any, config: dict[str, Any]) -> None:
            # First: the widget's own __init__ opens the connection to the page.
            # In `__dict__`, since plotly refuses to set public attributes that it does not know.
            self.__dict__.update(changes=threading.RLock(), is_complete=False)
            super().__init__(figure)
            # FigureWidget has no argument for plotly's own settings, only this synced trait.
            self.set_trait("_config", config)
            self.set_trait("_script", shared_script().model_id)
            self.__dict__["is_complete"] = True
            self.open()

        # plotly opens the connection first and sends traces and layout after it, one by one; a busy page draws the
        # figure before they arrive, and that drawing stays empty.
        def open(self) -> None:
            if self.__dict__["is_complete"]:
                super().open()

        # These two traits hold the figure at the time when it was opened; a page that is loaded later, or requests the
        # state again, must get the present figure.
        def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
            if self.__dict__["is_complete"] and (key is None or "_widget_data" in key):
                with self.changes:
                    data = [trace.to_plotly_json() for trace in self.data]
                    self._trait_values.update(_widget_data=data, _widget_layout=self.layout.to_plotly_json())
            return super().get_state(key, drop_defaults)

        # plotly sends a change by setting a trait to the message and back to None. While a state from the page is
        # being set, traitlets holds changes by any thread back, and notifies of the last value only: None.
        def set_state(self, sync_data: dict[str, Any]) -> None:
            with self.changes:
                super().set_state(sync_data)

    return LiveFigure


class Host:
    """What the host of this process can do.

    Attributes:
        draws_figures: Whether it takes widgets that are made after a cell has run; marimo does not.
    """

    draws_figures = True


def live_figure(figure: Any) -> Any:
    """Return a plotly figure as a widget; hold its lock `changes` to change it.

    Where the host draws no figures it is one of plotly's that nobody sees.
    """
    if not Host.draws_figures:
        figure.__dict__["changes"] = threading.RLock()
        return figure
    return _figure_class()(
        figure, {**QUIET_CONFIG, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}
    )


def fitted(figure_widget: Any) -> Any:
    """Return a box in which a figure of `live_figure` fills the width."""
    if not Host.draws_figures:
        return widgets.HTML(f'<div class="qdq-muted">{_UNDRAWN}</div>')
    box = widgets.VBox([figure_widget, FitWidth()])
    box.add_class("qdq-figure")
    return box
