"""The display of a bench in a notebook cell: widgets, and a picture for readers without a kernel."""

from __future__ import annotations

import contextlib
from typing import Any

from qdq_widgets.cells import note_display, shows_one_output
from qdq_widgets.figures.live import Host
from qdq_widgets.header import summary_texts
from qdq_widgets.mirror import Mirror
from qdq_widgets.picture import graph_picture
from qdq_widgets.targets import verdicts

_WITHOUT_WIDGETS = "QDQ Workbench: run this cell to use it. What it showed last is below."
# JupyterLab shows neither widgets nor SVG images of a notebook that it does not trust, only texts like this one.
_WITHOUT_PICTURE = "JupyterLab shows its picture in a notebook that it trusts: Trust Notebook in the command palette."


def display_bench(bench: Any) -> None:
    """Display a bench as the outputs of a cell: its widgets, and a picture that follows the work.

    The picture stays in the saved notebook: a reopened one, GitHub, nbconvert and nbviewer show it in place of the
    widgets. The style of a bench that is alive hides the picture behind it. Hosts that would show both get one output.
    Where the cell showed another bench before, the widgets of that one are closed.
    """
    from IPython.display import display

    widget = bench.view.widget._repr_mimebundle_()
    note_display(bench)
    bench.effects.begin()
    if shows_one_output():
        display({**widget, **_picture(bench)}, raw=True)  # type: ignore[no-untyped-call]
        return
    display({**widget, "text/plain": _WITHOUT_WIDGETS}, raw=True)  # type: ignore[no-untyped-call]
    view, follows = bench.view, bench.view.picture is not None
    view.picture = display(_picture(bench), raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def follow(event: str) -> None:
        """Draw the picture of the last display anew after every long task; a save is one."""
        if event == "job" and bench.jobs.current is None:
            with contextlib.suppress(Exception):  # a picture must not fail the task
                view.picture.update(_picture(bench), raw=True)

    if view.picture is not None and not follows:  # None outside of IPython
        view.ends.append(bench.subscribe(follow))


def marimo_bench(bench: Any) -> Any:
    """Return a bench for marimo, which shows anywidgets but no other Jupyter widgets: the panes are mirrors."""
    import marimo

    view = bench.view
    if view.mirrors is None:
        parts = (view.head, [view.side.widget], [view.work.widget, view.foot])
        view.mirrors = [Mirror([view.style, *roots]) for roots in parts]  # a style reaches no other anywidget there
        Host.draws_figures = False
        bench.effects.begin()
    head, side, work = view.mirrors
    return marimo.vstack([head, marimo.hstack([view.graph, side], widths=[1, 1], align="start"), work])


def _picture(bench: Any) -> dict[str, str]:
    explanation, unknown = verdicts(bench)
    known = ", ".join(summary_texts(bench)[1:])  # without the number of pairs, which the others have already
    picture = graph_picture(bench.plan, None if unknown else explanation, [known])
    return {"image/svg+xml": picture, "text/plain": f"{bench!r}\n{known}\n{_WITHOUT_PICTURE}"}
