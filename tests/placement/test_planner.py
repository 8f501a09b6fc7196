import dataclasses
import json

import pytest
from mock_graphs import GraphMaker, chain, residual

from qdq_workbench.errors import SpecError, TargetError
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.placement.targets import get_target, target_names
from qdq_workbench.planning import retarget_plan
from qdq_workbench.spec import QuantizationSpec


def plan_of(graph, mode="full", target="tensorrt", **entry):
    spec = QuantizationSpec()
    if entry:
        spec.add(**entry)
    return make_plan(graph, decide(graph, mode, spec, []), mode, target)


def names(plan, kind):
    return [tensor.name for tensor in plan.tensors if tensor.kind == kind]


def test_one_pair_however_many_layers_read_the_tensor():
    maker = GraphMaker()
    maker.add("Conv2D", "one", "image")
    maker.add("Conv2D", "other", "image")
    maker.add("Add", "add", "one", "other")
    plan = plan_of(maker.graph("add"))
    assert names(plan, "activation") == ["image"]
    assert names(plan, "weight") == ["one/kernel", "other/kernel"]
    assert len([p for p in plan.placements if p.tensor == "image"]) == 2


def test_a_shared_layer_has_ranges_per_call_and_one_set_of_weights():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Conv2D", "conv#1", "conv", layer="conv")
    plan = plan_of(maker.graph("conv#1"))
    assert names(plan, "activation") == ["image", "conv"]
    assert names(plan, "weight") == ["conv/kernel"]


@pytest.mark.parametrize(
    ("class_name", "axis"), [("Conv2D", 3), ("DepthwiseConv2D", 2), ("Conv2DTranspose", 2), ("Conv1D", 3)]
)
def test_scales_run_along_the_output_channels(class_name, axis):
    plan = plan_of(chain((class_name, "layer")))
    weight = next(p for p in plan.placements if p.site == "weight")
    assert weight.quantizer.axis == axis
    assert weight.quantizer.symmetric
    assert weight.quantizer.narrow_range


@pytest.mark.parametrize("operation", ["Add", "Subtract", "Multiply"])
def test_an_operation_with_a_constant_gets_no_output_pair_for_a_kernel_of_two_operands(operation):
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add(operation, "shift", "conv", is_operation=True)
    maker.add("Conv2D", "next", "shift")
    plan = plan_of(maker.graph("next"), target="litert")
    assert names(plan, "activation") == ["image", "conv", "shift", "next"]  # the second convolution reads the third
    assert [p.node for p in plan.placements if p.site == "output"] == ["conv", "next"]


def test_integer_tensors_are_not_quantized():
    maker = GraphMaker("ids", shape=(None, 4), dtype="int32")
    maker.add("Concatenate", "concat", "ids", "ids", dtype="int32")
    plan = plan_of(maker.graph("concat"), name="concat")
    assert plan.tensors == ()
    assert "int32" in plan.unquantized[0].reason


def test_everything_left_in_float_is_listed_with_a_reason():
    plan = plan_of(residual("Conv2D"), name="conv2d", quantize_weight=False)
    listed = {(item.layer, item.what): item.reason for item in plan.unquantized}
    assert set(listed) == {("conv2d", "kernel"), ("conv2d", "bias"), ("add", "input 0"), ("add", "input 1")}
    assert "spec" not in listed["conv2d", "bias"]
    assert "entry for 'conv2d'" in listed["conv2d", "kernel"]
    assert "off by default for Add" in listed["add", "input 1"]


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime", "openvino", "litert"])
def test_every_pair_says_who_placed_it_and_why_before_there_is_a_model(target):
    """From the graph alone: default, case, entry and target each sign what they placed."""
    spec = QuantizationSpec()
    spec.add("conv2d", quantize_weight=False)
    case = QuantizationSpec()
    case.add("add", quantization_index=[1])
    maker = GraphMaker()
    maker.add("ReLU", "stem", "image")
    maker.add("Conv2D", "conv2d", "stem")
    maker.add("Add", "add", "conv2d", "stem")
    maker.add("Conv2D", "last", "add")
    graph = maker.graph("last")
    plan = make_plan(graph, decide(graph, "full", spec, [("SkipCase", case)]), "full", target)
    signed = {placement.key: placement.author for placement in plan.placements}
    assert {plan.pair_of(placement).name for placement in plan.placements} == {tensor.name for tensor in plan.tensors}
    assert signed["input", "conv2d", 0] == "spec[0]"
    assert signed["input", "add", 1] == "SkipCase"
    assert signed["weight", "last", "kernel"] == "default"
    assert ("target" in signed.values()) == (target in ("onnxruntime", "litert"))
    for placement in plan.placements:
        assert len(placement.reason.split()) > 3
        assert placement.author in plan.summary()
        assert placement.reason in " ".join(plan.summary().split())


def test_for_layer():
    plan = plan_of(residual("Conv2D"), name="add", quantization_index=[1], quantize_output=True)
    entry = plan.for_layer("add")
    assert (entry.quantize_input, entry.input_indices, entry.quantize_weight, entry.quantize_output) == (
        True,
        (1,),
        False,
        True,
    )
    assert entry.author == "spec[0]"
    with pytest.raises(SpecError, match="'add'"):
        plan.for_layer("ad")


