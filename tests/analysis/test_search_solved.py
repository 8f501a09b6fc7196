"""Twelve layers whose times are known: how close the search comes where there are too many placements to try."""

import numpy as np
import pytest
from searched_nets import Chain, Clock

from qdq_workbench.analysis import search_run


@pytest.fixture(scope="module")
def chain():
    return Chain(12)


@pytest.fixture
def timed(chain, monkeypatch):
    monkeypatch.setattr(search_run, "MOST_EXACT", 1)
    return lambda seed, **wanted: chain.timed(monkeypatch, seed, **wanted)[0]


def test_a_solver_of_times_finds_what_is_never_slower_than_without(chain, timed, monkeypatch):
    enough = chain.accuracies >= np.quantile(chain.accuracies, 0.5)
    wanted = {"objective": "ms", "accuracy_floor": float(np.quantile(chain.accuracies, 0.5))}
    solved = {seed: timed(seed, **wanted) for seed in range(12)}
    monkeypatch.setattr(search_run, "solve_times", lambda moves: True)
    without = {seed: timed(seed, **wanted) for seed in range(12)}

    gained = [without[seed].best.ms - result.best.ms for seed, result in solved.items()]
    assert min(gained) >= 0.0
    assert sum(gain > 0.0 for gain in gained) >= 3, gained
    for seed, result in solved.items():
        assert not result.exact
        assert result.best.ms == min(step.ms for step in result.history if step.meets)
        assert result.best.ms <= np.quantile(Clock(seed, chain.names).of(chain.every[enough]), 0.02)


@pytest.mark.parametrize("objective", ["bytes", "accuracy", "macs"])
def test_a_solver_of_times_keeps_a_limit_of_time(chain, timed, objective):
    for seed in range(4):
        floor = float(np.quantile(chain.accuracies, 0.3))
        most = float(np.quantile(Clock(seed, chain.names).of(chain.every[chain.accuracies >= floor]), 0.1))
        result = timed(seed, objective=objective, max_ms=most, accuracy_floor=floor)
        assert result.best.ms <= most
        assert result.met
