"""The whole demo on data so small that it takes seconds."""

import io
import json

import keras
import numpy as np
import pytest
from rich.console import Console

from qdq_workbench.cli.demo import network, stopwatch
from qdq_workbench.cli.demo.job import run_demo
from qdq_workbench.cli.demo.steps import Steps
from qdq_workbench.errors import DataError, OutputPathError, SpecError

MADE = {
    "curves.html",
    "curves.png",
    "figures.json",
    "model_fp32.keras",
    "model_fp32.onnx",
    "model_int8_onnxruntime.onnx",
    "model_int8_tensorrt.onnx",
    "model_ptq.keras",
    "model_ptq_int8_onnxruntime.onnx",
    "model_qat.keras",
    "plan.json",
    "report.html",
}


@pytest.fixture(scope="module", autouse=True)
def _a_short_measurement():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stopwatch, "ROUNDS", 1)
        yield


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Return the path of bright and dark images, easy to tell apart."""
    random = np.random.default_rng(0)
    labels = np.arange(160) % 2
    pixels = (labels[:, None, None, None] + 0.2 * random.standard_normal((160, 8, 8, 1))).astype(np.float32)
    path = tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(path, x_train=pixels[:96], y_train=labels[:96], x_test=pixels[96:], y_test=labels[96:])
    return str(path)


@pytest.fixture(scope="module")
def finished(images, tmp_path_factory):
    """Run the demo once, with one block in its network; return its folder, figures, files and progress lines."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    out = io.StringIO()
    steps = Steps(Console(file=out, width=120))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "WIDTHS", network.WIDTHS[:1])
        figures, files = run_demo(output=folder, data_path=images, epochs=10, fine_tune_epochs=1, steps=steps)
    return folder, figures, files, out.getvalue()


def test_writes_what_it_says(finished):
    folder, _, files, _ = finished

    assert {path.name for path in folder.iterdir()} == {path.name for path in files} == MADE


def test_the_verdict_is_good(finished):
    _, figures, _, _ = finished

    assert figures.passed, figures.verdict()
    assert figures.verified == {"onnxruntime": True, "tensorrt": True}
    assert figures.integer_kernels == figures.heavy_nodes == 5


def test_figures_and_plan_are_those_of_the_run(finished):
    folder, figures, _, _ = finished

    record = json.loads((folder / "figures.json").read_text())
    assert record["verdict"] == figures.verdict()
    assert [len(curve["accuracy"]) for curve in record["curves"]] == [2, 2]
    assert json.loads((folder / "plan.json").read_text())["target"] == "onnxruntime"


def test_the_report_shows_both_verifications(finished):
    page = (finished[0] / "report.html").read_text(encoding="utf-8")

    assert finished[1].verdict() in page
    assert page.count(">verified<") == 2


def test_each_step_is_shown(finished):
    lines = finished[3].splitlines()

    assert [line[2:36].strip() for line in lines] == [
        "Train on images.npz",
        "Plan and quantize",
        "Calibrate",
        "Export and verify for onnxruntime",
        "Fine-tune a float control",
        "Quantization-aware training",
        "Export and verify for onnxruntime",
        "Export and verify for tensorrt",
        "Measure in ONNX Runtime",
    ]


def test_a_model_of_ones_own_is_not_trained_again(images, tmp_path):
    image = keras.Input((8, 8, 1), name="image")
    pooled = keras.layers.GlobalAveragePooling2D(name="pool")(keras.layers.Conv2D(2, 3, name="conv")(image))
    keras.Model(image, keras.layers.Dense(2, name="head")(pooled)).save(tmp_path / "own.keras")
    out = io.StringIO()

    figures, _ = run_demo(
        output=tmp_path / "demo",
        data_path=images,
        model_path=str(tmp_path / "own.keras"),
        fine_tune_epochs=1,
        steps=Steps(Console(file=out)),
    )

    assert "Train on" not in out.getvalue()
    assert figures.test_images == 64
    assert figures.heavy_nodes == 2


def test_wrong_arguments_fail_before_the_training(images, workplace, tmp_path):
    with pytest.raises(SpecError, match="ResNetV1QDQCase"):
        run_demo(output=tmp_path, data_path=images, case_names=["ResNetV1Case"])
    with pytest.raises(DataError, match="--data"):
        run_demo(output=tmp_path, data_path=images, model_path=str(workplace / "model.keras"))
    (tmp_path / "file").touch()
    with pytest.raises(OutputPathError, match="output="):
        run_demo(output=tmp_path / "file" / "folder", data_path=images)
