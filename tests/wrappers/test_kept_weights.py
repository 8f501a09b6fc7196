"""Quantized weights that are kept from batch to batch: never those of other values than the weights have."""

import functools
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.conversion.engine import settled_functions
from qdq_workbench.wrappers.kept_weights import KeptWeights

X = np.random.default_rng(0).normal(size=(40, 6, 6, 2)).astype("float32")
Y = np.arange(len(X)) % 3
BATCH = 8
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def net(first=None):
    """Two convolutions and a head; the kernels of the first and the last are large enough to be compiled."""
    keras.utils.set_random_seed(1)
    image = keras.Input((6, 6, 2), name="image")
    hidden = (first or layers.Conv2D(8, 3, activation="relu", name="first"))(image)
    hidden = layers.Conv2D(300, 3, padding="same", name="second")(hidden)
    pooled = layers.GlobalAveragePooling2D(name="pool")(layers.Activation("relu", name="relu")(hidden))
    return keras.Model(image, layers.Dense(3, name="head")(layers.Dense(200, name="wide")(pooled)))


def calibrated(source=None, **settings):
    """Return a calibrated and compiled model."""
    q_model = qdq.quantize_model(source or net(), target="onnxruntime")
    qdq.calibrate(q_model, X[:BATCH], verbose=False, freeze=True)
    q_model.compile(keras.optimizers.SGD(0.5), LOSS, **settings)
    return q_model


def own_function(q_model):
    """Return a function of a user's own, which keeps nothing and reads everything when it runs."""
    function = tf.function(lambda data: q_model(data, training=False), autograph=False, reduce_retracing=True)
    return lambda x: np.asarray(function(x))


def reads(q_model, kernel):
    """Return whether the function that predicts reads a weight."""
    (function,) = q_model.predict_function._functions.values()
    captures = function.get_concrete_function([tf.constant(X[:BATCH])]).graph.captures
    return any(outer is kernel.value.handle for outer, _ in captures)


@pytest.fixture
def quantized(monkeypatch):
    """Counts how often weights were quantized in order to be kept."""
    found = []
    trace = KeptWeights._trace

    def counted(self):
        trace(self)
        store = self._store
        self._store = lambda *values: (found.append(len(values)), store(*values))

    monkeypatch.setattr(KeptWeights, "_trace", counted)
    return found


def test_one_call_quantizes_weights_once_and_keeps_none_afterwards(quantized):
    q_model = calibrated()
    for calls in (1, 2):
        found = q_model.predict(X, batch_size=BATCH, verbose=0)
        assert quantized == [4] * calls
    np.testing.assert_array_equal(found[:BATCH], own_function(q_model)(X[:BATCH]))
    q_model.evaluate(X, Y, batch_size=BATCH, verbose=0)
    assert quantized == [4] * 3
    weights = q_model.kept("weights", None)
    assert weights._held is None
    assert all(kept.shape == (0,) for kept in (variable.read_value() for variable in weights._kept))
    kernels = [wrapper.layer.kernel for wrapper in q_model.wrappers if hasattr(wrapper.layer, "kernel")]
    assert len(kernels) == 4
    assert not any(reads(q_model, kernel) for kernel in kernels)


def train(q_model, **settings):
    """Train in a graph, as Keras does."""
    other = keras.Model(q_model.inputs, q_model.outputs)
    other.compile(keras.optimizers.SGD(0.5), LOSS, **settings)
    other.train_on_batch(X[:BATCH], Y[:BATCH])


def in_a_graph(q_model):
    """Change weights in place, in a graph."""

    @tf.function(autograph=False)
    def change():
        for variable in q_model.trainable_variables:
            variable.value.assign_sub(variable.value * 0.5)

    change()


def a_part(q_model):
    """Change a row of a weight in place."""
    q_model.get_layer("quant_head").layer.kernel.value.scatter_nd_update([[0], [1]], tf.ones((2, 3)))


def loaded(q_model, folder):
    """Load weights from a file."""
    other = calibrated()
    for variable in other.trainable_variables:
        variable.assign(variable * -1.5)
    other.save_weights(folder / "other.weights.h5")
    q_model.load_weights(folder / "other.weights.h5")


