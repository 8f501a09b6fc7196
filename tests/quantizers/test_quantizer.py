"""The quantizer classes: how training moves their ranges, and how they are stored."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench import numerics, quantizers
from qdq_workbench.errors import QuantizerError
from qdq_workbench.quantizers import (
    AllValuesQuantizer,
    FixedQuantizer,
    LastValueQuantizer,
    LSQQuantizer,
    MovingAverageQuantizer,
    Quantizer,
)
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

CLASSES = [LastValueQuantizer, MovingAverageQuantizer, AllValuesQuantizer, FixedQuantizer]
LEARNING = CLASSES[:3]
BATCHES = [np.float32([-1.0, 2.0]), np.float32([-3.0, 0.5]), np.float32([0.25, 1.0])]


def make(cls, **settings):
    """Return a quantizer; a fixed one gets a range."""
    return cls(**({"init_min": -1.0, "init_max": 3.0} if cls is FixedQuantizer else {}), **settings)


def built(quantizer, shape=(None, 2)):
    """Return a quantizer's variables on a fresh layer."""
    return quantizer.build(shape, "relu1", keras.layers.Layer())


def ends(variables):
    """Return the range as two arrays."""
    return variables["min_var"].numpy(), variables["max_var"].numpy()


class TestRanges:
    @pytest.mark.parametrize(
        ("quantizer", "expected"),
        [
            (LastValueQuantizer(), [(-1.0, 2.0), (-3.0, 0.5), (0.25, 1.0)]),
            (AllValuesQuantizer(), [(-1.0, 2.0), (-3.0, 2.0), (-3.0, 2.0)]),
            (MovingAverageQuantizer(momentum=0.9), [(-1.0, 2.0), (-1.2, 1.85), (-1.055, 1.765)]),
            (MovingAverageQuantizer(momentum=0.0), [(-1.0, 2.0), (-3.0, 0.5), (0.25, 1.0)]),
            (FixedQuantizer(-1.0, 3.0), [(-1.0, 3.0)] * 3),
        ],
    )
    @pytest.mark.parametrize("graph", [False, True])
    def test_after_each_batch(self, quantizer, expected, graph):
        variables = built(quantizer)

        def train(x):
            return quantizer(x, True, variables)

        call = tf.function(train, autograph=False) if graph else train
        for batch, bounds in zip(BATCHES, expected, strict=True):
            y = call(tf.constant(batch))
            np.testing.assert_allclose(ends(variables), bounds, rtol=1e-6)
            params = numerics.qparams_from_range(*ends(variables), quantizer.spec)
            np.testing.assert_array_equal(y, numerics.fake_quantize(batch, params))

    def test_moving_average_forgets_at_its_documented_default(self):
        quantizer = MovingAverageQuantizer()
        variables = built(quantizer)
        quantizer(tf.constant([0.0, 1.0]), True, variables)
        quantizer(tf.constant([0.0, 2.0]), True, variables)
        np.testing.assert_allclose(ends(variables), (0.0, 1.01), rtol=1e-6)

    @pytest.mark.parametrize("cls", LEARNING)
    def test_per_axis(self, cls):
        quantizer = cls(per_axis=True, axis=1)
        variables = built(quantizer, (None, 3, 2))
        x = np.random.default_rng(0).normal(size=(4, 3, 2)).astype(np.float32)
        y = quantizer(tf.constant(x), True, variables)
        np.testing.assert_allclose(ends(variables), (x.min((0, 2)), x.max((0, 2))))
        params = numerics.qparams_from_range(*ends(variables), quantizer.spec)
        np.testing.assert_array_equal(y, numerics.fake_quantize(x, params))

    @pytest.mark.parametrize("cls", LEARNING)
    def test_without_a_range_values_pass_exactly(self, cls):
        quantizer = cls()
        variables = built(quantizer)
        x = np.float32([0.1, -0.123456, 7.7])
        np.testing.assert_array_equal(quantizer(tf.constant(x), False, variables), x)
        low, high = ends(variables)
        assert low > high

    @pytest.mark.parametrize("training", [False, None])
    @pytest.mark.parametrize("cls", LEARNING)
    def test_not_training_keeps_the_range(self, cls, training):
        quantizer = cls()
        variables = built(quantizer)
        quantizer(tf.constant([-1.0, 1.0]), True, variables)
        y = quantizer(tf.constant([5.0]), training, variables)
        np.testing.assert_array_equal(ends(variables), (-1.0, 1.0))
        np.testing.assert_allclose(y, [1.0])

    @pytest.mark.parametrize("cls", LEARNING)
    def test_training_may_be_a_tensor(self, cls):
        quantizer = cls()
        variables = built(quantizer)
        call = tf.function(lambda x, training: quantizer(x, training, variables), autograph=False)
        call(tf.constant([-1.0, 1.0]), tf.constant(False))
        assert ends(variables)[0] == np.inf
        call(tf.constant([-1.0, 1.0]), tf.constant(True))
        np.testing.assert_array_equal(ends(variables), (-1.0, 1.0))

    def test_a_subclass_that_updates_no_range_keeps_the_one_it_was_given(self):
        class Given(LastValueQuantizer):
            updates_range = False

        quantizer = Given()
        variables = built(quantizer)
        quantizer.write_range(variables, np.float32(-1.0), np.float32(3.0))
        quantizer(BATCHES[1], True, variables)
        assert ends(variables) == (-1.0, 3.0)

    @pytest.mark.parametrize("bad", [[np.nan, 1.0], [-np.inf, 1.0], [0.0, np.inf], []])
    @pytest.mark.parametrize("cls", LEARNING)
    def test_a_batch_without_a_range_changes_nothing(self, cls, bad):
        quantizer = cls()
        variables = built(quantizer)
        quantizer(tf.constant([-1.0, 1.0]), True, variables)
        quantizer(tf.constant(bad, tf.float32), True, variables)
        np.testing.assert_array_equal(ends(variables), (-1.0, 1.0))

    @pytest.mark.parametrize("cls", CLASSES)
    def test_variables(self, cls):
        variables = built(make(cls, per_axis=True, axis=-1), (None, 5))
        for end in ("min", "max"):
            variable = variables[f"{end}_var"]
            assert variable.name == f"relu1_{end}"
            assert variable.dtype == "float32"
            assert variable.shape == (5,)
            assert not variable.trainable
            assert variable.aggregation == "only_first_replica"

    def test_no_gradient_reaches_the_batch_through_its_range(self):
        quantizer = LastValueQuantizer()
        variables = built(quantizer)
        x = tf.constant([-1.27, 0.5, 1.27])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = quantizer(x, True, variables)
        np.testing.assert_array_equal(tape.gradient(y, x), [1.0, 1.0, 1.0])


