"""`qdq-workbench search`, on files as a shell user has them."""

import json

import keras
import numpy as np
import pytest

import qdq_workbench as qdq


@pytest.fixture(scope="module")
def labelled(workplace):
    """Write a tiny model, and inputs with the labels that it gives them, split for training and testing."""
    keras.utils.set_random_seed(0)
    numbers = keras.Input((4,), name="numbers")
    hidden = keras.layers.Dense(8, activation="relu", name="hidden")(numbers)
    model = keras.Model(numbers, keras.layers.Dense(3, name="head")(hidden))
    model.save(workplace / "tiny.keras")
    x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
    y = np.argmax(model.predict(x, verbose=0), axis=-1)
    np.save(workplace / "numbers.npy", x)
    np.savez(workplace / "answers.npz", x_train=x[:32], y_train=y[:32], x_test=x[32:], y_test=y[32:])
    np.savez(workplace / "wrong.npz", x=x[:32], y=(y[:32] + 1) % 3)
    spec = qdq.QuantizationSpec()
    spec.add("hidden", quantize_weight=False)
    spec.save(workplace / "inputs.yaml")
    return x[32:], y[32:]


def test_it_finds_and_writes_what_the_function_finds(cli, workplace, labelled):
    code, out, errors = cli(
        "search", "tiny.keras", "--data", "answers.npz", "--accuracy-floor", "0.5", "--target", "onnxruntime",
        "--spec", "inputs.yaml", "-o", "found.keras", "--spec-output", "found.yaml", "--report", "found.json",
        "--checkpoint", "search.json", "--json",
    )  # fmt: skip

    result = json.loads(out)
    model, spec = qdq.load_model(workplace / "tiny.keras"), qdq.QuantizationSpec.load(workplace / "inputs.yaml")
    plan = qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")
    expected = qdq.search(model, labelled, accuracy_floor=0.5, plan=plan, spec=spec, verbose=False)
    assert (code, result["passed"], result["met"]) == (0, True, True), errors
    assert result["written"] == ["found.keras", "found.yaml", "found.json"]
    assert result["accuracy"] == pytest.approx(expected.accuracy)
    assert [step["levels"] for step in result["history"]] == [dict(step.levels) for step in expected.history]
    assert qdq.load_model(workplace / "found.keras").plan == expected.plan
    assert qdq.QuantizationSpec.load(workplace / "found.yaml") == expected.spec
    assert json.loads((workplace / "found.json").read_text())["plan"] == json.loads(json.dumps(plan.to_dict()))
    assert (workplace / "search.json").exists()


def test_a_floor_that_is_not_met_exits_with_1_and_the_bar_comes_to_its_end(cli, labelled):
    code, out, errors = cli("search", "tiny.keras", "--data", "wrong.npz", "--accuracy-floor", "0.9")

    assert code == 1
    assert "The floor cannot be met" in out
    tried = sum(line.split()[0].isdigit() for line in out.splitlines() if line.strip())
    assert f"{tried}/{tried}" in errors
    assert "/?" not in errors


def test_a_placement_that_the_same_samples_chose_and_confirm_is_no_pass(cli, labelled):
    same = ("search", "tiny.keras", "--data", "answers.npz", "--confirmation-data", "answers.npz")
    code, out, _ = cli(*same, "--accuracy-floor", "0.5", "--json")

    result = json.loads(out)
    assert (code, result["passed"], result["met"], result["confirmed_on"]) == (1, False, None, 0)
    assert "not confirmed: 32 of the 32 confirmation samples also chose the placement" in result["reason"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--data numbers.npy --accuracy-floor 0.5", "Accuracy needs labels"),
        ("--data answers.npz --accuracy-floor 90", "for 90 % give 0.9"),
        ("--data answers.npz --accuracy-floor 0.5 --bits 40", "bits must be"),
        ("--data answers.npz --accuracy-floor 0.5 --try-case Auto", "no library case of that name"),
        ("--data answers.npz --accuracy-floor 0.5 --try-case auto --try-case BNQDQCase", "give it alone"),
        ("--data answers.npz --max-loss -1", "max_loss must be"),
        ("--data answers.npz --accuracy-floor 0.5 -o tiny.keras", "overwrite the model"),
        ("--data answers.npz --accuracy-floor 0.5 --report r.txt", "must end in .json"),
        ("--data answers.npz --accuracy-floor 0.5 --checkpoint answers.npz", "not text in UTF-8"),
    ],
)
def test_bad_usage_exits_with_2(cli, labelled, arguments, says):
    code, out, errors = cli("search", "tiny.keras", *arguments.split())

    assert (code, out) == (2, "")
    assert says in errors
    assert "not foreseen" not in errors


