"""Transposed convolutions: the padding of TensorFlow, whatever the sizes, strides, paddings and layouts."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers

import qdq_workbench as qdq

RANKS = {1: layers.Conv1DTranspose, 2: layers.Conv2DTranspose, 3: layers.Conv3DTranspose}
#: Kernel, stride, padding, output padding: more values than the kernel reaches, fewer, and as many.
SETTINGS = [
    (1, 2, "valid", None),
    (1, 3, "same", 1),
    (3, 2, "valid", 1),
    (3, 2, "same", None),
    (4, 2, "same", None),
]


def exported(layer, shape, tmp_path, size=5):
    """Quantize a model of one layer; return the operators of its verified file."""
    x = keras.Input(shape, name="x")
    q_model = qdq.quantize_model(keras.Model(x, layer(x)), target="onnxruntime")
    sizes = [size if axis is None else axis for axis in shape]
    data = np.random.default_rng(0).normal(size=(4, *sizes)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    report = qdq.verify_onnx(path, q_model, data)
    assert report.passed, report.summary()
    assert not report.form_remark
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize("size", [5, None])
@pytest.mark.parametrize("data_format", ["channels_first", "channels_last"])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("rank", [1, 2])
def test_the_bias_is_a_part_of_it_and_the_values_are_those_of_keras(rank, setting, data_format, size, tmp_path):
    kernel, strides, padding, added = setting
    shape = (3, *[size] * rank) if data_format == "channels_first" else (*[size] * rank, 3)
    # More filters than values along an axis: Keras (3.15) adds a bias along the last axis if the numbers are equal.
    more = {"padding": padding, "output_padding": added, "data_format": data_format, "bias_initializer": "normal"}
    operators = exported(RANKS[rank](19, kernel, strides=strides, name="conv", **more), shape, tmp_path)
    assert operators.count("ConvTranspose") == 1
    assert not {"Add", "Pad", "Shape", "Slice"} & set(operators)


@pytest.mark.parametrize("size", [3, None])
@pytest.mark.parametrize("data_format", ["channels_first", "channels_last"])
def test_volumes(data_format, size, tmp_path):
    shape = (2, 3, size, 3) if data_format == "channels_first" else (3, size, 3, 2)
    more = {"data_format": data_format, "bias_initializer": "normal", "activation": "relu"}
    operators = exported(layers.Conv3DTranspose(19, 1, strides=2, **more), shape, tmp_path)
    assert not {"Add", "Pad", "Shape", "Slice"} & set(operators)


@pytest.mark.filterwarnings("ignore:About 100 %")
def test_sizes_that_another_tensor_decides_are_computed_at_run_time(tmp_path):
    """A layer of a user's own, whose result is as large as another image."""

    @keras.saving.register_keras_serializable("tests")
    class AsLargeAs(layers.Layer):
        def build(self, shapes):
            self.kernel = self.add_weight(shape=(3, 3, 2, shapes[0][-1]), name="kernel")

        def call(self, inputs):
            import tensorflow as tf

            small, large = inputs
            sizes = tf.concat([tf.shape(large)[:3], [2]], 0)
            result = tf.nn.conv2d_transpose(small, self.kernel, sizes, 2, "SAME")
            result.set_shape((None, None, None, 2))
            return result

        def compute_output_shape(self, shapes):
            return (None, None, None, 2)

    inputs = [keras.Input((None, None, 3), name="small"), keras.Input((None, None, 1), name="large")]
    q_model = qdq.quantize_model(keras.Model(inputs, AsLargeAs(name="fit")(inputs)), target="onnxruntime")
    generator = np.random.default_rng(0)
    data = [generator.normal(size=shape).astype("float32") for shape in ((2, 4, 4, 3), (2, 7, 8, 1))]
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    report = qdq.verify_onnx(path, q_model, data)
    assert report.passed, report.summary()