class TestSettings:
    @pytest.mark.parametrize("cls", [*CLASSES, LSQQuantizer])
    def test_survive_json_and_keras(self, cls):
        quantizer = make(cls, num_bits=5, per_axis=True, symmetric=False, narrow_range=True, signed=False, axis=2)
        assert quantizer.spec == QuantizerSpec(5, signed=False, symmetric=False, narrow_range=True, axis=2)
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(quantizer)))
        again = keras.saving.deserialize_keras_object(config)
        assert again == quantizer
        assert hash(again) == hash(quantizer)
        assert repr(again) == repr(quantizer)
        assert again != make(cls)

    @pytest.mark.parametrize("cls", [*CLASSES, LSQQuantizer])
    @pytest.mark.parametrize("spec", [QuantizerSpec(), QuantizerSpec(4, signed=False, symmetric=False, axis=0)])
    def test_from_spec(self, cls, spec):
        settings = {"init_min": 0.0, "init_max": 1.0} if cls is FixedQuantizer else {}
        assert cls.from_spec(spec, **settings).spec == spec

    def test_classes_differ(self):
        assert LastValueQuantizer() != AllValuesQuantizer()
        assert LastValueQuantizer() != "LastValueQuantizer"

    @pytest.mark.parametrize("num_bits", [1, 17, 8.0])
    @pytest.mark.parametrize("cls", CLASSES)
    def test_bits_out_of_bounds(self, cls, num_bits):
        with pytest.raises(QuantizerError):
            make(cls, num_bits=num_bits)

    @pytest.mark.parametrize("momentum", [-0.1, 1.0, 2.0])
    def test_momentum_out_of_bounds(self, momentum):
        with pytest.raises(QuantizerError, match="momentum"):
            MovingAverageQuantizer(momentum=momentum)

    @pytest.mark.parametrize("bounds", [(1.0, -1.0), (np.nan, 1.0), (0.0, np.inf)])
    def test_fixed_range_that_is_none(self, bounds):
        with pytest.raises(QuantizerError, match="fixed range"):
            FixedQuantizer(*bounds)

    def test_axis_of_unknown_size(self):
        with pytest.raises(QuantizerError, match="known size"):
            built(LastValueQuantizer(per_axis=True, axis=0))

    def test_missing_axis(self):
        with pytest.raises(QuantizerError):
            built(LastValueQuantizer(per_axis=True, axis=2))

    def test_a_subclass_must_say_how_ranges_merge(self):
        quantizer = Quantizer()
        with pytest.raises(NotImplementedError, match="merge"):
            quantizer(tf.constant([1.0]), True, built(quantizer))


class Halfway(Quantizer):
    """A subclass of a user's."""

    def merge(self, low, high, batch_low, batch_high):
        return batch_low / 2, batch_high / 2


