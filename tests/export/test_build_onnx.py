"""Small networks through `build_onnx`: values, Q/DQ counts, and what ONNX Runtime makes of the file."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable

import keras
import numpy as np
import onnx
import pytest
from keras import layers

from qdq_workbench.placement.targets import get_target
from tests.export.cutting import Built, Cutter
from tests.export.running import build, ops, random_data, run

Ends = tuple[keras.KerasTensor, keras.KerasTensor]


@dataclasses.dataclass(frozen=True)
class Network:
    """One small network and what its file must look like."""

    id: str
    make: Callable[[Cutter], Ends]
    ops: dict[str, int]
    pairs: int
    constants: int

    def __str__(self) -> str:
        return self.id


def conv_pool_dense(cut: Cutter) -> Ends:
    x = keras.Input((8, 8, 3))
    h = cut.layer(layers.Conv2D(4, 3, padding="same", strides=2, activation="relu"), cut.pair(x))
    h = layers.MaxPooling2D()(cut.pair(h))
    h = cut.pair(layers.Flatten()(h))
    return x, cut.layer(layers.Dense(5), h)


def residual(cut: Cutter) -> Ends:
    x = keras.Input((8, 8, 4))
    skip = cut.pair(x)
    h = cut.layer(layers.Conv2D(4, 3, padding="same", activation="relu"), skip)
    h = cut.layer(layers.Conv2D(4, 3, padding="same"), cut.pair(h))
    h = layers.ReLU()(layers.Add()([cut.pair(h), skip]))
    h = layers.GlobalAveragePooling2D()(cut.pair(h))
    return x, cut.layer(layers.Dense(3), cut.pair(h))


def depthwise(cut: Cutter) -> Ends:
    x = keras.Input((8, 8, 3))
    h = layers.ZeroPadding2D(((0, 1), (0, 1)))(x)
    h = cut.layer(layers.DepthwiseConv2D(3, strides=2, depth_multiplier=2), cut.pair(h))
    h = layers.ReLU(6.0)(h)
    return x, cut.layer(layers.Conv2D(5, 1), cut.pair(h))


def conv1d(cut: Cutter) -> Ends:
    x = keras.Input((12, 3))
    h = cut.layer(layers.Conv1D(4, 3, padding="causal", dilation_rate=2, activation="relu"), cut.pair(x))
    h = cut.layer(layers.Conv1D(6, 3, strides=2, padding="same"), cut.pair(h))
    h = layers.MaxPooling1D(2)(layers.ReLU()(h))
    h = layers.GlobalAveragePooling1D()(cut.pair(h))
    return x, cut.layer(layers.Dense(3), cut.pair(h))


def depthwise1d(cut: Cutter) -> Ends:
    x = keras.Input((12, 4))
    h = cut.layer(layers.DepthwiseConv1D(3, padding="same", activation="relu"), cut.pair(x), axis=1)
    return x, cut.layer(layers.Conv1D(6, 1), cut.pair(h))


def conv3d(cut: Cutter) -> Ends:
    x = keras.Input((6, 6, 6, 2))
    h = cut.layer(layers.Conv3D(4, 3, padding="same", activation="relu"), cut.pair(x), axis=-1)
    h = layers.MaxPooling3D()(cut.pair(h))
    h = layers.GlobalAveragePooling3D()(cut.pair(h))
    return x, cut.layer(layers.Dense(3), cut.pair(h))


def transposed(cut: Cutter) -> Ends:
    x = keras.Input((4, 4, 3))
    h = cut.layer(layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu"), cut.pair(x))
    return x, cut.layer(layers.Conv2D(2, 1), cut.pair(h))


def grouped(cut: Cutter) -> Ends:
    x = keras.Input((6, 6, 4))
    h = cut.layer(layers.Conv2D(8, 3, groups=2, activation="relu"), cut.pair(x))
    return x, cut.layer(layers.Conv2D(4, 1), cut.pair(h))


def concatenation(cut: Cutter) -> Ends:
    x = keras.Input((6, 6, 3))
    pair = cut.pair(x)
    a = cut.layer(layers.Conv2D(4, 3, padding="same", activation="relu"), pair)
    b = cut.layer(layers.Conv2D(5, 1, activation="relu"), pair)
    h = layers.Concatenate()([cut.pair(a), cut.pair(b)])
    h = layers.AveragePooling2D(2)(cut.pair(h))
    return x, cut.layer(layers.Conv2D(2, 1), cut.pair(h))


def squeeze_excite(cut: Cutter) -> Ends:
    x = keras.Input((6, 6, 4))
    h = cut.pair(cut.layer(layers.Conv2D(4, 3, padding="same", activation="relu"), cut.pair(x)))
    s = layers.Reshape((1, 1, 4))(layers.GlobalAveragePooling2D()(h))
    s = cut.layer(layers.Conv2D(2, 1, activation="relu"), cut.pair(s))
    s = cut.layer(layers.Conv2D(4, 1), cut.pair(s))
    s = layers.Activation("sigmoid")(cut.pair(s))
    h = layers.Multiply()([h, cut.pair(s)])
    return x, cut.layer(layers.Conv2D(3, 1), cut.pair(h))


def dense_squeeze_excite(cut: Cutter) -> Ends:
    x = keras.Input((6, 6, 4))
    h = cut.pair(cut.layer(layers.Conv2D(4, 3, padding="same", activation="relu"), cut.pair(x)))
    s = cut.pair(layers.GlobalAveragePooling2D()(h))
    s = cut.layer(layers.Dense(4, activation="sigmoid"), s)
    h = layers.Multiply()([h, cut.pair(layers.Reshape((1, 1, 4))(s))])
    return x, cut.layer(layers.Conv2D(3, 1), cut.pair(h))


def shared_layer(cut: Cutter) -> Ends:
    x = keras.Input((6, 6, 4))
    layer = layers.Conv2D(4, 3, padding="same", activation="relu")
    h = cut.layer(layer, cut.pair(x))
    h = cut.layer(layer, cut.pair(h))
    return x, cut.layer(layers.Conv2D(2, 1), cut.pair(h))


def embedding(cut: Cutter) -> Ends:
    x = keras.Input((7,), dtype="int32")
    h = cut.layer(layers.Embedding(5, 4), x, axis=None)
    h = cut.layer(layers.Conv1D(4, 3, activation="relu"), cut.pair(h))
    return x, cut.layer(layers.Dense(3), cut.pair(layers.Flatten()(h)))


def batch_norm_left(cut: Cutter) -> Ends:
    x = keras.Input((6, 6, 3))
    h = layers.BatchNormalization()(cut.layer(layers.Conv2D(4, 3, use_bias=False), cut.pair(x)))
    return x, cut.layer(layers.Conv2D(2, 1), cut.pair(layers.ReLU()(h)))


def sequence_dense(cut: Cutter) -> Ends:
    x = keras.Input((5, 4))
    h = cut.layer(layers.Dense(6, activation="gelu"), cut.pair(x))
    h = layers.LayerNormalization()(h)
    h = cut.layer(layers.EinsumDense("abc,cd->abd", (5, 7), bias_axes="d"), cut.pair(h))
    return x, cut.layer(layers.Dense(2), cut.pair(layers.Flatten()(h)))


def attention(cut: Cutter) -> Ends:
    x = keras.Input((5, 8))
    q, k, v = (cut.pair(cut.layer(layers.Dense(8), cut.pair(x, f"x{i}"))) for i in range(3))
    scores = layers.Softmax()(keras.ops.matmul(q, keras.ops.transpose(k, (0, 2, 1))))
    return x, cut.layer(layers.Dense(3), cut.pair(keras.ops.matmul(cut.pair(scores), v)))


def swish(cut: Cutter) -> Ends:
    x = keras.Input((6, 6, 3))
    h = cut.layer(layers.Conv2D(4, 3, activation="swish"), cut.pair(x))
    h = layers.UpSampling2D()(cut.pair(h))
    return x, cut.layer(layers.Conv2D(2, 3, padding="same"), cut.pair(h))


def split_and_slice(cut: Cutter) -> Ends:
    x = keras.Input((6, 6, 4))
    h = cut.layer(layers.Conv2D(6, 3, padding="same", activation="relu"), cut.pair(x))
    a, b = keras.ops.split(cut.pair(h), 2, axis=-1)
    h = layers.Cropping2D(1)(layers.Add()([a, b]))
    return x, cut.layer(layers.Conv2D(2, 1), cut.pair(h))


def negative_pool_padding(cut: Cutter) -> Ends:
    x = keras.Input((6, 6, 3))
    h = cut.layer(layers.Conv2D(4, 1), cut.pair(x))
    h = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(h))
    return x, cut.layer(layers.Conv2D(2, 1), cut.pair(h))


def resnet_stem(cut: Cutter) -> Ends:
    x = keras.Input((12, 12, 3))
    h = cut.pair(layers.ZeroPadding2D(3)(x))
    h = cut.layer(layers.Conv2D(4, 7, strides=2, activation="relu"), h)
    h = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(cut.pair(h)))
    return x, cut.layer(layers.Conv2D(2, 1), cut.pair(h))


# Q and DQ are counted for the target "onnxruntime": one pair per cut, one DQ per weight and per bias.
NETWORKS = [
    Network("conv_pool_dense", conv_pool_dense, {"Conv": 1, "Gemm": 1, "MaxPool": 1, "Relu": 1}, 3, 4),
    Network("residual", residual, {"Conv": 2, "Gemm": 1, "Add": 1, "GlobalAveragePool": 1}, 5, 6),
    Network("depthwise", depthwise, {"Conv": 2, "Pad": 0, "Clip": 1}, 2, 4),
    Network("conv1d", conv1d, {"Conv": 2, "Gemm": 1, "Unsqueeze": 0, "Add": 0}, 4, 6),
    Network("depthwise1d", depthwise1d, {"Conv": 2, "Unsqueeze": 0, "Add": 0}, 2, 4),
    Network("conv3d", conv3d, {"Conv": 1, "MaxPool": 1, "GlobalAveragePool": 1, "Gemm": 1}, 4, 4),
    Network("transposed", transposed, {"ConvTranspose": 1, "Conv": 1}, 2, 4),
    Network("grouped", grouped, {"Conv": 2}, 2, 4),
    Network("concatenation", concatenation, {"Conv": 3, "Concat": 1, "AveragePool": 1}, 5, 6),
    Network("squeeze_excite", squeeze_excite, {"Conv": 4, "Mul": 1, "Reshape": 0, "Squeeze": 0}, 7, 8),
    Network("dense_squeeze_excite", dense_squeeze_excite, {"Conv": 2, "Gemm": 1, "Mul": 1}, 5, 6),
    Network("shared_layer", shared_layer, {"Conv": 3}, 3, 5),
    Network("embedding", embedding, {"Gather": 1, "Conv": 1, "Gemm": 1}, 2, 5),
    Network("batch_norm_left", batch_norm_left, {"Conv": 2}, 2, 3),
    Network("sequence_dense", sequence_dense, {"MatMul": 2, "Gemm": 1, "Shape": 0, "GlobalAveragePool": 0}, 3, 4),
    Network("attention", attention, {"MatMul": 6, "Shape": 0}, 8, 4),
    Network("swish", swish, {"Conv": 2, "Resize": 1}, 3, 4),
    Network("split_and_slice", split_and_slice, {"Conv": 2, "Split": 1, "Add": 1, "Slice": 1}, 3, 4),
    Network("negative_pool_padding", negative_pool_padding, {"Conv": 2, "MaxPool": 1, "Pad": 1}, 2, 4),
    Network("resnet_stem", resnet_stem, {"Conv": 2, "MaxPool": 1, "Pad": 0}, 3, 4),
]


FLOAT_BIAS = dataclasses.replace(get_target("onnxruntime"), bias="float")
TARGETS = {"tensorrt": get_target("tensorrt"), "uint8": FLOAT_BIAS, "onnxruntime": get_target("onnxruntime")}
#: Zeros around an image, or behind a ReLU, are another integer on a grid of uint8.
PADDED = ("conv_pool_dense", "residual", "depthwise", "conv1d", "negative_pool_padding", "resnet_stem")


@functools.cache
def built(network: str, target: str) -> tuple[Built, onnx.ModelProto, dict[str, np.ndarray], list[np.ndarray]]:
    """Build a network; return it with data and the simulated outputs."""
    keras.backend.clear_session()  # the same names for every target
    keras.utils.set_random_seed(0)
    cut = Cutter(TARGETS[target])
    net = cut.finish(*next(each for each in NETWORKS if each.id == network).make(cut))
    data = random_data(net)
    expected = list(net.calibrate(data).values())
    module = importlib.import_module("qdq_workbench.export.build_onnx")  # the package's own name is the function
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "convert_float", functools.partial(_converted_once, module.convert_float, network))
        return net, build(net), data, expected


_CONVERTED: dict[tuple[str, ...], object] = {}


def _converted_once(convert: Callable[..., object], network: str, cut: object, **options: object) -> object:
    """Let tf2onnx convert a network once for all targets: what it sees has the weights and the pairs cut off."""
    key = (network, *map(str, options.values()))
    if key not in _CONVERTED:
        _CONVERTED[key] = convert(cut, **options)
    return _CONVERTED[key]


@pytest.mark.parametrize(
    ("network", "target"),
    [(each, target) for each in NETWORKS for target in TARGETS if target != "uint8" or each.id in PADDED],
    ids=str,
)
def test_values_and_operators(network: Network, target: str) -> None:
    net, model, data, expected = built(network.id, target)
    # The simulation keeps its biases in float; rounding them to int32 may flip the rounding of an activation.
    tolerance = 2e-2 if target == "onnxruntime" else 1e-4
    for got, want in zip(run(model, data), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=tolerance * max(1.0, np.abs(want).max()))
    counted = ops(model)
    assert {op: counted[op] for op in network.ops} == network.ops
    assert counted["QuantizeLinear"] == network.pairs == len(net.cut.pairs)
    if target == "onnxruntime":
        assert counted["DequantizeLinear"] == network.pairs + network.constants
    else:
        assert counted["DequantizeLinear"] == network.pairs + len(net.cut.weights)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.id)
def test_every_weighted_operation_sits_behind_its_dequantizers(network: Network) -> None:
    _, model, _, _ = built(network.id, "tensorrt")
    producers = {output: node for node in model.graph.node for output in node.output}
    for node in model.graph.node:
        if node.op_type in ("Conv", "ConvTranspose", "Gemm"):
            assert [producers[tensor].op_type for tensor in node.input[:2]] == ["DequantizeLinear"] * 2, node.name
