"""Operations that tf2onnx does not translate, or into operators that ONNX Runtime does not run or takes otherwise."""

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from keras import layers, ops

import qdq_workbench as qdq

INDICES = np.random.default_rng(0).integers(-3, 6, (9, 4)).astype("int32")  # beyond both ends of 3 classes, too


@keras.saving.register_keras_serializable(package="test_handlers")
class Marks(layers.Layer):
    """Marks classes with other values than 1 and 0, as many classes as there are indices."""

    def call(self, inputs):
        return tf.one_hot(inputs, tf.shape(inputs)[1], on_value=2.5, off_value=-1.0, axis=1)


def exported(model, path):
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, INDICES, verbose=False)
    report = qdq.verify_onnx(qdq.export_onnx(q_model, path).path, q_model, INDICES)
    assert report.passed, report.summary()
    return q_model, onnxruntime.InferenceSession(path).run(None, {"x": INDICES})


def test_classes_of_every_type_along_any_axis(tmp_path):
    x = keras.Input((4,), dtype="int32", name="x")
    types = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")
    outputs = [ops.one_hot(x, 3, dtype=dtype, axis=axis) for dtype in types for axis in (-1, 1)]
    model = keras.Model(x, outputs)
    _, found = exported(model, tmp_path / "model.onnx")
    for ours, theirs in zip(found, model(INDICES), strict=True):
        assert ours.dtype == theirs.numpy().dtype
        np.testing.assert_array_equal(ours, theirs)
        assert 0 < np.mean(ours) < 1 / 3


def test_half_precision_in_front_of_a_quantized_layer(tmp_path):
    x = keras.Input((4,), dtype="int32", name="x")
    y = ops.one_hot(x, 3, dtype="float16")
    model = keras.Model(x, [layers.Dense(2, name="dense")(y), ops.multiply(y, 2)])
    q_model, found = exported(model, tmp_path / "model.onnx")
    np.testing.assert_array_equal(found[1], q_model(INDICES)[1])
    assert qdq.explain(q_model).for_layer("dense").status == "int8"


@pytest.mark.filterwarnings("ignore::qdq_workbench.errors.LowCoverageWarning")
def test_other_values_for_classes_of_any_number(tmp_path):
    x = keras.Input((4,), dtype="int32", name="x")
    model = keras.Model(x, Marks(name="marks")(x))
    _, (found,) = exported(model, tmp_path / "model.onnx")
    np.testing.assert_array_equal(found, model(INDICES))
    assert set(found.reshape(-1)) == {2.5, -1.0}


@pytest.mark.parametrize("bias", [True, False])
def test_the_one_of_a_logarithm_is_no_bias_of_the_convolution_before_it(bias, tmp_path):
    x = keras.Input((5, 5, 3), name="x")
    kernel = keras.initializers.Constant(0.1)
    conv = layers.Conv2D(2, 2, use_bias=bias, bias_initializer="ones", kernel_initializer=kernel, name="conv")
    q_model = qdq.quantize_model(keras.Model(x, ops.log1p(conv(x))), target="openvino")
    samples = np.random.default_rng(0).random((4, 5, 5, 3), dtype=np.float32)
    qdq.calibrate(q_model, samples, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    nodes = {node.op_type: node for node in onnx.load(path).graph.node}
    assert len(nodes["Conv"].input) == 2 + bias
    assert list(nodes["Add"].input[:1]) == list(nodes["Conv"].output)
    assert nodes["Add"].name.partition("/")[0] == nodes["Log"].name.partition("/")[0]  # named after the operation
    report = qdq.verify_onnx(path, q_model, samples)
    assert report.passed, report.summary()
