"""Corrected models: every correction makes a new one; the kept model and the user's float model stay unchanged.

Corrections of the float model give a corrected float model, which is quantized by the same plan and calibrated again
with the same settings; the others change a copy of the quantized model.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

import qdq_workbench as qdq
from qdq_widgets.background import Job
from qdq_widgets.corrections import BY_NAME, SAMPLES, Correction
from qdq_widgets.data import described, few_samples, kind_of_data
from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.plain_numbers import whole
from qdq_widgets.scratch import scratch_folder_of
from qdq_widgets.snapshots import CORRECTED, FINE_TUNED
from qdq_widgets.state import BenchState, plan_key
from qdq_widgets.work import Workshop


class CorrectedModels:
    """Makes corrected models of one bench.

    Attributes:
        unfinished: A note about a stopped run of learned rounding that can be resumed; else empty.
    """

    def __init__(self, work: Workshop) -> None:
        self._work = work
        self._stopped: tuple[tuple[Any, ...], Any, pathlib.Path] | None = None
        self._folder: pathlib.Path | None = None
        self.unfinished = ""

    def make(
        self, correction: Correction, given: dict[str, Any], state: BenchState, plan: Any, job: Job, checkpoint: Any
    ) -> tuple[Any, str]:
        """Return a corrected quantized model of a plan, and a report of its changes.

        `checkpoint` is the user's file to resume learned rounding from; None for a temporary file of the bench. A stop
        of the job raises `BenchStoppedError`.
        """
        if correction.of_float:
            return self._of_float(correction, given, state, plan, job)
        return self._of_quantized(correction, given, state, plan, job, checkpoint)

    def corrected_float(self, name: str, settings: dict[str, Any], plan: Any) -> Any:
        """Return a corrected float model of the bench; corrections that need grids take them from the plan."""
        model = self._work.models.float_model
        if name not in BY_NAME:
            return getattr(qdq.correction, name)(model, **settings)
        return self._run_float(BY_NAME[name], BY_NAME[name].checked(settings), model, plan)

    def _samples(self, given: dict[str, Any]) -> Any:
        data, _ = self._work.data.for_calibration()
        samples = whole(given.get(SAMPLES, 0))
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise BenchError(f"samples must be a whole number of 1 or more. Received: samples={samples!r}")
        if hasattr(data, "__next__"):
            raise BenchError(
                "Corrections read the data several times; a generator is used up by it. Give arrays or a "
                f"tf.data.Dataset as calibration_data. Received: {described(data)}"
            )
        return few_samples(data, samples)

    def kind_of_data(self) -> str:
        """Return the kind of the calibration data, for generated code; see `data.kind_of_data`."""
        return kind_of_data(self._work.data.for_calibration()[0])

    # ------------------------------------------------------------------ of the float model

    def _of_float(
        self, correction: Correction, given: dict[str, Any], state: BenchState, plan: Any, job: Job
    ) -> tuple[Any, str]:
        models = self._work.models
        base, base_plan = models.float_model, plan
        if models.corrections(plan):
            # The plan of the corrected model: biases may have been added, and the bench's plan is then of other layers.
            kept = models.get(plan)
            base, base_plan = qdq.strip(kept), kept.plan
        job.report(None, "correcting the float model")
        corrected = self._run_float(correction, given, base, base_plan)
        report = _changes(base.get_weights(), corrected.get_weights(), correction)
        job.raise_if_stopped()
        q_model = qdq.quantize_model(corrected, plan=self._replanned(corrected, correction, state, plan))
        how = models.calibrated_how()

        def on_batch(count: int) -> bool:
            job.report(None, f"finding the ranges, batch {count}")
            return not job.stop_requested

        data = self._work.data.for_calibration()[0]
        qdq.calibrate(q_model, data, how.pop("method"), verbose=False, on_batch=on_batch, **how)
        return q_model, report

    def _run_float(self, correction: Correction, given: dict[str, Any], base: Any, base_plan: Any) -> Any:
        settings = {key: value for key, value in given.items() if key != SAMPLES}
        if correction.name != "equalize_scales":
            settings["plan"] = base_plan
        data = (self._samples(given),) if correction.reads_data else ()
        return getattr(qdq.correction, correction.name)(base, *data, **settings)

    def _replanned(self, corrected: Any, correction: Correction, state: BenchState, plan: Any) -> Any:
        """Return the plan of a state for a corrected model, which must equal the given plan."""
        found: Any = None
        with contextlib.suppress(qdq.QDQError):
            found = qdq.plan_placement(corrected, state.mode, state.spec, state.cases, target=state.target)
        if found is None or plan_key(found) != plan_key(plan):
            raise BenchError(f"{elsewhere(correction.name)} Received: a model whose layers it lays out anew")
        return found

    def _reference(self, state: BenchState, plan: Any) -> Any:
        """Return the float model before weight clipping, as reference of learned rounding; None if nothing clipped."""
        floats = [each for each in self._work.models.corrections(plan) if each.correction.of_float]
        if all(each.name != "clip_weights" for each in floats):
            return None
        model, its_plan = self._work.models.float_model, plan
        for each in floats:
            if each.name == "clip_weights":
                break
            model = self._run_float(each.correction, dict(each.settings), model, its_plan)
            its_plan = self._replanned(model, each.correction, state, plan)
        return model

    # ------------------------------------------------------------------ of the quantized model

    def _of_quantized(
        self, correction: Correction, given: dict[str, Any], state: BenchState, plan: Any, job: Job, checkpoint: Any
    ) -> tuple[Any, str]:
        models = self._work.models
        samples = self._samples(given)
        settings = {key: value for key, value in given.items() if key != SAMPLES}
        job.report(0.0, "building the quantized model")
        own_weights = models.stage(plan) in (CORRECTED, FINE_TUNED)
        q_model = models.copy(plan) if own_weights else models.build(plan)
        weights = q_model.get_weights()

        def progress(done: int, total: int, text: str) -> None:
            if correction.name == "estimate_statistics":
                job.raise_if_stopped()  # an error makes `estimate_statistics` restore all of them
            job.report(done / total if total else None, f"{done} of {total}: {text}")

        if correction.name == "estimate_statistics":
            count = qdq.correction.estimate_statistics(q_model, samples, verbose=False, progress=progress)
            # For its error if nothing has changed.
            _changes(weights, q_model.get_weights(), correction)
            return q_model, f"The statistics of {count} batch normalizations were taken anew."
        how: dict[str, Any] = {"progress": progress, "stop": lambda: job.stop_requested, "verbose": False}
        if correction.name == "gptq_weights":
            report = qdq.correction.gptq_weights(q_model, samples, **settings, **how)
        else:
            start = (plan_key(plan), models.corrections(plan), given)
            settings["reference"] = self._reference(state, plan)
            report = self._learn(q_model, samples, settings, start, checkpoint, how)
        if not report.complete:
            raise BenchStoppedError(f"Stopped: {correction.title}. The weights are as before. {self.unfinished}")
        if not report.changed:
            # `changed` counts the rounding only: no error if a bias has changed.
            _changes(weights, q_model.get_weights(), correction, report.summary())
        return q_model, report.summary()

    def _learn(
        self,
        q_model: Any,
        samples: Any,
        settings: dict[str, Any],
        start: tuple[Any, ...],
        checkpoint: Any,
        how: dict[str, Any],
    ) -> Any:
        """Learn the rounding; after a stop, a file holds the finished units, from which the same call resumes."""
        path = self._own_checkpoint(start) if checkpoint is None else pathlib.Path(checkpoint)
        how = {**settings, **how, "checkpoint": path}
        try:
            report = qdq.learn_rounding(q_model, samples, **how)
        except qdq.errors.CheckpointError:
            if checkpoint is not None:
                raise
            path.unlink(missing_ok=True)  # the data now give other samples than those of the checkpoint
            report = qdq.learn_rounding(q_model, samples, **how)
        self._stopped, self.unfinished = None, ""
        if report.complete:
            if checkpoint is None:
                path.unlink(missing_ok=True)
        else:
            self._stopped = (start, self._work.models.calibration, path)
            self.unfinished = (
                f"{len(report.units)} units are learned and kept in a file: learned rounding with the same settings "
                "goes on behind them."
            )
        return report

    def _own_checkpoint(self, start: tuple[Any, ...]) -> pathlib.Path:
        if self._stopped is not None:
            before, calibration, path = self._stopped
            # By identity: a calibration with equal settings may have read other data.
            if before == start and calibration is self._work.models.calibration:
                return path
        if self._folder is None:
            self._folder = scratch_folder_of(self)
        path = self._folder / "rounding.npz"
        path.unlink(missing_ok=True)
        return path


def elsewhere(name: str) -> str:
    """Return the advice for a correction that changes the layers, which needs a new bench."""
    return f"It changes the layers, so go on in a new bench, in a cell: wb.corrections.new_bench({name!r})"


def bench_like(make: Any, model: Any, state: BenchState, work: Workshop) -> Any:
    """Return a bench of another float model with the same data, training setup and state.

    `make` is the class `Workbench`. Spec and cases are left out if they do not fit the model.
    """
    data, setup = work.data, work.setup
    # Corrected models are not compiled, so the loss that the float model is compiled with goes along.
    loss, metrics = setup.loss_and_metrics() if setup.knows_loss else (None, None)
    arguments: dict[str, Any] = {
        "train_data": data.train,
        "validation_data": data.validation,
        "calibration_data": data.calibration,
        "loss": loss,
        "optimizer": setup.optimizer,
        "metrics": metrics,
        "target": state.target,
    }
    try:
        bench = make(model, spec=state.spec, cases=state.cases, **arguments)
    except qdq.QDQError:  # they name layers that are gone
        bench = make(model, **arguments)
    if state.mode != bench.state.mode:
        bench.set_mode(state.mode)
    return bench


def _changes(before: Sequence[Any], after: Sequence[Any], correction: Correction, said: str = "") -> str:
    """Return the number of changed variables, as a sentence.

    Raises:
        BenchError: If none has changed.
    """
    if len(before) != len(after):
        return f"{len(after) - len(before)} biases were added."
    changed = sum(not np.array_equal(old, new) for old, new in zip(before, after, strict=True))
    if not changed:
        why = said or "no channel, weight or statistic that it looks at could be improved"
        raise BenchError(
            f"{correction.title} changed nothing, so the model stays as it is: {why}. Received: {correction.name!r}"
        )
    return f"{changed} of {len(after)} variables have changed."
