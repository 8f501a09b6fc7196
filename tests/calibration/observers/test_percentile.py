"""The percentile, exactly counted and as ONNX Runtime computes it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime_collector import distributions, onnxruntime_range

from qdq_workbench.calibration.observers import PercentileObserver
from qdq_workbench.calibration.observers.histogram import BINS


def feed(observer, batches):
    for batch in batches:
        observer.update(batch)
    return observer.range()


@settings(max_examples=150)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(
        st.tuples(
            st.integers(1, 3000), st.sampled_from([1e-30, 1e-3, 1.0, 80.0, 1e6]), st.sampled_from([0.0, 5.0, -1e4])
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([51.3, 90.0, 99.0, 99.9, 99.99, 100.0]),
)
def test_within_one_bin_of_the_counted_percentile(seed, batches, percentile):
    rng = np.random.default_rng(seed)
    data = [(rng.normal(size=n) * scale + shift).astype(np.float32) for n, scale, shift in batches]
    low, high = feed(PercentileObserver("relu1", percentile), data)
    values = np.sort(np.concatenate(data)).astype(np.float64)
    left_out = (100 - percentile) / 200 * len(values)
    near = 1e-6 * len(values)  # a percentile between two values is either of them, as rounding has it
    lows = [values[max(0, int(np.ceil(left_out + side)) - 1)] for side in (-near, near)]
    highs = [values[min(len(values), int(np.ceil(len(values) - left_out + side))) - 1] for side in (-near, near)]
    one_bin = (values[-1] - values[0]) / BINS
    assert values[0] <= low <= high <= values[-1]
    assert lows[0] - one_bin <= low <= lows[1]
    assert highs[0] - one_bin <= high <= highs[1] + one_bin  # in the last bin it is the highest value


@pytest.mark.parametrize("percentile", [90.0, 99.0, 99.9, 99.99, 100.0])
@pytest.mark.parametrize("name", distributions())
def test_equal_to_onnxruntime_within_one_bin(name, percentile):
    values = distributions()[name]
    expected = onnxruntime_range("percentile", values, num_bins=2048, percentile=percentile)
    found = feed(PercentileObserver("x", percentile), np.array_split(values, 3))
    one_bin = 2 * np.abs(values).max() / 2048
    np.testing.assert_allclose(found, expected, rtol=0, atol=one_bin * (1 + 1e-3))


def test_all_values():
    data = np.random.default_rng(2).normal(size=(3, 1000)).astype(np.float32)
    assert feed(PercentileObserver("relu1", 100.0), data) == (float(data.min()), float(data.max()))


def test_default_leaves_out_one_outlier_in_forty_thousand():
    values = np.linspace(0.0, 1.0, 40_001, dtype=np.float32)
    values[-1] = 100.0
    low, high = feed(PercentileObserver("relu1"), [values])
    assert 0.9 < high <= 1.0
    assert low == 0.0


def test_order_of_the_batches_does_not_matter():
    rng = np.random.default_rng(1)
    data = [rng.normal(size=5000).astype(np.float32) * scale for scale in (0.01, 1.0, 30.0)]
    assert feed(PercentileObserver("a", 99.0), data) == feed(PercentileObserver("a", 99.0), data[::-1])
