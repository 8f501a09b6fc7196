"""The functions of a quantized model: traced for known switches, and never used for others."""

import functools
import logging
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from small_models import dtype_policy

import qdq_workbench as qdq
from qdq_workbench.conversion.engine import settled_functions

X = np.random.default_rng(0).normal(size=(8, 6, 6, 2)).astype("float32")
Y = np.arange(len(X)) % 3


def net(kind=keras.Model):
    """A convolution with a ReLU6, a sum that has a ReLU, and a head."""
    keras.utils.set_random_seed(1)
    image = keras.Input((6, 6, 2), name="image")
    hidden = layers.ReLU(6.0, name="six")(layers.Conv2D(3, 3, padding="same", name="first")(image))
    added = layers.Add(name="add")([layers.Conv2D(3, 3, padding="same", name="second")(hidden), hidden])
    pooled = layers.GlobalAveragePooling2D(name="pool")(layers.Activation("relu", name="relu")(added))
    return kind(image, layers.Dense(3, name="head")(pooled))


def calibrated(kind=keras.Model, target="tensorrt", method="moving_average", **settings):
    """Return a calibrated and compiled model."""
    spec = qdq.QuantizationSpec()
    spec.add("*", match="glob", quantize_config=qdq.LayerQuantizeConfig(activation={"quantizer": method}))
    q_model = qdq.quantize_model(net(kind), quantization_spec=spec, target=target)
    qdq.calibrate(q_model, X, verbose=False, freeze=True)
    q_model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **settings)
    return q_model


@functools.lru_cache(maxsize=1)
def own_function(q_model):
    """Return a function of a user's own, which knows no switches: traced once, it reads everything when it runs."""
    return tf.function(lambda x: q_model(x, training=False), autograph=False)


def own_graph(q_model):
    """Return what the model computes in a function of a user's own."""
    return np.asarray(own_function(q_model)(X))


def check(q_model):
    """Compare prediction and evaluation with a user's own function, which reads everything when it runs."""
    expected = own_graph(q_model)
    np.testing.assert_array_equal(q_model.predict_on_batch(X), expected)
    q_model.reset_metrics()  # older Keras returns the mean of all batches so far
    assert q_model.test_on_batch(X, Y) == pytest.approx(float(q_model.loss(Y, expected)), rel=1e-6)


@pytest.fixture
def traces(monkeypatch):
    """The steps that are traced, by kind."""
    found = []
    for kind in ("train", "test", "predict"):
        step = getattr(keras.Model, f"{kind}_step")

        def counted(self, data, kind=kind, step=step):
            found.append(kind)
            return step(self, data)

        monkeypatch.setattr(keras.Model, f"{kind}_step", counted)
    return found


def steps_of_own(q_model):
    """Train by a loop of a user's own."""
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(q_model.trainable_variables)

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = q_model.loss(Y, q_model(X, training=True))
        optimizer.apply(tape.gradient(loss, q_model.trainable_variables), q_model.trainable_variables)

    step()


def loaded(q_model, folder):
    """Load weights that another model was saved with."""
    other = calibrated(target=q_model.target)
    for variable in other.trainable_variables:
        variable.assign(variable * 1.1)
    other.activation_quantizers[1].enabled.assign(False)
    other.save_weights(folder / "other.weights.h5")
    q_model.load_weights(folder / "other.weights.h5")


def in_a_graph(q_model):
    """Switch a pair and move a range inside of a graph."""
    first, second = q_model.activation_quantizers[:2]

    @tf.function(autograph=False)
    def change():
        first.enabled.assign(False)
        for variable in second.range_variables.values():
            variable.assign(variable * 0.5)

    change()


