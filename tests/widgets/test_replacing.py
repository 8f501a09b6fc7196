"""Panes close the widgets that they replace: an open one takes memory in the kernel and in the page for good.

What a click changes keeps its widgets: JupyterLab does not free closed ones."""

import plotly.graph_objects as go
import pytest
from ipywidgets import HTML, Button, HBox, VBox
from ipywidgets.widgets.widget import _instances

from qdq_widgets.figures.live import fitted, live_figure
from qdq_widgets.panes.cases import CasesPane
from qdq_widgets.panes.inspector import InspectorPane
from qdq_widgets.panes.runtime import RuntimePane
from qdq_widgets.panes.spec import SpecPane
from qdq_widgets.replacing import replace_children
from qdq_workbench import MaxPoolQDQCase


def test_what_leaves_a_box_is_closed_with_all_that_it_holds():
    box, stays = VBox(), Button()
    before = set(_instances)
    replace_children(box, [stays, HBox([HTML("a"), Button(description="b")])])
    replace_children(box, [stays, fitted(live_figure(go.Figure()))])
    assert len(set(_instances) - before) > 2
    replace_children(box, [stays])
    assert set(_instances) == before
    assert stays.comm is not None
    assert box.children == (stays,)


@pytest.mark.parametrize("kind", [InspectorPane, SpecPane, CasesPane, RuntimePane])
def test_a_pane_that_is_drawn_again_keeps_its_widgets(bench, kind):
    tabs = bench.view.side
    tabs.open(kind)
    there = []
    for _ in range(3):
        for layers in (["conv"], ["add"], ["conv", "head"], []):
            bench.select(layers)
        bench.toggle("conv", "input")
        bench.toggle("conv", "input")
        bench.apply_case(MaxPoolQDQCase())
        bench.remove_case("MaxPoolQDQCase")
        there.append(set(_instances))
    assert there[1] == there[2]


def test_a_calibration_replaces_the_figure_of_the_one_before(bench):
    bench.view.work.widget.selected_index = next(
        index for index, pane in enumerate(bench.view.work.panes) if pane.title == "Calibration"
    )
    counts = []
    for _ in range(3):
        bench.calibrate(steps=1)
        counts.append(len(_instances))
    assert counts[1] == counts[2]


def test_rows_stay_in_their_box(bench):
    bench.view.side.open(SpecPane)
    pane = bench.view.pane(SpecPane)
    bench.toggle("conv", "input")
    bench.toggle("stem", "weight")
    first, second = pane.rows.shown
    bench.remove_entry(0)
    assert pane.rows.shown == (first,)
    assert second.layout.display == "none"
    assert "stem" in first.children[1].value
    bench.undo()
    assert pane.rows.shown == (first, second)
    assert second.layout.display == ""
    second.children[0].click()
    assert [entry.name for entry in bench.spec.layers] == ["conv"]
