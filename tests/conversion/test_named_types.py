"""Operations that name the type of their result, in front of pairs and elsewhere, in files."""

import itertools

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.named_types import naming_float32
from qdq_workbench.errors import ExportError

HALVES = ("float16", "bfloat16", "float64")


@keras.saving.register_keras_serializable("tests")
class Halved(layers.Layer):
    """Returns float16, whatever its policy says."""

    def call(self, inputs):
        return ops.cast(inputs, "float16")

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs.shape, dtype="float16")


def cast(x, dtype):
    return ops.cast(layers.Dense(4, name="dense")(x), dtype)


def inside(x, dtype):
    """A nested model of that type, which is given integers."""
    inner = keras.Input((4,), dtype=dtype)
    return keras.Model(inner, layers.Dense(4)(inner), name="inner")(ops.cast(x, "int32"))


def summed(x, dtype):
    return ops.zeros_like(x, dtype=dtype) + cast(x, dtype)


FRONTS = {
    "cast": cast,
    "behind a cast": lambda x, dtype: ops.relu(cast(x, dtype)),
    "a nested model": inside,
    "zeros": summed,
}


def exported(model, path):
    """Quantize, export and verify a model; return the types of the outputs of its file."""
    q_model = qdq.quantize_model(model)
    data = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.verify_onnx(qdq.export_onnx(q_model, path).path, q_model, data)
    assert report.passed, report.summary()
    return [each.type.tensor_type.elem_type for each in onnx.load(path).graph.output]


@pytest.mark.parametrize(
    ("front", "dtype", "policy"),
    [
        *itertools.product(FRONTS, HALVES, ["float32"]),
        ("cast", "float16", "mixed_float16"),
        ("a nested model", "bfloat16", "mixed_bfloat16"),
    ],
)
def test_a_pair_behind_them_is_in_float32(front, dtype, policy, tmp_path):
    keras.config.set_dtype_policy(policy)
    try:
        x = keras.Input((4,), name="x", dtype="float32")
        model = keras.Model(x, layers.Dense(3, name="head")(FRONTS[front](x, dtype)))
    finally:
        keras.config.set_dtype_policy("float32")
    assert exported(model, tmp_path / "model.onnx") == [onnx.TensorProto.FLOAT]


def test_what_no_pair_reads_keeps_its_type_if_onnx_has_it(tmp_path):
    x = keras.Input((4,), name="x")
    y = layers.Dense(3, name="head")(x)
    precise = ops.cast(ops.sum(ops.cast(y, "float64"), axis=-1), "float32")
    outputs = [ops.cast(y, dtype) for dtype in HALVES]
    kinds = onnx.TensorProto
    found = exported(keras.Model(x, [*outputs, precise]), tmp_path / "model.onnx")
    assert found == [kinds.FLOAT16, kinds.FLOAT, kinds.DOUBLE, kinds.FLOAT]
    nodes = onnx.load(tmp_path / "model.onnx").graph.node
    assert sum(node.op_type == "Cast" and node.attribute[0].i == kinds.DOUBLE for node in nodes) > 0


def test_a_layer_that_returns_another_type_under_every_policy_is_named(tmp_path):
    x = keras.Input((4,), name="x")
    q_model = qdq.quantize_model(keras.Model(x, layers.Dense(3)(Halved(name="halved")(x))))
    qdq.calibrate(q_model, np.ones((2, 4), "float32"), verbose=False)
    with pytest.raises(ExportError, match=r"'halved' is float16 under every policy.*self\.compute_dtype"):
        qdq.export_onnx(q_model, tmp_path / "model.onnx")


def test_a_copy_has_the_name_and_the_settings_of_the_operation():
    x = keras.Input((4,))
    summed = ops.cumsum(x, axis=1, dtype="float16")._keras_history.operation
    copied = naming_float32(summed)
    assert (copied.name, copied.axis, copied.dtype) == (summed.name, 1, "float32")
    others = [ops.cast(x, "int32"), ops.relu(x), layers.ReLU(dtype="float16")(x)]
    for operation in (tensor._keras_history.operation for tensor in others):
        assert naming_float32(operation) is operation
