"""One pass, growing ranges, parts that add up exactly."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qdq_workbench.calibration.observers import Histogram
from qdq_workbench.errors import DataError


def histogram_of(batches, bins=64):
    histogram = Histogram(bins)
    for batch in batches:
        histogram.add(np.asarray(batch, np.float32))
    return histogram


BATCHES = st.lists(
    st.tuples(
        st.integers(0, 2**32 - 1),
        st.integers(1, 300),
        st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 80.0, 1e6]),
        st.sampled_from([0.0, 5.0, -1e4]),
    ),
    min_size=1,
    max_size=5,
)


def draw(rows):
    return [
        (np.random.default_rng(seed).normal(size=n) * scale + shift).astype(np.float32)
        for seed, n, scale, shift in rows
    ]


@settings(max_examples=150)
@given(BATCHES)
def test_every_value_is_in_its_bin(rows):
    data = draw(rows)
    histogram = histogram_of(data)
    values = np.concatenate([batch.ravel() for batch in data]).astype(np.float64)
    places = np.searchsorted(histogram.edges, values, side="right") - 1
    np.testing.assert_array_equal(histogram.counts, np.bincount(places, minlength=histogram.counts.size))
    assert (histogram.low, histogram.high) == (values.min(), values.max())
    assert (histogram.centers >= histogram.low).all()
    assert (histogram.centers <= histogram.high).all()


@settings(max_examples=150)
@given(BATCHES, BATCHES)
def test_parts_add_up_to_the_whole_in_any_order(first, second):
    data = draw(first), draw(second)
    whole = histogram_of([*data[0], *data[1]])
    for order in (data, data[::-1]):
        parts = [histogram_of(part) for part in order]
        parts[0].merge(Histogram.from_state(json.loads(json.dumps(parts[1].state()))))
        assert parts[0].state() == whole.state()


def test_keeps_enough_bins_and_not_many_more_while_the_range_grows():
    histogram = Histogram(bins=256)
    for exponent in range(-140, 120, 3):
        histogram.add(np.array([0.0, 2.0**exponent, 1.37 * 2.0**exponent], np.float32))
        assert 256 <= histogram.counts.size <= 513


def test_long_batches_are_counted_as_short_ones():
    data = np.random.default_rng(3).normal(size=200_001).astype(np.float32)
    assert histogram_of([data]).state() == histogram_of(np.array_split(data, 7)).state()


def test_adding_nothing_and_adding_another_kind():
    histogram = histogram_of([[1.0, 2.0]])
    before = histogram.state()
    histogram.merge(Histogram(bins=64))
    assert histogram.state() == before
    with pytest.raises(DataError, match="bins=64 and bins=32"):
        histogram.merge(Histogram(bins=32))


def test_rebinning_keeps_every_value_near_its_place():
    data = np.random.default_rng(1).normal(size=50_000).astype(np.float32)
    histogram = histogram_of([data], bins=4096)
    edges = np.linspace(-6.0, 6.0, 101)
    exact, _ = np.histogram(data, edges)
    rebinned = histogram.rebinned(edges)
    assert rebinned.sum() == data.size
    assert np.abs(rebinned - exact).max() < 0.05 * exact.max()
