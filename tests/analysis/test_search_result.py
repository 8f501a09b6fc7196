"""The steps of a search and its result: what they say, which are on the front, and what is written."""

import dataclasses
import json
import math
from types import SimpleNamespace

import pytest
from mock_graphs import chain

import qdq_workbench as qdq
from qdq_workbench.analysis.cost import layer_costs
from qdq_workbench.analysis.levels import FLOAT
from qdq_workbench.analysis.search_result import SearchResult, SearchStep, cost_of, with_front
from qdq_workbench.errors import SpecError


def step(accuracy=0.9, weight_bytes=10, macs=0, **more):
    return SearchStep(more.pop("levels", {}), accuracy, weight_bytes, macs, **{"meets": True, **more})


@pytest.fixture(scope="module")
def plan():
    return qdq.plan_placement(chain(("Conv2D", "first"), ("Conv2D", "second")), target="onnxruntime")


@pytest.fixture
def result(plan):
    history = (step(levels={"first": FLOAT, "second": 4}), step(0.5, 8))
    return SearchResult(
        *("net", 0.9, "accuracy", True, "It was found.", 0.91, 0.95, 0.5),
        *(qdq.QuantizationSpec(), plan, plan, SimpleNamespace(plan=plan), history[0], history),
    )


@pytest.mark.parametrize(
    ("levels", "case", "label"),
    [
        ({}, "", "as given"),
        ({}, "defaults", "defaults"),
        ({"a": 8, "b": FLOAT, "c": 8}, "", "a, c: 8 bits; b: float"),
        ({"add": "inputs 0, 1 with output"}, "AutoQDQCase", "AutoQDQCase; add: inputs 0, 1 with output"),
    ],
)
def test_a_placement_is_told_by_its_case_and_the_levels_of_layers(levels, case, label):
    assert step(levels=levels, case=case).label == label


def test_the_cost_of_a_plan_is_the_sum_over_its_layers(plan):
    costs = layer_costs(plan).values()

    assert cost_of(plan) == (sum(cost.weight_bytes for cost in costs), sum(cost.float_macs for cost in costs))
    assert cost_of(plan)[0] == 2 * (3 * 3 * 4 * 4 + 4 * 4)
    assert step(weight_bytes=3, macs=4).cost == (3, 4)


def test_values_that_json_cannot_hold_are_written_as_text():
    written = [step(value).to_dict()["accuracy"] for value in (math.inf, -math.inf, math.nan, 0.5)]

    assert written == ["inf", "-inf", "nan", 0.5]
    assert json.loads(json.dumps(step(levels={"a": 8}, ms=0.5, case="c").to_dict(), allow_nan=False)) == {
        "levels": {"a": 8}, "accuracy": 0.9, "weight_bytes": 10, "float_macs": 0, "meets": True, "ms": 0.5,
        "on_front": False, "case": "c",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "front"),
    [
        ([], []),
        ([step(math.nan)], [True]),
        ([step(), step()], [True, True]),
        ([step(), step(macs=1)], [True, False]),
        ([step(), step(weight_bytes=11)], [True, False]),
        ([step(ms=1.0), step()], [True, False]),
        ([step(ms=1.0), step(weight_bytes=9)], [True, True]),
        ([step(ms=1.0), step(ms=2.0)], [True, False]),
        ([step(math.nan, 9), step(0.0, 9)], [False, True]),
    ],
)
def test_the_front_holds_what_nothing_beats(steps, front):
    assert [one.on_front for one in with_front(steps)] == front


def test_a_mark_of_before_does_not_stay():
    assert [one.on_front for one in with_front([step(on_front=True), step(0.95)])] == [False, True]


def test_what_was_tried_is_sorted_by_cost_and_of_equal_costs_by_the_metric(result):
    steps = [step(0.5, 10), step(math.nan, 10), step(0.6, 10), step(0.1, 10, -1), step(0.0, 9, 7)]

    order = dataclasses.replace(result, history=tuple(steps)).pareto

    assert [steps.index(one) for one in order] == [4, 3, 2, 0, 1]


def test_layers_in_float_are_those_of_the_best_step(result):
    assert result.float_layers == ["first"]


def test_without_a_step_the_best_model_is_returned(result):
    assert result.apply() is result.q_model


