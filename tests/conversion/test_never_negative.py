"""Pairs behind a ReLU and the like skip the check for a lower bound, without any value changing; no others do."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import qdq_workbench as qdq
from qdq_workbench.conversion.never_negative import is_never_negative
from qdq_workbench.quantizers.fake_quantize import fake_quantize_tensor
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

SAMPLES = np.random.default_rng(0).normal(size=(8, 6, 6, 3)).astype("float32")


@keras.saving.register_keras_serializable("test_never_negative")
class Centered(layers.Conv2D):
    """Does something behind its activation."""

    def call(self, inputs):
        return super().call(inputs) - 0.5


@keras.saving.register_keras_serializable("test_never_negative", "OwnReLU")
class ReLU(layers.Layer):
    """Called like Keras's, but not that."""

    negative_slope = threshold = 0.0

    def call(self, inputs):
        return ops.relu(inputs) - 1.0


def network():
    image = keras.Input((6, 6, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same", activation="relu", name="fused")(image)
    y = layers.Conv2D(4, 3, padding="same", name="plain")(x)
    z = layers.ReLU(6.0, name="six")(y)
    own = ReLU(name="own")(layers.Conv2D(4, 1, name="before_own")(z))
    w = Centered(4, 3, padding="same", activation="relu", name="centered")(own)
    joined = layers.Add(name="join")([w, z])
    return keras.Model(image, layers.Dense(2, name="head")(layers.Flatten(name="flat")(joined)))


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (layers.ReLU(), True),
        (layers.ReLU(max_value=3.0), True),
        (layers.ReLU(threshold=1.0), False),
        (layers.Activation("relu6"), True),
        (layers.Activation("softmax"), True),
        (layers.Activation("tanh"), False),
        (layers.DepthwiseConv2D(3, activation="sigmoid"), True),
        (layers.Dense(2, activation=lambda x: x), False),
        (layers.LSTM(2, activation="relu"), False),
        (Centered(2, 3, activation="relu"), False),
        (ReLU(), False),
    ],
)
def test_only_what_ends_in_such_a_function_counts(operation, answer):
    assert is_never_negative(operation) is answer


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_pairs_are_marked_by_what_comes_in(target):
    q_model = qdq.quantize_model(network(), target=target)
    marked = {layer.tensor: layer.non_negative for layer in q_model.activation_quantizers}
    assert marked["fused"]
    assert marked["six"]
    for tensor in ("image", "plain", "own", "centered", "join"):
        assert not marked.get(tensor, False)


def test_a_pair_of_several_tensors_is_marked_only_where_all_are():
    image = keras.Input((6, 6, 3), name="image")
    relu = layers.Conv2D(4, 3, activation="relu", name="relu")(image)
    line = layers.Conv2D(4, 3, name="line")(image)
    both = layers.Concatenate(name="both")([relu, line])
    model = keras.Model(image, layers.Conv2D(2, 1, name="last")(both))
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.ConcatQDQCase()])
    shared = next(layer for layer in q_model.activation_quantizers if "relu" in q_model.tensors_of(layer))
    assert "line" in q_model.tensors_of(shared)
    assert not shared.non_negative


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_no_value_and_no_gradient_changes(target):
    q_model = qdq.quantize_model(network(), target=target)
    qdq.calibrate(q_model, SAMPLES[:2], verbose=False)

    def results():
        with tf.GradientTape() as tape:
            y = q_model(SAMPLES * 3.0, training=True)
            loss = tf.reduce_sum(y * y)
        return [y, *tape.gradient(loss, [variable.value for variable in q_model.trainable_variables])]

    with_marks = results()
    for layer in q_model.activation_quantizers:
        layer.non_negative = False
    for ours, theirs in zip(with_marks, results(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("low", [0.0, -0.7, 0.2])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_bound_that_is_left_out_does_nothing(low, symmetric):
    spec = QuantizerSpec(num_bits=4, symmetric=symmetric, signed=symmetric)
    values = np.concatenate([np.linspace(0.0, 3.0, 1001), [np.inf, 1e-40, 0.0]]).astype("float32")
    checked = fake_quantize_tensor(values, low, 1.1, spec)
    np.testing.assert_array_equal(fake_quantize_tensor(values, low, 1.1, spec, non_negative=True), checked)


def test_a_marked_pair_computes_one_operation_less():
    def operations(non_negative):
        function = tf.function(lambda x: fake_quantize_tensor(x, 0.0, 1.0, QuantizerSpec(), non_negative=non_negative))
        graph = function.get_concrete_function(tf.TensorSpec([None, 4])).graph
        large = [op for op in graph.get_operations() if op.outputs and op.outputs[0].shape.rank == 2]
        return [op.type for op in large if op.type in ("RealDiv", "Rint", "Minimum", "Maximum", "Mul")]

    assert operations(non_negative=False) == ["RealDiv", "Rint", "Minimum", "Maximum", "Mul"]
    assert operations(non_negative=True) == ["RealDiv", "Rint", "Minimum", "Mul"]


def test_the_mark_travels_with_files_and_copies(tmp_path):
    q_model = qdq.quantize_model(network())
    qdq.calibrate(q_model, SAMPLES, verbose=False)
    q_model.save(tmp_path / "q.keras")
    marks = [layer.non_negative for layer in q_model.activation_quantizers]
    assert set(marks) == {True, False}
    for copy in (keras.models.load_model(tmp_path / "q.keras"), keras.models.clone_model(q_model)):
        assert [layer.non_negative for layer in copy.activation_quantizers] == marks