CHANGES = {
    "train_on_batch": lambda q, _: q.train_on_batch(X[:BATCH], Y[:BATCH]),
    "another model's training": lambda q, _: train(q),
    "training compiled by XLA": lambda q, _: train(q, jit_compile=True),
    "assign": lambda q, _: q.get_layer("quant_first").layer.kernel.assign(np.ones((3, 3, 2, 8))),
    "add": lambda q, _: q.get_layer("quant_wide").layer.kernel.value.assign_add(tf.ones((300, 200))),
    "set_weights": lambda q, _: q.set_weights([w * 1.5 if w.dtype == "float32" else w for w in q.get_weights()]),
    "in a graph": lambda q, _: in_a_graph(q),
    "load_weights": loaded,
    "a wrapper off": lambda q, _: q.wrappers[0].enabled.assign(False),
    "all off": lambda q, _: [layer.enabled.assign(False) for layer in q.quantizing_layers],
    # From then on TensorFlow gives everybody who reads the weight a copy, so that it is quantized at every batch.
    "a part": lambda q, _: a_part(q),
    "another part": lambda q, _: q.get_layer("quant_head").layer.kernel.value.scatter_nd_add([[0]], tf.ones((1, 3))),
}


SWITCHES = ("a wrapper off", "all off")
IN_EVALUATION = ("train_on_batch", "assign", "a part", "a wrapper off")


class Changes(keras.callbacks.Callback):
    """Changes the model before the third batch, and notes what it computes before and afterwards."""

    def __init__(self, own):
        super().__init__()
        self.own, self.change = own, None
        self.before = self.after = None
        self.losses = []

    def on_predict_batch_begin(self, batch, logs=None):
        if batch == 2:
            self.before = self.own(X)
            self.change(self.model)
            self.after = self.own(X)

    def on_test_batch_begin(self, batch, logs=None):
        self.on_predict_batch_begin(batch)
        self.model.reset_metrics()  # of the batch before, and of training

    def on_test_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


def test_what_changes_weights_between_two_batches_the_next_batch_knows(tmp_path, quantized):
    q_model = calibrated()
    changes = Changes(own_function(q_model))
    data = {"batch_size": BATCH, "verbose": 0, "callbacks": [changes]}
    initial = q_model.get_weights()
    for name, change in CHANGES.items():
        changes.change = lambda model, change=change: change(model, tmp_path)
        quantized.clear()
        found = q_model.predict(X, **data)
        expected = np.concatenate([changes.before[: 2 * BATCH], changes.after[2 * BATCH :]])
        assert not np.array_equal(changes.before, changes.after), name
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=name)
        batches = len(X) // BATCH
        parts = {"a part": 1 + batches - 2, "another part": batches}
        assert len(quantized) == parts.get(name, 1 if name in SWITCHES else 2), name
        q_model.set_weights(initial)
        if name not in IN_EVALUATION:
            continue
        changes.losses.clear()
        q_model.evaluate(X, Y, **data)
        expected = np.concatenate([changes.before[: 2 * BATCH], changes.after[2 * BATCH :]])
        parts = (slice(begin, begin + BATCH) for begin in range(0, len(X), BATCH))
        losses = [float(LOSS(Y[part], expected[part])) for part in parts]
        np.testing.assert_allclose(changes.losses, losses, rtol=1e-4, err_msg=name)
        q_model.set_weights(initial)


@tf.function(autograph=False)
def _turn(variable):
    variable.assign(variable * -1.0)


class Around(layers.Layer):
    """Changes the kernel of another layer."""

    def __init__(self, how, **kwargs):
        super().__init__(**kwargs)
        self.how, self.kernels = how, list

    def call(self, inputs):
        for kernel in self.kernels():
            if self.how == "assign":
                kernel.assign(kernel.value * -1.0)
            elif self.how == "a function":
                _turn(kernel.value)
            else:
                with tf.control_dependencies([tf.py_function(functools.partial(turned, kernel), [], tf.float32)]):
                    return tf.identity(inputs)
        return tf.identity(inputs)


def turned(kernel):
    """Change the sign of a kernel."""
    kernel.assign(kernel.value * -1.0)
    return 0.0


@pytest.mark.parametrize("how", ["assign", "a function", "Python"])
def test_a_layer_that_assigns_weights_inside_of_the_graph(how):
    """The weights that it changes are quantized behind it, at every batch: here each batch turns their sign."""
    image = keras.Input((6, 6, 2), name="image")
    hidden = layers.Conv2D(4, 3, use_bias=False, name="first")(Around(how, name="around")(image))
    q_model = qdq.quantize_model(keras.Model(image, layers.Flatten()(hidden)), target="onnxruntime")
    q_model.activation_quantizers[0].set_range(-4.0, 4.0)
    q_model.compile("sgd", "mse")
    expected = own_function(q_model)(X[:BATCH])
    around = q_model.get_layer("around")
    kernel = q_model.get_layer("quant_first").layer.kernel
    around.kernels = lambda: [kernel]
    images = np.concatenate([X[:BATCH]] * 4)
    found = q_model.predict(images, batch_size=BATCH, verbose=0)
    assert reads(q_model, kernel)
    if how == "Python":  # TensorFlow does not say whether the weight is read before or behind it
        return
    np.testing.assert_allclose(found, np.concatenate([-expected, expected] * 2), rtol=1e-5, atol=1e-5)
    targets = np.concatenate([-expected, expected] * 2)
    assert q_model.evaluate(images, targets, batch_size=BATCH, verbose=0) < 1e-9


