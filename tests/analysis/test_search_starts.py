"""A search starts from insertion cases too: found, named, written as a specification, resumed."""

import itertools
import json
import types

import pytest
from searched_nets import read, watch_of

import qdq_workbench as qdq
from qdq_workbench.analysis import search as searching
from qdq_workbench.analysis.levels import FLOAT, raise_layers
from qdq_workbench.analysis.places import pairs_of
from qdq_workbench.analysis.search_result import cost_of
from qdq_workbench.analysis.search_starts import starts_of
from qdq_workbench.errors import DataError, SpecError
from qdq_workbench.planning import replace_cases


class FloatHead(qdq.CustomQDQInsertionCase):
    """A case of a user's own, which looks at Keras layers."""

    def info(self):
        return "Leaves the last layer in float."

    def case(self, keras_model, qspec):
        found = qdq.QuantizationSpec()
        found.add(keras_model.layers[-1].name, quantize_input=False, quantize_weight=False)
        return found


def slow_sums(plan):
    return 2.0 - 0.25 * sum(read(plan, f"{block}_add") == [0] for block in "ab")


def test_the_case_that_is_fastest_is_found_and_named(residual, monkeypatch):
    monkeypatch.setattr(searching, "Stopwatch", watch_of(slow_sums))

    result = residual.search(objective="ms", accuracy_floor=0.5, cases="auto")

    assert (result.best.meets, result.best.case, dict(result.best.levels)) == (True, "AutoQDQCase", {})
    planned = qdq.plan_placement(residual.model, custom_qdq_cases=[qdq.AutoQDQCase()], target="tensorrt")
    assert pairs_of(result.plan) == pairs_of(planned) == pairs_of(result.q_model.plan)
    again = qdq.plan_placement(residual.model, quantization_spec=result.spec, target="tensorrt")
    assert pairs_of(again) == pairs_of(planned), "the specification leads to it without the case"
    given = next(step for step in result.pareto if not step.case and not step.levels)
    assert pairs_of(result.apply(given).plan) == pairs_of(residual.q_model.plan)
    other = next(step for step in result.pareto if step.case == "AutoQDQCase" and not step.levels)
    assert pairs_of(result.apply(other).plan) == pairs_of(planned)
    assert {step["case"] for step in result.to_dict()["history"]} >= {"", "AutoQDQCase"}
    assert "from AutoQDQCase" in result.reason
    assert "AutoQDQCase" in result.summary()
    assert "What was timed was exported for tensorrt" in result.summary()  # by default, and timed in another runtime
    assert any("AutoQDQCase" in text for trace in result.plot().data for text in trace.hovertext)


def test_a_plan_with_a_case_is_compared_with_defaults_and_what_a_spec_says_stays(residual):
    spec = qdq.QuantizationSpec()
    spec.add("stem", quantize_weight=False)
    wishes = {"quantization_spec": spec, "target": "tensorrt"}
    plan = qdq.plan_placement(residual.model, custom_qdq_cases=[qdq.AutoQDQCase()], **wishes)

    starts = {s.name: s.plan for s in starts_of(plan, residual.model, [FloatHead(), FloatHead()], spec)}

    assert list(starts) == ["", "defaults", "FloatHead"], "the second one is the same plan"
    assert [read(start, "a_add") for start in starts.values()] == [[0], [], []]
    assert all(not start.for_layer("stem").quantize_weight for start in starts.values())
    assert [start.for_layer("head").quantize_weight for start in starts.values()] == [True, True, False]
    partial = qdq.plan_placement(residual.model, "partial", **wishes)
    assert replace_cases(partial, residual.model, []) is partial


def test_in_partial_mode_the_decisions_of_a_case_go_with_it(residual):
    spec = qdq.QuantizationSpec()
    spec.add("stem")
    wishes = {"quantization_mode": "partial", "target": "tensorrt"}
    plan = qdq.plan_placement(residual.model, quantization_spec=spec, custom_qdq_cases=[qdq.AutoQDQCase()], **wishes)
    alone = qdq.plan_placement(residual.model, quantization_spec=spec, **wishes)
    assert read(plan, "a_add") == [0]
    assert replace_cases(plan, residual.model, []) == alone
    assert replace_cases(plan, residual.model, [FloatHead()], spec).tensors == alone.tensors
    only = qdq.plan_placement(residual.model, custom_qdq_cases=[qdq.AutoQDQCase()], **wishes)
    assert replace_cases(only, residual.model, []) is only, "nothing would be left to quantize"


