"""A model that stays almost wholly float because planning does not know its layers, and what is said of it."""

import warnings

import keras
import pytest
import tensorflow as tf
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import LowCoverageWarning
from qdq_workbench.placement.coverage import low_coverage


class Encoder(layers.Layer):
    """A layer of another library that calls layers of Keras, and a function of TensorFlow: it is not entered."""

    def build(self, shape):
        self.attention = layers.MultiHeadAttention(2, 4)
        self.norm = layers.LayerNormalization(axis=[1, 2])
        self.wide, self.narrow = layers.Dense(32, "relu"), layers.Dense(shape[-1])
        self.attention.build(shape, shape)
        self.norm.build(shape)
        self.wide.build(shape)
        self.narrow.build((*shape[:-1], 32))

    def call(self, x):
        x = self.norm(x + self.attention(x, x))
        return x + self.narrow(tf.identity(self.wide(x)))

    def compute_output_shape(self, shape):
        return shape


class Scaled(layers.Layer):
    """A layer with one number per channel: no matrix, so it is no part of what a model computes."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(1, 1, shape[-1]), initializer="ones")

    def call(self, x):
        return x * self.scale


@pytest.fixture(scope="module")
def encoders():
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    x = layers.Embedding(500, 8, name="embedding")(tokens)  # most of the weights, and nothing of the computation
    for number in range(2):
        x = Encoder(name=f"encoder_{number}")(x)
    return keras.Model(tokens, layers.Dense(3, name="head")(layers.GlobalAveragePooling1D()(x)), name="text")


def test_quantize_model_says_how_much_stays_in_float_and_why(encoders):
    with pytest.warns(LowCoverageWarning, match="computation of 'text' stays in float") as caught:
        qdq.quantize_model(encoders)
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert text.startswith("About 100 % of the computation")
    assert "2 Encoder ('encoder_0', ...)" in text
    assert "of 'encoder_0', it is not entered: its code cannot be followed" in text
    assert "Composite layers" in text
    assert "Embedding" not in text


@pytest.mark.parametrize("target", qdq.target_names())
def test_the_summary_names_the_causes(encoders, target):
    text = qdq.explain(encoders, target).summary()
    low, _, cause = " ".join(text.split()).partition("Low: ")[2].partition(" stay in float: ")
    assert low.endswith(" % of the multiply-accumulate operations")
    assert "Encoder (2 layers such as 'encoder_0'" in cause
    assert "a layer of the user's own" in cause
    assert "Composite layers" in cause


def test_the_weights_count_where_nothing_is_multiplied():
    class Table(layers.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=(100, 4))

        def call(self, numbers):
            return keras.ops.take(self.table, numbers, axis=0)

    numbers = keras.Input((6,), dtype="int32")
    model = keras.Model(numbers, layers.Dense(3)(Table(name="table")(numbers)))
    with pytest.warns(LowCoverageWarning, match=r"About 97 % of the weights .* 1 Table \('table'\)"):
        qdq.quantize_model(model)


def test_nothing_is_said_of_ordinary_models(encoders):
    image = keras.Input((6, 8))
    small = Scaled()(layers.Conv1D(8, 3, name="conv")(image))
    ordinary = keras.Model(image, layers.LSTM(4)(layers.Dense(16)(small)))
    off, named = qdq.QuantizationSpec(), qdq.QuantizationSpec()
    off.add("Encoder", is_keras_class=True, quantize_input=False, quantize_weight=False)
    named.add("Encoder", is_keras_class=True)
    only_head = qdq.QuantizationSpec()
    only_head.add("head")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qdq.quantize_model(ordinary)
        qdq.quantize_model(encoders, quantization_spec=off)
        qdq.quantize_model(encoders, quantization_spec=named)
        qdq.quantize_model(encoders, "partial", only_head)
    assert not low_coverage(qdq.plan_placement(ordinary))
    assert "Low" not in qdq.explain(layers_of_keras(), "onnxruntime").summary()


def layers_of_keras():
    image = keras.Input((8, 8, 3))
    return keras.Model(image, layers.Conv2D(4, 3)(layers.Conv2D(4, 3, activation="relu")(image)))


def test_a_named_layer_quantizes_its_matrices_and_never_a_bias(encoders):
    spec = qdq.QuantizationSpec()
    spec.add("encoder_0")
    plan = qdq.plan_placement(encoders, quantization_spec=spec, target="onnxruntime")
    shapes = {weight.name: weight.shape for weight in plan.graph.node("encoder_0").weights}
    assert len(shapes["attention/query/bias"]) == 2
    assert len(shapes["norm/gamma"]) == 2
    kernels = ["attention/query", "attention/key", "attention/value", "attention/attention_output", "wide", "narrow"]
    planned = {p.weight for p in plan.placements if p.layer == "encoder_0" and p.site == "weight"}
    assert planned == {f"{name}/kernel" for name in kernels}
    reasons = {left.tensor: left.reason for left in plan.unquantized}
    assert reasons["encoder_0/attention/query/bias"].startswith("biases stay in float")
