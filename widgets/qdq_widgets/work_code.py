"""The work on a plan as Python: the calibration, training and export that were done in the bench."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.code import to_code
from qdq_widgets.data import BATCHES_OF_TRAINING_DATA
from qdq_widgets.journal import Call, Journal
from qdq_widgets.snapshots import FINE_TUNED, Snapshot
from qdq_widgets.state import BenchState
from qdq_widgets.work import Workshop

BATCH_SIZE = 32


def bench_code(
    state: BenchState, work: Snapshot, journal: Journal, workshop: Workshop, model_name: str = "model"
) -> str:
    """Return the Python that makes a plan and its model, and calibrates, corrects, trains and exports it.

    Args:
        state: The state of the bench.
        work: The work on its plan.
        journal: The calls of the bench, for their settings.
        workshop: The data and the training setup.
        model_name: Name of the variable that holds the float model.
    """
    if not work.corrections:
        return to_code(state, model_name) + work_code(work, journal, workshop, model_name)
    training = [*_training(journal, workshop, model_name)] if work.stage == FINE_TUNED else []
    lines = to_code(state, model_name, work, training)
    return lines + "".join(f"{line}\n" for line in _export(work, journal, workshop.data))


def work_code(work: Snapshot, journal: Journal, workshop: Workshop, model_name: str = "model") -> str:
    """Return the lines after those of the plan, which calibrate, train and export; empty before the calibration."""
    if work.stage == "planned":
        return ""
    lines = [*_calibration(work, journal, workshop.data)]
    if work.stage == FINE_TUNED:
        lines += _training(journal, workshop, model_name)
    return "\n".join([*lines, *_export(work, journal, workshop.data), ""])


def _calibration(work: Snapshot, journal: Journal, data: Any) -> Iterator[str]:
    call = journal.last("calibrate") or Call("calibrate", (), {})
    result: qdq.CalibrationResult = work.calibration
    steps = call.kwargs.get("steps")
    given = "calibration_data"
    if data.calibration is None:
        given = "train_data[0]" if isinstance(data.train, (tuple, list)) else "train_data"
        steps = BATCHES_OF_TRAINING_DATA if steps is None else steps
    settings = {"steps": steps, "batch_size": call.kwargs.get("batch_size", BATCH_SIZE), **result.settings}
    arguments = ", ".join(f"{name}={value!r}" for name, value in settings.items() if value is not None)
    yield f"qdq.calibrate(q_model, {given}, {result.method!r}, {arguments})"


def _training(journal: Journal, workshop: Workshop, model_name: str) -> Iterator[str]:
    """Yield the lines of the last training run, after those of the runs that it resumed."""
    runs: list[Call] = []
    for call in reversed([call for call in journal.calls if call.method == "fine_tune"]):
        runs.insert(0, call)
        if not call.kwargs.get("resume"):
            break
    for call in runs or [Call("fine_tune", (), {})]:
        epochs = call.args[0] if call.args else call.kwargs.get("epochs", 1)
        yield from workshop.setup.compile_code(model_name, call.kwargs.get("learning_rate"))
        data, size = "train_data, ", ""
        if isinstance(workshop.data.train, (tuple, list)):
            data = "train_data[0], train_data[1], "
            data += "sample_weight=train_data[2], " * (len(workshop.data.train) > 2)
            size = f"batch_size={call.kwargs.get('batch_size', BATCH_SIZE)}, "
        yield f"q_model.fit({data}{size}epochs={epochs})" + (f"  # {call.note}" if call.note else "")


def _export(work: Snapshot, journal: Journal, data: Any) -> Iterator[str]:
    call = journal.last("export")
    if call is None:
        return
    path = str(call.args[0] if call.args else call.kwargs["path"])
    if path.endswith(".tflite"):
        yield f"qdq.export_tflite(q_model, {path!r})"
        return
    target = call.args[1] if len(call.args) > 1 else call.kwargs.get("target")
    if path.endswith(".npz"):
        header = call.kwargs.get("c_header")
        given = _given({"target": target, "c_header": None if header is None else str(header)})
        yield f"qdq.files.save_firmware({', '.join(['q_model', repr(path), *given])})"
        return
    if work.file is None or pathlib.Path(path) != work.file:  # of another plan, or of weights that have changed
        return
    form = {"target": target, **{name: call.kwargs.get(name) for name in ("opset", "float_type")}}
    yield f"qdq.export_onnx({', '.join(['q_model', repr(path), *_given(form)])})"
    if call.kwargs.get("verify", True) and target is None:
        names = ("validation", "calibration", "train")
        known = next((name for name in names if getattr(data, name) is not None), None)
        if known is not None:
            is_pair = isinstance(getattr(data, known), (tuple, list))
            yield f"print(qdq.verify_onnx({path!r}, q_model, data={known}_data{'[0]' * is_pair}[:128]).summary())"


def _given(settings: dict[str, Any]) -> list[str]:
    return [f"{name}={value!r}" for name, value in settings.items() if value is not None]