def test_the_best_of_all_starts_is_found(residual):
    def score(plan):  # only what the case gives, with the first layer in float, is accurate enough
        return 1.0 if not plan.for_layer("head").quantize_weight and not plan.for_layer("stem").quantize_weight else 0.5

    result = residual.search(score, accuracy_floor=0.9, cases=[FloatHead()], bits=())

    assert (result.best.meets, result.exact) == (True, True)
    costs = []
    for start in result.starts.values():
        layers = sorted({placement.layer for placement in start.placements})
        for chosen in itertools.product((None, FLOAT), repeat=len(layers)):
            plan = raise_layers(start, dict(zip(layers, chosen, strict=True)))
            costs += [cost_of(plan)] if score(plan) >= 0.9 else []
    assert result.best.cost == min(costs)
    fewer = residual.search(accuracy_floor=0.0, objective="macs", cases=[FloatHead()])
    assert (fewer.best.case, fewer.exact, len(fewer.history)) == ("", True, 2)


def test_layers_that_only_a_case_quantizes_can_be_left_in_float(residual, monkeypatch):
    def rule(plan):  # the sum of the first block shall be read quantized, that of the second not at all
        return 3.0 - (read(plan, "a_add") == [0]) - (read(plan, "a_add") == [0] and not read(plan, "b_add"))

    gains = [types.SimpleNamespace(layers=(name,), ms=0.0, baseline_ms=1.0) for name in ("b_add", "head")]
    monkeypatch.setattr(searching, "Stopwatch", watch_of(rule, gains))

    result = residual.search(objective="ms", cases=[qdq.ResNetV1QDQCase()])

    assert result.best.case == "ResNetV1QDQCase"
    assert (read(result.plan, "a_add"), read(result.plan, "b_add")) == ([0], [])
    assert result.best.ms == 1.0


def test_a_search_with_cases_goes_on_from_its_checkpoint(residual, tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "Stopwatch", watch_of(slow_sums))
    path, asked, scored = tmp_path / "search.json", [], []

    def score(plan):
        scored.append(plan)
        return 1.0

    def stop():
        asked.append(None)
        return len(asked) > 1

    arguments = {"objective": "ms", "accuracy_floor": 0.5, "cases": [FloatHead()]}
    first = residual.search(score, checkpoint=path, stop=stop, **arguments)
    assert (first.complete, len(first.history)) == (False, 2)
    assert any(name.startswith("FloatHead ") for name in json.loads(path.read_text())["accuracies"])
    second = residual.search(score, checkpoint=path, **arguments)
    fresh = residual.search(score, **arguments)
    scored.clear()
    third = residual.search(score, checkpoint=path, **arguments)

    assert scored == [], "nothing is measured twice"
    assert third.history == second.history == fresh.history
    more = residual.search(score, checkpoint=path, **{**arguments, "cases": None})
    assert {step.case for step in more.history} == {""}, "other cases go on from the same checkpoint"
    assert scored == []


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"cases": "AutoQDQCase"}, SpecError, r'cases must be "auto", or a list'),
        ({"cases": [qdq.AutoQDQCase]}, SpecError, "instances of CustomQDQInsertionCase"),
        ({"cases": 3}, SpecError, r'cases must be "auto", or a list'),
        ({"pairs": "yes"}, DataError, "pairs must be True or False"),
        ({"share": "blocks"}, DataError, 'share must be "patterns"'),
        ({"max_loss": -0.1}, DataError, "max_loss must be a number of at least 0"),
        ({"max_loss": "little"}, DataError, "max_loss must be a number of at least 0"),
    ],
)
def test_mistakes_are_named(residual, arguments, error, says):
    with pytest.raises(error, match=says):
        residual.search(accuracy_floor=0.5, **arguments)