# Those that leave the switches as they are come first, so that the settled functions are checked.
CHANGES = {
    "fit": lambda q, _: q.fit(X, Y, verbose=0),
    "a loop of one's own": lambda q, _: steps_of_own(q),
    "assign": lambda q, _: [v.assign(v * 1.5) for v in q.trainable_variables],
    "set_weights": lambda q, _: q.set_weights([w * 1.5 if w.dtype == "float32" else w for w in q.get_weights()]),
    "a range": lambda q, _: q.activation_quantizers[1].set_range(-0.3, 2.0),
    "calibration": lambda q, _: qdq.calibrate(q, 3.0 * X, verbose=False),
    "a pair off": lambda q, _: q.activation_quantizers[1].enabled.assign(False),
    "a wrapper off": lambda q, _: q.wrappers[0].enabled.assign(False),
    "off below Keras": lambda q, _: q.activation_quantizers[2].enabled.value.assign(False),
    "load_weights": loaded,
    "in a graph": lambda q, _: in_a_graph(q),
    "a range gone": lambda q, _: q.activation_quantizers[-1].forget_range(),
    "all on": lambda q, _: setattr(q, "quantization_enabled", True),
    "all off": lambda q, _: setattr(q, "quantization_enabled", False),
}


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_whatever_changes_the_next_batch_knows(target, tmp_path):
    q_model = calibrated(target=target)
    check(q_model)
    for name, change in CHANGES.items():
        before = q_model.predict_on_batch(X)
        change(q_model, tmp_path)
        check(q_model)
        assert not np.array_equal(q_model.predict_on_batch(X), before), name


def test_each_function_is_traced_once_in_the_ordinary_course(traces):
    q_model = qdq.quantize_model(net())
    qdq.calibrate(q_model, X, verbose=False)
    q_model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    q_model.evaluate(X, Y, batch_size=4, verbose=0)
    q_model.fit(X, Y, batch_size=2, epochs=6, verbose=0)
    q_model.evaluate(X, Y, batch_size=4, verbose=0)
    q_model.predict(X, batch_size=4, verbose=0)
    assert sorted(traces) == ["predict", "test", "train"]


def test_training_that_finds_its_ranges_is_traced_once(traces):
    q_model = qdq.quantize_model(net())
    q_model.compile("sgd", "mse")
    q_model.fit(X, np.zeros((len(X), 3)), batch_size=4, epochs=15, verbose=0)
    assert traces == ["train"]
    assert not q_model.uncalibrated_tensors()
    ranges = q_model.activation_ranges()
    q_model.train_on_batch(2.0 * X, np.zeros((len(X), 3)))
    assert q_model.activation_ranges() != ranges


def test_toggling_does_not_trace_each_time(traces):
    q_model = calibrated()
    on = q_model.predict_on_batch(X)
    for layer in q_model.quantizing_layers:
        layer.enabled.assign(False)
        np.testing.assert_array_equal(q_model.predict_on_batch(X), own_graph(q_model))
        layer.enabled.assign(True)
        np.testing.assert_array_equal(q_model.predict_on_batch(X), on)
    assert traces.count("predict") == 2
    q_model.wrappers[0].enabled.assign(False)
    expected = own_graph(q_model)
    for _ in range(2 * settled_functions._CALLS_TO_STAY):
        np.testing.assert_array_equal(q_model.predict_on_batch(X), expected)
    assert traces.count("predict") == 3  # what stays is worth a function of its own


def test_a_training_that_runs_learns_what_is_unfrozen_and_keeps_what_is_frozen(traces):
    q_model = calibrated()
    pair = q_model.activation_quantizers[1]
    seen = []

    class Switch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append(pair.range)
            pair.frozen.assign(not 30 <= batch < 60)

    inputs = np.concatenate([X] * 90 + [5.0 * X])
    q_model.fit(inputs, np.concatenate([Y] * 91), batch_size=len(X), shuffle=False, verbose=0, callbacks=[Switch()])
    assert seen[0] == seen[30]
    assert len(set(seen[30:61])) > 20
    assert len(set(seen[60:])) == 1
    assert traces.count("train") == 3


