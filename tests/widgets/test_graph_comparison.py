"""Two graphs side by side: which layers differ, what became of each in the file and in ONNX Runtime, the way there."""

import dataclasses

import keras
import pytest
from keras import layers
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import BenchError, GraphComparison, Workbench
from qdq_widgets.file_sides import runtime_side
from qdq_widgets.panes.export import ExportPane
from qdq_widgets.panes.variants import VariantsPane
from qdq_widgets.side_pairs import make_side


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A bench with a variant that has one convolution in float, and a file of the present plan."""
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    bench.toggle("conv", "weight")
    bench.keep_variant("float conv")
    bench.undo()
    bench.calibrate()
    bench.export(tmp_path_factory.mktemp("compared") / "tiny.onnx", verify=False)
    return bench


def node(comparison, name):
    return comparison.graph["names"].index(name)


def card(comparison, side, name):
    return getattr(comparison, side)["look"]["cards"][str(node(comparison, name))]


def test_plans_are_compared_by_pairs_grids_and_what_the_target_does(exported):
    both = exported.compare_graphs("float conv")
    found = {(sign, text) for _, sign, text in both.differences}
    assert ("+", "weights conv/kernel, int8") in {(sign, text[:25]) for sign, text in found}
    assert any(sign == "8" and "conv in INT8, on the left in float" in text for sign, text in found)
    assert node(both, "conv") in both.difference["differs"]
    assert node(both, "pool") not in both.difference["differs"]
    assert (both.left["title"], both.right["title"]) == ("Variant float conv", "Plan")

    back = exported.compare_graphs("plan", "float conv")
    assert [row[1] for row in back.differences if "weights" in row[2]] == ["-"]
    assert back.difference["only"] == both.difference["only"][::-1]

    same = exported.compare_graphs("plan", "plan")
    assert (same.differences, same.summary) == ([], "")


def test_another_grid_is_a_difference_of_its_layer():
    plan = qdq.plan_placement(tiny_model(), target="onnxruntime")
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_config=qdq.spec.LayerQuantizeConfig(weight={"num_bits": 4}))
    fewer = qdq.plan_placement(plan.graph, quantization_spec=spec, target="onnxruntime")
    rows = GraphComparison(plan, fewer).differences
    assert [(name, sign) for name, sign, _ in rows if sign == "~"] == [("conv", "~")]


def test_the_file_says_what_was_folded_and_which_pairs_it_has(exported):
    both = exported.compare_graphs("plan", "file")
    assert card(both, "right", "norm") == "folded into conv"
    assert card(both, "right", "head") == "MatMul + Softmax"
    assert node(both, "norm") in both.right["look"]["faded"]
    assert ("norm", "→", "norm: folded into conv") in both.differences
    assert both.difference["differs"] == []
    assert set(both.right["plan_state"]["pairs"]) == set(both.left["plan_state"]["pairs"])
    assert all("scale 0." in grids[0] for grids in both.right["plan_state"]["pairs"].values())


def test_a_pair_that_the_file_lacks_is_a_difference(exported):
    held = qdq.files.read_layers(exported.exports[0].path)
    lost = dataclasses.replace(held, pairs={name: grid for name, grid in held.pairs.items() if name != "relu"})
    both = GraphComparison(exported.plan, lost)
    assert ("relu", "-", "pair behind relu") in both.differences
    assert both.difference["only"] == [[node(both, "relu")], []]
    assert str(node(both, "relu")) not in both.right["plan_state"]["pairs"]

    faulty = dataclasses.replace(held, problems=("of 'conv' the file holds nothing, expected 1 Conv",))
    assert next(row[:2] for row in GraphComparison(held.plan, faulty).differences) == ("conv", "!")


def test_the_runtime_says_which_kernel_computes_a_layer(exported):
    both = exported.compare_graphs("plan", "onnxruntime")
    assert card(both, "right", "stem") == "QLinearConv"
    assert card(both, "right", "relu") == "in QLinearConv of stem"
    assert card(both, "right", "norm") == "folded into conv"
    groups = [[both.graph["names"][n] for n in group] for group in both.right["look"]["groups"]]
    assert ["stem", "relu"] in groups
    assert ["conv", "norm"] in groups
    assert both.left["look"]["groups"] == both.right["look"]["groups"]
    assert both.right["look"]["pills"][str(node(both, "image"))] == "Q"
    states = both.right["plan_state"]["states"]
    assert states[node(both, "add")] == "11:0:0"
    assert both.right["colors"]["mode"] == "precision"
    assert "kernels" in both.right["note"]


def test_a_layer_that_the_runtime_computes_otherwise_differs(exported):
    graph = qdq.profiling.read_kernels(exported.exports[0].path)
    kernels = [
        dataclasses.replace(kernel, on_integers=False, operator="Conv") if kernel.layers[:1] == ("conv",) else kernel
        for kernel in graph.kernels
    ]
    both = GraphComparison(exported.plan, dataclasses.replace(graph, kernels=tuple(kernels)))
    assert ("conv", "F", "conv in float, on the left in INT8") in both.differences
    states = both.right["plan_state"]["states"]
    assert states[node(both, "conv")].startswith("0")
    assert states[node(both, "add")].startswith("01")  # from the float convolution, from the stem


def test_measured_times_are_shown_with_the_kernels(exported):
    graph = qdq.profiling.read_kernels(exported.exports[0].path)
    layers_ = tuple(qdq.profiling.LayerLatency(name, ms, 0.5, ("X",)) for name, ms in (("stem", 0.5), ("conv", 0.25)))
    report = qdq.results.LatencyReport(graph.path, layers_, (), 1.0, {50: 1.0}, 3, 1, None, "1", 0.0)
    side = runtime_side(graph, report)
    stem, conv = (str([n.name for n in side.graph.nodes].index(name)) for name in ("stem", "conv"))
    assert (side.look["labels"][stem], side.look["bars"]) == ("0.5 ms", {stem: 1.0, conv: 0.5})
    assert side.note.endswith("1 ms measured")


def test_what_cannot_be_compared_is_refused(exported, tmp_path):
    with pytest.raises(BenchError, match="float conv"):
        exported.compare_graphs("nothing")
    fresh = Workbench(tiny_model(), target="onnxruntime")
    with pytest.raises(BenchError, match="Export one first"):
        fresh.compare_graphs("plan", "file")
    image = keras.Input((4,), name="image")
    other = qdq.plan_placement(keras.Model(image, layers.Dense(2, name="other")(image)))
    with pytest.raises(qdq.SpecError, match="different layers"):
        GraphComparison(exported.plan, other)
    with pytest.raises(qdq.SpecError, match="read_layers"):
        make_side("plan")
    with pytest.raises(qdq.QDQError, match="gone"):
        exported.compare_graphs("plan", tmp_path / "gone.onnx")
    assert exported.jobs.current is None


def test_the_file_is_read_again_only_after_it_was_written_again(exported, monkeypatch):
    exported.compare_graphs("plan", "file")
    monkeypatch.setattr(qdq.files, "read_layers", lambda path: pytest.fail(f"{path} was read again"))
    exported.compare_graphs("file", "plan")


@pytest.fixture
def area(exported):
    yield exported.view.area
    exported.view.area.leave()
    while exported.history.can_undo:
        exported.undo()


def test_the_panes_lead_to_a_comparison_and_its_button_leads_back(exported, area):
    pane = exported.view.pane(VariantsPane)
    pane.refresh()
    pane.beside.click()
    assert area.comparison.left["title"] == "Variant float conv"
    assert exported.view.graph.layout.display == "none"

    pane = exported.view.pane(ExportPane)
    pane.refresh()
    pane.beside_runtime.click()
    exported.jobs.wait()
    assert area.comparison.right["title"].startswith("ONNX Runtime")
    assert len(area.widget.children) == 2

    area.comparison._on_message(None, {"type": "leave"}, [])
    assert area.comparison is None
    assert area.widget.children == (exported.view.graph,)
    assert exported.view.graph.layout.display == ""


def test_one_selection_for_graph_comparison_and_inspector(exported, area):
    exported.view.graph.select(["stem"])
    exported.view.compare("plan", "float conv")
    assert area.comparison.selection == ("stem",)
    area.comparison.selection = ("head",)
    assert exported.view.graph.selection == ("head",)
    exported.view.graph.select(["conv", "norm"])
    assert area.comparison.selection == ("conv", "norm")


def test_the_comparison_follows_the_plan_and_the_variants(exported, area):
    exported.view.compare("plan", "float conv")
    assert any("conv/kernel" in text for _, _, text in area.comparison.differences)
    exported.toggle("conv", "weight")
    assert area.comparison.differences == []
    exported.view.compare("plan", "onnxruntime")
    assert any(name == "conv" for name, *_ in area.comparison.differences)
    exported.undo()
    assert area.comparison.difference["differs"] == []


def test_a_new_file_is_shown_and_a_file_that_is_gone_ends_the_comparison(exported, area, tmp_path):
    exported.view.compare("file", "plan")
    exported.export(tmp_path / "newer.onnx", verify=False)
    assert area.comparison.left["title"] == "newer.onnx"
    assert exported.jobs.current is None
    (tmp_path / "newer.onnx").unlink()
    first = exported.exports[0].path
    first.rename(tmp_path / "hidden.onnx")
    try:
        exported.toggle("conv", "weight")
        assert area.comparison is None
        exported.undo()
    finally:
        (tmp_path / "hidden.onnx").rename(first)
