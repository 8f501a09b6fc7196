"""The quantizers of single layers: changed step by step, undone, saved, and written as Python."""

import json

import keras
import pytest
from fuzz.own import OwnRange
from own_configs import FourBits
from small_benches import tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.graph_payload import plan_state
from qdq_widgets.panes.inspector import InspectorPane
from qdq_widgets.panes.spec import entry_text


def grid(bench, layer="conv", site="weight"):
    return next(p for p in bench.plan.placements if p.layer == layer and p.site == site).quantizer


def shown(bench, layer="conv"):
    """Return what the graph pane is told about a layer."""
    names = [node.name for node in bench.graph.nodes]
    return bench.view.graph.plan_state["states"][names.index(layer)]


def test_bits_of_weights_change_in_the_plan_the_graph_and_the_code(bench):
    usual = bench.plan
    step = bench.configure("conv", "weight", num_bits=4, quantizer="lsq")
    assert step.label == "configure conv: weight num_bits=4, quantizer=lsq"
    assert grid(bench).num_bits == 4
    assert shown(bench) == "1:1:0:w=4"
    assert [entry_text(entry) for entry in bench.spec.layers] == ["inputs + weights (weights: 4 bits, lsq)"]
    scope = {"model": bench.model}
    exec(bench.to_code(), scope)
    assert scope["plan"] == bench.plan
    assert "qdq.LayerQuantizeConfig(weight={'num_bits': 4, 'quantizer': 'lsq'})" in bench.to_code()
    bench.undo()
    assert bench.plan == usual
    assert shown(bench) == "1:1:0"


def test_settings_add_up_and_go_back_one_by_one(bench):
    bench.configure("conv", "weight", num_bits=4)
    bench.configure("conv", "weight", per_axis=False)
    bench.configure("conv", "input", num_bits=16, symmetric=False)
    assert (grid(bench).num_bits, grid(bench).axis) == (4, None)
    assert (grid(bench, site="input").num_bits, grid(bench, site="input").symmetric) == (16, False)
    assert shown(bench) == "1:1:0:i0=16,w=4"
    bench.configure("conv", "weight", num_bits=None)
    assert (grid(bench).num_bits, grid(bench).axis) == (8, None)
    bench.configure("conv", "input")
    bench.configure("conv", "weight")
    assert len(bench.spec) == 0
    with pytest.raises(BenchError, match="changes nothing"):
        bench.configure("conv", "weight")


def test_a_site_in_float_becomes_quantized_and_toggles_keep_the_settings(bench):
    bench.configure("conv", "output", num_bits=16)
    assert grid(bench, site="output").num_bits == 16
    bench.toggle("conv", "weight")
    bench.toggle("conv", "weight")
    assert grid(bench, site="output").num_bits == 16
    bench.apply_like("conv")
    assert [(entry.name, entry.is_keras_class) for entry in bench.spec.layers] == [("Conv2D", True)]
    assert grid(bench, "stem", "output").num_bits == 16
    # A layer that takes its settings from a class keeps the others when one is changed.
    bench.configure("stem", "output", symmetric=False)
    assert (grid(bench, "stem", "output").num_bits, grid(bench, "stem", "output").symmetric) == (16, False)
    assert grid(bench, "conv", "output").symmetric


def test_several_layers_in_one_step(bench):
    bench.configure(["stem", "conv", "head"], "weight", num_bits=4)
    assert {grid(bench, layer).num_bits for layer in ("stem", "conv", "head")} == {4}
    assert len(bench.history) == 2
    bench.configure(["relu", "conv"], "weight", num_bits=6)  # what has no weights is left out
    assert grid(bench).num_bits == 6
    with pytest.raises(BenchError, match="has no weights"):
        bench.configure(["relu", "add"], "weight", num_bits=6)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("conv", "bias"), {"num_bits": 4}, "site must be"),
        (([], "weight"), {"num_bits": 4}, "at least one layer"),
        (("relu", "weight"), {"num_bits": 4}, "has no weights"),
        (("image", "input"), {"num_bits": 4}, "reads no tensor"),
        (("conv", "weight"), {"num_bits": 1}, "2 to 16"),
        (("conv", "weight"), {"bits": 4}, "num_bits"),
        (("conv", "input"), {"per_axis": True}, "one scale per tensor"),
        (("conv", "weight"), {"quantizer": "lsqq"}, "lsq"),
    ],
)
def test_what_cannot_be_configured_says_why_and_changes_nothing(bench, arguments, settings, message):
    before = bench.plan
    with pytest.raises((BenchError, qdq.SpecError), match=message):
        bench.configure(*arguments, **settings)
    assert bench.plan is before
    assert len(bench.history) == 1


def test_settings_survive_the_folder_and_the_spec_file(bench, tmp_path):
    bench.configure("conv", "weight", num_bits=4)
    bench.save(tmp_path / "bench")
    other = Workbench.load(tmp_path / "bench")
    assert grid(other).num_bits == 4
    bench.spec.save(tmp_path / "spec.yaml")
    other.undo()
    other.set_spec(qdq.QuantizationSpec.load(tmp_path / "spec.yaml"))
    assert other.plan == bench.plan


