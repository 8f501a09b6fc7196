"""Layers that TensorFlow takes detours for reach the file as the one operation that they are."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from keras import layers
from keras.layers import TimeDistributed

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError
from qdq_workbench.export.keras_side.trace import _INLINED_FUNCTIONS

_MOVEMENTS = {"Transpose", "QuantizeLinear", "DequantizeLinear", "Squeeze", "Unsqueeze", "Reshape"}


@dataclasses.dataclass(frozen=True)
class Detour:
    """A layer, the shape of its input, and the computing operations that the file may hold."""

    id: str
    shape: tuple[int | None, ...]
    layer: Callable[[], Any]
    operations: tuple[str, ...] = ("Conv",)


DETOURS = [
    Detour("open size", (None, None, 3), lambda: layers.Conv2D(2, (2, 3), dilation_rate=(3, 1), padding="same")),
    Detour("open cube", (None, None, 4, 2), lambda: layers.Conv3D(2, 2, dilation_rate=2, padding="same")),
    Detour("open line", (None, 3), lambda: layers.Conv1D(2, 4, dilation_rate=2, padding="same")),
    Detour("causal", (None, 3), lambda: layers.Conv1D(2, 3, dilation_rate=4, padding="causal")),
    Detour("groups", (5, 5, 5, 4), lambda: layers.Conv3D(4, 2, dilation_rate=2, groups=2)),
    Detour("depthwise", (None, None, 3), lambda: layers.DepthwiseConv2D(3, dilation_rate=2, padding="same")),
    Detour("depthwise line", (None, 3), lambda: layers.DepthwiseConv1D(3, dilation_rate=2, depth_multiplier=2)),
    Detour(
        "separable",
        (None, None, 3),
        lambda: layers.SeparableConv2D(4, 3, dilation_rate=2, padding="same"),
        ("Conv",) * 2,
    ),
    Detour(
        "channels first, with an activation along the last axis",
        (4, 9, 8),
        lambda: layers.Conv2D(4, 3, groups=2, dilation_rate=(2, 1), data_format="channels_first", activation="softmax"),
        ("Conv", "Softmax"),
    ),
    Detour("line with channels first", (4, 12), lambda: layers.Conv1D(3, 3, strides=2, data_format="channels_first")),
    Detour(
        "dilated line with channels first",
        (4, 12),
        lambda: layers.Conv1D(3, 3, dilation_rate=2, data_format="channels_first"),
    ),
    Detour(
        "transposed line",
        (6, 4),
        lambda: layers.Conv1DTranspose(3, 4, strides=3, output_padding=1, activation="relu", use_bias=False),
        ("ConvTranspose", "Relu"),
    ),
    Detour("dilated transposed", (6, 4), lambda: layers.Conv1DTranspose(3, 3, dilation_rate=2), ("ConvTranspose",)),
    Detour(
        "transposed line with channels first",
        (6, 3),
        lambda: layers.Conv1DTranspose(11, 2, padding="same", data_format="channels_first"),
        ("ConvTranspose",),
    ),
    Detour("steps of steps", (3, 4, 5), lambda: TimeDistributed(TimeDistributed(layers.Dense(2))), ("Gemm",)),
    Detour(
        "transposed line by steps",
        (2, 6, 4),
        lambda: TimeDistributed(layers.Conv1DTranspose(3, 4, strides=3)),
        ("ConvTranspose",),
    ),
    Detour(
        "transposed line with a spectral norm",
        (6, 4),
        lambda: layers.SpectralNormalization(layers.Conv1DTranspose(3, 4, strides=3)),
        ("ConvTranspose",),
    ),
    Detour(
        "leading axes",
        (5, 2, 4),
        lambda: layers.EinsumDense("...x,xy->...y", output_shape=3, bias_axes="y"),
        ("Add", "MatMul"),
    ),
    Detour(
        "axes behind",
        (4, 5),
        lambda: layers.EinsumDense("ab...,bc->ac...", output_shape=(3, None)),
        ("MatMul",),
    ),
]


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
@pytest.mark.parametrize("detour", DETOURS, ids=lambda detour: detour.id)
def test_no_detour_is_left(detour, target, tmp_path):
    x = keras.Input(detour.shape, name="x")
    model = keras.Model(x, detour.layer()(x))
    generator = np.random.default_rng(0)
    for variable in model.weights:
        variable.assign(generator.uniform(-1, 1, variable.shape))
    data = generator.normal(size=(4, *(7 if size is None else size for size in detour.shape))).astype("float32")
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    verification = qdq.verify_onnx(report.path, q_model, data)
    assert verification.passed, verification.summary()
    nodes = onnx.load(report.path).graph.node
    assert sorted(node.op_type for node in nodes if node.op_type not in _MOVEMENTS) == sorted(detour.operations)
    for node in nodes:  # what stands behind DequantizeLinear is an operand of a computation, not moved about
        if node.op_type in ("Conv", "ConvTranspose"):
            assert {_producer(nodes, name) for name in node.input[:2]} <= {
                "DequantizeLinear",
                "Conv",
                "Pad",
                "Transpose",
            }


def _producer(nodes, tensor):
    return next(node.op_type for node in nodes if tensor in node.output)


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_bilinear_upsampling_of_images_of_any_size(layout, tmp_path):
    last = layout == "channels_last"
    x = keras.Input((None, None, 3) if last else (3, None, 4), name="x")
    grown = layers.UpSampling2D((2, 3), interpolation="bilinear", data_format=layout)(x)
    q_model = qdq.quantize_model(keras.Model(x, layers.Conv2D(2, 3, data_format=layout)(grown)))
    shapes = [(4, 5, 4, 3), (4, 6, 7, 3)] if last else [(4, 3, 5, 4), (4, 3, 6, 4)]
    samples = [np.random.default_rng(0).normal(size=shape).astype("float32") for shape in shapes]
    qdq.calibrate(q_model, samples[0], verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    for data in samples:
        verification = qdq.verify_onnx(report.path, q_model, data)
        assert verification.passed, verification.summary()


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "added"), [(1, 3, "same", None), (1, 4, "valid", None), (2, 4, "valid", 3)]
)
@pytest.mark.parametrize("rank", [1, 2])
def test_what_a_wide_stride_adds_behind_a_transposed_convolution_stays_behind_it(
    rank, kernel, stride, padding, added, tmp_path
):
    x = keras.Input((5,) * rank + (3,), name="x")
    layer = layers.Conv1DTranspose if rank == 1 else layers.Conv2DTranspose
    model = keras.Model(x, layer(4, kernel, strides=stride, padding=padding, output_padding=added)(x))
    data = np.random.default_rng(0).normal(size=(2, *x.shape[1:])).astype("float32")
    path = qdq.export_float_onnx(model, tmp_path / "model.onnx")
    found = onnxruntime.InferenceSession(str(path)).run(None, {"x": data})[0]
    np.testing.assert_allclose(found, model(data, training=False), atol=1e-6)


def test_exports_that_overlap_leave_tensorflow_as_it_was():
    """In threads of their own the first one may end first; the other one still traces through functions."""
    usual, first, second = type(tf.function(len)).__call__, contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(_INLINED_FUNCTIONS)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(second.enter_context, _INLINED_FUNCTIONS).result()
        first.close()
        assert type(tf.function(len)).__call__ is not usual
        pool.submit(second.close).result()
    assert type(tf.function(len)).__call__ is usual
    assert not tf.config.functions_run_eagerly()


@pytest.mark.parametrize("export", [qdq.export_onnx, qdq.export_tflite])
def test_a_mask_of_an_open_number_of_steps_is_refused_where_the_layer_inside_reads_it(export, tmp_path):
    words = keras.Input((None, 4), dtype="int32", name="words")
    x = layers.Embedding(20, 3, mask_zero=True)(words)
    model = keras.Model(words, TimeDistributed(layers.GRU(2), name="sentences")(x))
    q_model = qdq.quantize_model(model, target="litert" if export is qdq.export_tflite else "onnxruntime")
    qdq.calibrate(q_model, np.ones((2, 3, 4), np.int32), verbose=False)
    suffix = ".tflite" if export is qdq.export_tflite else ".onnx"
    with pytest.raises(ExportError, match="'sentences' applies a layer that reads a mask to an open number of steps"):
        export(q_model, (tmp_path / "model").with_suffix(suffix))
    assert list(tmp_path.iterdir()) == []
