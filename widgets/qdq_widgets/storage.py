"""A bench in a folder: the float model, the history, calibration, curves, variants, and trained weights.

The folder holds data only. Cases are stored by name and arguments: those of the library are rebuilt, a user's own must
be passed to `load`, so that loading a folder never runs code from it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.bench_files import BENCH, FLOAT, TUNED, model_file, write_files
from qdq_widgets.case_files import KnownCases, arguments_of, case_to_dict
from qdq_widgets.curves import Curves, Scores
from qdq_widgets.errors import BenchError
from qdq_widgets.fitting import training_arguments
from qdq_widgets.history import Aside, History, Step
from qdq_widgets.kept_work import PATTERN, WorkReader, WorkWriter
from qdq_widgets.metrics import ELSEWHERE, Metric, metric_from_dict
from qdq_widgets.models import ModelStore
from qdq_widgets.snapshots import CALIBRATED, FINE_TUNED, Snapshot
from qdq_widgets.state import BenchState, plan_key
from qdq_widgets.variants import Variant
from qdq_widgets.work import Workshop

_FORMAT, _VERSION = "qdq-workbench/bench", 3
_READABLE = (2, 3)  # before 3, cases had names only


class LoadMethod:
    """`Workbench.load(folder, **data)` makes a new bench; `wb.load(folder)` restores the folder's state into `wb`."""

    def __get__(self, bench: Any, kind: type) -> Callable[..., Any]:
        def load(directory: str | os.PathLike[str], *, cases: Iterable[Any] = (), **arguments: Any) -> Any:
            """Read a bench from a folder that `save` wrote.

            Args:
                directory: The folder.
                cases: The user's own insertion cases that the bench may refer to.
                **arguments: Data for a new bench, and loss, optimizer and metrics other than the saved ones; see
                    `Workbench`.
            """
            folder = pathlib.Path(directory)
            if bench is None:
                saved = {key: value for key, value in _training(folder).items() if key not in arguments}
                return _restore(
                    kind(_float_model(folder), **arguments, **training_arguments(saved)), folder, cases, arguments
                )
            if arguments:
                raise BenchError(
                    f"{', '.join(arguments)} can only be given to a new bench: Workbench.load(folder, ...). "
                    f"Received: {sorted(arguments)}"
                )
            return _restore(bench, folder, cases)

        return load


