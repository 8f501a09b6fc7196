"""Networks of real size, cut at every tensor that ONNX Runtime wants quantized: no Transpose stays on the way."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
from keras import layers

from qdq_workbench.export import CutModel, build_onnx
from qdq_workbench.placement.targets import get_target
from qdq_workbench.verification.integer_kernels import count_integer_kernels
from tests.export.cutting import encode_range, encode_weight
from tests.export.running import ops

WEIGHTED = (layers.Conv2D, layers.DepthwiseConv2D, layers.Dense)
QUANTIZED = (
    *WEIGHTED,
    layers.Add,
    layers.Multiply,
    layers.Concatenate,
    layers.AveragePooling2D,
    layers.GlobalAveragePooling2D,
    layers.MaxPooling2D,
)
TARGET = get_target("onnxruntime")


@dataclasses.dataclass(frozen=True)
class Expected:
    """A network and the integer kernels that its file must give."""

    id: str
    size: int
    integer: dict[str, tuple[int, int]]


NETWORKS = [
    Expected("MobileNetV2", 64, {"Conv": (52, 52), "Add": (10, 10), "GlobalAveragePool": (1, 1), "MatMul": (1, 1)}),
    Expected("ResNet50", 64, {"Conv": (53, 53), "Add": (16, 16), "MaxPool": (1, 1), "GlobalAveragePool": (1, 1)}),
    # Its convolutions are followed by swish, which this placement leaves without a pair in front: they stay float.
    Expected("EfficientNetB0", 64, {"GlobalAveragePool": (17, 17), "MatMul": (1, 1)}),
    Expected("InceptionV3", 96, {"Conv": (94, 94), "AveragePool": (9, 9), "Concat": (15, 15)}),
]


def ends_in_relu(tensor) -> bool:
    operation = tensor._keras_history.operation
    name = getattr(getattr(operation, "activation", None), "__name__", "")
    kept_nonnegative = (layers.ReLU, layers.ZeroPadding2D, layers.MaxPooling2D, layers.GlobalAveragePooling2D)
    return name in ("relu", "relu6") or isinstance(operation, kept_nonnegative)


def cut_everywhere(model):
    """Rebuild a functional model without its batch normalizations, cut at the input of every quantized layer."""
    values = {id(tensor): tensor for tensor in model.inputs}
    pairs, weights = {}, {}

    def behind_pair(tensor):
        value = values[id(tensor)]
        name = f"{tensor._keras_history.operation.name}/output"
        if name not in pairs:
            pairs[name] = (value, keras.Input(batch_shape=value.shape))
        return pairs[name][1]

    for depth in sorted(model._nodes_by_depth, reverse=True):
        for node in (node for node in model._nodes_by_depth[depth] if not node.is_input):
            layer = node.operation
            if isinstance(layer, layers.BatchNormalization):
                values[id(node.outputs[0])] = values[id(node.input_tensors[0])]
                continue
            quantized = isinstance(layer, QUANTIZED)
            feeds = {id(t): behind_pair(t) if quantized else values[id(t)] for t in node.input_tensors}
            args, kwargs = node.arguments.fill_in(feeds)
            results = keras.tree.flatten(layer(*args, **kwargs))
            values.update(zip(map(id, node.outputs), results, strict=True))
            if isinstance(layer, WEIGHTED):
                weights[f"{layer.name}/kernel"] = (
                    layer.kernel,
                    {layers.Dense: 1, layers.DepthwiseConv2D: 2}.get(type(layer), 3),
                )
    outputs = {"probabilities": values[id(model.outputs[0])]}
    cut = CutModel({"image": model.inputs[0]}, outputs, pairs, {name: v for name, (v, _) in weights.items()})
    encoded = {n: encode_weight(np.asarray(v), TARGET.weight.replace(axis=a)) for n, (v, a) in weights.items()}
    ranges = {n: (0.0, 4.0) if ends_in_relu(ends[0]) else (-3.0, 3.0) for n, ends in pairs.items()}
    return cut, {n: encode_range(*found, TARGET.activation) for n, found in ranges.items()}, encoded


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.id)
def test_no_transpose_stays_and_kernels_are_integer(network):
    keras.utils.set_random_seed(0)
    make = getattr(keras.applications, network.id)
    cut, activations, weights = cut_everywhere(
        make(weights=None, input_shape=(network.size, network.size, 3), classes=10)
    )
    model = build_onnx(cut, activations, weights, target=TARGET)
    counted = ops(model)
    assert counted["Transpose"] == 1  # of the image, before everything else
    assert counted["QuantizeLinear"] == len(cut.pairs)
    producers = {output: node.op_type for node in model.graph.node for output in node.output}
    weighted = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm", "MatMul")]
    assert len(weighted) == len(cut.weights)
    assert {producers[tensor] for node in weighted for tensor in node.input[:2]} == {"DequantizeLinear"}
    found = count_integer_kernels(model).counts
    assert {op: found[op] for op in network.integer} == network.integer
