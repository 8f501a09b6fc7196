"""Equal places of repeated blocks share one decision, where that is asked for."""

import itertools

import qdq_workbench as qdq
from qdq_workbench.analysis.levels import FLOAT, raise_layers
from qdq_workbench.analysis.patterns import group_equal
from qdq_workbench.analysis.search_result import cost_of


def test_layers_are_equal_by_place_not_by_name(residual):
    plan = residual.q_model.plan

    groups = group_equal(plan, plan.graph.layers)

    assert groups["a_out"] == ("a_out", "b_out")
    assert groups["a_conv"] == ("a_conv",), "one reads the stem, the other a sum"
    assert groups["stem"] == ("stem",)
    spec = qdq.QuantizationSpec()
    spec.add("b_out", quantize_weight=False)
    other = qdq.plan_placement(residual.model, quantization_spec=spec, target="tensorrt")
    assert group_equal(other, ["a_out", "b_out"]) == {"a_out": ("a_out",), "b_out": ("b_out",)}


def test_equal_layers_take_one_level_and_the_best_of_all_is_found(residual):
    def score(plan):  # one of the two equal layers alone would do
        return 0.5 if plan.for_layer("b_out").quantize_weight else 1.0

    shared = residual.search(score, accuracy_floor=0.9, bits=(), share="patterns", objective="macs")
    single = residual.search(score, accuracy_floor=0.9, bits=(), objective="macs")

    plan = residual.q_model.plan
    ranked = [entry.layer for entry in residual.ranking.ranked()]
    groups = group_equal(plan, ranked)
    assert len(groups) == len(ranked) - 1
    for step in shared.history:
        assert all(len({step.levels.get(member) for member in members}) == 1 for members in groups.values())
    assert dict(single.best.levels) == {"b_out": FLOAT}
    assert dict(shared.best.levels) == {"a_out": FLOAT, "b_out": FLOAT}
    costs = []
    for chosen in itertools.product((False, True), repeat=len(groups)):
        floats = [m for members, is_float in zip(groups.values(), chosen, strict=True) if is_float for m in members]
        other = raise_layers(plan, dict.fromkeys(floats, FLOAT))
        costs += [cost_of(other)[::-1]] if score(other) >= 0.9 else []
    assert (shared.best.meets, shared.exact, single.exact) == (True, True, True)
    assert shared.best.cost[::-1] == min(costs) >= single.best.cost[::-1]
