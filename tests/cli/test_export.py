"""Options of `export` that exclude each other are refused before the model is read: there is none in these tests."""

import pytest

from qdq_workbench.cli.main import main
from qdq_workbench.export.build_onnx import MAX_OPSET
from qdq_workbench.export.keras_side.float_graph import MIN_OPSET


@pytest.fixture
def export(tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder and return what it says."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        assert main(["export", "missing.keras", "-o", *arguments]) == 2
        streams = capsys.readouterr()
        assert streams.out == ""
        assert list(tmp_path.iterdir()) == []
        return streams.err

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ["net.onnx"],
        ["net.ONNX", "--fixed-batch"],
        ["net.onnx", "--opset", str(MIN_OPSET)],
        ["net.onnx", "--opset", str(MAX_OPSET)],
        ["net.onnx", "--float-type", "bfloat16", "--half-io"],
        ["net.onnx", "--float", "--opset", str(MIN_OPSET), "--fixed-batch"],
        ["net.onnx", "--float", "--target", "onnxruntime"],
        ["net.tflite", "--target", "litert", "--dynamic-range", "--fixed-batch"],
        ["net.TFLITE", "--dynamic-range"],
        ["net.npz", "--c-header", "net.h", "--interpreter", "net.py", "--target", "onnxruntime"],
    ],
    ids=" ".join,
)
def test_options_that_go_together_come_as_far_as_the_model(export, arguments):
    assert "missing.keras" in export(*arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["net.onnx", "--opset", str(MIN_OPSET - 1)], f"opsets are {MIN_OPSET} to {MAX_OPSET}. Received: --opset"),
        (["net.onnx", "--opset", str(MAX_OPSET + 1)], f"opsets are {MIN_OPSET} to {MAX_OPSET}. Received: --opset"),
        (["net.onnx", "--float", "--opset", "1"], "Supported opsets are"),
        (["net.onnx", "--c-header", "net.h"], "--c-header and --interpreter go with a file for firmware: -o FILE.npz"),
        (["net.tflite", "--interpreter", "net.py"], "Received: -o 'net.tflite', --c-header None, --interpreter net.py"),
        (["net.onnx", "--half-io"], "files of half precision: --float-type float16 --half-io. Received: --half-io"),
        (["net.onnx", "--dynamic-range"], "LiteRT's hybrid kernels: -o FILE.tflite. Received: -o 'net.onnx'"),
        (["net.npz", "--dynamic-range"], "LiteRT's hybrid kernels"),
        (["net.tflite", "--float"], "--float writes one FP32 .onnx file, without --float-type"),
        (["net.npz", "--float"], "--float writes one FP32 .onnx file"),
        (["net.onnx", "--float", "--float-type", "float16"], "float_type='float16'"),
        (["net.tflite", "--target", "tensorrt"], "A .tflite file is for LiteRT and has no opset"),
        (["net.tflite", "--opset", str(MIN_OPSET)], "A .tflite file is for LiteRT and has no opset"),
        (["net.tflite", "--float-type", "float16"], "A .tflite file holds its floats in float32"),
        (
            ["net.npz", "--opset", str(MIN_OPSET)],
            f"Received: --opset {MIN_OPSET}, --float-type float32, --fixed-batch F",
        ),
        (["net.npz", "--float-type", "float16"], "A file for firmware has no opset, no half precision and no batch"),
        (["net.npz", "--fixed-batch"], "--fixed-batch True"),
        (["net.txt"], "must end in .onnx or .tflite or .npz"),
        (["net.npz", "--c-header", "net.c"], "net.c"),
        (["net.npz", "--interpreter", "net.txt"], "net.txt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_exclude_each_other_are_named(export, arguments, says):
    errors = export(*arguments)

    assert says in " ".join(errors.split())
    assert "missing.keras" not in errors


def test_an_interpreter_does_not_replace_a_module_that_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("")

    assert main(["export", "missing.keras", "-o", "n.npz", "--interpreter", "own.py", "--import", "own.py"]) == 2
    assert "would overwrite one that this command reads" in capsys.readouterr().err
    assert (tmp_path / "own.py").read_text() == ""
