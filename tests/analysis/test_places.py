"""Pairs of layers that merge, pool or activate: where they may be, and that a search puts them there."""

import pytest
from mock_graphs import GraphMaker
from searched_nets import read, watch_of

import qdq_workbench as qdq
from qdq_workbench.analysis import search as searching
from qdq_workbench.analysis.levels import FLOAT, pairs_level, raise_layers
from qdq_workbench.analysis.places import by_traffic, can_move_pairs, every_pair_level, pair_levels, pairs_of
from qdq_workbench.errors import SpecError


def test_every_place_is_a_level_and_each_file_comes_once(residual):
    plan = residual.q_model.plan
    movable = [layer for layer in plan.graph.layers if can_move_pairs(plan, layer)]
    assert movable == ["a_add", "b_add", "pool"]

    levels = pair_levels(plan, ["a_add"])

    assert levels == [
        "no inputs with output",
        *(f"inputs {which} {output} output" for which in ("0", "1", "0, 1") for output in ("without", "with")),
    ]
    plans = [raise_layers(plan, {"a_add": level}) for level in levels]
    assert [read(other, "a_add") for other in plans] == [[], [0], [0], [1], [1], [0, 1], [0, 1]]
    assert [read(other, "b_add") for other in plans] == [[0], [], [0], [], [0], [], [0]], "it reads the output"
    assert all(other.for_layer("a_add").author == "search" for other in plans)
    assert len({pairs_of(other) for other in (*plans, plan)}) == 8
    # The convolution behind the stem reads it quantized anyway, so that a pair for all readers adds that of the sum.
    stem = {pairs_of(raise_layers(plan, {"stem": level})) for level in ("with output", "without output")}
    assert pairs_of(plan) in stem
    assert FLOAT in pair_levels(plan, ["pool"]), "the plan quantizes what it reads"
    assert by_traffic(plan, {"pool": ("pool",), "a_add": ("a_add", "b_add")}) == ["a_add", "pool"]


@pytest.mark.parametrize(("count", "single"), [(4, ["0", "1", "2", "3"]), (5, [])])
def test_a_merge_of_many_tensors_has_pairs_on_all_of_its_inputs_or_on_none(count, single):
    maker = GraphMaker()
    branches = [maker.add("Conv2D", f"conv_{number}", "image") for number in range(count)]
    plan = qdq.plan_placement(maker.graph(maker.add("Add", "sum", *branches)), target="tensorrt")

    levels = every_pair_level(plan, ["sum"])

    every = ", ".join(map(str, range(count)))
    assert [level for level in levels if level.endswith("without output") and level != FLOAT] == [
        f"inputs {which} without output" for which in (*single, every)
    ]


@pytest.mark.parametrize("level", ["input 0", "inputs 0", "output", "inputs  with output"])
def test_a_level_that_says_nothing_is_refused(residual, level):
    with pytest.raises(SpecError, match="A level is a number of bits"):
        raise_layers(residual.q_model.plan, {"a_add": level})


def test_levels_are_words():
    assert pairs_level((0, 1), output=True) == "inputs 0, 1 with output"
    assert pairs_level((), output=True) == "no inputs with output"
    assert pairs_level(None, output=False) == "without output"


def test_the_pairs_that_are_fastest_are_found_in_all_equal_places(residual, monkeypatch):
    def rule(plan):  # only the branch that no case names is fast
        return 2.0 - 0.5 * sum(read(plan, f"{block}_add") == [1] for block in "ab")

    monkeypatch.setattr(searching, "Stopwatch", watch_of(rule))

    result = residual.search(objective="ms", accuracy_floor=0.3, pairs=True)

    assert dict(result.best.levels) == {f"{block}_add": "inputs 1 without output" for block in "ab"}
    assert (result.best.ms, result.exact) == (1.0, False)
    again = qdq.plan_placement(residual.model, quantization_spec=result.spec, target="tensorrt")
    assert pairs_of(again) == pairs_of(result.plan)
    assert "inputs 1 without output" in result.summary()