@pytest.fixture
def read(monkeypatch):
    """Counts how often switches were read."""
    found = []
    present = settled_functions._SettledFunction._present
    monkeypatch.setattr(
        settled_functions._SettledFunction, "_present", lambda self: (found.append(1), present(self))[1]
    )
    return found


def test_arrays_without_callbacks_are_predicted_with_what_the_first_batches_read(read):
    q_model = calibrated()
    counts, expected = {}, own_function(q_model)(X)
    data = tf.data.Dataset.from_tensor_slices(X).batch(BATCH)
    calls = {
        "first": lambda: q_model.predict(X, batch_size=BATCH, verbose=0),
        "second": lambda: q_model.predict(x=tf.constant(X), batch_size=BATCH, verbose=0),
        "by position": lambda: q_model.predict(X, BATCH, 0, None),
        "one batch": lambda: q_model.predict(X, batch_size=len(X), verbose=0),
        "callbacks": lambda: q_model.predict(X, BATCH, 0, None, [keras.callbacks.Callback()]),
        "callbacks by name": lambda: q_model.predict(X, BATCH, verbose=0, callbacks=[keras.callbacks.Callback()]),
        "dataset": lambda: q_model.predict(data, verbose=0),
    }
    for name, call in calls.items():
        read.clear()
        np.testing.assert_allclose(call(), expected, rtol=1e-5, atol=1e-5)
        counts[name] = len(read)
    batches = len(X) // BATCH
    expected = {"first": 2, "second": 1, "by position": 1, "one batch": 1}
    assert counts == expected | dict.fromkeys(("callbacks", "callbacks by name", "dataset"), batches)


def test_the_next_call_knows_what_changed_after_the_last_one(tmp_path):
    q_model = calibrated()
    initial, own = q_model.get_weights(), own_function(q_model)
    for name, change in CHANGES.items():
        before = q_model.predict(X, batch_size=BATCH, verbose=0)
        change(q_model, tmp_path)
        found = q_model.predict(X, batch_size=BATCH, verbose=0)
        assert not np.array_equal(before, found), name
        np.testing.assert_allclose(found, own(X), rtol=1e-5, atol=1e-5, err_msg=name)
        q_model.set_weights(initial)


class Counts(layers.Layer):
    """Counts its calls, in a graph."""

    def build(self, input_shape):
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs):
        self.calls.assign(self.calls + 1.0)
        return inputs


def test_a_graph_that_changes_a_variable_reads_at_every_batch(read):
    image = keras.Input((6, 6, 2), name="image")
    hidden = layers.Conv2D(4, 3, name="first")(Counts(name="counts")(image))
    q_model = qdq.quantize_model(keras.Model(image, layers.Flatten()(hidden)), target="onnxruntime")
    q_model.activation_quantizers[0].set_range(-4.0, 4.0)
    for _ in range(2):
        read.clear()
        q_model.predict(X, batch_size=BATCH, verbose=0)
        assert len(read) == len(X) // BATCH
    assert float(q_model.get_layer("counts").calls) == 2 * len(X) // BATCH


def test_threads_that_train_predict_and_evaluate_at_once():
    q_model = calibrated()
    q_model.predict(X, batch_size=BATCH, verbose=0)
    failed = []

    def repeat(call):
        try:
            for _ in range(5):
                assert np.isfinite(call()).all()
        except Exception as error:  # noqa: BLE001 - shown by the test
            failed.append(error)

    calls = [functools.partial(q_model.predict, X, batch_size=BATCH, verbose=0)] * 2
    calls.append(functools.partial(q_model.train_on_batch, X[:BATCH], Y[:BATCH]))
    threads = [threading.Thread(target=repeat, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    np.testing.assert_array_equal(q_model.predict(X[:BATCH], verbose=0), own_function(q_model)(X[:BATCH]))
    assert q_model.kept("weights", None)._held is None


def test_an_error_in_a_call_leaves_nothing_kept():
    class Fails(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch, logs=None):
            raise RuntimeError("stop")

    q_model = calibrated()
    with pytest.raises(RuntimeError, match="stop"):
        q_model.predict(X, batch_size=BATCH, verbose=0, callbacks=[Fails()])
    weights = q_model.kept("weights", None)
    assert weights._held is None
    assert not weights.used_here


def test_batches_made_by_python_are_computed_with_the_weights_of_their_moment():
    """A generator may change weights in the midst of a step of evaluation: nothing is kept then."""
    q_model = calibrated()
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    q_model.evaluate(batches, verbose=0)
    assert all(not keeps for _, keeps in q_model.test_function._functions)