def test_cases_pairs_and_patterns_are_searched_as_by_the_function(cli, workplace, labelled):
    code, out, errors = cli(
        "search", "tiny.keras", "--data", "answers.npz", "--max-loss", "0.5", "--objective", "macs",
        "--try-case", "auto", "--pairs", "--share", "patterns", "--target", "onnxruntime", "--json",
    )  # fmt: skip

    result = json.loads(out)
    model = qdq.load_model(workplace / "tiny.keras")
    plan = qdq.plan_placement(model, target="onnxruntime")
    arguments = {"max_loss": 0.5, "objective": "macs", "cases": "auto", "pairs": True, "share": "patterns"}
    expected = qdq.search(model, labelled, plan=plan, verbose=False, **arguments)
    assert (code, result["met"], result["max_loss"]) == (0, True, 0.5), errors
    assert result["history"] == json.loads(json.dumps([step.to_dict() for step in expected.history]))


@pytest.mark.parametrize(
    ("asked", "target"),
    [(["--max-ms", "1e6"], "onnxruntime"), ([], "tensorrt"), (["--max-ms", "1e6", "--target", "tensorrt"], "tensorrt")],
    ids=["timed", "not timed", "asked for"],
)
def test_where_times_are_measured_the_runtime_is_that_of_the_measurement(cli, labelled, monkeypatch, asked, target):
    planned = []

    def stop(model, data, *, plan, **settings):
        planned.append(plan.target)
        raise qdq.errors.SpecError("enough")

    monkeypatch.setattr(qdq, "search", stop)
    # With weights alone the target is read before there is a plan.
    for more in ([], ["--weights-alone", "8", "--block-size", "0"]):
        errors = cli("search", "tiny.keras", "--data", "answers.npz", "--accuracy-floor", "0.01", *asked, *more)[2]
        assert "SpecError: enough" in errors
    assert planned == [target, target]


def test_a_quantized_model_has_its_plan(cli, workplace, labelled):
    made = ("quantize", "tiny.keras", "-o", "searched.keras", "--target", "onnxruntime")
    assert cli(*made, "--calibration-data", "answers.npz")[0] == 0
    search = ("search", "searched.keras", "--data", "answers.npz", "--accuracy-floor", "0.5")

    assert cli(*search)[0] == 0
    for option in (
        ["--target", "tensorrt"],
        ["--mode", "partial"],
        ["--case", "AutoQDQCase"],
        ["--weight-bits", "4"],
        ["--activation-bits", "16"],
        ["--weights-alone", "4"],
        ["--block-size", "0"],
    ):
        code, _, errors = cli(*search, *option)
        assert code == 2, option
        assert "quantized already" in errors
        assert option[0] in errors


def test_the_spec_that_is_written_has_the_entries_of_weights_alone(cli, workplace, labelled):
    (workplace / "float_hidden.json").write_text(
        json.dumps({"layers": [{"name": "hidden", "quantize_input": False, "quantize_weight": False}]})
    )
    code, _, errors = cli(
        "search", "tiny.keras", "--data", "answers.npz", "--accuracy-floor", "0.01", "--target", "onnxruntime",
        "--weights-alone", "4", "--spec", "float_hidden.json", "--spec-output", "w4.yaml", "-o", "w4.keras",
    )  # fmt: skip

    assert code == 0, errors
    spec = qdq.QuantizationSpec.load(workplace / "w4.yaml")
    plan = qdq.plan_placement(qdq.load_model(workplace / "tiny.keras"), "partial", spec, target="onnxruntime")
    grids = {item.tensor: item.quantizer for item in qdq.load_model(workplace / "w4.keras").plan.tensors}
    assert {name: grid.num_bits for name, grid in grids.items()} == {"head/kernel": 4}
    assert {item.tensor: item.quantizer for item in plan.tensors} == grids


def test_infinite_metrics_are_valid_json(cli, workplace, labelled):
    code, out, errors = cli(
        "search", "tiny.keras", "--data", "numbers.npy", "--metric", "sqnr", "--accuracy-floor", "20", "--json",
        "--report", "sqnr.json",
    )  # fmt: skip

    assert code == 0, errors
    for text in (out, (workplace / "sqnr.json").read_text()):
        assert json.loads(text, parse_constant=pytest.fail)["float_accuracy"] == "inf"


@pytest.mark.parametrize("names", [("--report", "--spec-output"), ("--report", "--checkpoint")], ids=" ".join)
def test_two_outputs_of_one_name_are_refused(cli, workplace, labelled, names):
    first, second = names
    code, _, errors = cli(
        "search", "tiny.keras", "--data", "answers.npz", "--accuracy-floor", "0.5", first, "twice.json",
        second, "./twice.json",
    )  # fmt: skip

    assert code == 2
    assert "Two outputs have the same name" in errors
    assert not (workplace / "twice.json").exists()
