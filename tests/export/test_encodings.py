"""The arithmetic of encodings: clip bounds, biases, and scales raised so that a bias fits."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import layers
from small_models import samples, shake

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError
from qdq_workbench.export.encode import _with_gain
from qdq_workbench.export.encodings import Encoding, clip_bounds, raise_scale_for_bias
from qdq_workbench.quantizers.bias_room import bias_codes, bias_scale
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from tests.export.cutting import Cutter, encode_weight
from tests.export.running import build, random_data, run


@pytest.mark.parametrize(
    ("scale", "zero_point", "spec"),
    [
        (0.0, 0, QuantizerSpec()),
        (np.nan, 0, QuantizerSpec()),
        (-1.0, 0, QuantizerSpec()),
        (1.0, 128, QuantizerSpec()),
        (1.0, 0, QuantizerSpec(axis=0)),
        (np.ones(2), np.zeros(3), QuantizerSpec(axis=0)),
        (np.ones(2), np.zeros(2), QuantizerSpec()),
    ],
)
def test_parts_that_do_not_fit_are_refused(scale, zero_point, spec):
    with pytest.raises(ExportError, match="Received"):
        Encoding(np.float32(scale), np.int32(zero_point), spec)


def test_full_grids_need_no_clip():
    for spec in (QuantizerSpec(), QuantizerSpec(signed=False), QuantizerSpec(num_bits=16)):
        assert clip_bounds(Encoding(np.float32(0.1), np.int32(0), spec)) is None


@given(st.integers(2, 16), st.booleans(), st.booleans(), st.floats(1e-6, 1e6), st.integers(0, 2**16))
def test_clip_bounds_round_to_the_ends_of_the_grid(bits, signed, narrow, scale, shift):
    spec = QuantizerSpec(num_bits=bits, signed=signed, narrow_range=narrow)
    encoding = Encoding(np.float32(scale), np.int32(spec.qmin + shift % (spec.qmax - spec.qmin + 1)), spec)
    bounds = clip_bounds(encoding)
    if bounds is not None:
        codes = [int(np.rint(bound / encoding.scale)) + int(encoding.zero_point) for bound in bounds]
        assert codes == [spec.qmin, spec.qmax]


@given(st.floats(1e-6, 1.0), st.lists(st.floats(1e-12, 10.0), min_size=1, max_size=5), st.floats(-100.0, 100.0))
def test_a_raised_scale_holds_the_bias_and_leaves_other_channels_alone(input_scale, sizes, bias):
    values = np.random.default_rng(0).normal(size=(3, len(sizes))) * np.array(sizes)
    weight = encode_weight(values.astype(np.float32), QuantizerSpec(narrow_range=True, axis=1))
    biases = np.full(len(sizes), bias, np.float32)
    raised = raise_scale_for_bias(weight, biases, np.float32(input_scale))
    assert bias_codes(biases, bias_scale(np.float32(input_scale), raised.scale)) is not None
    untouched = raised.scale == weight.scale
    np.testing.assert_array_equal(raised.codes[:, untouched], weight.codes[:, untouched])
    assert np.all(np.abs(raised.dequantized() - weight.dequantized()) <= raised.scale * 0.5001)
    assert raise_scale_for_bias(raised, biases, np.float32(input_scale)) is raised


def test_bias_is_rounded_to_even_and_refused_when_too_large():
    np.testing.assert_array_equal(bias_codes(np.array([0.5, 1.5, -2.5]), np.float32(1.0)), [0, 2, -2])
    assert bias_codes(np.array([1.0]), np.float32(1e-12)) is None


def test_rounding_again_needs_codes_and_matching_axes():
    activation = Encoding(np.float32(1), np.int32(0), QuantizerSpec())
    with pytest.raises(ExportError, match="codes=None"):
        raise_scale_for_bias(activation, np.zeros(3), np.float32(1))
    with pytest.raises(ExportError, match="codes=None"):
        activation.dequantized()
    weight = encode_weight(np.ones((3, 2), np.float32), QuantizerSpec(axis=1))
    with pytest.raises(ExportError, match="one value per weight scale"):
        raise_scale_for_bias(weight, np.zeros(3), np.float32(1))


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_integer_biases_have_the_product_of_the_scales():
    keras.utils.set_random_seed(0)
    cut = Cutter("onnxruntime")
    x = keras.Input((6, 6, 3))
    conv, dense = layers.Conv2D(4, 3, name="conv"), layers.Dense(5, name="dense")
    h = layers.Flatten()(cut.layer(conv, cut.pair(x, "a")))
    net = cut.finish(x, cut.layer(dense, cut.pair(h, "b"), axis=None))
    net.calibrate(random_data(net))
    found = constants(build(net))
    for layer, pair in ((conv, "a"), (dense, "b")):
        scale = found[f"{pair}/scale"] * found[f"{layer.name}/kernel/scale"]
        np.testing.assert_array_equal(found[f"{layer.name}/bias/scale"], scale.astype(np.float32))
        assert found[f"{layer.name}/bias/quantized"].dtype == np.int32
        rounded = found[f"{layer.name}/bias/quantized"] * scale
        assert np.all(np.abs(rounded - np.asarray(layer.bias)) <= scale * 0.51)


@pytest.mark.parametrize("simulated", [True, False], ids=["raised by the caller", "raised by build_onnx"])
def test_a_bias_that_would_overflow_raises_the_weight_scale(simulated):
    keras.utils.set_random_seed(0)
    cut = Cutter("onnxruntime")
    x = keras.Input((6, 6, 3))
    conv = layers.Conv2D(4, 3, name="conv")
    net = cut.finish(x, cut.layer(conv, cut.pair(x)))
    kernel = np.asarray(conv.kernel).copy()
    kernel[..., 1] *= 1e-13
    conv.kernel.assign(kernel)
    net.weights["conv/kernel"] = encode_weight(kernel, net.weights["conv/kernel"].spec)
    data = random_data(net)
    expected = net.calibrate(data)["y"]
    bias, scale = np.asarray(conv.bias), net.activations["t0"].scale
    raised = raise_scale_for_bias(net.weights["conv/kernel"], bias, scale)
    assert raised.scale[1] > net.weights["conv/kernel"].scale[1]
    if simulated:
        net.weights["conv/kernel"] = raised
    model = build(net)
    np.testing.assert_array_equal(constants(model)[next(iter(_names(model, "/kernel/scale")))], raised.scale)
    np.testing.assert_allclose(run(model, data)[0], expected, atol=1e-3)
    np.testing.assert_allclose(run(model, data, optimize=True)[0], expected, atol=1e-3)


def _names(model: onnx.ModelProto, part: str) -> list[str]:
    return [tensor.name for tensor in model.graph.initializer if part in tensor.name]


def test_weight_axis_follows_the_kernel_into_its_onnx_layout():
    keras.utils.set_random_seed(0)
    cut = Cutter("onnxruntime")
    x = keras.Input((6, 6, 3))
    h = cut.layer(layers.DepthwiseConv2D(3, depth_multiplier=2, name="by_input"), cut.pair(x), axis=2)
    h = cut.layer(layers.DepthwiseConv2D(3, depth_multiplier=1, name="by_channel"), cut.pair(h), axis=2)
    net = cut.finish(x, cut.layer(layers.Conv2D(2, 1, name="wrong"), cut.pair(h), axis=2))
    net.calibrate(random_data(net))
    model = build(net)
    axes = {
        node.name: next((a.i for a in node.attribute if a.name == "axis"), None)
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and "kernel" in node.name
    }
    assert axes == {
        "by_input/kernel/DequantizeLinear": 0,
        "by_channel/kernel/DequantizeLinear": 0,
        "wrong/kernel/DequantizeLinear": 1,
    }
    assert constants(model)["by_input/kernel/scale"].shape == (6,)


def test_asymmetric_weights_keep_their_zero_points():
    cut = Cutter("onnxruntime")
    x = keras.Input((4,))
    net = cut.finish(x, cut.layer(layers.Dense(3, name="dense"), cut.pair(x)))
    old = net.weights["dense/kernel"]
    net.weights["dense/kernel"] = dataclasses.replace(
        old, zero_point=np.array([3, -4, 5]), spec=QuantizerSpec(symmetric=False, axis=1)
    )
    net.cut.weights["dense/kernel"].assign(net.weights["dense/kernel"].dequantized())
    data = random_data(net)
    expected = net.calibrate(data)["y"]
    np.testing.assert_allclose(run(build(net), data)[0], expected, atol=1e-4)


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_negative_gain_mirrors_a_wide_grid_without_leaving_it(symmetric):
    spec = QuantizerSpec(symmetric=symmetric, narrow_range=False, axis=1)
    codes = np.array([[-128, -127, 127], [127, 5, -128]], np.int8)
    zero = np.zeros(3, np.int32) if symmetric else np.array([-128, 127, 3], np.int32)
    gain = np.array([-2.0, -0.5, 3.0])
    before = Encoding(np.float32([0.1, 0.2, 0.3]), zero, spec, codes)
    after = _with_gain(before, "Dense", gain)
    assert after.codes.dtype == np.int8
    np.testing.assert_allclose(_values(after), _values(before) * gain, rtol=1e-6)


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt", "openvino", "litert"])
def test_a_normalization_behind_one_filter(target, tmp_path):
    keras.utils.set_random_seed(3)
    image = keras.Input((6, 6, 4), name="image")
    x = layers.BatchNormalization(name="up_norm")(layers.Conv2DTranspose(1, 3, strides=2, name="up")(image))
    x = layers.BatchNormalization(name="deep_norm")(layers.DepthwiseConv2D(3, name="deep")(x))
    x = layers.BatchNormalization(name="one_norm")(layers.Conv2D(1, 3, name="one")(x))
    model = shake(keras.Model(image, x))
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, samples(model), verbose=False)
    export, verify = (
        (qdq.export_tflite, qdq.verify_tflite) if target == "litert" else (qdq.export_onnx, qdq.verify_onnx)
    )
    path = export(q_model, tmp_path / ("model.tflite" if target == "litert" else "model.onnx")).path
    verify(path, q_model, samples(model)).raise_if_failed()
    folded = [node.name for node in q_model.plan.graph.nodes if q_model.plan.lowering.nodes[node.name].step == "folded"]
    assert folded == ["up_norm", "deep_norm", "one_norm"]


def _values(encoding):
    return (encoding.codes.astype(np.int32) - encoding.zero_point) * encoding.scale
