"""The demo's main job: train or load, plan, quantize, calibrate, fine-tune, export, verify, measure."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_workbench._files import write_atomically
from qdq_workbench.cli.demo.artefacts import ExportedFile, FineTuned, write_artefacts
from qdq_workbench.cli.demo.data import ImageData, load_images
from qdq_workbench.cli.demo.figures import DemoFigures
from qdq_workbench.cli.demo.network import residual_network
from qdq_workbench.cli.demo.steps import Steps
from qdq_workbench.cli.demo.stopwatch import onnx_accuracy, speed_ratio
from qdq_workbench.cli.demo.training import BATCH, accuracy, check_fits, train
from qdq_workbench.cli.inputs import load_cases, load_model
from qdq_workbench.errors import OutputPathError
from qdq_workbench.graph.operators import WEIGHTED

TRAINED_FOR = "onnxruntime"
TARGETS = (TRAINED_FOR, "tensorrt")

# The operators that an INT8 file must run on integers: convolutions, matrix products and additions.
_HEAVY_OPERATORS = (*sorted(WEIGHTED), "Add")

_LEARNING_RATE = 2e-3
_FINE_TUNING_RATE = 1e-4
_CALIBRATION_IMAGES = 512
_VERIFICATION_IMAGES = 128
_SPEED_BATCH = 32


def run_demo(
    *,
    output: str | pathlib.Path = "build/demo",
    data_path: str | None = None,
    model_path: str | None = None,
    case_names: Sequence[str] = ("ResNetV1QDQCase",),
    epochs: int = 12,
    fine_tune_epochs: int = 3,
    steps: Steps | None = None,
) -> tuple[DemoFigures, list[pathlib.Path]]:
    """Run the whole workflow on real images, write all results into one folder, and return figures and files.

    Without a `data_path` the images are scikit-learn's digits; without a `model_path` a small residual network is
    trained for `epochs`. The float control is fine-tuned for `fine_tune_epochs`, too.
    """
    started = time.perf_counter()
    steps = steps or Steps()
    # What a wrong argument makes fail comes before the training, which takes minutes.
    cases = load_cases(list(case_names))
    data = load_images(data_path)
    model = None if model_path is None else _given_model(model_path, data, steps)
    folder = _make_folder(output)
    if model is None:
        # A given model was trained on values as they are in the file.
        data = data.scaled()
        model = _trained_model(data, epochs, steps)
    _save(model, folder / "model_fp32.keras")
    fp32_file = qdq.export_float_onnx(model, folder / "model_fp32.onnx", target="onnxruntime")

    q_model = _quantize_and_calibrate(model, data, cases, steps)
    _save(q_model, folder / "model_ptq.keras")
    ptq_file = _export(q_model, folder / f"model_ptq_int8_{TRAINED_FOR}.onnx", TRAINED_FOR, data, steps)

    tuned = _fine_tune(_copy(model), q_model, data, fine_tune_epochs, steps)
    _save(q_model, folder / "model_qat.keras")
    files = [_export(q_model, folder / f"model_int8_{name}.onnx", name, data, steps) for name in TARGETS]

    with steps.step("Measure in ONNX Runtime") as step:
        figures = _measure(data, tuned, fp32_file, ptq_file, files, started)
        step.result = f"INT8 runs at {figures.speed_ratio:.2f}x FP32"
    name = f"{model.name} on {data.name}"
    written = write_artefacts(folder, name, q_model, figures, tuned, files)
    saved = [folder / f"model_{stage}.keras" for stage in ("fp32", "ptq", "qat")]
    return figures, sorted([*written, *saved, fp32_file, ptq_file.path, *(file.path for file in files)])


def _make_folder(output: str | pathlib.Path) -> pathlib.Path:
    folder = pathlib.Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputPathError(
            f"Cannot make the output folder: {error.strerror or error}. Received: output={str(output)!r}"
        ) from error
    if not os.access(folder, os.W_OK):  # fail now rather than after minutes of training
        raise OutputPathError(
            f"The output folder cannot be written; choose another one. Received: output={str(output)!r}"
        )
    return folder


def _given_model(path: str, data: ImageData, steps: Steps) -> Any:
    with steps.step("Load the float model") as step:
        model = load_model(path)
        check_fits(model, data)
        step.result = f"{model.name}, {model.count_params():,} parameters"
    return model


def _trained_model(data: ImageData, epochs: int, steps: Steps) -> Any:
    import keras

    keras.utils.set_random_seed(0)
    model = residual_network(data.x_train.shape[1:], data.classes)
    with steps.step(f"Train on {data.name}", epochs) as step:
        train(model, data, epochs=epochs, learning_rate=_LEARNING_RATE, on_epoch=_shown_on(step))
    return model


def _copy(model: Any) -> Any:
    import keras

    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    return copy


def _quantize_and_calibrate(model: Any, data: ImageData, cases: list[Any], steps: Steps) -> Any:
    with steps.step("Plan and quantize") as step:
        q_model = qdq.quantize_model(model, custom_qdq_cases=cases, target=TRAINED_FOR)
        step.result = f"{len(q_model.plan.tensors)} Q/DQ pairs"
    images = data.x_train[:_CALIBRATION_IMAGES]
    with steps.step("Calibrate", -(-len(images) // BATCH)) as step:
        qdq.calibrate(
            q_model,
            images,
            batch_size=BATCH,
            verbose=False,
            on_batch=lambda batches: step.advance(f"on {min(batches * BATCH, len(images))} training images"),
        )
    return q_model


def _fine_tune(control: Any, q_model: Any, data: ImageData, epochs: int, steps: Steps) -> FineTuned:
    def curve(title: str, candidate: Any) -> list[float]:
        before = accuracy(candidate, data)
        with steps.step(title, epochs) as step:
            return [
                before,
                *train(candidate, data, epochs=epochs, learning_rate=_FINE_TUNING_RATE, on_epoch=_shown_on(step)),
            ]

    return FineTuned(
        control=curve("Fine-tune a float control", control), quantized=curve("Quantization-aware training", q_model)
    )


def _shown_on(step: Any) -> Any:
    return lambda epoch, value: step.advance(f"accuracy {100 * value:.1f} % after epoch {epoch}")


def _export(q_model: Any, path: pathlib.Path, target: str, data: ImageData, steps: Steps) -> ExportedFile:
    with steps.step(f"Export and verify for {target}") as step:
        export = qdq.export_onnx(q_model, path, target=target)
        verification = qdq.verify_onnx(path, q_model, data=data.x_test[:_VERIFICATION_IMAGES])
        step.result = f"{path.name} {'verified' if verification.passed else 'FAILED its verification'}"
    return ExportedFile(target, path, export, verification)


def _save(model: Any, path: pathlib.Path) -> None:
    write_atomically(path, model.save)


def _measure(
    data: ImageData,
    tuned: FineTuned,
    fp32_file: pathlib.Path,
    ptq_file: ExportedFile,
    files: Sequence[ExportedFile],
    started: float,
) -> DemoFigures:
    from qdq_workbench.onnx_graph.processor import kernels_saturate

    # The first one of TARGETS is for ONNX Runtime, in which everything here is measured.
    int8_file = files[0]
    kernels = int8_file.verification.figures.get("integer_kernels", {})
    heavy = [kernels[operator] for operator in _HEAVY_OPERATORS if operator in kernels]
    return DemoFigures(
        fp32=tuned.control[0],
        ptq=tuned.quantized[0],
        ptq_onnxruntime=onnx_accuracy(ptq_file.path, data),
        control=tuned.control[-1],
        qat=tuned.quantized[-1],
        onnxruntime=onnx_accuracy(int8_file.path, data),
        qdq_pairs=int8_file.export.pairs,
        integer_kernels=sum(integer for integer, _ in heavy),
        heavy_nodes=sum(total for _, total in heavy),
        size_ratio=int8_file.path.stat().st_size / fp32_file.stat().st_size,
        speed_ratio=speed_ratio(fp32_file, int8_file.path, data.x_test[:_SPEED_BATCH]),
        test_images=len(data.x_test),
        verified={file.target: bool(file.verification.passed) for file in files},
        seconds=time.perf_counter() - started,
        exact_sums=kernels_saturate(),
    )
