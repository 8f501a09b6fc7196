"""`qdq-workbench diagnose`, on files as a shell user has them."""

import json

import keras
import numpy as np
import pytest

import qdq_workbench as qdq


@pytest.fixture(scope="module")
def quantized(workplace):
    """Write a quantized model that was calibrated on two samples of another scale, and labelled inputs."""
    model = keras.models.load_model(workplace / "model.keras")
    x = np.random.default_rng(1).normal(size=(48, 8, 8, 2)).astype("float32")
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, x[:2] / 3.0, verbose=False)
    q_model.save(workplace / "few.keras")
    np.savez(workplace / "all.npz", x=x, y=np.argmax(model.predict(x, verbose=0), axis=-1))
    np.save(workplace / "all.npy", x)
    return q_model, x


def test_it_names_the_cause_and_writes_the_fixed_model(cli, workplace, quantized):
    code, out, errors = cli(
        "diagnose", "few.keras", "--data", "all.npy", "--apply", "1", "-o", "fixed.keras", "--report", "found.json",
        "--json",
    )  # fmt: skip

    result = json.loads(out)
    assert (code, result["written"]) == (0, ["fixed.keras", "found.json"]), errors
    first = result["causes"][0]
    assert (first["kind"], first["applied"], first["gain"] > 1.0) == ("few_samples", True, True)
    fixed = keras.models.load_model(workplace / "fixed.keras")
    q_model, _ = quantized
    assert fixed.activation_ranges()[fixed.inputs[0].name][1] > q_model.activation_ranges()[q_model.inputs[0].name][1]
    assert json.loads((workplace / "found.json").read_text())["causes"] == result["causes"]


def test_labels_make_it_a_matter_of_accuracy(cli, workplace, quantized):
    code, out, errors = cli("diagnose", "few.keras", "--data", "all.npz", "--apply", "all")

    assert code == 0, errors
    assert "accuracy: float 1, quantized" in out
    assert "too few calibration samples" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-o", "fixed.keras"), "--apply all"),
        (("--apply", "99"), "Received: --apply 99"),
        (("--apply", "0"), "no such cause"),
        (("--apply", "all", "--apply", "2"), "give it alone. Received: --apply all, 2"),
        (("--metric", "accuracy"), "labels"),
    ],
)
def test_what_cannot_be_done_is_said(cli, workplace, quantized, arguments, says):
    code, out, errors = cli("diagnose", "few.keras", "--data", "all.npy", *arguments)

    assert code == 2
    assert says in out + errors
