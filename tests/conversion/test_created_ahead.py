"""The metrics of a first step: one trace of it is enough, and they are those that Keras creates."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import qdq_workbench as qdq

SAMPLES = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
WAYS = {
    "classes": (np.arange(8) % 3, "sparse_categorical_crossentropy", ["accuracy", "sparse_top_k_categorical_accuracy"]),
    "one-hot": (np.eye(3, dtype="float32")[np.arange(8) % 3], "categorical_crossentropy", ["accuracy"]),
    "no metrics": (np.zeros((8, 3), "float32"), "mse", None),
}


def network(traces, outputs=1):
    """A quantized model that counts how often one of its layers is traced."""

    @keras.saving.register_keras_serializable(package="created_ahead")
    class Counted(layers.Layer):
        def call(self, x):
            if not isinstance(x, keras.KerasTensor):
                traces.append(self.name)
            return x * 1.0

    keras.utils.set_random_seed(0)
    image = keras.Input((4,), name="image")
    x = Counted(name="counted")(layers.Dense(5, activation="relu", name="hidden")(image))
    heads = [layers.Dense(3, activation="softmax", name=f"head{place}")(x) for place in range(outputs)]
    q_model = qdq.quantize_model(keras.Model(image, heads[0] if outputs == 1 else heads))
    qdq.calibrate(q_model, SAMPLES, verbose=False)
    traces.clear()
    return q_model


def train(q_model, labels, loss, metrics):
    """Two steps, an evaluation, and the names of all variables."""
    q_model.compile(keras.optimizers.Adam(name="adam"), loss, metrics=metrics)
    history = q_model.fit(SAMPLES, labels, batch_size=4, epochs=1, shuffle=False, verbose=0).history
    scores = q_model.evaluate(SAMPLES, labels, verbose=0, return_dict=True)
    variables = [*q_model.optimizer.variables, *q_model.metrics_variables]
    return history, scores, [(variable.path, variable.shape, variable.dtype) for variable in variables]


@pytest.mark.parametrize("way", WAYS)
def test_steps_are_traced_once_and_compute_what_they_did(way, monkeypatch):
    traces = []
    found = train(network(traces), *WAYS[way])
    assert len(traces) == 2  # of `fit`, and of `evaluate`
    monkeypatch.setattr("qdq_workbench.conversion.engine.settled_functions.create_metrics", lambda *_: None)
    assert found == train(network(traces), *WAYS[way])
    assert len(traces) == (2 if way == "no metrics" else 3)


def test_an_evaluation_and_single_batches_are_traced_once():
    traces = []
    q_model = network(traces)
    labels, loss, metrics = WAYS["classes"]
    q_model.compile(keras.optimizers.Adam(name="adam"), loss, metrics=metrics)
    q_model.evaluate(tf.data.Dataset.from_tensor_slices((SAMPLES, labels)).batch(4), verbose=0)
    q_model.train_on_batch(SAMPLES, labels)
    assert len(traces) == 2


def test_several_outputs_and_what_keras_refuses_are_left_to_it():
    labels, loss, metrics = WAYS["classes"]
    train(network([], outputs=2), [labels, labels], [loss, loss], [metrics, metrics])
    with pytest.raises(ValueError, match="Could not interpret metric"):
        train(network([]), labels, loss, ["no metric"])
