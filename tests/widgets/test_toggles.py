"""A click on a badge: entries by name appear, change, and vanish when nothing needs them."""

import keras
import pytest
from own_configs import FourBits

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.state import BenchState


def entries(bench):
    return [
        (e.name, e.quantize_input, e.quantize_weight, e.quantization_index, e.quantize_output)
        for e in bench.spec.layers
    ]


def test_a_toggle_leaves_one_entry_with_the_whole_state_of_the_layer(bench):
    bench.toggle("conv", "input")
    assert entries(bench) == [("conv", False, True, None, False)]
    assert not bench.plan.for_layer("conv").quantize_input
    assert bench.plan.for_layer("conv").author == "spec[0]"


def test_the_graph_gets_a_click_before_all_else_and_its_colors_behind_the_texts(bench):
    view, got = bench.view, []
    view.graph.send = lambda message, *_: got.append(message["type"])
    for widget, trait in ((view.graph, "colors"), (view.summary, "value"), (view.effect, "value")):
        widget.observe(lambda change: got.append((change["owner"], change["name"])), trait)
    bench.toggle("conv", "weight")
    assert got == ["plan", (view.summary, "value"), (view.graph, "colors"), (view.effect, "value")]


def test_toggling_twice_gives_back_the_specification_that_was_there(bench):
    before = bench.plan
    bench.toggle("conv", "weight")
    bench.toggle("conv", "weight")
    assert entries(bench) == []
    assert not before.diff(bench.plan)


PLAIN = qdq.LayerQuantizeConfig(weight={"num_bits": 4})


@pytest.mark.parametrize(
    ("name", "how", "config", "other"),
    [
        ("Conv2D", {"is_keras_class": True}, PLAIN, 4),
        ("Conv2D", {"is_keras_class": True}, FourBits(), 4),
        ("*", {"match": "glob"}, PLAIN, 4),
        ("conv", {}, PLAIN, 8),
        ("conv", {}, FourBits(), 8),
    ],
)
def test_a_toggle_leaves_the_settings_of_other_sites(bench, name, how, config, other):
    """Also those that an entry for several layers gives."""
    bench.add_entry(name, quantize_config=config, **how)
    before, spec = bench.plan, bench.spec
    bench.toggle("conv", "input")
    assert not bench.plan.for_layer("conv").quantize_input
    assert weight_bits(bench, "conv") == 4
    bench.apply_like("conv", ["stem"])
    assert weight_bits(bench, "stem") == other
    bench.undo()
    bench.toggle("conv", "input")
    assert not before.diff(bench.plan)
    assert bench.spec == spec


def weight_bits(bench, layer):
    (bits,) = {p.quantizer.num_bits for p in bench.plan.placements if p.layer == layer and p.site == "weight"}
    return bits


def test_going_back_and_forth_plans_each_state_once(bench):
    bench.toggle("conv", "weight")
    first = bench.plan
    bench.toggle("conv", "weight")
    bench.toggle("conv", "weight")
    assert bench.plan is first


def test_further_toggles_change_the_same_entry(bench):
    bench.toggle("conv", "input")
    bench.toggle("conv", "weight")
    bench.toggle("conv", "output")
    assert entries(bench) == [("conv", False, False, None, True)]


def test_one_input_of_several(bench):
    bench.toggle("add", "input", 1)
    assert entries(bench) == [("add", True, False, [1], False)]
    bench.toggle("add", "input", 0)
    assert entries(bench) == [("add", True, False, None, False)]
    bench.toggle("add", "input")
    assert entries(bench) == []


@pytest.fixture
def recurrent():
    """A bench on a recurrent layer whose initial states are inputs, and on an attention with a mask."""
    values, mask = keras.Input((5, 4), name="values"), keras.Input((5, 5), name="allowed")
    states = [keras.Input((3,), name=name) for name in ("hidden", "carry")]
    attention = keras.layers.MultiHeadAttention(1, 2, name="attention")(values, values, attention_mask=mask)
    last = keras.layers.LSTM(3, name="lstm")(attention, initial_state=states)
    return Workbench(keras.Model([values, mask, *states], last), target="onnxruntime")


@pytest.mark.parametrize("layer", ["lstm", "attention"])
def test_masks_and_initial_states_are_no_inputs_to_switch(recurrent, layer):
    usual = recurrent.plan
    assert recurrent.plan.for_layer(layer).quantize_input
    recurrent.toggle(layer, "input")
    assert not recurrent.plan.for_layer(layer).quantize_input
    recurrent.toggle(layer, "input")
    assert not usual.diff(recurrent.plan)
    assert entries(recurrent) == []
    recurrent.toggle(layer, "input", on=False)
    recurrent.configure(layer, "input", num_bits=16)
    assert recurrent.plan.decisions[layer].input_indices == usual.decisions[layer].input_indices


def test_an_initial_state_can_be_switched_by_its_number_as_the_last_of_all_too(recurrent):
    recurrent.toggle("lstm", "input", 1)
    recurrent.toggle("lstm", "input", 2)
    assert recurrent.plan.decisions["lstm"].input_indices == (0, 1, 2)
    assert entries(recurrent) == [("lstm", True, True, [0, 1, 2], False)]
    recurrent.toggle("lstm", "input")
    assert recurrent.plan.decisions["lstm"].input_indices == ()


