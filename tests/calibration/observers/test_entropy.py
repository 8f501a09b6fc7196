"""The entropy threshold, as ONNX Runtime computes it."""

import numpy as np
import pytest
from onnxruntime_collector import distributions, onnxruntime_range

from qdq_workbench.calibration.observers import EntropyObserver


@pytest.mark.parametrize("bins", [(128, 128), (512, 128), (512, 64)], ids=str)
@pytest.mark.parametrize("name", distributions())
def test_equal_to_onnxruntime_within_one_bin(name, bins):
    values = distributions()[name]
    expected = onnxruntime_range("entropy", values, num_bins=bins[0], num_quantized_bins=bins[1])
    observer = EntropyObserver("x", *bins)
    for part in np.array_split(values, 3):
        observer.update(part)
    one_bin = 2 * np.abs(values).max() / bins[0]
    np.testing.assert_allclose(observer.range(), expected, rtol=0, atol=one_bin * (1 + 1e-6))


def test_an_outlier_is_clipped_and_a_relu_keeps_its_zero():
    values = np.append(np.maximum(np.random.default_rng(0).normal(size=100_000), 0), 50.0)
    observer = EntropyObserver("x")
    observer.update(values)
    low, high = observer.range()
    assert low == 0.0
    assert 2.0 < high < 10.0


def test_onnxruntimes_own_bins_leave_one_window():
    values = distributions()["heavy tails"]
    observer = EntropyObserver("x", 128, 128)
    observer.update(values)
    assert observer.range() == (float(values.min()), float(values.max()))