def test_json_round_trip():
    plan = plan_of(residual("Conv2D", "BatchNormalization", "ReLU"), target="onnxruntime")
    again = PlacementPlan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan
    assert again.tensors == plan.tensors
    with pytest.raises(SpecError, match="not a placement plan"):
        PlacementPlan.from_dict({"format": "something else"})
    for part in ("graph", "placements", "decisions"):
        damaged = {**plan.to_dict(), part: 3}
        with pytest.raises(SpecError, match="is damaged"):
            PlacementPlan.from_dict(damaged)
        del damaged[part]
        with pytest.raises(SpecError, match="is damaged"):
            PlacementPlan.from_dict(damaged)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": "cnv"}, "no layer of that name.*Did you mean 'conv"),
        ({"node": "cnv"}, "no node of that name"),
        ({"tensor": "imge"}, "no such tensor"),
        ({"site": "inpt"}, "A site is one of input, weight, output"),
        ({"input_index": 9}, "has 1 inputs"),
        ({"input_index": None}, "has 1 inputs"),
    ],
)
def test_a_plan_edited_by_hand_must_fit_its_model(change, message):
    data = plan_of(residual("Conv2D", "BatchNormalization", "ReLU")).to_dict()
    place = next(item for item in data["placements"] if item["site"] == "input")
    place.update(change)
    with pytest.raises(SpecError, match=message):
        PlacementPlan.from_dict(data)


def test_diff():
    graph = residual("Conv2D")
    before, after = plan_of(graph), plan_of(graph, name="add", quantization_index=[1])
    change = before.diff(after)
    assert [p.key for p in change.added] == [("input", "add", 1)]
    assert not change.removed
    assert [p.key for p in after.diff(before).removed] == [("input", "add", 1)]
    assert not before.diff(before)
    with pytest.raises(SpecError, match="plans of one model"):
        before.diff(plan_of(chain(("Conv2D", "other"))))


def test_summary_and_html_show_both_tables_and_escape():
    maker = GraphMaker()
    maker.add("Conv2D", "<b>conv</b>", "image")
    plan = plan_of(maker.graph("<b>conv</b>"))
    assert "2 Q/DQ pairs (1 activations, 1 weights)" in plan.summary()
    assert "biases stay in float" in plan.summary()
    assert "<b>conv" not in plan._repr_html_()


def test_unknown_target():
    with pytest.raises(TargetError, match="Did you mean 'onnxruntime'"):
        plan_of(chain(("Conv2D", "conv")), target="onnx_runtime")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("ORT", "onnxruntime"),
        ("onnx", "onnxruntime"),
        ("ONNX Runtime", "onnxruntime"),
        ("trt", "tensorrt"),
        ("TensorRT", "tensorrt"),
        ("tflite", "litert"),
        ("TF-Lite", "litert"),
        ("LiteRT", "litert"),
        ("OV", "openvino"),
        ("open_vino", "openvino"),
        ("tensort", "tensorrt"),
        ("coreml", None),
        (None, None),
        (3, None),
    ],
)
def test_an_unknown_target_is_told_which_is_meant_and_all_that_there_are(given, meant):
    with pytest.raises(
        TargetError, match=r"The targets are 'litert', 'onnxruntime', 'openvino', 'tensorrt'\."
    ) as caught:
        get_target(given)
    assert ("Did you mean" in str(caught.value)) is (meant is not None)
    assert meant is None or f"Did you mean {meant!r}?" in str(caught.value)
    assert str(caught.value).endswith(f"Received: target={given!r}")


def test_weights_that_a_layer_does_not_have_cannot_be_switched_off_in_silence():
    spec = QuantizationSpec()
    spec.add("relu", quantize_weight=False)
    spec.add("conv", quantize_weight=False)
    spec.add("last", quantize_input=False, quantize_weight=False)
    graph = chain(("Conv2D", "conv"), ("ReLU", "relu"), ("ReLU", "last"))
    plan = make_plan(graph, decide(graph, "full", spec, []), "full", "tensorrt")
    told = {name: decision.reason for name, decision in plan.decisions.items() if "no weights" in decision.reason}
    assert list(told) == ["relu"]
    assert "quantize_weight=False changes nothing (quantize_input=False leaves it in float)" in told["relu"]
    assert told["relu"] in " ".join(plan.summary().split())


@pytest.mark.parametrize("index", [1, -1])
def test_an_input_that_a_call_does_not_have_is_named(index):
    plan = plan_of(chain(("Conv2D", "conv")))
    assert plan.input_placement("conv", 0) is not None
    with pytest.raises(SpecError, match=rf"'conv' has 1 inputs, counted from 0\. Received: index={index}"):
        plan.input_placement("conv", index)
    with pytest.raises(SpecError, match="no node of that name"):
        plan.input_placement("cnov", 0)


