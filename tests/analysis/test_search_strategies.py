"""In which order a search tries, on moves that cost nothing."""

from types import SimpleNamespace

import pytest

from qdq_workbench.analysis import search_strategies
from qdq_workbench.analysis.search_strategies import lower

BYTES = {"small": 10, "large": 1000, "middle": 100}


class Trials:
    """Placements that meet the constraints as long as at least some layers are raised."""

    def __init__(self, needed):
        self.needed, self.tried = needed, []

    def expect(self, more):
        pass

    def plan(self, levels):
        return levels

    def of(self, levels):
        raised = {layer for layer, level in levels.items() if level is not None}
        self.tried.append(raised)
        return SimpleNamespace(meets=self.needed <= raised)


@pytest.fixture
def search(monkeypatch):
    def cost(levels):
        return sum(BYTES[layer] for layer, level in levels.items() if level is not None), 0

    monkeypatch.setattr(search_strategies, "cost_of", cost)

    def run(needed=frozenset(), stop=lambda: False):
        trials = Trials(set(needed))
        moves = SimpleNamespace(
            trials=trials,
            ladders=dict.fromkeys(BYTES),
            below=lambda layer, level: None,
            stopped=stop,
            prefetch=list,  # measures nothing ahead
        )
        return lower(moves, dict.fromkeys(BYTES, 8)), trials.tried

    return run


def test_the_dearest_layer_is_lowered_first(search):
    done, tried = search()
    assert done
    assert tried == [{"small", "middle"}, {"small"}, set()]


def test_what_is_needed_stays_raised_while_the_others_are_lowered(search):
    _, tried = search({"large"})
    assert tried == [{"small", "middle"}, {"small", "large"}, {"large"}]


def test_a_stop_ends_it_before_the_next_placement(search):
    done, tried = search(stop=lambda: True)
    assert not done
    assert tried == []