def save_bench(bench: Any, folder: pathlib.Path, known: Workshop) -> pathlib.Path:
    """Write a bench to a folder, which is created if needed and holds the former bench until the new one is complete.

    Raises:
        BenchError: If the folder or a file cannot be written.
    """
    steps, present = bench.history.steps, bench.snapshot
    writer = WorkWriter(present, TUNED, lambda name, model: model.save(folder / name))
    training, lost = known.setup.to_dict()
    _warn_of_lost_training(lost)
    _warn_of_unsaved([*(step.state for step in steps), *(variant.state for variant in bench.variants)])
    data = {
        "format": _FORMAT,
        "version": _VERSION,
        "position": bench.history.position,
        "variants": [_variant_to_dict(variant) for variant in bench.variants],
        "curves": bench.curves.to_dict(),
        "calibration": None if bench.calibration is None else bench.calibration.to_dict(),
        "stage": present.stage,
        "training": training,
        "panes": bench.pane_states.to_dict(),
        "colors": {"rules": bench.rules, "by": bench.coloring},
        "metrics": _metrics_to_dicts(bench.own_metrics, steps),
        "sensitivity": bench.sensitivity_report and bench.sensitivity_report.to_dict(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with qdq.lock_folder(folder):
            works = {variant.name: writer.to_dict(variant.work) for variant in bench.variants}
            data["steps"] = [_step_to_dict(step, known.models, writer) for step in steps]
            data["work"] = {"present": writer.to_dict(present), "variants": works, "calibrations": writer.calibrations}
            tuned = {TUNED: present.model.save} if present.has_weights else {}
            write_files(folder, data, {FLOAT: bench.model.save, **tuned})
            for left in set(folder.glob(PATTERN)) - {folder / name for name in writer.names}:
                left.unlink(missing_ok=True)  # a model of an earlier save
    except OSError as error:
        cause = error.__cause__ or error  # `write_atomically` wraps the error of a file
        raise BenchError(
            f"The bench cannot be written: {getattr(cause, 'strerror', None) or cause}. Give a folder that may be "
            f"written, on a disk that has room. Received: directory={str(folder)!r}"
        ) from error
    return folder


def _restore(bench: Any, folder: pathlib.Path, cases: Iterable[Any], arguments: Mapping[str, Any] | None = None) -> Any:
    """Give a bench the content of a folder, and name the folder in errors of damaged files.

    `arguments` are those that were given to `load` with which the bench was made; None for a bench that was there.
    """
    # A bench that loads a folder knows the classes of its own cases, too.
    data, cases = _read(folder), (*cases, *bench.state.cases)
    with _damage_named(folder):
        _restored(bench, data, folder, cases)
    bench.journal.begin_from(folder, cases, arguments)
    return bench


def _restored(bench: Any, data: Mapping[str, Any], folder: pathlib.Path, cases: Iterable[Any]) -> None:
    known = KnownCases(cases)
    states = [(item["label"], _state_from_dict(item["state"], known)) for item in data["steps"]]
    present, works, reader = _works(data, folder)
    if not states:
        raise BenchError(f"The bench in the folder has no state. Received: directory={str(folder)!r}")
    history = History(*states[0], bench.planner)
    for (label, state), item in zip(states[1:], data["steps"][1:], strict=True):
        plan = bench.planner.plan(state)
        kept = item.get("aside")  # missing in folders of earlier versions
        other = (
            None if kept is None or reader is None else ModelStore.restored(bench.model, plan, reader.from_dict(kept))
        )
        history.push(label, state, plan, None if other is None else Aside(other.copy_contents()))
    history.go_to(int(data["position"]))
    variants = {item["name"]: _variant_from_dict(item, known) for item in data["variants"]}
    variants = {name: dataclasses.replace(kept, work=works.get(name, Snapshot())) for name, kept in variants.items()}
    metrics, swept = [_metric_from_dict(item, history.steps) for item in data["metrics"]], data["sensitivity"]
    report = None if swept is None else qdq.SensitivityReport.from_dict(swept)
    panes = {pane: dict(values) for pane, values in data.get("panes", {}).items()}  # missing in earlier versions
    ptq = [
        (step.plan, Scores(**item["ptq"]))
        for step, item in zip(history.steps, data["steps"], strict=True)
        if item.get("ptq") is not None  # missing in earlier versions
    ]
    bench.take_over(history, variants, Curves.from_dict(data["curves"]), present, ptq)
    bench.take_over_metrics(metrics, report)
    bench.pane_states.take_over(panes)
    colors = data.get("colors", {})
    bench.take_over_colors(colors.get("rules", {}), colors.get("by", bench.coloring))


def _training(folder: pathlib.Path) -> dict[str, Any]:
    """Return the saved loss, optimizer and metrics; empty for folders of earlier versions."""
    saved = _read(folder).get("training", {})
    if not isinstance(saved, dict):
        raise BenchError(
            f"The bench in the folder is damaged: 'training' in {BENCH} is no dictionary. Save the bench again: "
            f"wb.save(folder). Received: directory={str(folder)!r}"
        )
    return saved


def _float_model(folder: pathlib.Path) -> Any:
    return _load_model(model_file(folder, _read(folder), FLOAT))


def _load_model(path: pathlib.Path) -> Any:
    try:
        return qdq.load_model(path)
    except qdq.QDQError as error:
        raise BenchError(
            f"A model of the bench cannot be loaded: {error}. Classes of your own must be registered with "
            f"keras.saving.register_keras_serializable. Received: {str(path)!r}"
        ) from error


def _works(data: Mapping[str, Any], folder: pathlib.Path) -> tuple[Snapshot, dict[str, Snapshot], WorkReader | None]:
    """Return the work on the present state, that on the variants by name, and the reader for that of the steps."""
    calibration = qdq.CalibrationResult.from_dict(data["calibration"]) if data["calibration"] else None
    stage = data["stage"]  # every version has it
    if "work" in data:
        kept = data["work"]
        reader = WorkReader(
            calibration, kept["calibrations"], lambda name: _load_model(model_file(folder, data, _plain(name)))
        )
        variants = {name: reader.from_dict(item) for name, item in kept["variants"].items()}
        return reader.from_dict(kept["present"]), variants, reader
    # A folder of a version that kept the present state's work only.
    tuned = _load_model(model_file(folder, data, TUNED)) if stage == FINE_TUNED else None
    return Snapshot(stage, tuned, calibration), {}, None


def _plain(name: str) -> str:
    """Return a file name, checked to be in the folder: a folder from elsewhere must not refer to files outside."""
    if pathlib.PurePath(name).name != name:
        raise BenchError(f"A file of the bench lies outside of its folder. Received: file={name!r}")
    return name


def _read(folder: pathlib.Path) -> Mapping[str, Any]:
    try:
        data = qdq.files.parse_json((folder / BENCH).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(
            f"The folder holds no bench that can be read: {error}. Write one with wb.save(folder). "
            f"Received: directory={str(folder)!r}"
        ) from error
    if not isinstance(data, dict) or data.get("format") != _FORMAT or data.get("version") not in _READABLE:
        raise BenchError(
            f"The folder holds no bench of this version: expected format={_FORMAT!r}, version "
            f"{' or '.join(map(str, _READABLE))}. "
            f"Received: directory={str(folder)!r}"
        )
    return data


@contextlib.contextmanager
def _damage_named(folder: pathlib.Path) -> Iterator[None]:
    """Turn errors about missing or wrong data into one that names the folder."""
    try:
        yield
    except qdq.QDQError:
        raise  # its message is more precise
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise BenchError(
            f"The bench in the folder is damaged: a part of {BENCH} is missing or of the wrong kind "
            f"({type(error).__name__}: {error}). Save the bench again: wb.save(folder). "
            f"Received: directory={str(folder)!r}"
        ) from error


def _step_to_dict(step: Step, models: ModelStore, writer: WorkWriter) -> dict[str, Any]:
    """Return a step as a dictionary; a step that swaps models has the work on its plan on its other side."""
    aside = None
    if step.aside is not None:
        store = ModelStore(models.float_model)
        store.swap(step.aside.contents)
        aside = writer.to_dict(store.snapshot(step.plan))
    scores = models.scores(step.plan, CALIBRATED)
    ptq = None if scores is None else vars(scores)
    return {"label": step.label, "state": _state_to_dict(step.state), "aside": aside, "ptq": ptq}


def _metrics_to_dicts(metrics: Sequence[Metric], steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return metrics with the place of the first step that has their plan, -1 if there is none; None without a plan."""
    # Once for all metrics: most plans of a long history are made anew to be looked at.
    keys = [plan_key(step.plan) for step in steps] if any(metric.about is not None for metric in metrics) else []
    places = [
        None if metric.about is None else keys.index(metric.about) if metric.about in keys else -1 for metric in metrics
    ]
    return [{**metric.to_dict(), "step": place} for metric, place in zip(metrics, places, strict=True)]


def _metric_from_dict(data: Mapping[str, Any], steps: Sequence[Step]) -> Metric:
    fields = dict(data)
    step = fields.pop("step", None)  # missing in folders of earlier versions
    about = None if step is None else ELSEWHERE if step < 0 else plan_key(steps[step].plan)
    return metric_from_dict({**fields, "about": about})


def _state_to_dict(state: BenchState) -> dict[str, Any]:
    cases = [case_to_dict(case) for case in state.cases]
    return {"spec": state.spec.to_dict(), "cases": cases, "mode": state.mode, "target": state.target}


def _state_from_dict(data: Mapping[str, Any], known: KnownCases) -> BenchState:
    cases = known.all_of(data["cases"])
    return BenchState(qdq.QuantizationSpec.from_dict(data["spec"]), cases, data["mode"], data["target"])


def _warn_of_unsaved(states: Iterable[BenchState]) -> None:
    """Warn of cases that must be passed to `load`."""
    unsaved = [case.name for state in states for case in state.cases if arguments_of(case) is None]
    if unsaved:
        warnings.warn(
            f"The arguments of {', '.join(dict.fromkeys(unsaved))} cannot be saved: a file holds numbers, texts, lists "
            "and dictionaries that make an equal case again. To load the bench, make such cases again and pass them: "
            "load(folder, cases=[...]).",
            UserWarning,
            # The line that called `Workbench.save`.
            stacklevel=4,
        )


def _warn_of_lost_training(lost: list[str]) -> None:
    """Warn of a loss, optimizer or metrics that must be passed to `load`."""
    if lost:
        warnings.warn(
            f"The {' and the '.join(lost)} of the bench cannot be saved: only what Keras can make again by name or "
            "from a configuration, or what is registered with keras.saving.register_keras_serializable. Give it again: "
            f"Workbench.load(folder, {', '.join(f'{key}=...' for key in lost)}).",
            UserWarning,
            # The line that called `Workbench.save`.
            stacklevel=4,
        )


def _variant_to_dict(variant: Variant) -> dict[str, Any]:
    known = {key: value for key, value in vars(variant).items() if key != "work"}
    return {**known, "state": _state_to_dict(variant.state)}


def _variant_from_dict(data: Mapping[str, Any], known: KnownCases) -> Variant:
    return Variant(**{**data, "state": _state_from_dict(data["state"], known)})
