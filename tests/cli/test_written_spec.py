"""Spec files that `search` and `sensitivity` write lead to the plan again, with the options that are printed."""

import dataclasses
import json
import shlex

import pytest

import qdq_workbench as qdq
from qdq_workbench.cli.written_spec import write_spec

SEARCH = ("--data", "images.npy", "--metric", "sqnr", "--accuracy-floor", "1", "--steps", "1")


def places(plan):
    """Return what a plan quantizes and how, without authors and reasons."""
    plan = qdq.PlacementPlan.from_dict(plan)
    return [(p.key, p.quantizer, p.method, p.scale_group) for p in plan.placements]


def again(cli, use):
    """Return the plan of the options that a command printed."""
    options = shlex.split(use.partition(" with: ")[2])
    code, out, errors = cli("plan", "model.keras", *options, "--json")
    assert code == 0, errors
    return json.loads(out)


@pytest.mark.parametrize(
    "options",
    [
        "--case ResNetV1QDQCase --weight-bits 4 --target onnxruntime",
        "--case ResNetV1QDQCase --mode partial --activation-bits 16 --target litert",
    ],
)
def test_the_spec_of_a_search_leads_to_its_plan(cli, workplace, options):
    code, out, errors = cli(
        "search", "model.keras", *SEARCH, *options.split(), "--spec-output", "my spec.yaml", "--json"
    )

    assert code == 0, errors
    result = json.loads(out)
    assert places(again(cli, result["use_spec"])) == places(result["plan"])
    assert "--case" not in result["use_spec"]


def test_the_spec_of_a_search_of_a_quantized_model_leads_to_its_plan(cli, workplace, q_model):
    code, out, errors = cli("search", q_model, *SEARCH, "--spec-output", "of_q.yaml")

    assert code == 0, errors
    use = next(line for line in out.splitlines() if line.startswith("Use of_q.yaml with: "))
    assert places(again(cli, use)) == places(qdq.load_model(workplace / q_model).plan.to_dict())


def test_the_spec_of_a_sweep_keeps_the_rest_of_its_plan(cli, workplace):
    made = ("--case", "ResNetV1QDQCase", "--weight-bits", "4", "--target", "onnxruntime")
    assert cli("plan", "model.keras", *made, "-o", "case.json")[0] == 0

    code, out, errors = cli(
        "sensitivity", "model.keras", "--data", "images.npy", "--plan", "case.json", "--steps", "1", "--top-k", "1",
        "--spec-output", "swept.yaml", "--json",
    )  # fmt: skip

    assert code == 0, errors
    result = json.loads(out)
    spec = qdq.QuantizationSpec()
    spec.add(result["ranking"][0], quantize_input=False, quantize_weight=False)
    spec.save(workplace / "one.yaml")
    expected = cli("plan", "model.keras", *made, "--spec", "one.yaml", "--json")[1]
    assert places(again(cli, result["use_spec"])) == places(json.loads(expected))


def test_a_target_that_no_options_tell_is_named(cli, workplace, tmp_path):
    target = dataclasses.replace(qdq.get_target("onnxruntime"), bias="float")
    plan = qdq.plan_placement(qdq.load_model(workplace / "model.keras"), target=target)

    use = write_spec(str(tmp_path / "spec.yaml"), qdq.QuantizationSpec(), plan)

    assert "differs from onnxruntime in more than bits" in use
