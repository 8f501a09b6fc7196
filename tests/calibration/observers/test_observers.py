"""The observers: one pass over batches, a range at the end."""

import json

import numpy as np
import pytest

from qdq_workbench.calibration.observers import (
    MinMaxObserver,
    MovingAverageObserver,
    Observer,
    make_observer,
    observer_names,
)
from qdq_workbench.calibration.observers.observer import register_observer
from qdq_workbench.errors import DataError

METHODS = ["minmax", "moving_average", "percentile", "mse", "mae", "lp", "kl", "entropy"]


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
            ("percentile", {"percentile": 0.0}),
            ("percentile", {"percentile": True}),
            ("mse", {"candidates": 1}),
            ("lp", {"p": 0}),
            ("lp", {"p": "2"}),
            ("kl", {"candidates": 10.5}),
            ("entropy", {"num_bins": 127}),
            ("entropy", {"num_bins": 128, "num_quantized_bins": 256}),
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


class TestParts:
    """Observers of parts of the data add up to one that has seen all of them."""

    @pytest.mark.parametrize("method", [*METHODS, "power_of_two"])
    def test_sum_of_parts(self, method):
        rng = np.random.default_rng(5)
        data = [rng.normal(size=3000).astype(np.float32) * scale for scale in (0.01, 3.0, 0.5, 1.0)]
        whole = feed(make_observer(method, "relu1"), data)
        parts = [make_observer(method, "relu1") for _ in range(2)]
        for batch in data[:1]:
            parts[0].update(batch)
        for batch in data[1:]:
            parts[1].update(batch)
        total = make_observer(method, "relu1")
        for part in parts:
            total.absorb(json.loads(json.dumps(part.state())))
        assert total.batches == 4
        np.testing.assert_allclose(total.range(), whole, rtol=1e-12 if method == "moving_average" else 0)

    def test_an_observer_that_cannot_says_so(self):
        with pytest.raises(NotImplementedError, match="absorb"):
            Observer("relu1").absorb({})
        with pytest.raises(NotImplementedError, match="state"):
            Observer("relu1").state()


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
