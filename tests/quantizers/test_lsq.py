"""The learned step: its gradients against the paper's equations, its starting value, its training."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench import numerics
from qdq_workbench.quantizers import LSQQuantizer
from qdq_workbench.wrappers.qdq import QuantizeDequantize

RNG = np.random.default_rng(3)
GRIDS = [
    {"num_bits": 4},
    {"num_bits": 3, "narrow_range": True},
    {"num_bits": 4, "signed": False, "symmetric": False},
    {"num_bits": 2, "symmetric": False},
    {"num_bits": 8, "per_axis": True, "axis": 1},
    {"num_bits": 4, "per_axis": True, "axis": -1, "symmetric": False},
]


def built(quantizer, x):
    variables = quantizer.build(x.shape, "w", keras.layers.Layer())
    quantizer.start_from(variables, x)
    return variables


def broadcast(values, quantizer, x):
    if quantizer.spec.axis is None:
        return values
    shape = [1] * x.ndim
    shape[quantizer.spec.axis] = -1
    return np.reshape(values, shape)


def paper(x, upstream, step, code_low, code_high, count, largest):
    """Equations 3 and 5 and section 2.2, in float64."""
    place = x / step
    inside = (place > code_low) & (place < code_high)
    of_step = np.where(place <= code_low, code_low, np.where(place >= code_high, code_high, np.rint(place) - place))
    return upstream * inside, upstream * of_step / np.sqrt(count * largest)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("settings", GRIDS)
def test_gradients_are_those_of_the_paper(settings, batched):
    quantizer = LSQQuantizer(**settings)
    x = RNG.normal(0.3, 1.0, size=(6, 5, 4)).astype(np.float32)
    upstream = RNG.normal(size=x.shape).astype(np.float32)
    variables = built(quantizer, x)
    state = {**variables, "batched": True} if batched else variables
    values = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss = tf.reduce_sum(quantizer(values, False, state) * upstream)
    of_x, of_step = tape.gradient(loss, [values, variables["step_var"].value])

    step, zero = (np.asarray(variables[key]) for key in ("step_var", "zero_point_var"))
    low, high = quantizer.spec.qmin - zero, quantizer.spec.qmax - zero
    largest = high if quantizer.spec.symmetric else np.maximum(high, -low)
    count = x.size / (x.shape[0] if batched else 1) / (1 if quantizer.spec.axis is None else step.size)
    parts = (broadcast(part, quantizer, x) for part in (step, low, high))
    expected_x, expected = paper(x.astype(np.float64), upstream, *parts, count, broadcast(largest, quantizer, x))
    others = None if quantizer.spec.axis is None else numerics_axes(x.ndim, quantizer.spec.axis)
    np.testing.assert_array_equal(of_x, expected_x.astype(np.float32))
    np.testing.assert_allclose(of_step, expected.sum(axis=others), rtol=2e-4, atol=1e-5)


def numerics_axes(rank, axis):
    return tuple(index for index in range(rank) if index != axis % rank)


@pytest.mark.parametrize("settings", GRIDS)
def test_values_are_those_of_the_arrays(settings):
    quantizer = LSQQuantizer(**settings)
    x = RNG.normal(0.3, 1.0, size=(6, 5, 4)).astype(np.float32)
    variables = built(quantizer, x)
    params = numerics.qparams_from_range(*quantizer.read_range(variables), quantizer.spec)
    np.testing.assert_array_equal(quantizer(tf.constant(x), False, variables), numerics.fake_quantize(x, params))
    np.testing.assert_allclose(params.scale, variables["step_var"], rtol=3e-7)
    np.testing.assert_array_equal(params.zero_point, np.asarray(variables["zero_point_var"]))


def test_the_step_starts_as_the_paper_says():
    x = RNG.normal(size=(7, 3)).astype(np.float32)
    quantizer = LSQQuantizer(num_bits=3, per_axis=True, narrow_range=True)
    variables = built(quantizer, x)
    np.testing.assert_allclose(variables["step_var"], 2 * np.abs(x).mean(0) / np.sqrt(3), rtol=1e-6)
    unsigned = LSQQuantizer(num_bits=4, signed=False, symmetric=False)
    variables = built(unsigned, np.abs(x))
    np.testing.assert_allclose(variables["step_var"], 2 * np.abs(x).mean() / np.sqrt(15), rtol=1e-6)
    assert float(variables["zero_point_var"]) == 0.0


def test_an_activation_starts_from_the_first_batch_of_training_and_not_before():
    layer = QuantizeDequantize("x", LSQQuantizer(num_bits=4))
    x = np.float32([[-1.0, 3.0]])
    np.testing.assert_array_equal(layer(x), x)
    assert layer.range is None
    layer(x, training=True)
    step = 2 * 2.0 / np.sqrt(7)
    assert layer.range == pytest.approx((-7 * step, 7 * step))
    layer(100 * x, training=True)
    assert layer.range == pytest.approx((-7 * step, 7 * step))


def test_a_batch_with_nan_does_not_start_it():
    layer = QuantizeDequantize("x", LSQQuantizer())
    layer(np.float32([[np.nan, 1.0]]), training=True)
    assert layer.range is None


def test_calibration_sets_the_step():
    layer = QuantizeDequantize("x", LSQQuantizer(num_bits=4, signed=False, symmetric=False))
    layer.build((None, 2))
    layer.set_range(-1.0, 2.0)
    low, high = layer.range
    assert high - low == pytest.approx(3.0)
    assert low / (high - low) == pytest.approx(-5 / 15)


@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
@pytest.mark.parametrize("how", ["free", "frozen", "untrainable"])
def test_training_moves_the_step_unless_it_is_frozen(how):
    layer = QuantizeDequantize("x", LSQQuantizer(num_bits=2), name="pair")
    inputs = keras.Input((8,))
    model = keras.Model(inputs, layer(inputs))
    layer.set_range(-0.1, 0.1)
    if how == "frozen":
        layer.frozen.assign(True)
    if how == "untrainable":
        layer.trainable = False
    model.compile(keras.optimizers.SGD(0.5), "mse")
    x = RNG.normal(size=(64, 8)).astype(np.float32)
    assert len(model.trainable_variables) == (0 if how == "untrainable" else 1)
    before = model.evaluate(x, x, verbose=0)
    model.fit(x, x, batch_size=16, epochs=20, verbose=0)
    assert (layer.range == pytest.approx((-0.1, 0.1))) == (how != "free")
    if how == "free":
        assert model.evaluate(x, x, verbose=0) < before / 2


def test_a_step_that_an_update_makes_negative_is_turned_around():
    layer = QuantizeDequantize("x", LSQQuantizer(num_bits=4))
    layer.build((None, 2))
    step = layer._range_variables["step_var"]
    assert float(step.constraint(tf.constant(0.0))) == 0.0
    assert float(step.constraint(tf.constant(-0.5))) == 0.5
    assert float(step.constraint(tf.constant(1e-30))) > 1e-19


def test_an_all_zero_weight_has_a_step():
    quantizer = LSQQuantizer(per_axis=True)
    variables = built(quantizer, np.zeros((3, 2), np.float32))
    np.testing.assert_array_equal(variables["step_var"], [2.0**-10, 2.0**-10])


def test_half_precision():
    quantizer = LSQQuantizer(num_bits=4)
    x = RNG.normal(size=(4, 4)).astype(np.float32)
    variables = built(quantizer, x)
    values = tf.constant(x, tf.float16)
    with tf.GradientTape() as tape:
        tape.watch(values)
        y = quantizer(values, False, variables)
    of_x, of_step = tape.gradient(y, [values, variables["step_var"].value])
    assert (y.dtype, of_x.dtype, of_step.dtype) == (tf.float16, tf.float16, tf.float32)


@pytest.mark.parametrize("zero_point", [0.0, -128.0, 127.0])
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("per_axis", [False, True])
def test_values_at_both_ends_of_the_grid_have_no_gradient(per_axis, traced, zero_point):
    quantizer = LSQQuantizer(symmetric=False, per_axis=per_axis)
    low, high = -128.0 - zero_point, 127.0 - zero_point
    x = np.float32([[low - 1, low, low + 0.5, 0.0, high - 0.5, high, high + 1, np.inf, -np.inf]]).T
    variables = quantizer.build(x.shape, "w", keras.layers.Layer())
    quantizer.write_range(variables, *(np.full(variables["step_var"].shape, end, np.float32) for end in (low, high)))

    def gradients():
        values = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(values)
            y = quantizer(values, False, variables)
        return tape.gradient(y, [values, variables["step_var"].value], output_gradients=tf.ones_like(y))

    of_x, of_step = (tf.function(gradients, autograph=False) if traced else gradients)()
    inside = (x > low) & (x < high)
    np.testing.assert_array_equal(of_x, inside)
    below, above = (x <= low).sum() * low, (x >= high).sum() * high
    expected = (below + above + np.sum(np.rint(x[inside]) - x[inside])) / np.sqrt(x.size * max(high, -low))
    np.testing.assert_allclose(np.ravel(of_step), [expected], rtol=1e-5)
