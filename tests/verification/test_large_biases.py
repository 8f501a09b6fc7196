"""A correct file whose biases are far larger than what its inputs and weights make verifies, at 4 bits too."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import numpy_helper

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError

LARGE = 1e4
MAKERS = {
    "dense": lambda: layers.Dense(4, name="dense"),
    "conv": lambda: layers.Conv2D(4, 3, padding="same", name="conv"),
    "depthwise": lambda: layers.DepthwiseConv2D(3, padding="same", name="depthwise"),
}


def network(seed, *, normalized):
    """One branch per class of layer, with channels of large, of small and of no bias, and a reader of its output."""
    random = np.random.default_rng(seed)
    keras.utils.set_random_seed(seed)
    image, outputs = keras.Input((4, 4, 4), name="image"), []
    for name, make in MAKERS.items():
        layer = make()
        x = layer(layers.Flatten()(image) if name == "dense" else image)
        layer.bias.assign(random.permutation([LARGE, -LARGE, 0.01, 0.0]))
        if normalized:
            norm = layers.BatchNormalization(name=f"{name}_norm")
            x = norm(x)
            norm.set_weights([random.normal(size=4), *random.normal(size=(2, 4)), random.uniform(0.5, 2.0, 4)])
        outputs.append(layers.Dense(2, name=f"{name}_head")(layers.ReLU(name=f"{name}_relu")(x)))
    return keras.Model(image, outputs), random.normal(size=(8, 4, 4, 4)).astype("float32")


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
@pytest.mark.parametrize("normalized", [False, True])
def test_a_file_with_large_biases_verifies_at_four_bits(tmp_path, normalized, target, seed):
    model, images = network(seed, normalized=normalized)
    bits = qdq.LayerQuantizeConfig(weight={"num_bits": 4}, activation={"num_bits": 4})
    spec = qdq.QuantizationSpec()
    spec.add("*", match="glob", quantize_output=True, quantize_config=bits)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    qdq.calibrate(q_model, images, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    large = [bias for bias in integer_biases(path) if np.abs(bias).max() > LARGE / 4]
    assert len(large) == (len(MAKERS) if target == "onnxruntime" else 0)  # TensorRT reads them as floats
    for samples in (images, images[:1]):
        qdq.verify_onnx(path, q_model, samples).raise_if_failed()


@pytest.mark.parametrize("per_axis", [False, True])
def test_a_scale_is_raised_and_its_weights_are_rounded_again_for_the_folded_bias_alone(per_axis, tmp_path):
    image = keras.Input((4, 4, 2), name="image")
    conv, norm = layers.Conv2D(4, 2, name="conv"), layers.BatchNormalization(name="norm")
    model = keras.Model(image, layers.ReLU()(norm(conv(image))))
    bias = [1.6 * LARGE, 1.1 * LARGE, -0.4 * LARGE, 1.2 * LARGE]
    conv.bias.assign(bias)
    gain, beta, mean = np.array([[1, 1.5, -0.5, 1], [500, 0, 0, 0], [0, 1e3, 7e3, 1.2 * LARGE]])
    norm.epsilon = 0.0
    norm.set_weights([gain, beta, mean, np.ones(4)])
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_config=qdq.LayerQuantizeConfig(weight={"per_axis": per_axis}))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="tensorrt")
    qdq.calibrate(q_model, np.zeros((2, 4, 4, 2), "float32"), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    held = {c.name: numpy_helper.to_array(c) for c in onnx.load(path).graph.initializer}
    codes, scale = held["conv/kernel/quantized"], held["conv/kernel/scale"].astype(np.float64)
    trained = qdq.strip(q_model, bake_weights=True).get_layer("conv").kernel * gain
    wanted = np.asarray(trained).transpose(3, 2, 0, 1) / scale.reshape(4, 1, 1, 1)
    assert np.abs(wanted - codes).max() < 0.5 + 1e-4
    assert np.abs(wanted - codes)[:3].max() > 0.4  # rounded again
    assert np.abs(wanted - codes)[3].max() < 1e-4  # the normalization takes this bias away
    qdq.verify_onnx(path, q_model).raise_if_failed()


def shared_dense(size, bias):
    """A calibrated model that calls one layer with ordinary inputs and with inputs of another size."""
    keras.utils.set_random_seed(0)
    image, other = keras.Input((16,), name="image"), keras.Input((16,), name="other")
    dense = layers.Dense(8, name="dense")
    model = keras.Model([image, other], [dense(image), dense(other)])
    dense.bias.assign(np.linspace(-bias, bias, 8))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    images = np.random.default_rng(0).normal(size=(64, 16)).astype("float32")
    qdq.calibrate(q_model, [images, images * np.float32(size)], verbose=False)
    return q_model


@pytest.mark.parametrize("size", [1e-5, 1e-7, 1e-12])
def test_a_weight_that_the_bias_of_a_call_with_tiny_inputs_would_cost_the_other_calls_is_refused(size, tmp_path):
    q_model = shared_dense(size, bias=6)
    with pytest.raises(ExportError, match=r"'dense' is called with inputs of very different sizes.*spec.add\('dense'"):
        qdq.export_onnx(q_model, tmp_path / "model.onnx")
    with pytest.raises(ExportError, match="'dense' is called with inputs of very different sizes"):
        qdq.export_tflite(q_model, tmp_path / "model.tflite")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("size", "bias"), [(1e-4, 6), (1e-12, 0)])
def test_a_weight_that_loses_nothing_is_not(size, bias, tmp_path):
    q_model = shared_dense(size, bias)
    qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model).raise_if_failed()


def integer_biases(path):
    """Return the values of the int32 biases of a file."""
    graph = onnx.load(path).graph
    constants = {constant.name: numpy_helper.to_array(constant) for constant in graph.initializer}
    read = [node.input for node in graph.node if node.op_type == "DequantizeLinear"]
    return [
        constants[codes] * constants[scale].astype(np.float64)
        for codes, scale, *_ in read
        if codes in constants and constants[codes].dtype == np.int32
    ]