class TestOnnxRuntimeNeeds:
    def test_the_pair_stands_behind_what_is_fused(self):
        graph = chain(("Conv2D", "conv"), ("BatchNormalization", "norm"), ("ReLU", "relu"), ("Conv2D", "next"))
        plan = plan_of(graph, target="onnxruntime")
        placement = plan.output_placement("relu")
        assert placement.author == "target"
        assert names(plan, "activation") == ["image", "relu", "next"]

    def test_an_activation_that_is_not_fused_gets_the_pair_in_front(self):
        graph = chain(("Conv2D", "conv"), ("BatchNormalization", "norm"), ("Activation", "act", {"activation": "silu"}))
        assert plan_of(graph, target="onnxruntime").output_placement("norm") is not None

    def test_an_activation_inside_the_layer_cannot_be_helped(self):
        graph = chain(("Conv2D", "conv", {"activation": "silu"}), ("Conv2D", "next"))
        plan = plan_of(graph, target="onnxruntime")
        assert plan.output_placement("conv") is None

    def test_an_add_of_quantized_tensors_is_completed(self):
        plan = plan_of(residual("Conv2D", skip=("Conv2D",)), target="onnxruntime")
        assert [p.tensor for p in plan.placements if p.site == "output"] == ["conv2d", "skip_conv2d", "add"]

    def test_an_add_that_the_user_wants_in_float_stays(self):
        graph = residual("Conv2D", skip=("Conv2D",))
        plan = plan_of(graph, target="onnxruntime", name="add", quantize_input=False, quantize_weight=False)
        assert plan.output_placement("add") is None

    def test_partial_mode_completes_only_what_is_named(self):
        graph = residual("Conv2D", skip=("Conv2D",))
        plan = plan_of(graph, "partial", "onnxruntime", name="Conv2D", is_keras_class=True)
        assert plan.output_placement("conv2d") is not None
        assert plan.output_placement("add") is None

    def test_pooling_by_maximum_shares_one_scale(self):
        graph = chain(("Conv2D", "conv"), ("ReLU", "relu"), ("MaxPooling2D", "pool"), ("Conv2D", "next"))
        plan = plan_of(graph, target="onnxruntime")
        groups = {tensor.name: tensor.scale_group for tensor in plan.tensors if tensor.kind == "activation"}
        assert groups["relu"] == groups["pool"] == "relu"
        assert groups["image"] is None

    def test_a_classifier_may_return_floats(self):
        plan = plan_of(chain(("Dense", "head")), target="onnxruntime")
        assert names(plan, "activation") == ["image"]

    def test_a_float_layer_is_not_completed(self):
        graph = chain(("Conv2D", "conv"), ("ReLU", "relu"))
        plan = plan_of(graph, target="onnxruntime", name="conv", quantize_weight=False)
        assert plan.output_placement("relu") is None


def test_retargeting_there_and_back_gives_the_same_plan():
    plan = plan_of(residual("Conv2D", "BatchNormalization"), name="add", quantization_index=[1])
    other = retarget_plan(plan, "onnxruntime")
    assert other.target == "onnxruntime"
    assert {p.quantizer.label for p in other.placements if p.site != "weight"} == {"uint8"}
    assert retarget_plan(other, "tensorrt") == plan


@pytest.mark.parametrize(("inputs", "pairs"), [(2, ["a", "b", "sum"]), (3, ["a", "b", "c"])])
def test_a_sum_of_three_gets_no_pair_behind_it_for_it_has_no_integer_kernel(inputs, pairs):
    maker = GraphMaker(*"abc"[:inputs])
    maker.add("Add", "sum", *"abc"[:inputs])
    assert names(plan_of(maker.graph("sum"), target="onnxruntime", name="sum"), "activation") == pairs


def test_the_second_call_of_a_shared_layer_is_quantized_alone():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Conv2D", "conv#1", "conv", layer="conv")
    plan = plan_of(maker.graph("conv#1"), mode="partial", name="conv#1")
    assert names(plan, "activation") == ["conv"]
    assert names(plan, "weight") == ["conv/kernel"]
    assert plan.input_placement("conv", 0) is None
    assert plan.input_placement("conv#1", 0) is not None


def test_plan_after_plan_is_that_of_a_fresh_graph():
    graph = chain(("Conv2D", "first"), ("BatchNormalization", "norm"), ("ReLU", "relu"), ("Dense", "second"))
    changes = ({}, {"quantize_weight": False}, {"quantize_input": False}, {"quantize_output": True}, {})
    for settings in changes:
        for mode in ("full", "partial"):
            for target in target_names():
                spec = QuantizationSpec()
                spec.add("first", **settings)
                graphs = (graph, ModelGraph.from_dict(graph.to_dict()))
                known, fresh = (make_plan(one, decide(one, mode, spec, []), mode, target) for one in graphs)
                assert known.to_dict() == fresh.to_dict()


def test_an_altered_target_asks_for_its_own_grids():
    graph = chain(("Conv2D", "conv"))
    usual = get_target("tensorrt")
    wide = dataclasses.replace(usual, activation=usual.activation.replace(num_bits=16))
    for target, bits in ((usual, 8), (wide, 16), (usual, 8)):
        plan = make_plan(graph, decide(graph, "full", None, []), "full", target)
        assert plan.input_placement("conv", 0).quantizer.num_bits == bits
