"""Quantizer settings in plans: grids per placement, several pairs on one tensor, conflicts; hand-built graphs only."""

import dataclasses
import json

import pytest
from mock_graphs import GraphMaker, chain

from qdq_workbench import LayerQuantizeConfig, QuantizationSpec, QuantizerSpec, plan_placement
from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import Weight
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.planning import retarget_plan
from qdq_workbench.spec.quantizer_method import QuantizerMethod


def spec_of(**layers):
    spec = QuantizationSpec()
    for name, arguments in layers.items():
        settings = {key: arguments.pop(key) for key in ("weight", "activation", "output") if key in arguments}
        spec.add(name, quantize_config=LayerQuantizeConfig(**settings), **arguments)
    return spec


def branches():
    """One convolution read by two others."""
    maker = GraphMaker("x")
    stem = maker.add("Conv2D", "stem", "x")
    return maker.graph(maker.add("Conv2D", "left", stem), maker.add("Conv2D", "right", stem))


def pairs(plan):
    return {tensor.name: tensor.quantizer.label for tensor in plan.tensors if tensor.kind == "activation"}


def grid(plan, name):
    return next(tensor for tensor in plan.tensors if tensor.name == name)


def test_settings_replace_only_what_they_name():
    plan = plan_placement(branches(), quantization_spec=spec_of(left={"weight": {"num_bits": 4}}))
    assert grid(plan, "left/kernel").quantizer == QuantizerSpec(4, narrow_range=True, axis=3)
    assert grid(plan, "right/kernel").quantizer == QuantizerSpec(8, narrow_range=True, axis=3)
    whole = {"num_bits": 5, "signed": False, "symmetric": False, "narrow_range": False, "per_axis": False}
    plan = plan_placement(branches(), quantization_spec=spec_of(left={"weight": whole}))
    assert grid(plan, "left/kernel").quantizer == QuantizerSpec(5, signed=False, symmetric=False)


def test_readers_with_different_settings_have_pairs_of_their_own():
    spec = spec_of(left={"activation": {"num_bits": 4}}, right={"activation": {"quantizer": "lsq"}})
    plan = plan_placement(branches(), quantization_spec=spec)
    assert pairs(plan) == {"x": "int8", "stem": "int4", "stem@2": "int8"}
    assert grid(plan, "stem@2").method == QuantizerMethod("lsq")
    assert grid(plan, "stem@2").tensor == "stem"
    assert plan.pair_of(plan.input_placement("right", 0)).name == "stem@2"
    assert plan.range_owners == {"x": "x", "stem": "stem", "stem@2": "stem@2"}
    both = spec_of(left={"activation": {"num_bits": 4}}, right={"activation": {"num_bits": 4}})
    same = plan_placement(branches(), quantization_spec=both)
    assert pairs(same) == {"x": "int8", "stem": "int4"}


def test_a_tensor_called_like_a_further_pair_keeps_its_name():
    maker = GraphMaker("x")
    stem = maker.add("Conv2D", "stem", "x")
    odd = maker.add("ReLU", "stem@2", maker.add("Conv2D", "right", stem))
    graph = maker.graph(maker.add("Conv2D", "left", stem), odd)
    plan = plan_placement(graph, quantization_spec=spec_of(left={"activation": {"num_bits": 4}}))
    assert "stem@3" in pairs(plan)
    assert "stem@2" not in pairs(plan)


def test_readers_without_settings_follow_those_of_the_output():
    spec = spec_of(stem={"output": {"num_bits": 6}, "quantize_output": True})
    assert pairs(plan_placement(branches(), quantization_spec=spec)) == {"x": "int8", "stem": "int6"}
    spec = spec_of(stem={"output": {"num_bits": 6}, "quantize_output": True}, left={"activation": {"num_bits": 4}})
    assert pairs(plan_placement(branches(), quantization_spec=spec)) == {"x": "int8", "stem": "int6", "stem@2": "int4"}


def test_an_output_without_settings_follows_its_readers():
    both = {"left": {"activation": {"num_bits": 4}}, "right": {"activation": {"num_bits": 4}}}
    spec = spec_of(stem={"weight": {"num_bits": 8}, "quantize_output": True}, **both)
    assert pairs(plan_placement(branches(), quantization_spec=spec)) == {"x": "int8", "stem": "int4"}


def test_an_output_that_nobody_would_read_is_refused():
    spec = spec_of(
        stem={"output": {"num_bits": 6}, "quantize_output": True},
        left={"activation": {"num_bits": 4}},
        right={"activation": {"num_bits": 5}},
    )
    with pytest.raises(SpecError, match="nobody would read that pair"):
        plan_placement(branches(), quantization_spec=spec)


