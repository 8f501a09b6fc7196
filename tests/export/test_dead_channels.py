"""Weights, inputs and normalizations of zeros: every scale is legal for them, and their biases depend on it."""

import keras
import numpy as np
import onnx
import pytest
from exact_runs import run_file_exactly
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.export.litert.tflite_run import run_tflite

TARGETS = ("onnxruntime", "tensorrt", "openvino", "litert")
DATA = np.random.default_rng(0).integers(0, 256, (8, 6, 6, 3)).astype(np.float32)


def net(layer, *, bias=0.4, normalized=False, calls=1, channels=3):
    """A layer with a dead channel, all biases equal, and a ReLU behind it."""
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, channels), name="image")
    tensors = [layer(image)] + [layer(image * 1e-3) for _ in range(calls - 1)]
    if normalized:
        tensors = [layers.BatchNormalization(name="norm")(tensor) for tensor in tensors]
    model = keras.Model(image, [layers.ReLU()(tensor) for tensor in tensors])
    kernel = np.array(layer.kernel) / 255
    kernel[(slice(None), slice(None), 0) if isinstance(layer, layers.DepthwiseConv2D) else (..., 0)] = 0.0
    layer.kernel.assign(kernel)
    layer.bias.assign(np.full(layer.bias.shape, bias))
    return model


def quantized(model, target, data=DATA):
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, data, verbose=False)
    return q_model


def run_file(q_model, target, folder, data=DATA):
    if target == "litert":
        qdq.export_tflite(q_model, folder / "model.tflite", batch=len(data))
        return list(run_tflite((folder / "model.tflite").read_bytes(), {"image": data}).values())
    path = folder / "model.onnx"
    qdq.export_onnx(q_model, path)
    qdq.verify_onnx(path, q_model, data).raise_if_failed()
    return run_file_exactly(path, {"image": data})


def assert_dead_channel_is_exact(q_model, target, folder, data=DATA, channels=1):
    """Channel 0 is a constant that both sides round to the same integer; no other is further off than one step."""
    expected = [np.asarray(values) for values in keras.tree.flatten(q_model(data))]
    for ours, theirs in zip(expected, run_file(q_model, target, folder, data), strict=True):
        np.testing.assert_allclose(theirs[..., :channels], ours[..., :channels], rtol=1e-6)
        assert np.abs(theirs - ours).max() <= np.ptp(ours) / 255 * 1.01


@pytest.mark.parametrize(("target", "normalized"), [*((target, False) for target in TARGETS), ("onnxruntime", True)])
def test_a_dead_channel(target, normalized, tmp_path):
    model = net(layers.Conv2D(8, 3, name="conv"), normalized=normalized)
    assert_dead_channel_is_exact(quantized(model, target), target, tmp_path)


def test_a_normalization_that_switches_a_channel_off(tmp_path):
    model = net(layers.Conv2D(4, 3, name="conv"), normalized=True)
    norm = model.get_layer("norm")
    norm.gamma.assign([0.0, 1.0, 1.0, 1.0])
    norm.beta.assign([0.3, 0.0, 0.0, 0.0])
    layer = model.get_layer("conv")
    layer.kernel.assign(np.array(layer.kernel)[..., [1, 1, 2, 3]])
    assert_dead_channel_is_exact(quantized(model, "onnxruntime"), "onnxruntime", tmp_path)


def test_all_outputs_of_a_dead_channel_of_a_depthwise_layer(tmp_path):
    model = net(layers.DepthwiseConv2D(3, depth_multiplier=2, name="conv"), bias=0.4)
    assert_dead_channel_is_exact(quantized(model, "onnxruntime"), "onnxruntime", tmp_path, channels=2)


def test_a_shared_layer_whose_inputs_have_other_scales(tmp_path):
    model = net(layers.Conv2D(4, 3, name="conv"), calls=2)
    assert_dead_channel_is_exact(quantized(model, "onnxruntime"), "onnxruntime", tmp_path)


@pytest.mark.parametrize("target", ["onnxruntime", "litert"])
def test_a_dead_input(target, tmp_path):
    model = net(layers.Conv2D(4, 3, name="conv"))
    model.get_layer("conv").kernel.assign(np.random.default_rng(0).normal(0, 1, (3, 3, 3, 4)))
    model.get_layer("conv").bias.assign([0.4, 0.01, 0.21, 0.31])
    assert_dead_channel_is_exact(quantized(model, target, DATA * 0), target, tmp_path, DATA * 0, channels=4)


@pytest.mark.parametrize("size", [0.0, 1e-14, 1e-9])
def test_integer_weights_have_the_integers_and_scales_of_the_file(size, tmp_path):
    """Of a channel that is dead or nearly so too, whose scale follows from its bias."""
    model = net(layers.Conv2D(8, 3, name="conv"))
    kernel = np.array(model.get_layer("conv").kernel)
    kernel[..., 0] = size * np.sign(kernel[..., 1])
    model.get_layer("conv").kernel.assign(kernel)
    q_model = quantized(model, "onnxruntime")
    found = qdq.integer_weights(q_model)
    baked = np.array(qdq.strip(q_model, bake_weights=True).get_layer("conv").kernel)
    np.testing.assert_array_equal(found["conv/kernel"].dequantize()[..., 1:], baked[..., 1:])
    np.testing.assert_allclose(found["conv/kernel"].dequantize()[..., 0], baked[..., 0], atol=1e-9)
    np.testing.assert_allclose(found["conv/bias"].dequantize()[0], 0.4, rtol=1e-6)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    constants = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in onnx.load(tmp_path / "model.onnx").graph.initializer
    }
    for name in ("kernel", "bias"):
        np.testing.assert_array_equal(found[f"conv/{name}"].scale, constants[f"conv/{name}/scale"])
    np.testing.assert_array_equal(found["conv/bias"].codes, constants["conv/bias/quantized"])
    np.testing.assert_array_equal(found["conv/kernel"].codes.transpose(3, 2, 0, 1), constants["conv/kernel/quantized"])
