"""Fake quantization of tensors: the values of `numerics`, with straight-through gradients."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import SHAPE, qparams, ranges, specs, values_for

from qdq_workbench import numerics
from qdq_workbench.errors import QuantizerError
from qdq_workbench.quantizers.fake_quantize import fake_quantize_tensor, fake_quantize_weight, grid_tensors
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

SEEDS = st.integers(0, 2**32 - 1)
GRIDS = [
    QuantizerSpec(),
    QuantizerSpec(symmetric=False, signed=False),
    QuantizerSpec(symmetric=False, signed=True, narrow_range=True),
    QuantizerSpec(num_bits=4, narrow_range=True),
    QuantizerSpec(num_bits=16, signed=False),
    QuantizerSpec(axis=-1, narrow_range=True),
    QuantizerSpec(axis=1, symmetric=False),
]
WAYS = ["eager", "graph", "constant range in a graph", "xla"]


def runner(function, way):
    """Return a function of tensors that runs eagerly, in a graph, or compiled by XLA."""
    if way == "eager":
        return lambda *arrays: function(*map(tf.constant, arrays))
    if way == "constant range in a graph":
        return lambda x, *bounds: tf.function(lambda v: function(v, *bounds), autograph=False)(tf.constant(x))
    compiled = tf.function(function, jit_compile=way == "xla", autograph=False)
    return lambda *arrays: compiled(*map(tf.constant, arrays))


def scale_and_zero_point(minimum, maximum, spec):
    scale, code_low, _ = grid_tensors(minimum, maximum, spec)
    return scale, tf.broadcast_to(tf.cast(spec.qmin - code_low, tf.float32), tf.shape(scale))


def example(spec, seed=3):
    """Return values with ties and outliers, and the range that they are quantized with."""
    shape = () if spec.axis is None else (SHAPE[spec.axis],)
    rng = np.random.default_rng(seed)
    low, high = (
        -rng.uniform(0.1, 3.0, shape).astype(np.float32),
        rng.uniform(0.1, 3.0, shape).astype(np.float32),
    )
    params = numerics.qparams_from_range(low, high, spec)
    return values_for(params, seed), low, high, params


class TestValues:
    @settings(max_examples=300)
    @given(qparams(), SEEDS)
    def test_eager_values_are_those_of_numerics(self, params, seed):
        # The range that gives back these very parameters: the grid's own ends.
        spec = params.spec
        bounds = params.representable_range
        expected = numerics.qparams_from_range(*bounds, spec)
        x = values_for(expected, seed)
        np.testing.assert_array_equal(fake_quantize_tensor(x, *bounds, spec), numerics.fake_quantize(x, expected))

    @pytest.mark.parametrize("spec", GRIDS, ids=str)
    @pytest.mark.parametrize("way", WAYS)
    def test_values_are_those_of_numerics_however_they_are_run(self, way, spec):
        run = runner(lambda *args: fake_quantize_tensor(*args, spec), way)
        for seed in range(5 if way == "constant range in a graph" else 40):
            x, low, high, params = example(spec, seed)
            np.testing.assert_array_equal(run(x, low, high), numerics.fake_quantize(x, params))

    @pytest.mark.parametrize("jit", [False, True])
    @pytest.mark.parametrize("spec", GRIDS, ids=str)
    @pytest.mark.parametrize("way", ["eager", "graph", "xla"])
    def test_weights_are_those_of_numerics(self, way, spec, jit):
        run = runner(lambda values: fake_quantize_weight(values, spec, jit=jit), way)
        for seed in range(10):
            w, *_ = example(spec, seed)
            params = numerics.qparams_from_range(*numerics.weight_range(w, spec), spec)
            np.testing.assert_array_equal(run(w), numerics.dequantize(numerics.quantize(w, params), params))

    @pytest.mark.parametrize("spec", GRIDS, ids=str)
    def test_what_is_compiled_for_weights_reduces_no_floats(self, spec):
        # Two threads that are the first to run a reduction of floats that XLA compiled can crash TensorFlow.
        function = tf.function(lambda w: fake_quantize_weight(w, spec, jit=True), autograph=False)
        graph = function.get_concrete_function(tf.TensorSpec((3, 3, 4, 8))).graph.as_graph_def()
        compiled = [f for f in graph.library.function if "_XlaMustCompile" in f.attr and f.attr["_XlaMustCompile"].b]
        nodes = [node for found in compiled for node in found.node_def]
        assert {"RealDiv", "Rint"} <= {node.op for node in nodes}
        reductions = [node for node in nodes if node.op in ("Min", "Max", "Sum", "Mean")]
        assert all(node.attr["T"].type == tf.int32.as_datatype_enum for node in reductions)
        assert not {"MatMul", "Conv2D"} & {node.op for node in nodes}

    @pytest.mark.parametrize("jit", [False, True])
    @pytest.mark.parametrize("symmetric", [True, False])
    @pytest.mark.parametrize("shape", [(7,), (1009, 3), (3, 3, 40, 8), (2, 3, 2, 4, 8)])
    def test_weights_of_any_rank(self, shape, symmetric, jit):
        spec = QuantizerSpec(axis=-1, narrow_range=True, symmetric=symmetric)
        w = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        params = numerics.qparams_from_range(*numerics.weight_range(w, spec), spec)
        np.testing.assert_array_equal(fake_quantize_weight(w, spec, jit=jit), numerics.fake_quantize(w, params))

    @pytest.mark.parametrize("jit", [False, True])
    @pytest.mark.parametrize("symmetric", [True, False])
    @pytest.mark.parametrize("axis", [None, 0, -1])
    @pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000], ids=["NaN", "-NaN"])
    def test_nan_in_a_weight_spoils_what_shares_its_range_and_nothing_else(self, bits, axis, symmetric, jit):
        spec = QuantizerSpec(axis=axis, symmetric=symmetric)
        w = np.linspace(-3, 4, 12, dtype=np.float32).reshape(4, 3)
        good = fake_quantize_weight(w, spec, jit=jit).numpy()
        w[1, 2] = np.uint32(bits).view(np.float32)
        shares = np.zeros((4, 3), bool)
        shares[{None: np.s_[:], 0: np.s_[1], -1: np.s_[:, 2]}[axis]] = True
        np.testing.assert_array_equal(
            fake_quantize_weight(w, spec, jit=jit), np.where(shares, np.float32(np.nan), good)
        )

    @pytest.mark.parametrize("jit", [False, True])
    @pytest.mark.parametrize("symmetric", [True, False])
    @pytest.mark.parametrize("axis", [None, 0, -1])
    @pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
    def test_an_empty_weight_stays_empty(self, shape, axis, symmetric, jit):
        spec = QuantizerSpec(axis=axis, symmetric=symmetric)
        found = fake_quantize_weight(tf.zeros(shape, tf.float16), spec, jit=jit)
        assert tuple(found.shape) == shape
        assert found.dtype == tf.float16

    @pytest.mark.parametrize("jit", [False, True])
    @pytest.mark.parametrize("shape", [(0, 3), (2, 3)])
    def test_an_axis_that_a_weight_does_not_have_is_refused(self, shape, jit):
        with pytest.raises(QuantizerError, match="rank 2 has no such axis"):
            fake_quantize_weight(tf.zeros(shape), QuantizerSpec(axis=3), jit=jit)

    @settings(max_examples=300)
    @given(specs(), ranges())
    def test_scale_and_zero_point_have_the_same_bits(self, spec, bounds):
        scale, zero_point = scale_and_zero_point(*bounds, spec)
        expected = numerics.qparams_from_range(*bounds, spec)
        np.testing.assert_array_equal(scale.numpy().view(np.uint32), expected.scale.view(np.uint32))
        np.testing.assert_array_equal(zero_point, expected.zero_point)

    @given(ranges((6,)), st.booleans(), st.booleans())
    def test_scale_and_zero_point_per_axis(self, bounds, signed, symmetric):
        spec = QuantizerSpec(axis=-1, signed=signed, symmetric=symmetric)
        scale, zero_point = scale_and_zero_point(*bounds, spec)
        expected = numerics.qparams_from_range(*bounds, spec)
        np.testing.assert_array_equal(scale.numpy().view(np.uint32), expected.scale.view(np.uint32))
        np.testing.assert_array_equal(zero_point, expected.zero_point)

    @pytest.mark.parametrize("low", [-127.5, -126.5, -0.5])
    def test_zero_points_half_way_between_codes(self, low):
        spec = QuantizerSpec(symmetric=False)
        _, zero_point = scale_and_zero_point(low, low + 255.0, spec)
        assert zero_point == numerics.qparams_from_range(low, low + 255.0, spec).zero_point

    @pytest.mark.parametrize("num_bits", [2, 4, 8, 16])
    @pytest.mark.parametrize("narrow", [False, True])
    def test_asymmetric_ends_are_those_of_tensorflow(self, num_bits, narrow):
        spec = QuantizerSpec(num_bits, signed=False, symmetric=False, narrow_range=narrow)
        rng = np.random.default_rng(num_bits)
        for low, high in zip(-rng.uniform(0, 4, 50), rng.uniform(0.01, 4, 50), strict=True):
            reference = tf.quantization.fake_quant_with_min_max_vars([-1e9, 1e9], low, high, num_bits, narrow)
            ends = np.stack(numerics.qparams_from_range(low, high, spec).representable_range)
            np.testing.assert_allclose(ends, reference, rtol=3e-7)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
    def test_other_float_types_are_computed_in_float32(self, dtype):
        spec = QuantizerSpec()
        x, low, high, params = example(spec)
        x = tf.cast(x, dtype)
        expected = tf.cast(numerics.fake_quantize(tf.cast(x, tf.float32).numpy(), params), dtype)
        y = fake_quantize_tensor(x, low, high, spec)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, expected)
        w = fake_quantize_weight(x, spec)
        assert w.dtype == x.dtype

    def test_nan_stays_visible(self):
        assert np.isnan(fake_quantize_tensor([np.nan, 0.0], -1.0, 1.0, QuantizerSpec())[0])

    def test_dynamic_batch(self):
        spec = QuantizerSpec(axis=1)
        traced = tf.function(
            lambda x: fake_quantize_tensor(x, tf.fill([4], -1.0), tf.fill([4], 1.0), spec),
            input_signature=[tf.TensorSpec((None, 4, None), tf.float32)],
            autograph=False,
        )
        x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
        params = numerics.qparams_from_range(-np.ones(4), np.ones(4), spec)
        np.testing.assert_array_equal(traced(x), numerics.fake_quantize(x, params))
        assert traced(x[:0]).shape == (0, 4, 5)

    @pytest.mark.parametrize("function", [lambda x, s: fake_quantize_tensor(x, 0, 1, s), fake_quantize_weight])
    def test_integers_are_refused(self, function):
        with pytest.raises(QuantizerError, match="int32"):
            function(tf.constant([1, 2]), QuantizerSpec())

    def test_unknown_rank_is_refused(self):
        traced = tf.function(
            lambda x: fake_quantize_tensor(x, [0.0], [1.0], QuantizerSpec(axis=0)),
            input_signature=[tf.TensorSpec(None, tf.float32)],
            autograph=False,
        )
        with pytest.raises(QuantizerError, match="rank"):
            traced([0.0])


def gradients(function, x, *bounds):
    """Return a function's value and the gradients to all its arguments, under a fixed upstream gradient."""
    tensors = [tf.convert_to_tensor(value) for value in (x, *bounds)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
    upstream = tf.reshape(tf.range(1, tf.size(y) + 1, dtype=y.dtype), tf.shape(y))
    return tape.gradient(y, tensors, output_gradients=upstream, unconnected_gradients="zero"), upstream


class TestGradients:
    @pytest.mark.parametrize("spec", GRIDS, ids=str)
    @pytest.mark.parametrize("way", ["eager", "graph", "xla"])
    def test_equals_the_written_mask(self, way, spec):
        x, low, high, params = example(spec)
        shape = [1] * len(SHAPE)
        if spec.axis is not None:
            shape[spec.axis] = -1
        first, last = (np.broadcast_to(end.reshape(shape), SHAPE) for end in params.representable_range)
        # On the ends, and one float outside of them.
        x[0], x[1] = first[0], last[1]
        x[2, :2] = np.nextafter(first[2, :2], np.float32(-np.inf))
        x[2, 2:] = np.nextafter(last[2, 2:], np.float32(np.inf))

        def compute(*args):
            return gradients(lambda *inner: fake_quantize_tensor(*inner, spec), *args)

        (dx, dlow, dhigh), upstream = runner(compute, way)(x, low, high)
        np.testing.assert_array_equal(dx, np.where((x >= first) & (x <= last), upstream, 0))
        assert (np.asarray(dx)[:2] != 0).all()
        assert (np.asarray(dx)[2] == 0).all()
        assert not np.any(dlow)
        assert not np.any(dhigh)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
    @pytest.mark.parametrize("axis", [None, -1])
    def test_keeps_the_dtype(self, dtype, axis):
        x = tf.constant([-3.0, -0.5, 0.5, 3.0], dtype)
        bounds = (-1.0, 1.0) if axis is None else (-np.ones(4, np.float32), np.ones(4, np.float32))
        (dx, *_), _ = gradients(lambda *args: fake_quantize_tensor(*args, QuantizerSpec(axis=axis)), x, *bounds)
        assert dx.dtype == x.dtype
        assert tf.cast(dx, tf.float32).numpy().tolist() == [0.0, 2.0, 3.0, 0.0]

    @pytest.mark.parametrize("jit", [False, True])
    @pytest.mark.parametrize("spec", GRIDS, ids=str)
    def test_of_weights_is_the_identity(self, spec, jit):
        w, *_ = example(spec)
        (dw,), upstream = gradients(lambda values: fake_quantize_weight(values, spec, jit=jit), w)
        np.testing.assert_array_equal(dw, upstream)
