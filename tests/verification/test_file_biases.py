"""The biases of a file: those of its layers, and not what the layer behind a product adds."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops
from onnx import numpy_helper

import qdq_workbench as qdq
from qdq_workbench.verification.file_biases import bias_differences

STEPS, VECTORS, IMAGE = (5, 3), (3,), (5, 5, 3)


@keras.saving.register_keras_serializable(package="test_file_biases")
class Shift(layers.Layer):
    """Adds a weight with one value per channel, of one axis or of as many as the input has."""

    def __init__(self, *, full, **settings):
        super().__init__(**settings)
        self.full = full

    def build(self, shape):
        axes = (1,) * (len(shape) - 1) if self.full else ()
        self.shift = self.add_weight(shape=(*axes, shape[-1]), initializer=keras.initializers.Constant(0.7))

    def call(self, inputs):
        return inputs + self.shift


def lifted(x):
    """A function of the user that begins with an addition."""
    return ops.tanh(x + 0.7)


# What the layer behind a product adds first; TensorFlow adds up constants in a row, and leaves out products with 1.
BEHIND = {
    "bend": lambda name: layers.Activation("hard_sigmoid", name=name),
    "lift": lambda name: layers.Activation(lifted, name=name),
    "rescale": lambda name: layers.Rescaling(1.0, offset=0.7, name=name),
    "shift": lambda name: Shift(full=False, name=name),
    "shift_full": lambda name: Shift(full=True, name=name),
    "number": lambda _: lambda x: x + 0.7,
    "numbers": lambda name: lambda x: layers.Activation(lifted, name=name)(x + 0.4),
    "later_number": lambda name: lambda x: layers.Rescaling(1.0, offset=0.7, name=name)(x) + 0.4,
    "vector": lambda _: lambda x: ops.add(x, np.float32([0.1, 0.2])[: x.shape[-1]]),
    "logarithm": lambda _: ops.log1p,
}
# `log1p` and a layer as the activation inside.
INSIDE = {"logarithm_inside": lambda: ops.log1p, "layer_inside": lambda: layers.Rescaling(1.0, offset=0.7)}


def exported(target, path, *, shape, bias, units=2):
    """A model of one product in front of each layer and with each activation, its file, and samples."""
    x = keras.Input(shape, name="x")

    def made(name, **more):
        more |= {"use_bias": bias is not None, "bias_initializer": bias or "zeros", "name": name}
        more |= {"kernel_initializer": keras.initializers.RandomUniform(0.1, 1.0, seed=1)}
        return layers.Conv2D(units, 2, **more)(x) if len(shape) > 2 else layers.Dense(units, **more)(x)

    results = [layer(f"{name}_behind")(made(name)) for name, layer in BEHIND.items()]
    results += [made(name, activation=activation()) for name, activation in INSIDE.items()]
    samples = np.random.default_rng(0).random((8, *shape), dtype=np.float32)
    q_model = qdq.quantize_model(keras.Model(x, results), target=target)
    qdq.calibrate(q_model, samples, verbose=False)
    return q_model, qdq.export_onnx(q_model, path / "model.onnx").path, samples


@pytest.mark.parametrize("target", ["onnxruntime", "openvino"])
@pytest.mark.parametrize(
    ("shape", "bias", "units"),
    [
        (STEPS, None, 2),
        (STEPS, "ones", 2),
        (STEPS, "zeros", 1),
        (VECTORS, None, 1),
        (VECTORS, "ones", 2),
        (IMAGE, None, 2),
        (IMAGE, "ones", 2),
    ],
)
def test_what_the_layer_behind_a_product_adds_is_no_bias(target, shape, bias, units, tmp_path):
    q_model, path, samples = exported(target, tmp_path, shape=shape, bias=bias, units=units)
    report = qdq.verify_onnx(path, q_model, samples)
    assert report.passed, report.summary()


def test_a_bias_in_front_of_another_constant_is_compared(tmp_path):
    q_model, path, _ = exported("openvino", tmp_path, shape=STEPS, bias="ones")
    file = onnx.load(path)
    biases = {
        node.name.removesuffix("/BiasAdd"): tensor
        for node in file.graph.node
        if node.name.endswith("/BiasAdd")
        for tensor in node.input
        if any(constant.name == tensor for constant in file.graph.initializer)
    }
    compared = {"bend", "lift", "rescale", "shift", "number", "numbers", "vector", "logarithm", "logarithm_inside"}
    for layer in compared:
        changed = onnx.ModelProto.FromString(file.SerializeToString())
        constant = next(each for each in changed.graph.initializer if each.name == biases[layer])
        constant.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(constant) + np.float32(0.01), constant.name))
        told = dict(bias_differences(changed, q_model))
        assert "2 of 2 values are not the model's" in told[layer]
