"""Pairs for known switches: the same values and gradients as always."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench import numerics
from qdq_workbench.quantizers import AllValuesQuantizer, LastValueQuantizer, LSQQuantizer, MovingAverageQuantizer
from qdq_workbench.quantizers.settled import Grid, Grids, Switches, can_be_settled, known_ends, quantize_settled
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

GRIDS = [
    QuantizerSpec(),
    QuantizerSpec(narrow_range=True),
    QuantizerSpec(signed=False),
    QuantizerSpec(symmetric=False, signed=False),
    QuantizerSpec(symmetric=False, signed=True, narrow_range=True),
    QuantizerSpec(num_bits=4, symmetric=False),
    QuantizerSpec(num_bits=2),
    QuantizerSpec(num_bits=16, symmetric=False),
]
RANGES = [(-2.0, 1.5), (0.0, 3.7), (0.0, 7.0), (-0.001, 6.3), (0.5, 2.0), (0.0, 0.0), (-3.0, -1.0)]
RELUS = {"": tf.identity, "Relu": tf.nn.relu, "Relu6": tf.nn.relu6}
PLAIN = Switches(active=True, learns=False)


def values(params, seed=0):
    """Return values inside and outside of a grid, all of its values and all ends, and the corners of ReLUs."""
    rng = np.random.default_rng(seed)
    low, high = (float(end) for end in params.representable_range)
    ends = [low, high, np.nextafter(low, -9, dtype=np.float32), np.nextafter(high, 9, dtype=np.float32)]
    corners = [0.0, 6.0, 1e-30, np.nextafter(np.float32(6), np.float32(0))]
    spread = rng.normal(0.0, 2.0 * max(high - low, 0.1), 4000)
    x = np.concatenate([spread, ends, corners, np.linspace(low, high, 300)]).astype(np.float32)
    return x[(x == 0) | (np.abs(x) > 1e-37)]  # TensorFlow takes denormal numbers for 0


def pair(x, quantizer, switches, ends, variables=None, **how):
    """Return what a pair behind a ReLU makes of a tensor in a graph, its gradient, and the graph."""
    return run(graph_of(quantizer, switches, variables, **how), x, ends)


def graph_of(quantizer, switches, variables=None, *, relu="", training=False, jit=False):
    """Return a function of values and ranges in a graph: a pair behind a ReLU, and its gradient."""

    @tf.function(
        input_signature=[tf.TensorSpec([None]), tf.TensorSpec([2]), tf.TensorSpec([2])],
        autograph=False,
        jit_compile=jit,
    )
    def compute(values, lows, highs):
        grids = Grids(quantizer, {"min_var": lows, "max_var": highs})
        number = functools.partial(grids.number, 1)
        with tf.GradientTape() as tape:
            tape.watch(values)
            inside = RELUS[relu](values)
            y = quantize_settled(inside, quantizer, switches, number, variables or {}, training=training)
        upstream = tf.range(1, tf.size(y) + 1, dtype=y.dtype)
        return y, tape.gradient(y, values, output_gradients=upstream) if training else y

    return compute


def run(compute, x, ends):
    """Return what the function makes of a tensor under a range, the gradient, and the graph."""
    found = compute(tf.constant(x), tf.constant([0.25, ends[0]]), tf.constant([1.0, ends[1]]))
    return *(np.asarray(part) for part in found), compute.get_concrete_function().graph


@pytest.mark.parametrize("relu", RELUS)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("spec", GRIDS, ids=str)
def test_values_and_gradients_are_exact_without_the_relu(spec, training, relu):
    quantizer = MovingAverageQuantizer.from_spec(spec)
    graphs = {}
    for ends in RANGES:
        params = numerics.qparams_from_range(*ends, spec)
        x = values(params)
        known = known_ends(*ends)
        if known not in graphs:
            graphs[known] = graph_of(quantizer, Switches(True, False, *known), relu=relu, training=training)
        found, gradient, graph = run(graphs[known], x, ends)
        inside = RELUS[relu](x).numpy()
        np.testing.assert_array_equal(found, numerics.fake_quantize(inside, params))
        # the ReLU is still there for others, but nobody computes it
        assert not [op for op in graph.get_operations() if relu and op.type == relu and op.outputs[0].consumers()]
        if training:
            check_gradient(x, gradient, params, relu)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("relu", RELUS)
def test_known_bounds_and_rounding_are_one_kernel(relu, symmetric):
    spec, ends = QuantizerSpec(symmetric=symmetric), (0.0, 5.5)
    params = numerics.qparams_from_range(*ends, spec)
    x = np.concatenate([values(params), [np.nan, np.inf, -np.inf, -0.0, -0.1 * params.scale]]).astype(np.float32)
    x = np.concatenate([x, ((np.arange(-300, 300) + 0.5) * params.scale).astype(np.float32)])  # ties
    quantizer = MovingAverageQuantizer.from_spec(spec)
    found, _, graph = pair(x, quantizer, Switches(True, False, *known_ends(*ends)), ends, relu=relu)
    kinds = [operation.type for operation in graph.get_operations()]
    assert kinds.count("QuantizeAndDequantizeV4") == 1
    assert "Rint" not in kinds
    expected = tf.maximum(
        tf.minimum(tf.math.rint(RELUS[relu](x) / params.scale), 127.0 if symmetric else 255.0), -128.0
    )
    expected = (expected if symmetric else tf.maximum(expected, 0.0)) * params.scale
    np.testing.assert_array_equal(found, expected)  # NaN included


def test_ranges_whose_ends_are_not_known_have_no_such_kernel():
    spec = QuantizerSpec(symmetric=False)
    for ends, relu in (((-1.0, 5.0), ""), ((0.0, 7.0), "Relu6")):
        known = Switches(True, False, *known_ends(*ends))
        _, _, graph = pair(np.ones(3, np.float32), MovingAverageQuantizer.from_spec(spec), known, ends, relu=relu)
        assert "QuantizeAndDequantizeV4" not in [operation.type for operation in graph.get_operations()]


@pytest.mark.parametrize("relu", RELUS)
def test_training_compiled_by_xla(relu):
    spec, ends = GRIDS[3], (0.0, 3.7)
    params = numerics.qparams_from_range(*ends, spec)
    x = values(params)
    found, gradient, _ = pair(
        x, MovingAverageQuantizer.from_spec(spec), PLAIN, ends, relu=relu, training=True, jit=True
    )
    np.testing.assert_allclose(found, numerics.fake_quantize(RELUS[relu](x).numpy(), params), atol=1.01 * params.scale)
    check_gradient(x, gradient, params, relu)


def check_gradient(x, gradient, params, relu):
    """Compare the gradient with that of a ReLU and a pair behind it."""
    inside = RELUS[relu](x).numpy()
    low, high = params.representable_range
    passes = (inside >= low) & (inside <= high)
    passes &= {"": np.ones_like(passes), "Relu": x > 0, "Relu6": (x > 0) & (x < 6)}[relu]
    np.testing.assert_array_equal(gradient, np.where(passes, np.arange(1, len(x) + 1, dtype=np.float32), 0))


@pytest.mark.parametrize("relu", ["", "Relu"])
@pytest.mark.parametrize("has_range", [True, False])
@pytest.mark.parametrize("cls", [AllValuesQuantizer, LastValueQuantizer, MovingAverageQuantizer])
def test_a_pair_that_learns_moves_its_range_as_always(cls, has_range, relu):
    quantizer = cls(symmetric=False)
    ours, theirs = (quantizer.build((None,), "x", keras.layers.Layer()) for _ in range(2))
    for held in (ours, theirs):
        if has_range:
            quantizer.write_range(held, np.float32(0.0), np.float32(5.0))
    x = np.random.default_rng(1).normal(0.0, 4.0, 500).astype(np.float32)
    switches = Switches(active=True, learns=True)
    found, _, _ = pair(x, quantizer, switches, (0.0, 5.0), ours, relu=relu, training=True)
    expected = quantizer(RELUS[relu](x), True, theirs)
    assert [float(ours[key].numpy()) for key in ours] == [float(theirs[key].numpy()) for key in theirs]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_batch_without_a_range_leaves_the_range_and_stays_visible(bad, symmetric):
    quantizer = LastValueQuantizer(symmetric=symmetric)
    held = quantizer.build((None,), "x", keras.layers.Layer())
    switches = Switches(active=True, learns=True)
    found, _, _ = pair(np.float32([0.5, bad]), quantizer, switches, (-1.0, 1.0), held, training=True)
    assert np.isnan(found).all()
    assert quantizer.read_range(held) is None
    quantizer.write_range(held, np.float32(-1.0), np.float32(1.0))
    found, _, _ = pair(np.float32([0.5, bad]), quantizer, switches, (-1.0, 1.0), held, training=True)
    assert quantizer.read_range(held) == (-1.0, 1.0)
    assert np.isnan(found[1]) == np.isnan(bad)


def test_an_inactive_pair_passes_values_and_the_relu():
    x = np.float32([-1.0, 7.0, 0.123456])
    switches = Switches(active=False, learns=False)
    found, gradient, _ = pair(x, LastValueQuantizer(), switches, (0.0, 1.0), relu="Relu", training=True)
    np.testing.assert_array_equal(found, np.maximum(x, 0))
    np.testing.assert_array_equal(gradient, [0.0, 2.0, 3.0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("training", [True, False])
def test_keeps_the_dtype(dtype, training):
    x = tf.cast(np.linspace(-3, 3, 50), dtype)

    @tf.function(autograph=False)
    def compute(x):
        grid = Grid(QuantizerSpec(), -1.0, 1.0)
        return quantize_settled(x, LastValueQuantizer(), PLAIN, functools.partial(getattr, grid), {}, training=training)

    params = numerics.qparams_from_range(-1.0, 1.0, QuantizerSpec())
    expected = tf.cast(numerics.fake_quantize(tf.cast(x, tf.float32).numpy(), params), dtype)
    assert compute(x).dtype == x.dtype
    np.testing.assert_array_equal(compute(x), expected)


def test_those_with_a_range_per_slice_and_those_of_users_cannot_be_settled():
    class Own(MovingAverageQuantizer):
        pass

    assert can_be_settled(MovingAverageQuantizer())
    assert can_be_settled(LSQQuantizer())
    assert not can_be_settled(LSQQuantizer(per_axis=True))
    assert not can_be_settled(MovingAverageQuantizer(per_axis=True))
    assert not can_be_settled(Own())


def test_a_variable_is_quantized_as_its_value():
    variable, grid = tf.Variable([0.3, -0.2]), Grid(QuantizerSpec(), tf.constant(-1.0), tf.constant(1.0))

    @tf.function(autograph=False)
    def compute():
        number = functools.partial(getattr, grid)
        return quantize_settled(variable, LastValueQuantizer(), PLAIN, number, {}, training=True)

    np.testing.assert_allclose(compute(), [0.3, -0.2], atol=1 / 254)


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("relu", RELUS)
@pytest.mark.parametrize("spec", GRIDS, ids=str)
def test_a_learned_step_has_the_values_and_gradients_of_the_general_function(spec, relu, learns):
    quantizer = LSQQuantizer.from_spec(spec)
    held = quantizer.build((None,), "x", keras.layers.Layer())
    state = {**held, "frozen": not learns, "batched": True}
    general = gradients_of(lambda x: quantizer(x, False, state), relu, held)
    graphs = {}
    for ends in ((-2.0, 1.5), (0.0, 3.7), (0.0, 7.0)):
        quantizer.write_range(held, np.float32(ends[0]), np.float32(ends[1]))
        x = tf.constant(values(numerics.qparams_from_range(*quantizer.read_range(held), spec)))
        upstream = tf.cos(tf.range(0.0, len(x)))
        from_zero = bool(known_ends(*quantizer.read_range(held))[0])
        if from_zero not in graphs:
            switches = Switches(active=True, learns=learns, from_zero=from_zero)
            graphs[from_zero] = gradients_of(functools.partial(settled, quantizer, switches, held), relu, held)
        found, expected = graphs[from_zero](x, upstream), general(x, upstream)
        for one, other in zip(found[:2], expected[:2], strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(found[2], expected[2], rtol=1e-4, atol=1e-5)
        assert learns or not found[2].numpy().any()


def settled(quantizer, switches, held, x):
    """Return what a pair with a learned step makes of a tensor, for known switches."""
    columns = {key: tf.stack([variable.value]) for key, variable in held.items()}
    number = functools.partial(Grids(quantizer, columns).number, 0)
    return quantize_settled(x, quantizer, switches, number, held, training=True)


def gradients_of(compute, relu, held):
    """Return a function in a graph: a pair behind a ReLU, and the gradients of the tensor and of the pair's step."""
    step = held["step_var"].value

    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None])], autograph=False)
    def run(x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = compute(RELUS[relu](x))
        return y, *tape.gradient(y, [x, step], output_gradients=upstream)

    return run