@pytest.mark.parametrize("wrong", [step(case="other"), step(levels={"first": 8}), {"first": FLOAT}, 0], ids=str)
def test_a_step_that_was_not_tried_is_refused(result, wrong):
    with pytest.raises(SpecError, match=r"not of this search; take one of result\.pareto"):
        result.apply(wrong)


def test_what_was_timed_for_another_target_is_remarked_on(result):
    timed = dataclasses.replace(result, history=(step(ms=1.0),))
    other = dataclasses.replace(timed.plan, target="tensorrt")

    assert result.target_remark == timed.target_remark == ""
    assert dataclasses.replace(result, plan=other).target_remark == "", "nothing was timed"
    remark = dataclasses.replace(timed, plan=other).target_remark
    assert remark.startswith("What was timed")
    assert remark in dataclasses.replace(timed, plan=other).summary().splitlines()
    assert dataclasses.replace(timed, plan=other).to_dict()["target_remark"] == remark


def test_a_processor_whose_timed_kernels_saturate_is_remarked_on(result):
    here = dataclasses.replace(result, saturates=True)

    assert result.processor_remark == ""
    assert "no VNNI" in here.processor_remark
    assert here.processor_remark in here.summary().splitlines()
    assert here.to_dict()["processor_remark"] == here.processor_remark
    assert "VNNI" not in result.summary()


def test_the_summary_tells_the_outcome_and_every_step(result):
    history = (dataclasses.replace(result.history[0], on_front=True), result.history[1])
    lines = dataclasses.replace(result, history=history).summary().splitlines()

    assert lines[:2] == [
        "It was found.",
        "accuracy: float 0.9500, all quantized 0.5000, found 0.9100, floor 0.9000",
    ]
    assert lines[2].split() == ["step", "accuracy", "weight", "bytes", "float", "MACs", "placement"]
    assert lines[3].split() == ["0", "*", "0.9000", "10", "0", "first:", "float;", "second:", "4", "bits"]
    assert lines[4].split() == ["1", "0.5000", "8", "0", "as", "given"]
    assert lines[5:] == ["* on the Pareto front"]


def test_the_summary_names_held_out_samples_a_loss_and_times(result):
    history = (step(ms=0.25), step())
    more = {"accuracy_floor": None, "max_loss": 0.05, "confirmed_on": 7, "history": history}
    lines = dataclasses.replace(result, **more).summary().splitlines()

    assert lines[1].startswith("accuracy on 7 held-out samples: float")
    assert lines[1].endswith("found 0.9100, at most 0.0500 below float")
    assert lines[2].split()[-2:] == ["ms", "placement"]
    assert lines[3].split()[-3:] == ["0.2500", "as", "given"]
    assert len(lines[3]) == len(lines[4]), "the column of times is as wide without one"


def test_what_is_written_can_be_read_and_holds_every_figure(result):
    strange = dataclasses.replace(result, float_accuracy=math.inf, search_floor=-math.inf)
    data = json.loads(json.dumps(strange.to_dict(), allow_nan=False))

    assert (data["format"], data["version"]) == ("qdq-workbench/search-result", 1)
    assert (data["float_accuracy"], data["search_floor"], data["accuracy_floor"]) == ("inf", "-inf", 0.9)
    assert [one["levels"] for one in data["history"]] == [{"first": "float", "second": 4}, {}]
    assert qdq.PlacementPlan.from_dict(data["plan"]) == result.plan
    left_out = {"base", "q_model", "best", "starts", "searched"}
    assert {field.name for field in dataclasses.fields(SearchResult)} - data.keys() == left_out


@pytest.mark.parametrize(
    ("objective", "ms", "axis", "places"),
    [
        ("bytes", None, "bytes of weights", (8, 10)),
        ("macs", None, "multiply-accumulate operations in float", (2, 5)),
        ("accuracy", None, "bytes of weights", (8, 10)),  # which is no cost
        ("macs", 0.25, "ms per run", (0.25,)),
    ],
)
def test_the_figure_draws_over_what_was_optimized_or_timed(result, objective, ms, axis, places):
    history = (step(0.9, 10, 5), step(0.5, 8, 2, ms=ms))
    figure = dataclasses.replace(result, history=history, best=history[1], objective=objective).plot()

    assert figure.layout.xaxis.title.text == axis
    assert figure.data[0].x == places
