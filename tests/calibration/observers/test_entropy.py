"""The entropy threshold, as ONNX Runtime computes it."""

import numpy as np
import pytest
from onnxruntime_collector import distributions, onnxruntime_range

from qdq_workbench.calibration.observers import EntropyObserver
from qdq_workbench.calibration.observers.entropy_windows import _Windows


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


def of_one_window(counts, start, end, groups):
    """KL(P || Q) of a window, bin by bin as the definition has it, in double precision."""
    window = counts[start:end].astype(float)
    p, size = window.copy(), window.size // groups
    p[0] += counts[:start].sum()
    p[-1] += counts[end:].sum()
    q = np.zeros(window.size)
    for group in range(groups):
        bins = slice(group * size, (group + 1) * size)
        total = window[bins].sum() if group < groups - 1 else window[group * size :].sum()
        if members := np.count_nonzero(p[bins]):
            q[bins] = total // members
    if not q.any():
        return np.inf
    p, q = (np.where(x == 0, 1e-4, x - 1e-4 * np.sum(x == 0) / np.sum(x != 0)) for x in (p, q))
    if min(p.min(), q.min()) <= 0:
        return np.inf
    p, q = p / p.sum(), q / q.sum()
    return float(np.sum(p * np.log(p / q)))


@pytest.mark.parametrize("bins", [(128, 32), (130, 16), (256, 256), (600, 7)], ids=str)
@pytest.mark.parametrize("kind", ["dense", "sparse", "few", "one-sided", "ends"])
def test_all_windows_at_once_equal_one_by_one(kind, bins):
    rng = np.random.default_rng(3)
    count, groups = bins
    counts = rng.poisson(40 * np.exp(-(np.linspace(-3, 3, count) ** 2))).astype(np.int64)
    if kind == "sparse":
        counts *= rng.integers(0, 2, count)
    elif kind == "few":
        counts[:] = 0
        counts[rng.integers(0, count, 3)] = [1, 50, 3]
    elif kind == "one-sided":
        counts[: count // 2] = 0
    elif kind == "ends":
        counts[[0, -1]] = 9
    half = np.arange((groups + 1) // 2, count // 2 + 1)
    start, end = count // 2 - half, np.minimum(count // 2 + half + 1, count)
    expected = [of_one_window(counts, a, b, groups) for a, b in zip(start, end, strict=True)]
    found = _Windows(counts).divergence(start, end, groups)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    assert np.isfinite(expected).any()
