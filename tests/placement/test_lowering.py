"""What a file holds of every node: one step each, with the nodes that do its work."""

import dataclasses
import json
import re

import pytest
from mock_graphs import GraphMaker, chain

from qdq_workbench.graph.model_graph import Weight
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.lowering import lower
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.spec import QuantizationSpec


def plan_of(graph, *entries, mode="full", target="onnxruntime"):
    spec = QuantizationSpec()
    for entry in entries:
        spec.add(**entry)
    return make_plan(graph, decide(graph, mode, spec, []), mode, target)


def steps(plan):
    """Per call its step, and where its work is done."""
    return {name: (node.step, *node.into) for name, node in plan.lowering.nodes.items() if not node.has_operators}


def test_a_normalization_is_folded_unless_a_pair_stands_before_it():
    graph = chain(("Conv2D", "conv"), ("BatchNormalization", "bn"))
    assert steps(plan_of(graph)) == {"bn": ("folded", "conv")}
    assert steps(plan_of(graph, {"name": "bn"})) == {}


def test_one_graph_is_lowered_for_each_kind_of_file():
    graph = chain(("Conv2D", "conv"), ("Reshape", "flat"), ("Dropout", "drop"))
    for target, step in (("tensorrt", "moved"), ("litert", "written"), ("tensorrt", "moved")):
        lowered = plan_of(graph, target=target).lowering.nodes
        assert (lowered["flat"].step, lowered["drop"].step) == (step, "vanishes")


def test_a_normalization_is_not_folded_into_scales_along_another_axis():
    graph = chain(("Conv2D", "conv"), ("BatchNormalization", "bn"))
    (weight,) = [placement for placement in plan_of(graph).placements if placement.site == "weight"]
    turned = dataclasses.replace(weight, quantizer=weight.quantizer.replace(axis=2))
    assert [fold.layer.name for fold in lower(graph, [weight]).folds] == ["conv"]
    assert lower(graph, [turned]).folds == ()


@pytest.mark.parametrize(("target", "step"), [("tensorrt", ("absorbed", "conv")), ("litert", None)])
def test_a_constant_goes_into_the_bias_where_our_exporter_decides(target, step):
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Dropout", "drop", "conv")
    maker.add("Add", "plus", "drop", is_operation=True, settings={"constant_shape": [4]})
    plan = plan_of(maker.graph("plus"), target=target)
    assert plan.lowering.nodes["drop"].step == "vanishes"
    assert steps(plan).get("plus") == step


def test_a_constant_that_varies_over_the_image_stays():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Add", "plus", "conv", is_operation=True, settings={"constant_shape": [8, 8, 4]})
    assert steps(plan_of(maker.graph("plus"))) == {}


@pytest.mark.parametrize(
    ("reader", "settings", "absorbed"),
    [
        ("Conv2D", {}, True),
        ("SeparableConv2D", {}, True),
        ("Conv1D", {"padding": "causal"}, False),
        ("MaxPooling2D", {"pool_size": [3, 3]}, False),  # the image may be negative
        ("AveragePooling2D", {}, False),
        ("Dense", {}, False),
    ],
)
def test_zero_padding_goes_into_what_pads_with_zeros_itself(reader, settings, absorbed):
    graph = chain(("ZeroPadding2D", "pad", {"padding": [[1, 1], [1, 1]]}), (reader, "reader", settings))
    assert steps(plan_of(graph)).get("pad") == (("absorbed", "reader") if absorbed else None)


def test_zero_padding_is_absorbed_through_dropout_and_by_all_readers_or_none():
    maker = GraphMaker()
    maker.add("ZeroPadding2D", "pad", "image", settings={"padding": [[1, 1], [1, 1]]})
    maker.add("Dropout", "drop", "pad")
    maker.add("Conv2D", "one", "drop")
    maker.add("DepthwiseConv2D", "two", "pad")
    assert steps(plan_of(maker.graph("one", "two")))["pad"] == ("absorbed", "two", "one")
    maker.add("ReLU", "three", "pad")
    assert "pad" not in steps(plan_of(maker.graph("one", "two", "three")))
    assert "pad" not in steps(plan_of(maker.graph("one", "two", "pad")))


@pytest.mark.parametrize(("strides", "absorbed"), [((1, 1), True), ((2, 2), False)])
def test_padding_that_depends_on_an_open_size_is_no_setting(strides, absorbed):
    maker = GraphMaker(shape=(None, None, None, 4))
    maker.add("ZeroPadding2D", "pad", "image", shape=(None, None, None, 4), settings={"padding": [[1, 1], [1, 1]]})
    maker.add("Conv2D", "conv", "pad", settings={"padding": "same", "strides": list(strides)})
    assert ("pad" in steps(plan_of(maker.graph("conv")))) is absorbed


@pytest.mark.parametrize(
    ("node", "operators"),
    [
        (("Conv2D", {"activation": "relu"}, 1), ("Conv", "Relu")),
        (("SeparableConv2D", {"activation": "swish"}, 1), ("Conv", "Conv", "Sigmoid", "Mul")),
        (("Dense", {"activation": "gelu"}, 1), None),  # the converter writes it in one of several ways
        (("Add", {}, 3), ("Add", "Add")),
        (("Concatenate", {}, 3), ("Concat",)),
        (("ReLU", {"max_value": 6.0}, 1), ("Clip",)),
        (("ReLU", {"max_value": 4.0}, 1), None),
        (("ReLU", {"negative_slope": 0.1}, 1), None),
        (("ELU", {"alpha": 0.5}, 1), None),
        (("Softmax", {}, 1), None),  # it may get a mask
        (("LSTM", {}, 1), None),
    ],
)
def test_the_operators_of_a_layer(node, operators):
    class_name, settings, inputs = node
    maker = GraphMaker(*"abc"[:inputs])
    maker.add(class_name, "layer", *"abc"[:inputs], settings=settings)
    graph = maker.graph("layer")
    assert lower(graph, []).nodes["layer"].operators == operators
    assert lower(graph, [], in_onnx=False).nodes["layer"].operators is None