@pytest.mark.parametrize("method", ["moving_average", "lsq"])
def test_training_is_that_of_a_loop_of_ones_own(method):
    q_model, other = (calibrated(method=method) for _ in range(2))
    q_model.compile(keras.optimizers.SGD(0.1), q_model.loss)
    q_model.train_on_batch(X, Y)
    steps_of_own(other)
    for ours, theirs in zip(q_model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    check(q_model)


def test_predictions_beside_training_are_of_weights_that_there_were():
    """One thread trains while others predict; at the end nothing is left of earlier weights."""
    q_model = calibrated()
    check(q_model)
    stop, failed = threading.Event(), []

    def predict():
        while not stop.is_set():
            try:
                assert np.isfinite(q_model.predict_on_batch(X)).all()
            except Exception as error:  # noqa: BLE001, PERF203 - shown by the test
                failed.append(error)
                return

    threads = [threading.Thread(target=predict) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        q_model.train_on_batch(X, Y)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed
    check(q_model)


OTHERWISE = [{"run_eagerly": True}, {"jit_compile": True}, {"steps_per_execution": 3}]


@pytest.mark.parametrize("settings", OTHERWISE, ids=str)
def test_other_ways_to_compile(settings):
    q_model = calibrated(**settings)
    near = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(q_model.predict(X, batch_size=4, verbose=0), own_graph(q_model), **near)
    q_model.fit(X, Y, batch_size=4, verbose=0)
    q_model.activation_quantizers[1].enabled.assign(False)
    np.testing.assert_allclose(q_model.predict(X, batch_size=4, verbose=0), own_graph(q_model), **near)


def test_mixed_precision():
    with dtype_policy("mixed_bfloat16"):
        q_model = calibrated()
    q_model.fit(X, Y, verbose=0)
    np.testing.assert_array_equal(q_model.predict_on_batch(X), own_graph(q_model))


def test_steps_of_ones_own_are_not_settled():
    """They may ask for what a settled graph leaves out: here the gradient of what a ReLU returns."""

    class Explained(keras.Model):
        def test_step(self, data):
            inner = keras.Model(self.inputs, [self.get_layer("quant_six").output, self.output])
            with tf.GradientTape() as tape:
                hidden, scores = inner(data[0])
                total = tf.reduce_sum(scores)
            return {"gradient": tf.reduce_sum(tape.gradient(total, hidden))}

    q_model = calibrated(Explained)
    assert np.isfinite(q_model.test_on_batch(X, Y, return_dict=True)["gradient"])
    q_model.train_on_batch(X, Y)
    settled = settled_functions._SettledFunction
    assert not isinstance(q_model.test_function, settled)
    assert isinstance(q_model.train_function, settled)


def test_many_models_make_tensorflow_warn_of_nothing():
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    try:
        for _ in range(7):
            calibrated().predict_on_batch(X)
    finally:
        tf.get_logger().removeHandler(handler)
    assert not [text for text in said if "retracing" in text]
    assert not [one for one in tf.get_logger().filters if "passes" in repr(one)]


@pytest.mark.parametrize("call", ["predict", "evaluate", "fit"])
def test_quantization_is_switched_off_while_a_loop_runs(call):
    """The setter used to take the function away that the loop calls for its next batch."""
    q_model = calibrated()

    class Off(keras.callbacks.Callback):
        def off(self, batch, logs=None):
            self.model.quantization_enabled = False

        on_predict_batch_end = on_test_batch_end = on_train_batch_end = off

    data = (X,) if call == "predict" else (X, Y)
    result = getattr(q_model, call)(*data, batch_size=len(X) // 2, callbacks=[Off()], verbose=0)
    assert q_model.quantization_enabled is False
    if call == "predict":
        first, second = np.split(result, 2)
        flat = q_model.predict(X, verbose=0)
        assert not np.array_equal(first, flat[: len(first)])
        np.testing.assert_array_equal(second, flat[len(first) :])


def test_quantizers_are_off_for_a_while_and_then_as_they_were():
    q_model = calibrated()
    off = q_model.activation_quantizers[1]
    off.enabled.assign(value=False)
    before = q_model.predict(X, verbose=0)
    with pytest.raises(RuntimeError, match="in the midst"), q_model.quantizers_off():
        np.testing.assert_allclose(q_model.predict(X, verbose=0), net().predict(X, verbose=0), rtol=1e-5, atol=1e-6)
        raise RuntimeError("in the midst")
    assert [layer for layer in q_model.quantizing_layers if not bool(layer.enabled.numpy())] == [off]
    np.testing.assert_array_equal(q_model.predict(X, verbose=0), before)
