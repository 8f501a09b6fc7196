"""What the inspector says of the values of one layer: scale and zero point, where it is quantized, its histograms."""

from types import SimpleNamespace

import keras
import pytest
import traitlets
from small_benches import tiny_data

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.grid_values import grid_values, known_ranges
from qdq_widgets.histograms import Histogram
from qdq_widgets.layer_values import LayerValues, histogram_svg
from qdq_widgets.panes.inspector import InspectorPane
from qdq_widgets.quantized_after import quantized_after
from qdq_widgets.room import Room


def test_scale_zero_point_and_range_are_those_of_the_file(calibrated):
    pairs = calibrated.q_model.activation_ranges()
    found = grid_values(calibrated.plan, known_ranges(calibrated))
    placed = [tensor for tensor in calibrated.plan.tensors if tensor.kind == "activation"]
    assert set(found) == {tensor.tensor for tensor in placed}
    for tensor in placed:
        grid = qdq.numerics.qparams_from_range(*pairs[tensor.name], tensor.quantizer)
        assert f"scale {float(grid.scale):.3g}, zero point {int(grid.zero_point)}, range " in found[tensor.tensor][0]


def test_ranges_of_a_plan_without_a_model_are_those_that_its_model_gets(calibrated):
    calibrated.toggle("conv", "weight")
    try:
        before = grid_values(calibrated.plan, known_ranges(calibrated))
        assert calibrated.snapshot.model is None
        model = calibrated.q_model
        assert calibrated.snapshot.model is model
        assert grid_values(calibrated.plan, known_ranges(calibrated)) == before
    finally:
        calibrated.undo()


def test_tensors_of_one_scale_have_the_range_that_holds_them_all():
    image = keras.Input((6, 6, 2), name="image")
    branches = [keras.layers.Conv2D(2, 1, name=name)(image) for name in ("left", "right")]
    total = keras.layers.Concatenate(name="join")(branches)
    bench = Workbench(
        keras.Model(image, keras.layers.Conv2D(2, 1, name="last")(total)),
        calibration_data=tiny_data()[0],
        target="litert",
    )
    bench.calibrate()
    groups = [tensor for tensor in bench.plan.tensors if tensor.scale_group is not None]
    bench.toggle("last", "weight")
    assert groups
    assert bench.snapshot.model is None
    known = known_ranges(bench)
    found = bench.q_model.activation_ranges()
    assert {name: known[name] for name in found} == found


def test_nothing_is_told_before_the_calibration(bench):
    assert known_ranges(bench) == {}
    assert bench.view.graph.ranges == {}


def test_the_graph_is_told_and_follows_the_plan(model):
    bench = Workbench(model, calibration_data=tiny_data()[0])
    view = bench.view
    bench.calibrate()
    names = view.graph.graph["names"]
    assert {names[int(tensor)] for tensor in view.graph.ranges} == set(grid_values(bench.plan, known_ranges(bench)))
    assert view.graph.ranges[str(names.index("relu"))][0].startswith("scale ")
    bench.view.graph.select("conv")
    assert "scale " in view.pane(InspectorPane)._details.value
    count = len(view.graph.ranges)
    bench.toggle("head", "input")
    assert len(view.graph.ranges) == count - 1


def test_an_output_says_behind_which_layer_it_is_quantized(bench):
    node = bench.graph.node
    assert quantized_after(bench.plan, node("stem")) == "relu"
    assert quantized_after(bench.plan, node("relu")) is None
    assert quantized_after(bench.plan, node("head")) is None
    pane = bench.view.pane(InspectorPane)
    bench.select("stem")
    assert "quantized after relu" in pane.switches.children[-1].children[1].value
    bench.toggle("conv", "input")
    bench.set_mode("full")
    bench.add_entry("*", match="glob", quantize_input=False)
    assert quantized_after(bench.plan, node("stem")) is None


def test_the_values_of_the_selected_layer_are_drawn_while_the_switch_is_on(model):
    bench = Workbench(model, calibration_data=tiny_data()[0])
    bench.calibrate()
    pane = bench.view.pane(InspectorPane)
    bench.select("conv")
    assert pane.values.drawn.value == ""
    pane.values.switch.value = True
    assert bench.jobs.wait(60)
    assert pane.values.drawn.value.count("<svg") == 4  # input, kernel, bias, output
    assert "conv/kernel: int8" in pane.values.drawn.value
    bench.select("pool")
    assert bench.jobs.wait(60)
    drawn = pane.values.drawn.value
    assert "pool: " in drawn
    bench.select([])
    assert pane.values.widget.layout.display == "none"
    bench.select("pool")
    assert pane.values.drawn.value == drawn  # counted once
    pane.values.switch.value = False
    assert pane.values.drawn.value == ""


def test_counts_that_end_after_the_switch_is_off_are_not_drawn():
    histogram = Histogram("t", (1, 0, 1000), (0.0, 1.0, 2.0, 3.0), 0.0, 3.0, 0.25, (1.0, 4.0), "int8")
    values = LayerValues(SimpleNamespace(histograms=lambda names: (histogram,)), None)
    values._count(None, ["t"], "key")
    assert values.drawn.value == ""


def test_the_picture_shows_every_bin_and_the_grid():
    histogram = Histogram("<t>", (1, 0, 1000), (0.0, 1.0, 2.0, 3.0), 0.0, 3.0, 0.25, (1.0, 4.0), "int8")
    text = histogram_svg(histogram)
    assert text.count("<rect") == 3  # two bins that hold values, and the grid
    assert 'class="qdq-grid" x="120.0" y="68" width="240.0"' in text
    assert "25 % saturate" in text
    assert "&lt;t&gt;: int8, grid 1 to 4" in text
    assert "<t>" not in text


@pytest.mark.parametrize(("name", "value"), [("split", 0.9), ("upper", 0.1)])
def test_a_share_leaves_room_for_both_sides(name, value):
    room = Room()
    with pytest.raises(traitlets.TraitError, match=name):
        setattr(room, name, value)
    room.full_page = True
    assert 0.15 <= getattr(room, name) <= 0.85