def test_a_config_of_the_users_own_plans_and_is_left_alone():
    bench = Workbench(tiny_model())
    bench.add_entry("conv", quantize_config=FourBits())
    assert grid(bench).num_bits == 4
    with pytest.raises(BenchError, match="QuantizeConfig of your own"):
        bench.configure("conv", "weight", num_bits=8)
    pane = bench.view.pane(InspectorPane)
    bench.view.graph.select("conv")
    assert "QuantizeConfig of your own" in pane.quantizers._note.value
    assert "FourBits" in entry_text(bench.spec.layers[0])


def test_the_inspector_names_a_quantizer_of_the_users_own(bench):
    own = keras.saving.serialize_keras_object(OwnRange())
    bench.configure("conv", "weight", quantizer=own)
    assert bench.history.present.label == "configure conv: weight quantizer=OwnRange"
    bench.view.side.open(InspectorPane)
    pane = bench.view.pane(InspectorPane)
    bench.view.graph.select("conv")
    picker = pane.quantizers.pickers["weight", "quantizer"]
    assert (picker.label, picker.value) == ("OwnRange", own)
    assert pane.errors.message == ""
    picker.value = "lsq"
    assert grid(bench).num_bits == 8
    assert entry_text(bench.spec.layers[0]) == "inputs + weights (weights: lsq)"
    assert all(value != own for _, value in picker.options)


def test_settings_by_weight_of_a_class_are_no_config_of_the_users_own(bench):
    config = qdq.LayerQuantizeConfig(weight={"kernel": {"num_bits": 4}})
    bench.add_entry("Conv2D", is_keras_class=True, quantize_config=config)
    with pytest.raises(BenchError, match="Every weight of this layer has settings of its own"):
        bench.configure("conv", "weight", num_bits=8)
    bench.undo()
    bench.add_entry("Conv2D", is_keras_class=True, quantize_config=FourBits())
    with pytest.raises(BenchError, match="QuantizeConfig of your own"):
        bench.configure("conv", "weight", num_bits=8)


def test_the_inspectors_pickers_are_the_same_calls(bench):
    bench.view.side.open(InspectorPane)
    pane = bench.view.pane(InspectorPane)
    bench.view.graph.select("conv")
    pickers = pane.quantizers.pickers
    assert pickers["weight", "num_bits"].label == "8 bits (default)"
    assert pickers["weight", "per_axis"].label == "per channel (default)"
    pickers["weight", "num_bits"].value = 4
    assert bench.history.present.label == "configure conv: weight num_bits=4"
    assert pickers["weight", "num_bits"].label == "4 bits"
    assert "int4/axis 3, symmetric, narrow" in pane._details.value
    pickers["input", "symmetric"].value = False
    assert not grid(bench, site="input").symmetric
    bench.undo()
    assert pickers["input", "symmetric"].label == "symmetric (default)"
    pane.quantizers._resets["weight"].click()
    assert len(bench.spec) == 0
    assert pane.quantizers._resets["weight"].disabled
    bench.view.graph.select("relu")
    assert pane.quantizers.widget.layout.display == "none"


def test_a_matrix_takes_blocks_and_a_convolution_says_why_not(bench):
    bench.set_target("onnxruntime")
    bench.configure("head", "weight", num_bits=4, block_size=16)
    assert grid(bench, "head").label == "int4/blocks of 16 on axis 0"
    assert any(state.endswith("w=4,b=16") for state in plan_state(bench.plan)["states"])
    assert "blocks of 16" in entry_text(bench.spec.layers[0])
    bench.view.side.open(InspectorPane)
    pane = bench.view.pane(InspectorPane)
    bench.view.graph.select("head")
    picker = pane.quantizers.pickers["weight", "block_size"]
    assert [value for _, value in picker.options[1:]] == [16, 32, 64, 128, 256]
    picker.value = 32
    assert grid(bench, "head").block_size == 32
    with pytest.raises(qdq.errors.SpecError, match="cannot be quantized in blocks"):
        bench.configure("conv", "weight", block_size=32)
    assert grid(bench, "head").block_size == 32


def test_the_widths_of_a_shared_pair_reach_its_readers():
    image = keras.Input((4,), name="image")
    model = keras.Model(image, [keras.layers.Dense(2, name=name)(image) for name in ("a", "b")])
    spec = qdq.QuantizationSpec()
    spec.add("image", quantize_output=True, quantize_config=qdq.LayerQuantizeConfig(output={"num_bits": 16}))
    states = plan_state(qdq.plan_placement(model, quantization_spec=spec))["states"]
    assert [state.partition(":1:0:")[2] or state for state in states] == [":0:1:o=16", "i0=16", "i0=16"]
    assert json.dumps(states)