class TestStoredRange:
    """Ranges that are read, written and forgotten without a batch."""

    def test_it_is_read_when_it_is_set(self):
        quantizer = LastValueQuantizer()
        variables = built(quantizer)
        assert quantizer.read_range(variables) is None
        quantizer.write_range(variables, np.float32(-1), np.float32(-1))  # a single value is a range
        low, high = quantizer.read_range(variables)
        assert (low, high, low.dtype, high.dtype) == (-1, -1, np.float32, np.float32)
        quantizer.forget_range(variables)
        assert quantizer.read_range(variables) is None

    def test_one_slice_without_a_range_is_none_of_all(self):
        quantizer = LastValueQuantizer(per_axis=True)
        variables = built(quantizer)
        quantizer.write_range(variables, np.float32([-1, np.inf]), np.float32([1, -np.inf]))
        assert quantizer.read_range(variables) is None
        x = tf.constant([[0.3, 0.3]])
        np.testing.assert_array_equal(quantizer(x, False, variables), x)

    def test_a_fixed_range_is_forgotten_to_what_it_was(self):
        quantizer = FixedQuantizer(-1.0, 3.0)
        variables = built(quantizer)
        quantizer.write_range(variables, np.float32(0), np.float32(1))
        quantizer.forget_range(variables)
        assert quantizer.read_range(variables) == (-1, 3)

    def test_a_weight_starts_with_the_range_of_its_values_unless_that_is_fixed(self):
        values = np.float32([[1, -2], [3, 4]])
        quantizer = LastValueQuantizer(per_axis=True)
        variables = built(quantizer)
        quantizer.start_from(variables, values)
        np.testing.assert_array_equal(quantizer.read_range(variables), [[1, -2], [3, 4]])
        fixed = FixedQuantizer(-1.0, 3.0)
        variables = built(fixed)
        fixed.start_from(variables, values)
        assert fixed.read_range(variables) == (-1, 3)

    def test_a_subclass_with_other_variables_has_no_range(self):
        quantizer = LastValueQuantizer()
        for call in (
            lambda: quantizer.write_range({"mine": 1}, 0.0, 1.0),
            lambda: quantizer.forget_range({"mine": 1}),
            lambda: quantizer.start_from({"mine": 1}, np.ones(2)),
            lambda: quantizer.read_range({"mine": 1}),
        ):
            assert call() is None


class TestSubclasses:
    @pytest.mark.parametrize("graph", [False, True])
    def test_the_users_arithmetic_is_used_in_graphs_too(self, graph):
        class Doubling(Halfway):
            def fake_quantize(self, inputs, low, high, weights):
                return 2 * inputs

        for cls, expected in ((Doubling, 2.0), (Halfway, 0.5)):
            quantizer = cls()
            variables = built(quantizer)

            def call(x, training, enabled):
                return quantizer(x, training, variables, enabled=enabled)  # noqa: B023 - called in this round only

            call = tf.function(call, autograph=False) if graph else call
            found = call(tf.constant([-1.0, 1.0]), True, True)
            assert float(found[1]) == pytest.approx(expected, abs=0.01)
            assert ends(variables) == (-0.5, 0.5)
            np.testing.assert_array_equal(call(tf.constant([3.0]), False, False), [3.0])

    def test_quantizers_that_differ_in_more_than_their_settings_share_no_function(self):
        class Scaled(Quantizer):
            factor = 1.0

            def merge(self, low, high, batch_low, batch_high):
                return self.factor * batch_low, self.factor * batch_high

        one, other = Scaled(), Scaled()
        other.factor = 4.0
        variables = [built(quantizer) for quantizer in (one, other)]

        def run(x):
            return [q(x, True, held) for q, held in zip((one, other), variables, strict=True)]

        tf.function(run, autograph=False)(tf.constant([-1.0, 1.0]))
        assert [ends(held) for held in variables] == [(-1, 1), (-4, 4)]

    def test_what_overrides_the_call_has_no_grid(self):
        class Own(Halfway):
            def __call__(self, inputs, training=None, weights=None, **kwargs):
                return inputs

        assert (Halfway().has_grid, Own().has_grid) == (True, False)

    def test_its_settings_name_no_method_of_the_library(self):
        class Own(LastValueQuantizer):
            pass

        assert LastValueQuantizer(5).settings() == {
            "num_bits": 5,
            "symmetric": True,
            "narrow_range": False,
            "per_axis": False,
            "quantizer": "last_value",
        }
        found = Own(per_axis=True, axis=1, block_size=4).settings()
        assert (found["axis"], found["block_size"]) == (1, 4)
        assert found["quantizer"] != "last_value"

    def test_a_constructor_that_does_not_call_ours_has_the_defaults(self):
        class Bare(Halfway):
            def __init__(self):
                pass

        assert Bare().get_config() == Halfway().get_config()
        assert "block_size" not in Halfway().get_config()
        assert Bare() == Bare()
        assert Bare() != Halfway()


def test_the_package_lists_and_resolves_its_names():
    for name in quantizers.__all__:
        assert getattr(quantizers, name).__name__ == name
        assert name in dir(quantizers)
    with pytest.raises(AttributeError):
        _ = quantizers.nothing
