"""Data of another scale than the calibration's are remarked on, before the work begins."""

import json

import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_workbench.cli.remarks import scale_remarks


@pytest.fixture(scope="module")
def images(workplace):
    """Write images from 0 to 1, the same as bytes, and both with labels."""
    pixels = np.random.default_rng(2).integers(0, 256, (24, 8, 8, 2)).astype(np.uint8)
    y = np.arange(24) % 3
    np.savez(workplace / "unit.npz", x_train=pixels / np.float32(255), y_train=y)
    np.savez(workplace / "bytes.npz", x=pixels, y=y)
    return pixels


@pytest.fixture
def for_unit(cli, workplace, images):
    """Return the name of a model that was calibrated on images from 0 to 1: on the archive that `finetune` takes."""
    if not (workplace / "unit.keras").exists():
        code, _, errors = cli("quantize", "model.keras", "-o", "unit.keras", "--calibration-data", "unit.npz")
        assert code == 0, errors
        assert "24" not in errors
        assert "1/1" in errors  # one batch of 32
    return "unit.keras"


@pytest.mark.parametrize(
    "command",
    [
        "finetune unit.keras --data bytes.npz -o r.keras",
        "gptq unit.keras --data bytes.npz -o r.keras",
        "learn-rounding unit.keras --data bytes.npz -o r.keras --steps 1 --granularity layer",
        "sensitivity unit.keras --data bytes.npz --site weight --steps 1",
    ],
)
def test_bytes_for_a_model_of_unit_images(cli, for_unit, command):
    code, out, errors = cli(*command.split(), "--json")

    assert code == 0, errors
    (remark,) = json.loads(out)["remarks"]
    assert "go from 0 to 255 (uint8), but the model was calibrated on 0 to 1, so nearly all of them saturate" in remark
    assert f"note: {remark}" in errors
    assert errors.count("calibrated on") == 1, "what the function warns of is not printed again"


def test_a_calibration_by_bytes_gives_new_ranges(cli, for_unit):
    code, out, errors = cli("calibrate", for_unit, "--data", "bytes.npz", "-o", "r.keras", "--json")

    assert code == 0, errors
    (remark,) = json.loads(out)["remarks"]
    assert "go from 0 to 255 (uint8), but the model was calibrated on 0 to 1 before. These data give it new" in remark
    assert errors.count("calibrated on") == 1, "the function's own warning is not printed, too"


def test_a_file_checked_on_bytes_is_remarked_on_with_the_model_and_without(cli, for_unit):
    assert cli("export", for_unit, "-o", "unit.onnx")[0] == 0
    with pytest.warns(qdq.errors.DataScaleWarning, match="integers of it in the file stand for -1.*saturate"):
        cli("verify", "unit.onnx", "--data", "bytes.npz")
    _, out, errors = cli("verify", "unit.onnx", "--data", "bytes.npz", "--model", for_unit, "--json")
    assert len(json.loads(out)["remarks"]) == errors.count("note: the data of input") == 1


def test_data_of_the_same_scale_have_no_remark(cli, for_unit):
    code, out, errors = cli("calibrate", for_unit, "--data", "unit.npz", "-o", "r.keras", "--json")

    assert code == 0
    assert "remarks" not in json.loads(out)
    assert "note:" not in errors


def test_small_data_are_remarked_on_too_and_float_models_never(workplace, images, for_unit, capsys):
    q_model = qdq.load_model(workplace / for_unit)
    (remark,) = scale_remarks(q_model, images / 255**2, "x.npy")
    assert "fall on a few steps" in remark
    assert scale_remarks(q_model, np.zeros((2, 8, 8, 2)), "x.npy") == ()
    assert scale_remarks(qdq.strip(q_model), images, "x.npy") == ()
    assert scale_remarks(qdq.quantize_model(qdq.strip(q_model)), images, "x.npy") == ()
    assert capsys.readouterr().err.count("note:") == 1
