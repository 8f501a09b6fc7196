"""`qdq-workbench sensitivity`, on files as a shell user has them."""

import json

import keras
import numpy as np
import pytest

import qdq_workbench as qdq


@pytest.fixture(scope="module")
def data(workplace):
    """Write inputs with labels."""
    x = np.random.default_rng(1).normal(size=(48, 8, 8, 2)).astype("float32")
    np.savez(workplace / "labelled.npz", x=x, y=np.arange(48) % 3)
    return x


def test_it_prints_and_writes_what_the_function_finds(cli, workplace, data):
    code, out, errors = cli(
        "sensitivity", "model.keras", "--data", "labelled.npz", "--mode", "one_off", "--site", "weight", "-o",
        "report.json", "--top-k", "1", "--spec-output", "spec.yaml", "--figure", "figure.html", "--json",
    )  # fmt: skip

    result = json.loads(out)
    model = keras.models.load_model(workplace / "model.keras")
    expected = qdq.sensitivity(model, data, mode="one_off", sites="weight", verbose=False)
    assert (code, result["written"]) == (0, ["report.json", "figure.html", "spec.yaml"]), errors
    assert result["ranking"] == [entry.layer for entry in expected.ranked()]
    written = qdq.SensitivityReport.load(workplace / "report.json")
    assert written.ranked()[0].value == pytest.approx(expected.ranked()[0].value)
    assert qdq.QuantizationSpec.load(workplace / "spec.yaml") == written.apply(top_k=1)
    assert "plotly" in (workplace / "figure.html").read_text()


def test_a_plan_decides_what_is_swept(cli, workplace, data):
    spec = qdq.QuantizationSpec()
    spec.add(["stem", "head"])
    spec.save(workplace / "two.yaml")
    assert cli("plan", "model.keras", "--mode", "partial", "--spec", "two.yaml", "-o", "two.json")[0] == 0

    code, out, errors = cli("sensitivity", "model.keras", "--data", "labelled.npz", "--plan", "two.json", "--json")

    assert code == 0, errors
    assert sorted(json.loads(out)["ranking"]) == ["head", "stem"]


def test_labels_serve_accuracy_and_the_checkpoint_is_continued(cli, workplace, data):
    arguments = [
        "sensitivity",
        "model.keras",
        "--data",
        "labelled.npz",
        "--metric",
        "accuracy",
        "--checkpoint",
        "c.json",
    ]

    code, out, errors = cli(*arguments)
    assert code == 0, errors
    assert "accuracy (higher is better)" in out
    written = (workplace / "c.json").stat().st_mtime_ns

    assert cli(*arguments)[1] == out
    assert (workplace / "c.json").stat().st_mtime_ns == written
    code, _, errors = cli(*arguments, "--mode", "one_off")
    assert code == 2
    assert errors.strip().splitlines()[-1].startswith("CheckpointError")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--data", "none.npz"], "none.npz"),
        (["--data", "images.npy", "--metric", "accuracy"], "labels"),
        (["--data", "images.npy", "--top-k", "2"], "--spec-output"),
        (["--data", "images.npy", "--plan", "labelled.npz"], "not text"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_exits_with_2(cli, data, arguments, says):
    code, out, errors = cli("sensitivity", "model.keras", *arguments)

    assert (code, out) == (2, "")
    assert says in errors
    assert "Traceback" not in errors


def test_two_outputs_of_one_name_are_refused(cli, workplace):
    code, _, errors = cli(
        "sensitivity", "model.keras", "--data", "images.npy", "-o", "twice.json", "--top-k", "1", "--spec-output",
        "twice.json",
    )  # fmt: skip

    assert code == 2
    assert "Two outputs have the same name" in errors
    assert not (workplace / "twice.json").exists()


@pytest.mark.parametrize("count", ["-1", "99"])
def test_a_wrong_number_of_layers_is_named_before_the_sweep(cli, workplace, data, count):
    code, _, errors = cli(
        "sensitivity", "model.keras", "--data", "labelled.npz", "--top-k", count, "--spec-output", "none.yaml",
        "--checkpoint", "unused.json",
    )  # fmt: skip

    assert (code, f"Received: --top-k {count}" in errors) == (2, True), errors
    assert not (workplace / "unused.json").exists()
