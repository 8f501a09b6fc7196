"""Small networks through `build_onnx`: values, Q/DQ counts, and what ONNX Runtime makes of the file."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from keras import layers

from qdq_workbench.export import build_onnx
from tests.export.cutting import Built, Cutter


def run(model: onnx.ModelProto, data: dict[str, np.ndarray], *, optimize: bool = False) -> list[np.ndarray]:
    """Run a model in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        if optimize
        else onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, data)


def ops(model: onnx.ModelProto) -> collections.Counter[str]:
    """Count the operators of a model."""
    return collections.Counter(node.op_type for node in model.graph.node)


@dataclasses.dataclass(frozen=True)
class Network:
    """One small network and what its file must look like."""

    id: str
    make: Callable[[Cutter], tuple[keras.KerasTensor, keras.KerasTensor]]
    ops: dict[str, int]
    tolerance: float = 2e-3


def conv_pool_dense(cut: Cutter) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    x = keras.Input((8, 8, 3))
    h = cut.layer(layers.Conv2D(4, 3, padding="same", strides=2, activation="relu"), cut.pair(x))
    h = layers.MaxPooling2D()(cut.pair(h))
    h = cut.pair(layers.Flatten()(h))
    return x, cut.layer(layers.Dense(5), h)


def residual(cut: Cutter) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    x = keras.Input((8, 8, 4))
    skip = cut.pair(x)
    h = cut.layer(layers.Conv2D(4, 3, padding="same", activation="relu"), skip)
    h = cut.layer(layers.Conv2D(4, 3, padding="same"), cut.pair(h))
    h = layers.ReLU()(layers.Add()([cut.pair(h), skip]))
    h = layers.GlobalAveragePooling2D()(cut.pair(h))
    return x, cut.layer(layers.Dense(3), cut.pair(h))


NETWORKS = [
    Network(
        "conv_pool_dense",
        conv_pool_dense,
        {"Conv": 1, "Gemm": 1, "MaxPool": 1, "Relu": 1, "QuantizeLinear": 3, "DequantizeLinear": 7},
    ),
    Network(
        "residual",
        residual,
        {"Conv": 2, "Gemm": 1, "Add": 1, "Relu": 2, "GlobalAveragePool": 1, "QuantizeLinear": 5},
    ),
]


def built(network: Network, target: str) -> tuple[Built, onnx.ModelProto, dict[str, np.ndarray], list[np.ndarray]]:
    """Build a network; return it with data and the simulated outputs."""
    keras.utils.set_random_seed(0)
    cut = Cutter(target)
    net = cut.finish(*network.make(cut))
    rng = np.random.default_rng(1)
    data = {
        name: rng.normal(size=[2, *tensor.shape[1:]]).astype(np.float32)
        if "float" in tensor.dtype
        else rng.integers(0, 5, [2, *tensor.shape[1:]]).astype(tensor.dtype)
        for name, tensor in net.cut.inputs.items()
    }
    expected = list(net.calibrate(data).values())
    return net, build_onnx(net.cut, net.activations, net.weights, target=cut.target), data, expected


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.id)
def test_values_and_operators(network: Network, target: str) -> None:
    _, model, data, expected = built(network, target)
    for got, want in zip(run(model, data), expected):
        np.testing.assert_allclose(got, want, atol=network.tolerance * max(1.0, np.abs(want).max()))
    counted = ops(model)
    if target == "onnxruntime":
        assert {op: counted[op] for op in network.ops} == network.ops