def test_plans_of_another_thread_while_one_is_looked_up(bench):
    class Meanwhile(BenchState):
        """Stands for a second thread: comparing it plans another state."""

        def __eq__(self, other):
            bench.planner.plan(BenchState(qdq.QuantizationSpec(), target="onnxruntime"))
            return super().__eq__(other)

        __hash__ = None

    bench.toggle("conv", "weight")
    assert bench.planner.plan(Meanwhile(qdq.QuantizationSpec())).tensors


def test_an_entry_that_overrules_a_case_stays(bench):
    bench.apply_case(qdq.ResNetV1QDQCase())
    assert bench.plan.for_layer("add").input_indices == (1,)
    bench.toggle("add", "input", 1)
    assert entries(bench) == [("add", False, False, None, False)]
    assert bench.plan.for_layer("add").input_indices == ()
    bench.toggle("add", "input", 1)
    assert entries(bench) == []
    assert bench.plan.for_layer("add").author == "ResNetV1QDQCase"


def test_several_layers_in_one_step(bench):
    bench.toggle(["stem", "conv"], "weight", on=False)
    assert {name for name, *_ in entries(bench)} == {"stem", "conv"}
    assert len(bench.history) == 2
    bench.toggle(["stem", "conv"], "weight", on=True)
    assert entries(bench) == []


def test_a_pair_that_the_target_needs_cannot_be_taken_alone(bench):
    bench.set_target("onnxruntime")
    assert bench.plan.for_layer("stem").quantize_input
    made_by_target = [p for p in bench.plan.placements if p.site == "output" and p.author == "target"]
    with_inputs = next(p for p in made_by_target if bench.plan.decisions[p.node].input_indices)
    with pytest.raises(BenchError, match="needs this pair"):
        bench.toggle(with_inputs.layer, "output", on=False)
    assert bench.history.present.label == "target onnxruntime"


@pytest.mark.parametrize(("layer", "site"), [("conv", "input"), ("relu", "output")])
def test_what_the_pair_of_the_target_serves_says_who_needs_it_and_that_helps(bench, layer, site):
    bench.set_target("onnxruntime")
    before = bench.plan
    assert bench.plan.output_placement("relu").author == "target"
    with pytest.raises(BenchError, match=r"Conv2D 'stem' on integers only when .*; leave that layer in float"):
        bench.toggle(layer, site, on=False)
    assert bench.plan is before
    bench.toggle("stem", "input", on=False)
    bench.toggle("stem", "weight", on=False)
    assert bench.plan.output_placement("relu") is None


def test_an_input_that_a_shared_pair_serves_says_where_to_switch_it(bench):
    bench.toggle("relu", "output", on=True)
    before = bench.plan
    with pytest.raises(BenchError, match=r"the output of 'relu', by spec\[0\]"):
        bench.toggle("conv", "input")
    assert bench.plan is before


@pytest.mark.parametrize(
    ("layer", "site", "index", "message"),
    [
        ("relu", "weight", None, "has no weights"),
        ("norm", "weight", None, "folded"),
        ("image", "input", None, "reads no tensor"),
        ("add", "input", 2, "has 2 inputs"),
        ("conv", "weight", 0, "belongs to site"),
        ("conv", "bias", None, "site must be"),
    ],
)
def test_what_cannot_be_switched_says_why_and_changes_nothing(bench, layer, site, index, message):
    before = bench.plan
    with pytest.raises(BenchError, match=message):
        bench.toggle(layer, site, index)
    assert bench.plan is before
    assert len(bench.history) == 1


def test_an_unknown_layer_shows_the_nearest_names(bench):
    with pytest.raises(qdq.SpecError, match="Did you mean 'conv'"):
        bench.toggle("convv", "input")


def test_like_this_one_becomes_one_entry_by_class(bench):
    bench.toggle("conv", "input")
    bench.apply_like("conv")
    assert [(e.name, e.is_keras_class, e.quantize_input) for e in bench.spec.layers] == [("Conv2D", True, False)]
    assert not bench.plan.for_layer("stem").quantize_input


def test_like_this_one_for_chosen_layers(bench):
    bench.toggle("conv", "input")
    bench.apply_like("conv", ["stem"])
    assert {name for name, *_ in entries(bench)} == {"conv", "stem"}


def test_partial_mode_keeps_the_last_entry(bench):
    bench.add_entry("conv")
    bench.set_mode("partial")
    with pytest.raises(qdq.SpecError, match="Nothing is left to quantize"):
        bench.toggle(["conv"], "input") and bench.toggle(["conv"], "weight")
    assert bench.plan.for_layer("conv").quantize_weight


def test_a_model_input_can_have_one_pair_for_all_its_readers(bench):
    bench.toggle("image", "output")
    assert bench.plan.output_placement("image") is not None
    bench.toggle("image", "output")
    assert len(bench.spec) == 0
