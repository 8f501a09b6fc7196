"""The relative entropy of all windows around zero at once, and the choice of one of them."""

import numpy as np
import pytest

from qdq_workbench.calibration.observers import entropy_windows
from qdq_workbench.calibration.observers.entropy_windows import _divergence_in_float32, _Windows, best_window


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


def bell(count, seed=0):
    return np.random.default_rng(seed).poisson(300 * np.exp(-(np.linspace(-4, 4, count) ** 2))).astype(np.int64)


def edges_of(counts):
    return np.linspace(-1.0, 1.0, counts.size + 1)


def test_the_window_with_the_least_entropy_is_chosen():
    counts, groups = bell(64), 8
    middle = 32
    found = {}
    for half in range(groups // 2, middle + 1):
        start, end = middle - half, min(middle + half + 1, 64)
        if end - start >= groups:
            found[start, end] = of_one_window(counts, start, end, groups)
    start, end = min(found, key=found.get)

    edges = edges_of(counts)
    assert best_window(counts, edges, groups) == (edges[start], edges[end])
    assert 0 < start < middle - groups // 2, "neither the narrowest nor the widest one"


@pytest.mark.parametrize("at_once", [1, 7])
def test_the_windows_that_are_computed_at_once_do_not_matter(monkeypatch, at_once):
    counts, flat = bell(96, seed=1), np.full(16, 7)
    expected = best_window(counts, edges_of(counts), 16)

    monkeypatch.setattr(entropy_windows, "_AT_ONCE", at_once)
    assert best_window(counts, edges_of(counts), 16) == expected
    assert best_window(flat, edges_of(flat), 4) == (-1.0, 1.0), "the last window is the best one"


def test_of_equal_entropies_the_narrowest_window_is_chosen():
    counts = np.zeros(16, np.int64)
    counts[6:9] = 5
    assert of_one_window(counts, 6, 11, 4) == of_one_window(counts, 5, 12, 4) == 0

    edges = edges_of(counts)
    assert best_window(counts, edges, 4) == (edges[6], edges[11])


def test_windows_of_fewer_bins_than_groups_are_none():
    counts = bell(32)
    assert best_window(counts, edges_of(counts), 32) == (-1.0, 1.0)

    counts = np.zeros(16, np.int64)
    counts[6:11] = 5
    edges = edges_of(counts)
    assert best_window(counts, edges, 5) == (edges[6], edges[11]), "one of as many bins is a window"


@pytest.mark.parametrize("counts", [np.zeros(16, np.int64), np.eye(1, 16, 0, dtype=np.int64)[0]], ids=["empty", "edge"])
@pytest.mark.filterwarnings("ignore:.*divide by zero.*:RuntimeWarning", "ignore:.*invalid value.*:RuntimeWarning")
def test_without_a_finite_entropy_the_whole_range_is_kept(counts):
    assert best_window(counts, edges_of(counts), 4) == (-1.0, 1.0)


@pytest.mark.parametrize(("start", "end"), [(0, 48), (10, 39), (20, 29)])
def test_in_single_precision_it_is_the_same_but_for_rounding_errors(start, end):
    counts = bell(48, seed=2)

    found = _divergence_in_float32(counts, start, end, 8)
    assert found == pytest.approx(of_one_window(counts, start, end, 8), abs=1e-4)


def test_a_window_without_values_has_no_entropy():
    counts = np.zeros(16, np.int64)
    counts[[0, 15]] = 5

    assert _divergence_in_float32(counts, 6, 11, 4) == np.inf
    assert _divergence_in_float32(np.ones(16, np.int64), 0, 16, 4) < np.inf
    few = np.zeros(20000, np.int64)
    few[5] = 1  # smoothing takes more than this count
    assert _divergence_in_float32(few, 0, 20000, 4) == np.inf
