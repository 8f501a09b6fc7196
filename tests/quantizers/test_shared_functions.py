"""The functions that all pairs and weights share: a condition in TensorFlow, a select where XLA compiles."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench.quantizers import LSQQuantizer, MovingAverageQuantizer, shared_functions
from qdq_workbench.quantizers.shared_functions import fake_quantize_if, fake_quantize_weight_if, update_if
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

SPEC = QuantizerSpec(num_bits=4, symmetric=True)
X = np.array([-9.0, -2.4, 0.6, 7.0], np.float32)
CODES = np.array([-8.0, -2.0, 1.0, 7.0], np.float32)  # with the scale 1
WAYS = pytest.mark.parametrize("xla", [False, True], ids=["tensorflow", "xla"])


def _function(compute, *, xla):
    return tf.function(compute, jit_compile=xla, autograph=False)


def _conditions(function, *args):
    """Return the number of conditions in a traced function and the functions that it calls."""
    graph = function.get_concrete_function(*args).graph
    nodes = [node.op for node in graph.as_graph_def().node]
    nodes += [node.op for called in graph.as_graph_def().library.function for node in called.node_def]
    return sum(kind in ("If", "StatelessIf") for kind in nodes)


def _pair(*, xla):
    def compute(x, low, high, active):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fake_quantize_if(active, x, low, high, SPEC)
        return y, tape.gradient(y, x, 3.0 * tf.ones_like(y))

    return _function(compute, xla=xla)


@WAYS
@pytest.mark.parametrize(
    ("ends", "active", "values", "gradient"),
    [
        ((-7.0, 7.0), True, CODES, [0.0, 3.0, 3.0, 3.0]),
        ((-7.0, 7.0), False, X, [3.0] * 4),
        ((np.inf, -np.inf), False, X, [3.0] * 4),  # no range yet: the other result holds NaN
    ],
)
def test_pair(xla, ends, active, values, gradient):
    found = _pair(xla=xla)(tf.constant(X), *map(tf.constant, ends), tf.constant(active))
    np.testing.assert_array_equal(found[0], values)
    np.testing.assert_array_equal(found[1], np.float32(gradient))


def test_equal_settings_share_a_function():
    """Each is traced once: a large network has hundreds of pairs with the same settings."""
    found = [shared_functions._pair_functions(QuantizerSpec(num_bits=4), 4, "float32", False) for _ in range(2)]
    assert found[0] is found[1]
    found = [shared_functions._weight_function(QuantizerSpec(num_bits=4), 4, "float32", False) for _ in range(2)]
    assert found[0] is found[1]
    assert found[0] is not shared_functions._weight_function(QuantizerSpec(num_bits=5), 4, "float32", False)
    quantizers = [MovingAverageQuantizer.from_spec(SPEC) for _ in range(2)]
    found = [shared_functions._update_function(quantizer, 4, "float32", False) for quantizer in quantizers]
    assert found[0] is found[1]


@WAYS
@pytest.mark.parametrize("active", [True, False])
def test_weight(xla, active):
    def compute(w, active):
        with tf.GradientTape() as tape:
            tape.watch(w)
            y = fake_quantize_weight_if(active, w, SPEC)
        return y, tape.gradient(y, w, 3.0 * tf.ones_like(y))

    w = np.float32([-7.0, 2.4, 7.0])
    found = _function(compute, xla=xla)(tf.constant(w), tf.constant(active))
    np.testing.assert_allclose(found[0], [-7.0, 2.0, 7.0] if active else w, rtol=1e-6)
    np.testing.assert_array_equal(found[1], [3.0] * 3)


@WAYS
@pytest.mark.parametrize(
    ("when", "batch", "expected"),
    [
        (True, [-2.0, 6.0], (-2.0, 6.0)),
        (False, [-2.0, 6.0], (np.inf, -np.inf)),
        (False, [np.nan, np.inf], (np.inf, -np.inf)),
    ],
)
def test_update(xla, when, batch, expected):
    quantizer = MovingAverageQuantizer.from_spec(SPEC)
    function = _function(lambda x, low, high, when: update_if(when, x, low, high, quantizer), xla=xla)
    found = function(*map(tf.constant, (np.float32(batch), np.inf, -np.inf, when)))
    assert tuple(map(float, found)) == expected


@WAYS
def test_a_learned_step_starts_from_the_first_batch_alone(xla):
    quantizer = LSQQuantizer.from_spec(SPEC)
    held = quantizer.build((None,), "x", keras.layers.Layer())
    function = _function(lambda x: quantizer(x, True, held), xla=xla)
    function(tf.constant(X))
    step = float(held["step_var"])
    function(tf.constant(100.0 * X))
    assert float(held["step_var"]) == step > 0.0


@WAYS
@pytest.mark.parametrize(
    ("enabled", "step", "last", "values", "gradient", "learns"),
    [
        (True, 1.0, 6.6, CODES, [0.0, 3.0, 3.0, 3.0], True),
        (False, 1.0, 6.6, [*X[:3], 6.6], [3.0] * 4, False),
        (False, 1.0, np.nan, [*X[:3], np.nan], [3.0] * 4, False),
        (True, 0.0, 6.6, [*X[:3], 6.6], [3.0] * 4, False),  # no step yet
    ],
)
def test_a_pair_with_a_learned_step(xla, enabled, step, last, values, gradient, learns):
    quantizer = LSQQuantizer.from_spec(SPEC)
    held = quantizer.build((None,), "x", keras.layers.Layer())
    held["step_var"].assign(step)

    def compute(x, enabled):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = quantizer(x, False, held, enabled=enabled)
        return y, *tape.gradient(y, [x, held["step_var"].value], 3.0 * tf.ones_like(y))

    x = np.float32([*X[:3], last])
    y, of_x, of_step = _function(compute, xla=xla)(tf.constant(x), tf.constant(enabled))
    np.testing.assert_array_equal(y, np.float32(values))
    np.testing.assert_array_equal(of_x, np.float32(gradient))
    assert np.isfinite(of_step)
    assert (float(of_step) != 0.0) == learns


def test_xla_gets_no_condition_for_a_learned_step():
    quantizer = LSQQuantizer.from_spec(SPEC)
    held = quantizer.build((None,), "x", keras.layers.Layer())
    functions = [_function(lambda x, on: quantizer(x, on, held, enabled=on), xla=xla) for xla in (False, True)]
    assert [_conditions(each, tf.constant(X), tf.constant(True)) > 0 for each in functions] == [True, False]


@pytest.mark.parametrize("what", ["pair", "weight", "update"])
def test_xla_gets_no_condition(what):
    x, low, high, on = map(tf.constant, (X, -7.0, 7.0, True))
    quantizer = MovingAverageQuantizer.from_spec(SPEC)

    def traced(xla):
        if what == "pair":
            return _conditions(_pair(xla=xla), x, low, high, on)
        if what == "weight":
            return _conditions(_function(lambda w, on: fake_quantize_weight_if(on, w, SPEC), xla=xla), x, on)
        return _conditions(_function(lambda *a: update_if(*a, quantizer), xla=xla), on, x, low, high)

    assert traced(xla=False) > 0
    assert traced(xla=True) == 0


def test_a_training_step_compiled_by_xla_has_no_condition():
    from qdq_workbench import calibrate, quantize_model

    x = keras.Input((8, 8, 3))
    model = keras.Model(x, keras.layers.Conv2D(2, 3, activation="relu")(x))
    q_model = quantize_model(model)
    data = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
    calibrate(q_model, data, verbose=False)

    def step(images):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(q_model(images, training=True) ** 2)
        return tape.gradient(loss, q_model.trainable_variables)

    found = [_function(step, xla=xla) for xla in (True, False)]
    assert _conditions(found[0], tf.constant(data)) == 0 < _conditions(found[1], tf.constant(data))
    for ours, theirs in zip(*(each(tf.constant(data)) for each in found), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
