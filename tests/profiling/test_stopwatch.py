"""The statistics of measurements; their values are no subject of tests."""

import math

import numpy as np
import pytest

from qdq_workbench.profiling.onnxruntime_runner import outside_cost
from qdq_workbench.profiling.stopwatch import median_interval, middle, without_profiler


def test_the_middle_half_is_averaged():
    assert middle([100.0, 1.0, 2.0, 3.0]) == 2.5
    assert middle([7.0]) == 7.0
    assert middle([1, 2, 3, 4, 5, 6, 7, 1000]) == 4.5


@pytest.mark.parametrize("count", range(6, 40))
def test_the_interval_of_a_median_is_the_narrowest_that_misses_it_in_at_most_one_case_of_twenty(count):
    low, high = (int(end) for end in median_interval(list(range(1, count + 1))))
    assert low + high == count + 1
    missed = 2 * sum(math.comb(count, k) for k in range(low)) / 2**count
    narrower = 2 * sum(math.comb(count, k) for k in range(low + 1)) / 2**count
    assert missed <= 0.05 < narrower


@pytest.mark.parametrize("count", [1, 2, 5])
def test_of_few_values_the_interval_is_their_range(count):
    assert median_interval(list(range(count))) == (0, count - 1)


def test_what_the_profiler_adds_is_what_the_run_without_it_lacks():
    true, inputs = [50.0, 3.0, 20.0], [3, 8, 1]
    told = [one + 6.0 * (1 + 0.04 * count) for one, count in zip(true, inputs, strict=True)]
    found, cost = without_profiler(told, inputs, run=sum(true) + 12.0, outside=12.0)
    assert found == pytest.approx(true)
    assert cost == pytest.approx(6.0 * 1.04)


def test_a_kernel_takes_no_negative_time_and_a_faster_profile_is_left_as_it_is():
    found, _ = without_profiler([100.0, 1.0], [1, 1], run=60.0, outside=0.0)
    assert found == pytest.approx([60.0, 0.0])
    assert without_profiler([10.0, 20.0], [1, 1], run=50.0, outside=5.0) == (pytest.approx([10.0, 20.0]), 0.0)
    assert without_profiler([], [], run=5.0, outside=5.0) == ([], 0.0)


def test_the_time_outside_is_that_of_a_file_with_the_same_inputs():
    feed = {"image": np.zeros((1, 8, 8, 3), np.float32), "step": np.array(3, np.int64)}
    assert outside_cost(feed, threads=1) > 0
