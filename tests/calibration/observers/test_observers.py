"""The observers: one pass over batches, a range at the end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qdq_workbench.calibration.observers import (
    MinMaxObserver,
    MovingAverageObserver,
    Observer,
    PercentileObserver,
    make_observer,
    observer_names,
)
from qdq_workbench.calibration.observers.observer import register_observer
from qdq_workbench.errors import DataError

METHODS = ["minmax", "moving_average", "percentile"]


def feed(observer, batches):
    """Feed batches and return the range."""
    for batch in batches:
        observer.update(batch)
    return observer.range()


class TestEveryMethod:
    def test_names(self):
        assert set(METHODS) <= set(observer_names())

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("value", [0.0, -2.5, 7.0, 1e-40, -3e38])
    def test_one_value(self, method, value):
        low, high = feed(make_observer(method, "relu1"), [np.full((2, 3), value), np.full(5, value)])
        np.testing.assert_allclose((low, high), np.float32(value), rtol=1e-6)
        assert isinstance(low, float)
        assert isinstance(high, float)

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
    def test_nan_and_infinity_name_the_tensor_and_change_nothing(self, method, bad):
        observer = make_observer(method, "block1/relu")
        observer.update([-1.0, 1.0])
        with pytest.raises(DataError, match=r"'block1/relu' holds (NaN|infinity) on calibration batch 1"):
            observer.update([-5.0, bad, 5.0])
        assert observer.range() == (-1.0, 1.0)

    @pytest.mark.parametrize("method", METHODS)
    def test_nothing_at_all(self, method):
        observer = make_observer(method, "relu1")
        with pytest.raises(DataError, match="'relu1' has no range"):
            observer.range()
        with pytest.raises(DataError, match="'relu1' is empty"):
            observer.update(np.zeros((0, 4)))

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8"])
    def test_number_types(self, method, dtype):
        assert feed(make_observer(method, "input"), [np.array([1, 2, 3], dtype)]) == (1.0, 3.0)

    @pytest.mark.parametrize("method", METHODS)
    def test_does_not_change_the_batch(self, method):
        batch = np.random.default_rng(0).normal(size=1000).astype(np.float32)
        copy = batch.copy()
        feed(make_observer(method, "relu1"), [batch, batch])
        np.testing.assert_array_equal(batch, copy)


class TestFactory:
    def test_unknown_method_gets_the_nearest_name(self):
        with pytest.raises(DataError, match="percentile"):
            make_observer("percentil", "relu1")

    def test_unknown_setting(self):
        with pytest.raises(DataError, match="no setting 'momentum'; it takes percentile"):
            make_observer("percentile", "relu1", momentum=0.5)

    def test_taken_name(self):
        with pytest.raises(DataError, match="already"):
            register_observer("minmax")(MinMaxObserver)

    @pytest.mark.parametrize(
        ("method", "settings_"),
        [
            ("percentile", {"percentile": 50.0}),
            ("percentile", {"percentile": 100.1}),
            ("moving_average", {"momentum": 1.0}),
            ("moving_average", {"momentum": -0.1}),
        ],
    )
    def test_settings_out_of_bounds(self, method, settings_):
        with pytest.raises(DataError, match="Received"):
            make_observer(method, "relu1", **settings_)

    def test_a_new_method_must_say_what_it_keeps(self):
        with pytest.raises(NotImplementedError, match="observe"):
            Observer("relu1").update([1.0])


class TestMinMax:
    def test_range_of_all_batches(self):
        assert feed(MinMaxObserver("relu1"), [[1.0, 2.0], [[-4.0], [0.5]], [1.5]]) == (-4.0, 2.0)


class TestMovingAverage:
    def test_first_batch_counts_in_full(self):
        assert feed(MovingAverageObserver("relu1"), [[-1.0, 3.0]]) == (-1.0, 3.0)

    def test_later_ones_a_tenth(self):
        bounds = feed(MovingAverageObserver("relu1"), [[-1.0, 3.0], [0.0, 13.0], [0.0, 4.0]])
        np.testing.assert_allclose(bounds, (-0.81, 4.0))

    def test_momentum(self):
        assert feed(MovingAverageObserver("relu1", momentum=0.0), [[-1.0, 3.0], [0.0, 13.0]]) == (0.0, 13.0)


def exact(values, percentile):
    """Return the percentiles at both ends, counted on the sorted values."""
    values = np.sort(np.concatenate([np.ravel(batch) for batch in values]).astype(np.float32)).astype(np.float64)
    needed = int(np.ceil(np.round(len(values) * percentile / 100, 6)))
    return values[len(values) - needed], values[needed - 1], values[0], values[-1]


class TestPercentile:
    @settings(max_examples=200)
    @given(
        st.integers(0, 2**32 - 1),
        st.lists(
            st.tuples(
                st.integers(1, 3000),
                st.sampled_from([1e-30, 1e-3, 1.0, 80.0, 1e6]),
                st.sampled_from([0.0, 5.0, -1e4]),
            ),
            min_size=1,
            max_size=5,
        ),
        st.sampled_from([51.0, 90.0, 99.0, 99.9, 99.99, 100.0]),
    )
    def test_error_is_below_one_bin_and_never_cuts_too_much(self, seed, batches, percentile):
        rng = np.random.default_rng(seed)
        data = [(rng.normal(size=n) * scale + shift).astype(np.float32) for n, scale, shift in batches]
        low, high = feed(PercentileObserver("relu1", percentile), data)
        true_low, true_high, lowest, highest = exact(data, percentile)
        one_bin = (highest - lowest) / 2048
        assert lowest <= low <= true_low
        assert true_high <= high <= highest
        assert true_low - low <= one_bin
        assert high - true_high <= one_bin

    def test_order_of_the_batches_does_not_matter(self):
        rng = np.random.default_rng(1)
        data = [rng.normal(size=5000).astype(np.float32) * scale for scale in (0.01, 1.0, 30.0)]
        assert feed(PercentileObserver("a", 99.0), data) == feed(PercentileObserver("a", 99.0), data[::-1])

    def test_keeps_enough_bins_and_not_many_more_while_the_range_grows(self):
        observer = PercentileObserver("relu1")
        for exponent in range(-140, 120, 3):
            observer.update([0.0, 2.0**exponent, 1.37 * 2.0**exponent])
            assert 2048 <= observer._counts.size <= 4097
        assert observer._counts.sum() == 3 * observer.batches

    def test_all_values(self):
        data = np.random.default_rng(2).normal(size=(3, 1000)).astype(np.float32)
        assert feed(PercentileObserver("relu1", 100.0), data) == (float(data.min()), float(data.max()))

    def test_default_leaves_out_one_outlier_in_twenty_thousand(self):
        values = np.linspace(0.0, 1.0, 20_001, dtype=np.float32)
        values[-1] = 100.0
        low, high = feed(PercentileObserver("relu1"), [values])
        assert 0.99 < high < 1.0 + 100.0 / 2048
        assert low == 0.0

    def test_batches_longer_than_a_piece(self):
        data = np.random.default_rng(3).normal(size=200_001).astype(np.float32)
        whole = feed(PercentileObserver("a"), [data])
        assert whole == feed(PercentileObserver("a"), np.array_split(data, 7))

    def test_constant_then_spread(self):
        data = [np.full(100, -3.3), np.full(100, 3.3), np.linspace(-5.0, 5.0, 100)]
        low, high = feed(PercentileObserver("relu1", 99.0), data)
        true_low, true_high, *_ = exact(data, 99.0)
        assert true_low - 10.0 / 2048 <= low <= true_low
        assert true_high <= high <= true_high + 10.0 / 2048
