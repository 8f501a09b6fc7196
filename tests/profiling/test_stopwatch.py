"""The statistics of measurements; their values are no subject of tests."""

import math

import pytest

from qdq_workbench.profiling.stopwatch import median_interval, middle, profiler_cost


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


def test_the_profilers_cost_is_measured_once():
    first = profiler_cost()
    assert min(first) >= 0
    assert profiler_cost() is first
