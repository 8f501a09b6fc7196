"""The display of a bench in a notebook cell: widgets, and a picture for readers without a kernel."""

from __future__ import annotations

from typing import Any

from qdq_widgets.header import summary_texts
from qdq_widgets.picture import graph_picture
from qdq_widgets.targets import verdicts


def display_bench(bench: Any) -> None:
    """Display a bench as the output of a cell.

    The picture stays in the saved notebook, with the scores of this moment: GitHub, nbconvert and nbviewer show it in
    place of the widgets.
    """
    from IPython.display import display

    explanation, unknown = verdicts(bench)
    lines = [", ".join(summary_texts(bench)[1:])]  # without the number of pairs, which the picture has already
    picture = graph_picture(bench.plan, None if unknown else explanation, lines)
    forms = {**bench.view.widget._repr_mimebundle_(), "image/svg+xml": picture}
    display(forms, raw=True)  # type: ignore[no-untyped-call]
