"""The demo's main job: train or load, plan, quantize, calibrate, fine-tune, export, verify, measure."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_workbench._files import write_atomically, write_text
from qdq_workbench.cli.demo.data import ImageData, load_images
from qdq_workbench.cli.demo.figures import DemoFigures
from qdq_workbench.cli.demo.network import residual_network
from qdq_workbench.cli.demo.steps import Steps
from qdq_workbench.cli.demo.stopwatch import onnx_accuracy, speed_ratio
from qdq_workbench.cli.demo.training import BATCH, accuracy, check_fits, train
from qdq_workbench.cli.inputs import load_cases, load_model
from qdq_workbench.errors import OutputPathError
from qdq_workbench.report import (
    Curve,
    FileResult,
    Level,
    RunReport,
    installed_versions,
    write_curves_html,
    write_curves_png,
    write_html_report,
)

TRAINED_FOR = "onnxruntime"
TARGETS = (TRAINED_FOR, "tensorrt")

_LEARNING_RATE = 2e-3
_FINE_TUNING_RATE = 1e-4
_CALIBRATION_IMAGES = 512
_VERIFICATION_IMAGES = 128
_SPEED_BATCH = 32


@dataclasses.dataclass(frozen=True)
class _Exported:
    """One exported file with its two reports."""

    target: str
    path: pathlib.Path
    export: Any
    verification: Any


@dataclasses.dataclass(frozen=True)
class _FineTuned:
    """Accuracies after each epoch, of the float control and of the quantized model."""

    control: list[float]
    quantized: list[float]


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
    """Run the whole path on real images and write everything that it makes into one folder.

    Args:
        output: The folder; made if it does not exist.
        data_path: A .npz file of images; None: scikit-learn's digits.
        model_path: A trained classifier; None: train a small residual network.
        case_names: The library cases that place the Q/DQ pairs.
        epochs: Epochs of float training, where there is no `model_path`.
        fine_tune_epochs: Epochs of quantization-aware training, and of the float control beside it.
        steps: Where to show progress.

    Returns:
        The measured figures, and the files written.

    Raises:
        QDQError: If data, model or cases do not fit, or a file cannot be written.
    """
    started = time.perf_counter()
    steps = steps or Steps()
    folder = _make_folder(output)
    data = load_images(data_path)
    if model_path is None:
        data = data.scaled()
    model = _float_model(model_path, data, epochs, steps)
    fp32 = accuracy(model, data)
    qdq.export_float_onnx(model, folder / "model_fp32.onnx")

    cases = load_cases(list(case_names))
    q_model = _quantize_and_calibrate(model, data, cases, steps)
    ptq = accuracy(q_model, data)
    after_calibration = _export(q_model, folder / f"model_ptq_int8_{TRAINED_FOR}.onnx", TRAINED_FOR, data, steps)
    _save(q_model, folder / "model_ptq.keras")

    control = _copy(model)
    tuned = _fine_tune(control, q_model, data, fine_tune_epochs, steps)
    _save(model, folder / "model_fp32.keras")
    _save(q_model, folder / "model_qat.keras")
    exported = [_export(q_model, folder / f"model_int8_{name}.onnx", name, data, steps) for name in TARGETS]

    with steps.step("Measure in ONNX Runtime") as step:
        main_file = exported[0]
        speed = speed_ratio(folder / "model_fp32.onnx", main_file.path, data.x_test[:_SPEED_BATCH])
        figures = DemoFigures(
            fp32=fp32,
            ptq=ptq,
            ptq_onnxruntime=onnx_accuracy(after_calibration.path, data),
            control=tuned.control[-1],
            qat=tuned.quantized[-1],
            onnxruntime=onnx_accuracy(main_file.path, data),
            qdq_pairs=len(q_model.plan.tensors),
            integer_kernels=main_file.verification.integer_kernels,
            heavy_nodes=main_file.verification.heavy_nodes,
            size_ratio=main_file.path.stat().st_size / (folder / "model_fp32.onnx").stat().st_size,
            speed_ratio=speed,
            test_images=len(data.x_test),
            verified={item.target: bool(item.verification.passed) for item in exported},
            seconds=time.perf_counter() - started,
        )
        step.result = f"INT8 runs at {speed:.2f}x FP32"
    _write_artefacts(folder, data, model, q_model, figures, tuned, exported)
    return figures, sorted(path for path in folder.iterdir() if path.is_file())


def _make_folder(output: str | pathlib.Path) -> pathlib.Path:
    folder = pathlib.Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputPathError(
            f"Cannot make the output folder: {error.strerror or error}. Received: output={str(output)!r}"
        ) from error
    return folder


def _float_model(path: str | None, data: ImageData, epochs: int, steps: Steps) -> Any:
    if path is not None:
        with steps.step("Load the float model") as step:
            model = load_model(path)
            check_fits(model, data)
            step.result = f"{model.name}, {model.count_params():,} parameters"
        return model
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


def _fine_tune(control: Any, q_model: Any, data: ImageData, epochs: int, steps: Steps) -> _FineTuned:
    def curve(title: str, candidate: Any) -> list[float]:
        before = accuracy(candidate, data)
        with steps.step(title, epochs) as step:
            return [
                before,
                *train(candidate, data, epochs=epochs, learning_rate=_FINE_TUNING_RATE, on_epoch=_shown_on(step)),
            ]

    return _FineTuned(
        control=curve("Fine-tune a float control", control), quantized=curve("Quantization-aware training", q_model)
    )


def _shown_on(step: Any) -> Any:
    return lambda epoch, value: step.advance(f"accuracy {100 * value:.1f} % after epoch {epoch}")


def _export(q_model: Any, path: pathlib.Path, target: str, data: ImageData, steps: Steps) -> _Exported:
    with steps.step(f"Export and verify for {target}") as step:
        export = qdq.export_onnx(q_model, path, target=target)
        # A file for another target is checked on that target's grid.
        reference = q_model if target == q_model.target else qdq.retarget(q_model, target)
        verification = qdq.verify_onnx(path, reference, data=data.x_test[:_VERIFICATION_IMAGES])
        step.result = f"{path.name} {'verified' if verification.passed else 'FAILED its verification'}"
    return _Exported(target, path, export, verification)


def _save(model: Any, path: pathlib.Path) -> None:
    write_atomically(path, model.save)


def _write_artefacts(
    folder: pathlib.Path,
    data: ImageData,
    model: Any,
    q_model: Any,
    figures: DemoFigures,
    tuned: _FineTuned,
    exported: list[_Exported],
) -> None:
    epochs = tuple(range(len(tuned.control)))
    curves = [
        Curve("float control, fine-tuned alike", epochs, tuple(tuned.control)),
        Curve("quantization-aware training", epochs, tuple(tuned.quantized)),
    ]
    levels = [Level("FP32 before fine-tuning", figures.fp32)]
    write_curves_png(folder / "curves.png", curves, levels)
    write_curves_html(folder / "curves.html", curves, levels)
    write_text(folder / "plan.json", json.dumps(q_model.plan.to_dict(), indent=2))
    record = {**figures.to_dict(), "curves": [curve.to_dict() for curve in curves], "versions": installed_versions()}
    write_text(folder / "figures.json", json.dumps(record, indent=2))
    run = RunReport(
        title=f"{model.name} on {data.name}",
        verdict=figures.verdict(),
        passed=figures.passed,
        plan=q_model.plan,
        figures=figures.cards(),
        checks=figures.checks(),
        curves=curves,
        levels=levels,
        ranges=q_model.recorded_ranges,
        files=[
            FileResult(
                target=item.target,
                path=item.path.name,
                export=item.export.summary(),
                verification=item.verification.summary(),
                passed=item.verification.passed,
            )
            for item in exported
        ],
        versions=installed_versions(),
    )
    write_html_report(run, folder / "report.html")
