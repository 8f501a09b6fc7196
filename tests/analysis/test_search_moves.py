"""The levels that a search can give to layers, in which order it raises them, and the error that it expects of each."""

import math
from types import SimpleNamespace

import pytest
from mock_graphs import GraphMaker, chain

import qdq_workbench as qdq
from qdq_workbench.analysis.levels import FLOAT
from qdq_workbench.analysis.places import every_pair_level, pair_levels
from qdq_workbench.analysis.search_moves import Decisions, Moves

# The middle ones are equal: convolutions between convolutions.
NAMES = ("first", "middle", "other", "last")
CHAIN = chain(*(("Conv2D", name) for name in NAMES))


def planned(graph=CHAIN, target="tensorrt", inputs=(), **bits):
    """Return a plan in which the weights of some layers have fewer bits, and some sums read integers."""
    spec = qdq.QuantizationSpec()
    for name in inputs:
        spec.add(name, quantize_input=True)
    for name, number in bits.items():
        spec.add(name, quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": number}))
    return qdq.plan_placement(graph, quantization_spec=spec, target=target)


def moves_of(plan, ranked=NAMES, values=(), *, stop=None, metric="sqnr", mode="one_on", own=False, **decisions):
    """Return the moves from a plan, for a ranking with these layers in order, and what is told to the trials."""
    told = []
    values = dict(zip(ranked, values, strict=False))
    entries = [SimpleNamespace(layer=layer, value=values.get(layer, 20.0)) for layer in ranked]
    ranking = SimpleNamespace(ranked=lambda: entries, metric=metric, own_metric=own, mode=mode)
    measured = SimpleNamespace(prefetch=lambda likely: told.append(list(likely)))
    trials = SimpleNamespace(base=plan, groups=None, measured=measured, expect=told.append)
    return Moves(trials, ranking, Decisions(**decisions), stop), told


def joined():
    """Return a graph with a sum, an average over its windows, and a classifier."""
    maker = GraphMaker()
    stem = maker.add("Conv2D", "stem", "image")
    branch = maker.add("Conv2D", "branch", stem)
    total = maker.add("Add", "add", branch, stem)
    return maker.graph(maker.add("Conv2D", "head", total))


class TestOrder:
    def test_layers_are_raised_in_the_order_of_the_ranking(self):
        moves, told = moves_of(planned(), ("last", "first", "middle", "other"))
        assert moves.order == [(name, FLOAT) for name in ("last", "first", "middle", "other")]
        assert moves.ladders == {name: [None, FLOAT] for name in NAMES}
        assert told == [2 * 3]  # of 4 raises: doubled and halved

    def test_every_layer_gets_more_bits_before_one_becomes_float(self):
        moves, _ = moves_of(planned(middle=4, last=6), bits=(6, 8))
        assert moves.ladders["middle"] == [None, 6, 8, FLOAT]
        assert moves.ladders["last"] == [None, 8, FLOAT]
        raises = [("middle", 6), ("last", 8), ("middle", 8)]
        assert moves.order == [*raises, *((name, FLOAT) for name in NAMES)]

    def test_a_layer_without_pairs_is_left_out(self):
        spec = qdq.QuantizationSpec()
        spec.add("other", quantize_input=False, quantize_weight=False)
        moves, _ = moves_of(qdq.plan_placement(CHAIN, quantization_spec=spec))
        assert list(moves.ladders) == ["first", "middle", "last"]
        assert ("other", FLOAT) not in moves.noise()

    def test_without_a_ranking_there_is_nothing_to_move(self):
        moves, _ = moves_of(planned(), ())
        assert (moves.order, moves.count, list(moves.choices(whole=True))) == ([], 1, [{}])

    def test_below_a_level_is_the_one_before_it(self):
        moves, _ = moves_of(planned(middle=4), bits=(6, 8))
        assert [moves.below("middle", level) for level in (6, 8, FLOAT)] == [None, 6, 8]


class TestChoices:
    def test_every_placement_comes_once(self):
        moves, _ = moves_of(planned(middle=4))
        found = list(moves.choices(whole=False))
        assert len(found) == moves.count == moves.whole_count == 2 * 3 * 2 * 2
        assert found[0] == {}
        assert found[-1] == dict.fromkeys(NAMES, FLOAT)
        assert len({tuple(sorted(each.items(), key=str)) for each in found}) == len(found)
        assert {each.get("middle") for each in found} == {None, 8, FLOAT}
        assert all(None not in each.values() for each in found)

    def test_pairs_stay_where_they_are_unless_they_are_asked_for(self):
        moves, _ = moves_of(planned(joined()), ("stem", "branch", "head"))
        assert (moves.pairs, moves.places) == (False, {})
        assert set(moves.trials.groups) == {"stem", "branch", "head"}
        assert moves.count == moves.whole_count == 8
        # A sum that the plan quantizes may become float, but keeps its pairs else.
        plan = planned(joined(), inputs=("add",))
        moves, _ = moves_of(plan, ("add", "stem"))
        assert (moves.places, moves.count, moves.whole_count) == ({}, 4, 4)

    def test_a_sum_has_levels_of_its_pairs_beside_those_of_layers(self):
        plan = planned(joined())
        moves, _ = moves_of(plan, ("stem", "branch", "head"), pairs=True)
        assert moves.places == {"add": pair_levels(plan, ("add",))}
        assert "add" not in moves.ladders
        assert moves.count == 8 * (1 + len(moves.places["add"]))
        whole = every_pair_level(plan, ("add",))
        assert len(whole) >= len(moves.places["add"])
        assert moves.whole_count == len(list(moves.choices(whole=True))) == 8 * (1 + len(whole))
        assert {each.get("add") for each in moves.choices(whole=False)} == {None, *moves.places["add"]}

    def test_a_sum_with_pairs_of_its_own_may_become_float_or_move_them_but_float_comes_once(self):
        plan = planned(joined(), inputs=("add",))
        moves, _ = moves_of(plan, ("add", "stem", "branch", "head"), pairs=True)
        assert moves.ladders["add"] == [None, FLOAT]
        whole = [each.get("add") for each in moves.choices(whole=True)]
        assert whole.count(FLOAT) == whole.count(None) == 8
        assert len(set(whole)) == moves.whole_count / 8 > 2

    def test_places_that_no_layer_differs_by_are_left_to_whole_searches(self):
        """The traffic decides which pairs are moved first."""
        maker = GraphMaker()
        stem = maker.add("Conv2D", "stem", "image")
        small = maker.add("Conv2D", "small", stem, shape=(None, 2, 2, 4))
        maker.add("Add", "few", small, maker.add("Conv2D", "b", small, shape=(None, 2, 2, 4)), shape=(None, 2, 2, 4))
        maker.add("Add", "many", stem, maker.add("Conv2D", "c", stem))
        plan = planned(maker.graph("few", "many"))
        moves, _ = moves_of(plan, ("stem", "small", "b", "c"), pairs=True)
        assert list(moves.places) == ["many", "few"]


class TestGroups:
    def test_layers_are_decided_about_alone(self):
        moves, _ = moves_of(planned())
        assert moves.trials.groups == {name: (name,) for name in NAMES}
        assert moves.firsts(("other", "middle", "other", "nobody")) == ("other", "middle")

    def test_equal_layers_share_a_level_that_the_most_sensitive_one_stands_for(self):
        moves, _ = moves_of(planned(), ("other", "last", "middle", "first"), together=True)
        assert moves.trials.groups["other"] == ("other", "middle")
        assert list(moves.ladders) == ["other", "last", "first"]
        assert moves.firsts(("middle", "first", "other")) == ("other", "first")
        assert moves.count == 8

    def test_equal_sums_move_their_pairs_together_while_layers_stay_alone(self):
        maker = GraphMaker()
        last = maker.add("Conv2D", "stem", "image")
        for block in "abc":
            branch = maker.add("Conv2D", f"{block}_conv", last)
            last = maker.add("Add", f"{block}_add", branch, maker.add("Conv2D", f"{block}_out", last))
        plan = planned(maker.graph(maker.add("Conv2D", "head", last)))
        convolutions = ("stem", "b_conv", "c_conv", "head")
        moves, _ = moves_of(plan, convolutions, pairs=True)
        assert moves.trials.groups["a_add"] == ("a_add", "b_add")
        assert {layer: moves.trials.groups[layer] for layer in convolutions} == {c: (c,) for c in convolutions}
        # What has no ladder has no level to change, though its pairs may move.
        assert moves.firsts(("b_add", "stem")) == ("stem",)
        moves, _ = moves_of(plan, convolutions, pairs=True, together=True)
        assert moves.trials.groups["b_conv"] == ("b_conv", "c_conv")
        assert moves.trials.groups["a_add"] == ("a_add", "b_add")
        # A sum that is ranked belongs to one group all the same.
        plan = planned(plan.graph, inputs=("a_add", "b_add"))
        moves, _ = moves_of(plan, ("b_add", "a_add", "stem"), pairs=True)
        assert [members for members in moves.trials.groups.values() if "b_add" in members] == [("a_add", "b_add")]


class TestNoise:
    def test_decibels_become_a_share_of_the_signal_and_each_bit_quarters_it(self):
        moves, _ = moves_of(planned(middle=4), values=(20.0, 10.0, math.inf, math.nan), bits=(5, 8))
        noise = moves.noise()
        assert noise["first", None] == pytest.approx(0.01)
        assert [noise["middle", level] for level in (None, 5, 8)] == pytest.approx([0.1, 0.1 / 4, 0.1 / 256])
        assert noise["other", None] == 0.0
        assert noise["last", None] == 1e6, "NaN is as bad as can be"
        assert {noise[name, FLOAT] for name in NAMES} == {0.0}

    def test_outputs_of_noise_alone_stay_finite(self):
        moves, _ = moves_of(planned(), values=(-math.inf, -200.0, -59.0, -60.0))
        noise = moves.noise()
        assert noise["first", None] == noise["middle", None] == noise["last", None] == 1e6
        assert noise["other", None] == pytest.approx(10**5.9)

    def test_the_noise_of_equal_layers_adds_up(self):
        moves, _ = moves_of(planned(), values=(20.0, 20.0, 10.0, 20.0), together=True)
        assert moves.noise()["middle", None] == pytest.approx(0.11)
        assert ("other", None) not in moves.noise()

    @pytest.mark.parametrize("ranking", [{"metric": "cosine"}, {"mode": "one_off"}, {"own": True}])
    def test_what_is_no_sqnr_of_layers_alone_gives_an_order_only(self, ranking):
        moves, _ = moves_of(planned(), values=(1.0, 2.0, 3.0, 4.0), **ranking)
        noise = moves.noise()
        assert [noise[name, None] for name in NAMES] == pytest.approx([1.0, 0.7, 0.49, 0.343])


def test_a_caller_may_stop_it():
    plan, asked = planned(), []
    assert not moves_of(plan)[0].stopped()
    moves, _ = moves_of(plan, stop=lambda: asked.append(1) or len(asked) > 1)
    assert [moves.stopped(), moves.stopped()] == [False, True]


def test_workers_are_told_from_which_start_placements_are():
    moves, told = moves_of(planned())
    moves.prefetch([{"first": FLOAT}, {}])
    assert told[-1] == [(moves.trials, {"first": FLOAT}), (moves.trials, {})]
