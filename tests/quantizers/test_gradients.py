"""Gradients of our own go with their graph, and serve it until then."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.python.framework import ops

import qdq_workbench as qdq
from qdq_workbench.quantizers import gradients
from qdq_workbench.quantizers.gradients import custom_gradient

X = np.random.default_rng(0).normal(size=(8, 6)).astype("float32")


@custom_gradient
def thrice(x):
    return tf.identity(x), lambda upstream: 3.0 * upstream


def registered():
    gc.collect()
    return {name for name in ops.gradient_registry.list() if name.startswith("CustomGradient-")}


def test_a_function_that_is_differentiated_later_has_its_gradient_still():
    before = registered()
    function = tf.function(lambda x: thrice(x) * 2.0).get_concrete_function(tf.TensorSpec([], tf.float32))
    assert len(registered() - before) == 1
    value = tf.constant(5.0)
    with tf.GradientTape() as tape:
        tape.watch(value)
        result = function(value)
    assert float(tape.gradient(result, value)) == 6.0
    with tf.Graph().as_default() as graph:  # by name, without a tape
        source = tf.constant(5.0)
        found = tf.compat.v1.gradients(thrice(source), source)[0]
        assert float(tf.compat.v1.Session(graph=graph).run(found)) == 3.0
    del function, tape, result, graph, source, found
    assert registered() == before


def graph_of_a_model(quantizer):
    """Use a model in every way that traces it but training; return what one function of it was traced as."""
    spec = qdq.QuantizationSpec()
    spec.add("*", match="glob", quantize_config=qdq.LayerQuantizeConfig(activation={"quantizer": quantizer}))
    image = keras.Input((6,))
    model = keras.Model(image, layers.Dense(2)(layers.Dense(3, activation="relu")(image)))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, X, verbose=False)
    q_model.compile("sgd", "mse")
    q_model.predict(X, verbose=0)
    q_model.evaluate(X, np.zeros((8, 2)), verbose=0)
    before = registered()
    computed = tf.function(lambda x: q_model(x, training=False)).get_concrete_function(tf.constant(X))
    assert len(registered() - before) >= 4  # two pairs, two weights, and what the first model has traced for all
    return weakref.ref(computed.graph)


@pytest.mark.parametrize("quantizer", ["moving_average", "lsq"])
def test_what_a_model_was_traced_for_is_freed_with_it(quantizer):
    graph_of_a_model(quantizer)  # functions that all models share are traced once
    before = registered()
    graph = graph_of_a_model(quantizer)
    assert registered() == before
    assert graph() is None


def test_where_tensorflow_keeps_them_elsewhere_everything_else_stays(monkeypatch):
    monkeypatch.setattr(gradients, "_registry", dict)
    value = tf.constant(5.0)
    with tf.GradientTape() as tape:
        tape.watch(value)
        result = tf.function(thrice)(value)
    assert float(tape.gradient(result, value)) == 3.0