def test_pairs_that_a_target_adds_are_those_of_the_readers_or_none():
    spec = spec_of(left={"activation": {"num_bits": 4}}, right={"activation": {"num_bits": 4}})
    plan = plan_placement(branches(), quantization_spec=spec, target="onnxruntime")
    assert pairs(plan)["stem"] == "uint4"
    assert plan.output_placement("stem").author == "target"
    spec = spec_of(left={"activation": {"num_bits": 4}}, right={"activation": {"num_bits": 5}})
    plan = plan_placement(branches(), quantization_spec=spec, target="onnxruntime")
    assert plan.output_placement("stem") is None


def test_settings_survive_json_and_another_target():
    spec = spec_of(left={"weight": {"num_bits": 4, "quantizer": "lsq"}, "activation": {"num_bits": 4}})
    plan = plan_placement(branches(), quantization_spec=spec)
    again = PlacementPlan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again.placements == plan.placements
    assert again.decisions == plan.decisions
    other = retarget_plan(again, "onnxruntime")
    assert grid(other, "left/kernel").method == QuantizerMethod("lsq")
    assert {pairs(other)["stem"], pairs(other)["stem@2"]} == {"uint8", "uint4"}
    assert other.pair_of(other.input_placement("left", 0)).quantizer.num_bits == 4
    assert "lsq" in plan.summary()


def test_a_change_of_the_method_is_a_difference():
    before = plan_placement(branches(), quantization_spec=spec_of(left={"weight": {"num_bits": 8}}))
    after = plan_placement(branches(), quantization_spec=spec_of(left={"weight": {"quantizer": "lsq"}}))
    assert [new.tensor for _, new in before.diff(after).changed] == ["left/kernel"]


def test_a_difference_is_told_line_by_line():
    model = chain(("Conv2D", "conv"), ("BatchNormalization", "norm"))
    before = plan_placement(model)
    spec = QuantizationSpec()
    spec.add("conv", quantize_weight=False)
    spec.add("norm")
    assert before.diff(plan_placement(model, quantization_spec=spec)).summary().splitlines() == [
        "1 pair more, 1 pair less, 1 with another grid or author",
        "+ conv (input of norm): int8, by spec[1]",
        "- conv/kernel (weight of conv): int8/axis 3, by default",
        "~ image (input of conv): default -> spec[0]",
        "> norm: folded into conv -> split",
    ]
    learned = QuantizationSpec()
    learned.add("conv", quantize_config=LayerQuantizeConfig(weight={"num_bits": 4, "quantizer": "lsq"}))
    told = before.diff(plan_placement(model, quantization_spec=learned)).summary()
    assert "int8/axis 3 -> int4/axis 3, default -> spec[0], quantizer of the defaults -> quantizer lsq" in told
    assert before.diff(plan_placement(model)).summary() == "no difference"


def test_what_is_the_default_anyway_is_not_a_method():
    spec = spec_of(left={"weight": {"quantizer": "last_value"}, "activation": {"quantizer": "moving_average"}})
    assert {tensor.method for tensor in plan_placement(branches(), quantization_spec=spec).tensors} == {None}
    spec = spec_of(left={"activation": {"quantizer": "moving_average", "momentum": 0.5}})
    tensor = grid(plan_placement(branches(), quantization_spec=spec), "stem")
    assert tensor.method.arguments == {"momentum": 0.5}


def test_settings_of_an_output_wait_for_the_flag_and_say_so():
    plan = plan_placement(branches(), quantization_spec=spec_of(left={"output": {"num_bits": 6}}))
    assert not plan.for_layer("left").quantize_output
    assert "quantize_output=True" in plan.for_layer("left").reason


