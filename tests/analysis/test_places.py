"""Pairs of layers that merge, pool or activate: where they may be, and that a search puts them there."""

import pytest
from searched_nets import QUIET, read, watch_of

import qdq_workbench as qdq
from qdq_workbench.analysis import search as searching
from qdq_workbench.analysis.levels import FLOAT, pairs_level, raise_layers
from qdq_workbench.analysis.places import by_traffic, can_move_pairs, pair_levels, pairs_of
from qdq_workbench.errors import SpecError


def test_every_place_is_a_level_and_each_file_comes_once(residual):
    plan = residual[0].plan
    movable = [layer for layer in plan.graph.layers if can_move_pairs(plan, layer)]
    assert movable == ["a_add", "b_add", "pool"]

    levels = pair_levels(plan, ["a_add", "b_add"])

    assert {"inputs 0, 1 with output", "inputs 0 without output", "inputs 1 without output"} <= set(levels)
    plans = [raise_layers(plan, dict.fromkeys(["a_add", "b_add"], level)) for level in levels]
    assert len({pairs_of(other) for other in plans} | {pairs_of(plan)}) == len(levels) + 1
    assert [read(other, "b_add") for other in plans] == [read(other, "a_add") for other in plans]
    skip = plans[levels.index("inputs 0 without output")]
    assert (read(skip, "a_add"), skip.for_layer("a_add").author) == ([0], "search")
    assert FLOAT in pair_levels(plan, ["pool"]), "the plan quantizes what it reads"
    assert by_traffic(plan, {"pool": ("pool",), "a_add": ("a_add", "b_add")}) == ["a_add", "pool"]


@pytest.mark.parametrize("level", ["input 0", "inputs 0", "output", "inputs  with output"])
def test_a_level_that_says_nothing_is_refused(residual, level):
    with pytest.raises(SpecError, match="A level is a number of bits"):
        raise_layers(residual[0].plan, {"a_add": level})


def test_levels_are_words():
    assert pairs_level((0, 1), output=True) == "inputs 0, 1 with output"
    assert pairs_level((), output=True) == "no inputs with output"
    assert pairs_level(None, output=False) == "without output"


def test_the_pairs_that_are_fastest_are_found_in_all_equal_places(residual, monkeypatch):
    q_model, x, y, model = residual

    def rule(plan):  # only both operands with the output are fast, which no case asks for
        both = [
            read(plan, f"{block}_add") == [0, 1] and plan.for_layer(f"{block}_add").quantize_output for block in "ab"
        ]
        return 2.0 - 0.5 * sum(both)

    monkeypatch.setattr(searching, "Stopwatch", watch_of(rule))

    result = qdq.search(q_model, (x, y), objective="ms", accuracy_floor=0.3, pairs=True, **QUIET)

    assert dict(result.best.levels) == {"a_add": "inputs 0, 1 with output", "b_add": "inputs 0, 1 with output"}
    assert (result.best.ms, result.exact) == (1.0, False)
    again = qdq.plan_placement(model, quantization_spec=result.spec, target="tensorrt")
    assert pairs_of(again) == pairs_of(result.plan)
    assert "a_add, b_add: inputs 0, 1 with output" in result.summary()
