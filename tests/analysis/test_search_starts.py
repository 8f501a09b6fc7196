"""A search starts from insertion cases too: found, named, written as a specification, resumed."""

import json
import types

import pytest
from searched_nets import QUIET, read, watch_of

import qdq_workbench as qdq
from qdq_workbench.analysis import search as searching
from qdq_workbench.analysis.places import pairs_of
from qdq_workbench.analysis.search_starts import starts_of
from qdq_workbench.errors import DataError, SpecError
from qdq_workbench.planning import replace_cases


def slow_sums(plan):
    return 2.0 - 0.25 * sum(read(plan, f"{block}_add") == [0] for block in "ab")


def test_the_case_that_is_fastest_is_found_and_named(residual, monkeypatch):
    q_model, x, y, model = residual
    monkeypatch.setattr(searching, "Stopwatch", watch_of(slow_sums))

    result = qdq.search(q_model, (x, y), objective="ms", accuracy_floor=0.5, cases="auto", **QUIET)

    assert (result.met, result.best.case, dict(result.best.levels)) == (True, "AutoQDQCase", {})
    planned = qdq.plan_placement(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="tensorrt")
    assert pairs_of(result.plan) == pairs_of(planned) == pairs_of(result.q_model.plan)
    again = qdq.plan_placement(model, quantization_spec=result.spec, target="tensorrt")
    assert pairs_of(again) == pairs_of(planned), "the specification leads to it without the case"
    given = next(step for step in result.pareto if not step.case and not step.levels)
    assert pairs_of(result.apply(given).plan) == pairs_of(q_model.plan)
    other = next(step for step in result.pareto if step.case == "AutoQDQCase")
    assert pairs_of(result.apply(other).plan) == pairs_of(planned)
    assert {step["case"] for step in result.to_dict()["history"]} >= {"", "AutoQDQCase"}
    assert "from AutoQDQCase" in result.reason
    assert "AutoQDQCase" in result.summary()
    assert any("AutoQDQCase" in text for trace in result.plot().data for text in trace.hovertext)


class FloatHead(qdq.CustomQDQInsertionCase):
    """A case of a user's own, which looks at Keras layers."""

    def info(self):
        return "Leaves the last layer in float."

    def case(self, keras_model, qspec):
        found = qdq.QuantizationSpec()
        found.add(keras_model.layers[-1].name, quantize_input=False, quantize_weight=False)
        return found


def test_a_plan_with_a_case_is_compared_with_defaults_and_what_a_spec_says_stays(residual):
    *_, model = residual
    spec = qdq.QuantizationSpec()
    spec.add("stem", quantize_weight=False)
    plan = qdq.plan_placement(model, quantization_spec=spec, custom_qdq_cases=[qdq.AutoQDQCase()], target="tensorrt")

    starts = {start.name: start.plan for start in starts_of(plan, model, [FloatHead(), FloatHead()], spec)}

    assert list(starts) == ["", "defaults", "FloatHead"], "the second one is the same plan"
    assert [read(start, "a_add") for start in starts.values()] == [[0], [], []]
    assert all(not start.for_layer("stem").quantize_weight for start in starts.values())
    assert [start.for_layer("head").quantize_weight for start in starts.values()] == [True, True, False]
    partial = qdq.plan_placement(model, "partial", spec, target="tensorrt")
    assert replace_cases(partial, model, []) is partial


def test_the_best_of_all_starts_is_found(residual):
    q_model, x, y, _ = residual

    result = qdq.search(q_model, (x, y), max_bytes=10_000, objective="accuracy", cases=[FloatHead()], **QUIET)

    best = max(min(step.accuracy, 1.0) for step in result.history)
    assert (result.exact, result.search_accuracy) == (True, best)
    fewer = qdq.search(q_model, (x, y), accuracy_floor=0.0, objective="macs", cases=[FloatHead()], **QUIET)
    assert (fewer.best.case, fewer.exact, len(fewer.history)) == ("", True, 2)


def test_layers_that_only_a_case_quantizes_can_be_left_in_float(residual, monkeypatch):
    q_model, x, y, _ = residual

    def rule(plan):  # the sum of the first block shall be read quantized, that of the second not at all
        return 3.0 - (read(plan, "a_add") == [0]) - (read(plan, "a_add") == [0] and not read(plan, "b_add"))

    gains = [types.SimpleNamespace(layers=(name,), ms=0.0, baseline_ms=1.0) for name in ("b_add", "head")]
    monkeypatch.setattr(searching, "Stopwatch", watch_of(rule, gains))

    result = qdq.search(q_model, (x, y), objective="ms", cases=[qdq.ResNetV1QDQCase()], **QUIET)

    assert result.best.case == "ResNetV1QDQCase"
    assert (read(result.plan, "a_add"), read(result.plan, "b_add")) == ([0], [])
    assert result.best.ms == 1.0


def test_a_search_with_cases_and_pairs_goes_on_from_its_checkpoint(residual, tmp_path, monkeypatch):
    q_model, x, y, _ = residual
    monkeypatch.setattr(searching, "Stopwatch", watch_of(slow_sums))
    path, asked = tmp_path / "search.json", []
    arguments = {"objective": "ms", "accuracy_floor": 0.5, "cases": "auto", "pairs": True, **QUIET}

    def stop():
        asked.append(None)
        return len(asked) > 12

    first = qdq.search(q_model, (x, y), checkpoint=path, stop=stop, **arguments)
    assert not first.complete
    assert len(first.history) > 1
    known = json.loads(path.read_text())
    assert any(name.startswith("AutoQDQCase ") for name in known["accuracies"])
    second = qdq.search(q_model, (x, y), checkpoint=path, **arguments)
    assert second.complete
    judge, judged = searching.model_outputs, []
    monkeypatch.setattr(searching, "model_outputs", lambda *them: judged.append(them) or judge(*them))
    third = qdq.search(q_model, (x, y), checkpoint=path, **arguments)

    assert judged == [], "nothing is measured twice"
    assert third.history == second.history
    assert second.history == qdq.search(q_model, (x, y), **arguments).history
    more = qdq.search(q_model, (x, y), checkpoint=path, **{**arguments, "cases": [FloatHead()]})
    assert {step.case for step in more.history} == {"", "FloatHead"}, "other cases continue the same checkpoint"


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"cases": "AutoQDQCase"}, SpecError, r'cases must be "auto", or a list'),
        ({"cases": [qdq.AutoQDQCase]}, SpecError, "instances of CustomQDQInsertionCase"),
        ({"cases": 3}, SpecError, r'cases must be "auto", or a list'),
        ({"pairs": "yes"}, DataError, "pairs must be True or False"),
        ({"share": "blocks"}, DataError, 'share must be "patterns"'),
    ],
)
def test_mistakes_are_named(residual, arguments, error, says):
    q_model, x, y, _ = residual

    with pytest.raises(error, match=says):
        qdq.search(q_model, (x, y), accuracy_floor=0.5, **arguments, **QUIET)
