"""The commands that know targets and files of others: every target is offered, LiteRT files, the linter."""

import json

import pytest

import qdq_workbench as qdq


@pytest.fixture
def calibrated(cli, workplace):
    """Return the name of a model calibrated for LiteRT."""
    if not (workplace / "lite.keras").exists():
        code, _, errors = cli(
            *("quantize", "model.keras", "-o", "lite.keras", "--case", "AutoQDQCase", "--target", "litert"),
            *("--calibration-data", "images.npy"),
        )
        assert code == 0, errors
    return "lite.keras"


@pytest.mark.parametrize("target", qdq.target_names())
def test_every_target_can_be_explained(cli, target):
    code, out, errors = cli("explain", "model.keras", "--target", target, "--json")
    assert code == 0, errors
    found = json.loads(out)
    assert found["target"] == target
    assert found["coverage"]["macs"] == 1.0


def test_what_is_explained_is_explained_for_what_it_was_made_for(cli, calibrated):
    assert cli("plan", "model.keras", "--target", "openvino", "-o", "made_for.json")[0] == 0
    assert cli("export", calibrated, "-o", "made_for.onnx", "--target", "tensorrt")[0] == 0
    for name, target in (("made_for.json", "openvino"), (calibrated, "litert"), ("made_for.onnx", "tensorrt")):
        code, out, errors = cli("explain", name)
        assert code == 0, errors
        assert out.startswith(f"Explained for {target}, which the plan was made for; --target")
        assert f"\nTarget {target}: " in out
    code, out, _ = cli("explain", "made_for.onnx", "--target", "onnxruntime")
    asked = "Explained for onnxruntime, as asked; the plan was made for tensorrt, and is planned anew.\n"
    assert (code, out.startswith(asked)) == (0, True)
    assert cli("explain", "model.keras")[1].startswith("Explained for onnxruntime, which a float model is planned for")
    assert cli("export", "model.keras", "-o", "plain.onnx", "--float")[0] == 0
    code, _, errors = cli("explain", "plain.onnx")
    assert (code, "carries no plan" in errors) == (2, True)


def test_a_file_is_explained_at_its_opset(cli):
    quantize = ("quantize", "model.keras", "-o", "w4.keras", "--target", "onnxruntime", "--weight-bits", "4")
    assert cli(*quantize, "--calibration-data", "images.npy")[0] == 0
    for opset, rule, share in (("17", "ORT-INTEGER", 1.0), ("21", "ORT-GRID", 0.0)):
        assert cli("export", "w4.keras", "-o", "w4.onnx", "--opset", opset)[0] == 0
        for subject in (("w4.onnx",), ("w4.keras", "--opset", opset)):
            code, out, errors = cli("explain", *subject, "--json")
            assert code == 0, errors
            found = json.loads(out)
            assert found["coverage"]["macs"] == share
            assert rule in {entry["rule"] for entry in found["layers"]}


def test_a_measurement_of_a_file_for_the_runtime_explains_the_model_for_it(cli, calibrated):
    assert cli("export", calibrated, "-o", "ort.onnx", "--target", "onnxruntime")[0] == 0
    assert cli("profile", "ort.onnx", "--baseline", "ort.onnx", "--rounds", "1", "-o", "ort.json")[0] == 0
    code, out, errors = cli("explain", calibrated, "--latency", "ort.json")
    assert code == 0, errors
    assert out.startswith(
        "Explained for onnxruntime, which the measured file was exported for; the plan was made for litert"
    )
    assert "\nMeasured" in out


def test_a_file_for_another_runtime_is_remarked_on_wherever_it_is_run(cli, calibrated):
    for target, count in (("tensorrt", 1), ("onnxruntime", 0)):
        assert cli("export", calibrated, "-o", "run.onnx", "--target", target)[0] == 0
        for command in ("verify run.onnx", "certify run.onnx", "profile run.onnx --rounds 1"):
            code, out, errors = cli(*command.split())
            assert code == 0, errors
            assert out.count("exported for tensorrt. ONNX Runtime runs it as it is") == count, command
    assert json.loads(cli("verify", "run.onnx", "--json")[1])["target"] == "onnxruntime"


def test_a_litert_file_is_written_by_its_suffix(cli, workplace, calibrated):
    code, out, errors = cli("export", calibrated, "-o", "net.tflite")
    assert code == 0, errors
    assert "CONV_2D 2/2" in out
    assert (workplace / "net.tflite").stat().st_size > 1000
    code, _, errors = cli("export", calibrated, "-o", "other.tflite", "--target", "tensorrt")
    assert code == 2
    assert "is for LiteRT" in errors


def test_a_file_for_firmware_is_written_by_its_suffix(cli, workplace, calibrated):
    beside = ("--c-header", "weights.h", "--interpreter", "run.py")
    code, out, errors = cli("export", calibrated, "-o", "net.npz", *beside, "--json")
    assert code == 0, errors
    found = json.loads(out)
    assert found["operators"]["Conv2D"] == 2
    assert (found["target"], found["c_header"]) == ("litert", "weights.h")
    assert [(workplace / name).stat().st_size > 1000 for name in ("net.npz", "weights.h", "run.py")] == [True] * 3
    assert cli("export", calibrated, "-o", "u8.npz", "--target", "onnxruntime")[0] == 0
    for wrong in (["--opset", "17"], ["--fixed-batch"], ["--c-header", "weights.c"], ["--target", "tensorrt"]):
        code, _, errors = cli("export", calibrated, "-o", "refused.npz", *wrong)
        assert code in (1, 2), wrong
        assert "Received:" in errors
    assert "go with a file for firmware" in cli("export", calibrated, "-o", "net2.onnx", *beside)[2]
    assert not (workplace / "refused.npz").exists()


def test_the_linter_passes_our_files_and_fails_others(cli, workplace, calibrated):
    assert cli("export", calibrated, "-o", "lint.onnx", "--target", "onnxruntime")[0] == 0
    code, out, _ = cli("lint", "lint.onnx")
    assert (code, out.strip().endswith("0 findings")) == (0, True)
    qdq.export_float_onnx(qdq.strip(_load(workplace / calibrated)), workplace / "float.onnx")
    code, out, _ = cli("lint", "float.onnx", "--json")
    assert (code, json.loads(out)["pairs"]) == (0, 0)
    (workplace / "text.onnx").write_text("no model")
    assert cli("lint", "text.onnx")[0] == 2
    assert cli("lint", "missing.onnx")[0] == 2


def _load(path):
    import keras

    return keras.models.load_model(path, compile=False)