@pytest.mark.parametrize(
    ("node", "step", "reason"),
    [
        (("Flatten", {}, 1), "moved", "another place"),
        (("Cropping2D", {}, 1), "moved", "another place"),
        (("SeparableConv2D", {}, 1), "split", "Conv and Conv compute it, .* split_separable_convolutions makes two"),
        (("Add", {}, 3), "split", "Add and Add compute it, with no Q/DQ pair between them$"),
        (("Activation", {"activation": "swish"}, 1), "split", "Sigmoid and Mul"),
        (("Conv2D", {"activation": "swish"}, 1), "written", "^$"),  # one convolution, and what is behind it
        (("Add", {}, 2), "written", "^$"),
        (("LSTM", {}, 1), "written", "^$"),  # what it becomes depends on its settings
    ],
)
def test_what_moves_values_and_what_is_several_operators(node, step, reason):
    class_name, settings, inputs = node
    maker = GraphMaker(*"abc"[:inputs])
    maker.add(class_name, "layer", *"abc"[:inputs], settings=settings)
    graph = maker.graph("layer")
    lowered = lower(graph, []).nodes["layer"]
    assert (lowered.step, lowered.has_operators) == (step, True)
    assert re.search(reason, lowered.reason)
    assert lower(graph, [], in_onnx=False).nodes["layer"].step == "written"  # another converter decides


def test_an_onnx_file_of_a_litert_plan_has_a_lowering_of_its_own():
    graph = chain(("ZeroPadding2D", "pad", {"padding": [[1, 1], [1, 1]]}), ("Conv2D", "conv"))
    plan = plan_of(graph, target="litert")
    assert [plan.lowering.nodes["pad"].step, plan.onnx_lowering.nodes["pad"].step] == ["written", "absorbed"]
    plan = plan_of(graph, target="tensorrt")
    assert plan.lowering is plan.onnx_lowering


def test_an_opaque_layer_or_an_operation_with_a_constant_may_be_anything():
    maker = GraphMaker()
    maker.add("Conv2D", "own", "image", opaque="call is overridden")
    maker.add("Multiply", "scaled", "own", is_operation=True)
    lowering = lower(maker.graph("scaled"), [])
    assert [lowering.nodes[name].operators for name in ("own", "scaled")] == [None, None]


def test_tables_json_and_differences_show_it():
    graph = chain(("Conv2D", "conv"), ("BatchNormalization", "bn"), ("Dropout", "drop"))
    plan, other = plan_of(graph), plan_of(graph, {"name": "bn"})
    assert "it becomes a part of the weights and the bias of 'conv'" in plan.summary()
    assert "In the file, where it is not one operator (2)" in plan._repr_html_()
    told = json.loads(json.dumps(plan.to_dict()))["lowering"]
    assert told["image"] == {"step": "written", "operators": []}
    assert told["conv"] == {"step": "written", "operators": ["Conv"]}
    assert {name: (item["step"], item["operators"], item["into"]) for name, item in list(told.items())[2:]} == {
        "bn": ("folded", [], ["conv"]),
        "drop": ("vanishes", [], []),
    }
    assert told["drop"]["reason"] == plan.lowering.nodes["drop"].reason
    ((before, after),) = plan.diff(other).lowered
    assert (before.step, after.step, after.operators) == ("folded", "split", ("Mul", "Add"))
    assert plan.diff(plan).lowered == ()


def test_a_shared_layer_with_a_multiplier_keeps_its_integers():
    maker = GraphMaker()
    maker.add("DepthwiseConv2D", "conv", "image", weights=(Weight("kernel", (3, 3, 4, 2)), Weight("bias", (8,))))
    maker.add("BatchNormalization", "bn", "conv")
    assert steps(plan_of(maker.graph("bn"))) == {}


@pytest.mark.parametrize("class_name", ["DepthwiseConv2D", "DepthwiseConv1D"])
def test_a_normalization_is_folded_into_a_depthwise_layer_with_one_filter_per_channel(class_name):
    maker = GraphMaker(shape=(None, 8, 4) if class_name.endswith("1D") else (None, 8, 8, 4))
    shape = (3, 4, 1) if class_name.endswith("1D") else (3, 3, 4, 1)
    image = (None, *maker.tensors["image"].shape[1:])
    maker.add(class_name, "conv", "image", shape=image, weights=(Weight("kernel", shape), Weight("bias", (4,))))
    maker.add("BatchNormalization", "bn", "conv", shape=image)
    assert steps(plan_of(maker.graph("bn"))) == {"bn": ("folded", "conv")}


@pytest.mark.parametrize(("filters", "parted"), [(1, ["bn"]), (2, [])])
def test_a_pair_parts_what_would_be_folded_without_it(filters, parted):
    """With several filters per channel the integers would change, so the pair is not what prevents the fold."""
    maker = GraphMaker()
    shape = (None, 8, 8, 4 * filters)
    kernel = Weight("kernel", (3, 3, 4, filters))
    maker.add("DepthwiseConv2D", "conv", "image", shape=shape, weights=(kernel, Weight("bias", shape[-1:])))
    maker.add("BatchNormalization", "bn", "conv", shape=shape)
    plan = plan_of(maker.graph("bn"), {"name": "conv"}, {"name": "bn"})
    assert steps(plan) == {}
    assert [fold.batch_norm.name for fold in plan.lowering.merged.parted] == parted