def test_settings_for_weights_that_are_not_there_are_refused():
    graph = chain(("Conv2D", "conv"), ("ReLU", "relu"))
    with pytest.raises(SpecError, match="has no weights"):
        plan_placement(graph, quantization_spec=spec_of(relu={"weight": {"num_bits": 4}}))
    spec = QuantizationSpec()
    spec.add("*", match="glob", quantize_input=False, quantize_config=LayerQuantizeConfig(weight={"num_bits": 4}))
    assert grid(plan_placement(graph, quantization_spec=spec), "conv/kernel").quantizer.num_bits == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight": {"bits": 4}}, "num_bits"),
        ({"weight": {"num_bits": 1}}, "num_bits"),
        ({"weight": {"num_bits": "4"}}, "num_bits"),
        ({"weight": {"symmetric": 1}}, "True or False"),
        ({"weight": {"quantizer": "lqs"}}, "lsq"),
        ({"weight": {"quantizer": "fixed"}}, "init_min"),
        ({"output": {"quantizer": "fixed", "init_min": 3, "init_max": 1}}, "init_min < init_max"),
        ({"output": {"quantizer": "fixed", "init_min": 0, "init_max": float("inf")}}, "finite"),
        ({"weight": {"momentum": 0.5}}, "not a setting"),
        ({"weight": {"quantizer": "moving_average", "momentum": "slow"}}, "a number"),
        ({"activation": {"per_axis": True}}, "one scale per tensor"),
        ({"output": [4]}, "mapping"),
    ],
)
def test_wrong_settings_are_explained(arguments, message):
    with pytest.raises(SpecError, match=message):
        LayerQuantizeConfig(**arguments)


def test_settings_of_a_weight_that_the_layer_does_not_have_are_refused():
    with pytest.raises(SpecError, match=r"has no weight of that name.*kernel"):
        plan_placement(branches(), quantization_spec=spec_of(left={"weight": {"kernal": {"num_bits": 4}}}))


@pytest.mark.parametrize("entry", [{"name": "Conv2D", "is_keras_class": True}, {"name": "*t", "match": "glob"}])
def test_settings_of_a_weight_that_no_layer_of_a_class_or_pattern_has_are_refused(entry):
    def planned(weight):
        spec = QuantizationSpec()
        spec.add(**entry, quantize_config=LayerQuantizeConfig(weight={weight: {"num_bits": 4}}))
        return plan_placement(branches(), quantization_spec=spec)

    assert grid(planned("kernel"), "left/kernel").quantizer.num_bits == 4
    told = r"spec\[0\]: none of the layers .*'left'.* weight of that name.*kernel"
    with pytest.raises(SpecError, match=told) as found:
        planned("kernal")
    assert ", ..." not in str(found.value)  # no more than three: every one is named


def test_a_weight_left_out_of_settings_per_weight_stays_in_float():
    maker = GraphMaker("x")
    weights = tuple(Weight(f"{name}_kernel", (1, 1, 4, 4)) for name in ("depthwise", "pointwise"))
    graph = maker.graph(maker.add("SeparableConv2D", "both", "x", weights=weights))
    plan = plan_placement(graph, quantization_spec=spec_of(both={"weight": {"pointwise_kernel": {"num_bits": 4}}}))
    assert [(p.weight, p.quantizer.label) for p in plan.placements if p.weight] == [("pointwise_kernel", "int4/axis 3")]


def test_an_input_that_takes_a_pair_of_others_is_no_pair_more():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Add", "add", "conv", "image")
    before = plan_placement(maker.graph("add"))
    spec = QuantizationSpec()
    spec.add("add", quantize_weight=False, quantization_index=[1])
    after = plan_placement(maker.graph("add"), quantization_spec=spec)
    diff = before.diff(after)
    assert len(after.tensors) == len(before.tensors)
    assert diff.counts == "1 input changed"
    assert dataclasses.replace(diff, plans=None).counts == "1 place more"


@pytest.mark.parametrize("axis", [4, 9, -5])
def test_an_axis_that_a_weight_has_not_is_refused(axis):
    with pytest.raises(SpecError, match=rf"'kernel' of layer 'left' has 4 axes.*Received: axis={axis}"):
        plan_placement(branches(), quantization_spec=spec_of(left={"weight": {"axis": axis}}))
    plan = plan_placement(branches(), quantization_spec=spec_of(left={"weight": {"axis": -1}}))
    assert grid(plan, "left/kernel").quantizer.axis == 3
    plan = plan_placement(branches(), quantization_spec=spec_of(left={"weight": {"axis": axis, "per_axis": False}}))
    assert grid(plan, "left/kernel").quantizer.axis is None


def test_a_class_of_the_users_own_is_no_alias_of_keras():
    maker = GraphMaker("x")
    graph = maker.graph(maker.add("GraphConvolution", "own", "x"), maker.add("SeparableConv2D", "known", "x"))
    spec = QuantizationSpec()
    spec.add("GraphConvolution", is_keras_class=True, quantize_output=True)
    spec.add("SeparableConvolution2D", is_keras_class=True, quantize_output=True)
    plan = plan_placement(graph, quantization_spec=spec)
    assert {name for name, each in plan.decisions.items() if each.quantize_output} == {"own", "known"}
