"""The work on a plan as Python: the calibration, training and export that were done in the bench."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qdq_widgets.code import few_code, to_code
from qdq_widgets.data import BATCHES_OF_TRAINING_DATA, VERIFIED_SAMPLES, inputs_only, kind_of_data
from qdq_widgets.exports import BenchExport
from qdq_widgets.fits import Fit
from qdq_widgets.literals import keywords, literal
from qdq_widgets.snapshots import FINE_TUNED, Snapshot
from qdq_widgets.state import BenchState
from qdq_widgets.work import Workshop

BATCH_SIZE = 32
_UNKNOWN_TRAINING = (
    "# The weights were trained by an earlier version of the bench, which did not record how: set the learning rate, "
    "the batch size and the epochs of your training."
)


def bench_code(
    state: BenchState, work: Snapshot, export: BenchExport | None, workshop: Workshop, model_name: str = "model"
) -> str:
    """Return the Python that makes a plan and its model, and calibrates, corrects, trains and exports it.

    `export` is the last file that holds the work on the plan; None if there is none.
    """
    training = [*_training(work, workshop, model_name)] if work.stage == FINE_TUNED else []
    exported = [] if export is None else [*_export(export, workshop.data)]
    if work.corrections:
        return to_code(state, model_name, work, training) + "".join(f"{line}\n" for line in exported)
    if work.stage == "planned":
        return to_code(state, model_name)
    calibration = _calibration(work.fits[0].calibration if work.fits else workshop.models.calibrated_how(), workshop)
    return to_code(state, model_name) + "\n".join([*calibration, *training, *exported, ""])


def _calibration(how: Mapping[str, Any], workshop: Workshop) -> Iterator[str]:
    """Yield the call of the calibration; nothing for weights that were trained without one."""
    if not how:
        return
    data, given = workshop.data, "calibration_data"
    settings = {name: value for name, value in how.items() if name != "method"}
    if data.calibration is None:
        given = _inputs_name("train_data", data.train)
        # The bench reads the first batches of training data only; see `BenchData.for_calibration`.
        if settings.get("steps") is None:
            settings["steps"] = BATCHES_OF_TRAINING_DATA
    arguments = keywords({name: value for name, value in settings.items() if value is not None})
    yield f"qdq.calibrate({', '.join(['q_model', given, literal(how['method']), *arguments])})"


def _training(work: Snapshot, workshop: Workshop, model_name: str) -> Iterator[str]:
    """Yield the lines of the calls of `fit` that trained the weights."""
    if not work.fits:
        yield _UNKNOWN_TRAINING
    before: list[str] = []
    for fit in work.fits or [Fit(1, None, BATCH_SIZE)]:
        *preparing, compiling = workshop.setup.compile_code(model_name, fit.learning_rate)
        yield from (line for line in preparing if line not in before)
        yield compiling
        before += preparing
        data, size = "train_data, ", ""
        if isinstance(workshop.data.train, (tuple, list)):
            data = "train_data[0], train_data[1], "
            data += "sample_weight=train_data[2], " * (len(workshop.data.train) > 2)
            size = f"batch_size={fit.batch_size}, "
        yield f"q_model.fit({data}{size}epochs={fit.epochs})" + (f"  # {fit.note}" if fit.note else "")


def _export(export: BenchExport, data: Any) -> Iterator[str]:
    path = str(export.path)
    if path.endswith(".tflite"):
        yield f"qdq.export_tflite(q_model, {path!r})"
        return
    arguments = ", ".join(["q_model", repr(path), *keywords(export.given)])
    if path.endswith(".npz"):
        yield f"qdq.files.save_firmware({arguments})"
        return
    yield f"qdq.export_onnx({arguments})"
    verified = export.verification is not None or export.not_verified
    # A file for another target is verified against a model with that target's grids, which this code does not make.
    if verified and "target" not in export.given:
        names = ("validation", "calibration", "train")
        known = next((name for name in names if getattr(data, name) is not None), None)
        if known is not None:
            given = getattr(data, known)
            few = few_code(_inputs_name(f"{known}_data", given), kind_of_data(given), VERIFIED_SAMPLES)
            yield f"print(qdq.verify_onnx({path!r}, q_model, data={few}).summary())"


def _inputs_name(name: str, data: Any) -> str:
    """Return the expression of the inputs of data that are called `name`, without labels."""
    return name if inputs_only(data) is data else f"{name}[0]"
