"""Least-error ranges against brute force on the values themselves, for every kind of grid."""

import itertools

import numpy as np
import pytest
from onnxruntime_collector import distributions

from qdq_workbench.calibration.observers import make_observer
from qdq_workbench.calibration.observers.kl import divergence
from qdq_workbench.calibration.observers.range_search import RangeSearch, power_error
from qdq_workbench.numerics import fake_quantize, qparams_from_range
from qdq_workbench.spec import QuantizerSpec

GRIDS = {
    "int8": QuantizerSpec(),
    "uint8": QuantizerSpec(signed=False, symmetric=False),
    "int4": QuantizerSpec(num_bits=4),
    "uint4": QuantizerSpec(num_bits=4, signed=False, symmetric=False),
    "symmetric uint8": QuantizerSpec(signed=False),
}
POWERS = {"mse": 2, "mae": 1, "lp": 3}
SOME = ["normal", "behind a relu", "behind a swish", "heavy tails", "negative"]


def error_of(values, ends, spec, power):
    """Return the mean error of a range, on the values themselves."""
    quantized = fake_quantize(values, qparams_from_range(*ends, spec)).astype(np.float64)
    return float(np.mean(np.abs(values - quantized) ** power))


def candidate_ranges(values, spec, count):
    """Return every range that a search may choose: each end at each fraction."""
    low, high = float(values.min()), float(values.max())
    fractions = [k / count for k in range(1, count + 1)]
    if spec.symmetric:
        thresholds = [k * max(-low, high) for k in fractions]
        return [(float(np.clip(low, -t, t)), float(np.clip(high, -t, t))) for t in thresholds]
    lows = [low * k for k in fractions] if low < 0 else [low]
    highs = [high * k for k in fractions] if high > 0 else [high]
    return [(min(a, b), max(a, b)) for a, b in itertools.product(lows, highs)]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("method", POWERS)
@pytest.mark.parametrize("name", SOME)
def test_error_equals_that_of_brute_force_over_all_thresholds(name, method, grid):
    values, spec, count = distributions()[name][:6000], GRIDS[grid], 24
    settings = {"p": 3} if method == "lp" else {}
    observer = make_observer(method, "x", spec, candidates=count, **settings)
    for part in np.array_split(values, 3):
        observer.update(part)
    power = POWERS[method]
    least = min(error_of(values, ends, spec, power) for ends in candidate_ranges(values, spec, count))
    assert error_of(values, observer.range(), spec, power) <= 1.01 * least


@pytest.mark.parametrize("grid", ["int8", "int4"])
@pytest.mark.parametrize("name", SOME)
def test_thresholds_equal_those_of_brute_force(name, grid):
    values, spec, count = distributions()[name], GRIDS[grid], 50
    observer = make_observer("mse", "x", spec, candidates=count)
    observer.update(values)
    ranges = candidate_ranges(values, spec, count)
    best = min(ranges, key=lambda ends: error_of(values, ends, spec, 2))
    step = max(-ranges[-1][0], ranges[-1][1]) / count  # the histogram may move a flat minimum by one candidate
    np.testing.assert_allclose(observer.range(), best, rtol=0, atol=1.001 * step)


def test_search_is_brute_force_where_the_values_are_the_bins():
    rng = np.random.default_rng(4)
    values, counts = np.sort(rng.laplace(size=500)), rng.integers(1, 50, 500)
    spec = QuantizerSpec(num_bits=4)
    found = RangeSearch(values, counts, spec, power_error(2), 40).best(values[0], values[-1])
    repeated = np.repeat(values, counts)
    assert found == min(candidate_ranges(values, spec, 40), key=lambda ends: error_of(repeated, ends, spec, 2))


def test_a_symmetric_grid_clips_sooner_behind_a_relu():
    """A symmetric grid spends half of its levels on negative values that do not come: its steps are coarser."""
    values = distributions()["behind a relu"]
    ends = {}
    for name in ("int4", "uint4"):
        observer = make_observer("mse", "x", GRIDS[name])
        observer.update(values)
        ends[name] = observer.range()
    assert ends["int4"][0] == ends["uint4"][0] == 0.0
    assert ends["int4"][1] < ends["uint4"][1]


def test_outliers_count_the_more_the_higher_the_power():
    values = np.append(np.random.default_rng(0).normal(size=100_000), [30.0, -30.0])
    widths = []
    for method, settings in (("mae", {}), ("mse", {}), ("lp", {"p": 6})):
        observer = make_observer(method, "x", GRIDS["int4"], **settings)
        observer.update(values)
        widths.append(observer.range()[1])
    assert widths[0] < widths[1] < widths[2]
    observer = make_observer("minmax", "x")
    observer.update(values)
    assert widths[2] <= observer.range()[1]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", SOME)
def test_kl_has_the_least_divergence_of_all_thresholds(name, grid):
    values, spec, count = distributions()[name], GRIDS[grid], 16
    observer = make_observer("kl", "x", spec, candidates=count)
    observer.update(values)
    seen = observer.histogram
    occupied = observer.counts() > 0
    centers, counts = seen.centers[occupied].astype(np.float32), observer.counts()[occupied].astype(float)

    def divergence_of(ends):
        qparams = qparams_from_range(*ends, spec)
        quantized = fake_quantize(centers, qparams)
        codes = np.rint(centers / qparams.scale) + qparams.zero_point
        return divergence(centers, counts, quantized, (codes < spec.qmin) | (codes > spec.qmax))

    least = min(divergence_of(ends) for ends in candidate_ranges(values, spec, count))
    assert divergence_of(observer.range()) <= 1.05 * least + 1e-9


def test_a_spike_at_zero_does_not_narrow_the_kl_range():
    """Half of the values behind a ReLU are exactly zero, which every grid holds."""
    values = np.random.default_rng(0).normal(size=200_000)
    ends = {}
    for name, batch in (("with zeros", np.maximum(values, 0)), ("without", values[values > 0])):
        observer = make_observer("kl", "x", GRIDS["uint8"])
        observer.update(batch)
        ends[name] = observer.range()[1]
    assert ends["with zeros"] == pytest.approx(ends["without"], rel=0.05)
