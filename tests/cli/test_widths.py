"""`--weight-bits` and `--activation-bits`: every weight and every activation in other widths; remarks on what stays."""

import json

import numpy as np
import pytest

from qdq_workbench.files import load_model


def grids(plan):
    return {(item.kind, item.quantizer.num_bits) for item in plan.tensors}


def quantized(cli, workplace, *options):
    code, _, errors = cli("quantize", "model.keras", "-o", "widths.keras", "--calibration-data", "images.npy", *options)
    assert code == 0, errors
    return load_model(workplace / "widths.keras")


def test_four_bits_and_eight_for_litert_lie_two_in_a_byte(cli, workplace):
    q_model = quantized(cli, workplace, "--target", "litert", "--weight-bits", "4")
    assert grids(q_model.plan) == {("weight", 4), ("activation", 8)}
    code, out, _ = cli("export", "widths.keras", "-o", "w4.tflite", "--fixed-batch", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["weight_types"] == {"int4": 3}
    assert told["operators"]["CONV_2D"] == [2, 2]


def test_four_bits_and_sixteen_beside_a_spec(cli, workplace):
    (workplace / "eight.json").write_text(
        json.dumps({"layers": [{"name": "head", "quantize_config": {"weight": {"num_bits": 8}}}]})
    )
    options = ("--weight-bits", "4", "--activation-bits", "16", "--target", "litert", "--spec", "eight.json")
    plan = quantized(cli, workplace, *options).plan
    assert grids(plan) == {("weight", 4), ("weight", 8), ("activation", 16)}
    assert all(item.quantizer.symmetric for item in plan.tensors)


def test_an_onnx_file_for_the_same_target_keeps_the_widths(cli, workplace):
    quantized(cli, workplace, "--target", "onnxruntime", "--weight-bits", "4")
    command = ("export", "widths.keras", "-o", "w4.onnx", "--target", "onnxruntime", "--opset", "21", "--json")
    code, out, errors = cli(*command)
    assert code == 0, errors
    assert any("4 bits: stored as 4-bit integers" in note for note in json.loads(out)["notes"])


def test_a_file_for_firmware_keeps_the_widths_where_its_own_target_is_named(cli, workplace):
    quantized(cli, workplace, "--target", "litert", "--weight-bits", "4")
    code, _, errors = cli("export", "widths.keras", "-o", "w4.npz", "--target", "litert")
    assert code == 0, errors
    with np.load(workplace / "w4.npz") as arrays:
        kernels = [arrays[name] for name in arrays.files if name.endswith("/kernel")]
    assert len(kernels) == 3
    assert max(np.abs(kernel).max() for kernel in kernels) <= 8


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--target litert --activation-bits 4", "take activations of 8 or 16 bits. --target onnxruntime takes 4."),
        ("--target tensorrt --activation-bits 16", "2 to 8 bits. --target litert or onnxruntime takes 16."),
        ("--target openvino --activation-bits 16", "2 to 8 bits. --target litert or onnxruntime takes 16."),
        ("--target onnxruntime --activation-bits 12", "2 to 8 or 16 bits. Received"),
        ("--weight-bits 16", "--weight-bits is 2 to 8. Received: --weight-bits 16"),
        ("--weights-alone 4 --weight-bits 4", "leaves activations in float"),
    ],
)
def test_widths_that_no_file_holds_are_refused(cli, options, says):
    code, out, errors = cli("plan", "model.keras", *options.split())
    assert (code, out) == (2, "")
    assert says in " ".join(errors.split())


def test_weights_alone_says_what_stays_in_float(cli):
    code, out, errors = cli("plan", "model.keras", "--weights-alone", "4", "--target", "onnxruntime", "--json")
    assert code == 0
    note = " ".join(errors.split())
    assert "quantizes 1 of 3 layers with kernels or tables" in note
    assert "stay in float: 'conv', 'stem'" in note
    assert "--weight-bits 4 instead" in note
    assert any("convolutions in float" in remark for remark in json.loads(out)["remarks"])


def test_a_litert_file_is_verified_against_its_model(cli, workplace):
    quantized(cli, workplace, "--target", "litert")
    assert cli("export", "widths.keras", "-o", "checked.tflite", "--fixed-batch")[0] == 0
    code, out, errors = cli("verify", "checked.tflite", "--model", "widths.keras", "--data", "images.npy")
    assert code == 0, errors
    assert "constants and grids" in out
    for options in ((), ("--model", "widths.keras", "--certificate", "c.json")):
        code, _, errors = cli("verify", "checked.tflite", *options)
        assert code == 2
        assert "verify FILE.tflite --model Q_MODEL" in errors
    code, _, errors = cli("profile", "checked.tflite")
    assert code == 2
    assert "benchmark_model" in errors
