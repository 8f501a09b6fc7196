"""Weights in blocks in plans: which layers have them, which targets take them, and what is refused with what advice."""

import json

import pytest
from mock_graphs import GraphMaker, chain

from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import Weight
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.planning import retarget_plan
from qdq_workbench.spec.quantization_spec import QuantizationSpec
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig


def net(size=128):
    maker = GraphMaker("x", shape=(None, size))
    kernel = (Weight("kernel", (size, 10)), Weight("bias", (10,)))
    maker.add("Dense", "head", "x", weights=kernel, shape=(None, 10))
    return maker.graph("head")


def planned(graph, target="onnxruntime", layer="head", quantize_input=False, **weight):
    spec = QuantizationSpec()
    spec.add(layer, quantize_input=quantize_input, quantize_config=LayerQuantizeConfig(weight=weight))
    return make_plan(graph, decide(graph, "partial", spec, []), "partial", target)


def test_blocks_lie_along_the_axis_that_is_summed_up_over():
    plan = planned(net(), num_bits=4, block_size=32, symmetric=False)
    (placement,) = plan.placements
    grid = placement.quantizer
    assert (grid.num_bits, grid.axis, grid.block_size, grid.symmetric) == (4, 0, 32, False)
    assert PlacementPlan.from_dict(json.loads(json.dumps(plan.to_dict()))).placements == plan.placements


def test_a_plan_without_blocks_says_nothing_of_them():
    assert "block_size" not in json.dumps(planned(net(), num_bits=4).to_dict())


def test_half_of_the_bits_may_stand_behind_quantized_inputs():
    plan = planned(net(), quantize_input=True, num_bits=4, block_size=32)
    assert {placement.site for placement in plan.placements} == {"input", "weight"}


REFUSED = {
    "a convolution": (
        lambda: planned(chain(("Conv2D", "conv")), layer="conv", num_bits=4, block_size=32),
        r"spec\[0\]: the weight 'kernel' of layer 'conv' \(Conv2D\) cannot be quantized in blocks",
    ),
    "another axis": (
        lambda: planned(net(), num_bits=4, block_size=32, axis=1),
        r"one of \[0\]; leave axis out. Received: axis=1",
    ),
    "8 bits behind integers": (
        lambda: planned(net(), quantize_input=True, num_bits=8, block_size=32),
        "knows no blocks, and fails. Leave the tensor in float",
    ),
    "sizes without a kernel": (
        lambda: planned(net(), num_bits=4, block_size=48),
        "in blocks of 16, 32, 64, 128, 256. Give 'head/kernel' one of these sizes. Received: block_size=48",
    ),
    "more than 8 bits": (lambda: planned(net(), num_bits=16, block_size=32), "at most 8 bits"),
    "TensorRT, small blocks": (
        lambda: planned(net(), "tensorrt", num_bits=4, block_size=32),
        "TensorRT .* in blocks of 64, 128",
    ),
    "TensorRT, 8 bits": (lambda: planned(net(), "tensorrt", num_bits=8, block_size=64), "at most 4 bits"),
    "TensorRT, zero points": (
        lambda: planned(net(), "tensorrt", num_bits=4, block_size=64, symmetric=False),
        "without zero points only",
    ),
    "TensorRT, a rest": (
        lambda: planned(net(192), "tensorrt", num_bits=4, block_size=128),
        "axis 0 of 'head/kernel' has 192 values. Give it blocks of 64. Received: block_size=128",
    ),
    "OpenVINO, a rest": (
        lambda: planned(net(70), "openvino", num_bits=4, block_size=32),
        "has 70 values. Leave block_size out for this layer",
    ),
    "LiteRT": (
        lambda: planned(net(), "litert", num_bits=4, block_size=32),
        r"'litert' takes no weights in blocks: .* another target \(onnxruntime, openvino, tensorrt\)",
    ),
    "another target": (
        lambda: retarget_plan(planned(net(), num_bits=4, block_size=32), "litert"),
        "'litert' takes no weights in blocks",
    ),
    "a size of one": (lambda: planned(net(), block_size=1), "weight: block_size must be a whole number"),
    "one scale in all": (lambda: planned(net(), block_size=32, per_axis=False), "leave per_axis out"),
}


@pytest.mark.parametrize(("plan", "words"), REFUSED.values(), ids=REFUSED)
def test_what_no_runtime_computes_is_refused_with_advice(plan, words):
    with pytest.raises(SpecError, match=words):
        plan()


def test_activations_have_no_blocks():
    with pytest.raises(SpecError, match="activation: activations have one scale per tensor"):
        LayerQuantizeConfig(activation={"block_size": 32})
