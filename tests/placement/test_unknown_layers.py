"""A layer that stays in float by default says why, and what its user can do about it."""

import keras
import pytest
from keras import layers

import qdq_workbench as qdq


class Gate(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=shape[-1:])

    def call(self, x):
        return x * self.scale


class Whole(keras.Model):
    def call(self, x):
        return x + 1


def reason_of(layer, shape=(4,)):
    inputs = keras.Input(shape)
    plan = qdq.plan_placement(keras.Model(inputs, layers.Dense(2)(layer(inputs))))
    return plan.decisions[layer.name].reason


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (Gate(name="gate"), ("a layer of the user's own", "GateQuantizeWrapper", 'the page "Custom layer"')),
        (layers.Lambda(lambda x: x, name="lam"), ("Python code", "without a Lambda layer")),
        (Whole(name="whole"), ("a subclassed model", "keras.Model(inputs, outputs)")),
        (layers.Normalization(mean=0.0, variance=1.0), ("Normalization prepares the data", "name it")),
        (layers.ReLU(), ("nothing of ReLU (activation) is quantized by default", "name it")),
        (layers.Rescaling(2.0), ("nothing of Rescaling (rescaling) is quantized by default", "name it")),
    ],
    ids=lambda value: value.name if isinstance(value, layers.Layer) else "",
)
def test_what_to_do_is_said(layer, words):
    reason = reason_of(layer)
    assert [word for word in words if word not in reason] == []


def test_naming_a_normalization_quantizes_its_input():
    inputs = keras.Input((4,), name="data")
    model = keras.Model(inputs, layers.Dense(2)(layers.Normalization(mean=0.0, variance=1.0, name="norm")(inputs)))
    spec = qdq.QuantizationSpec()
    spec.add("norm")
    assert qdq.plan_placement(model, quantization_spec=spec).for_layer("norm").quantize_input


@pytest.mark.parametrize("target", qdq.target_names())
def test_explanations_give_the_same_advice(target):
    inputs = keras.Input((4,))
    x = layers.Lambda(lambda x: x, name="lam")(Gate(name="gate")(inputs))
    found = qdq.explain(keras.Model(inputs, layers.Dense(2, name="head")(x)), target)
    assert "GateQuantizeWrapper" in found.for_layer("gate").advice
    assert "without a Lambda layer" in found.for_layer("lam").advice
    assert found.for_layer("head").advice == ""
