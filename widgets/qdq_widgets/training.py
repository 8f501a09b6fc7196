"""Calibration, scores and fine-tuning of a bench; each is one job that can be stopped."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.background import Job
from qdq_widgets.curves import Curves, Scores, TrainingRun
from qdq_widgets.data import batch_count
from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.events import Events
from qdq_widgets.fits import Fit, begun_epochs, reached
from qdq_widgets.fitting import evaluate, fine_tune, training_identity
from qdq_widgets.history import Aside
from qdq_widgets.models import KEPT_MODELS
from qdq_widgets.plain_numbers import whole
from qdq_widgets.plans import Plans
from qdq_widgets.snapshots import CALIBRATED, CORRECTED, FINE_TUNED
from qdq_widgets.work import Workshop, built

BATCH_SIZE = 32


class Training:
    """Ranges, scores and trained weights of the present plan; a part of `Workbench`.

    Attributes:
        curves: The scores so far.
    """

    def __init__(self, plans: Plans, work: Workshop, events: Events) -> None:
        self._plans, self._work, self._events = plans, work, events
        self.curves = Curves()

    @property
    def ptq_is_stale(self) -> bool:
        """Whether the score of the calibrated model in `curves` is that of another plan."""
        ptq = self.curves.ptq
        return ptq is not None and self._work.models.scores(self._plans.plan, CALIBRATED) != ptq

    @property
    def stage_note(self) -> str:
        """A note if only another plan has corrected or fine-tuned weights, or some were dropped; else empty."""
        models, plan = self._work.models, self._plans.plan
        limit = f"the bench keeps the models of {KEPT_MODELS} plans, and those of variants."
        dropped, elsewhere = models.stage_dropped(plan), models.stage_elsewhere(plan)
        if dropped:
            return f"The {dropped} weights of this plan were dropped: {limit}"
        notes = []
        if elsewhere:
            notes.append(
                f"The {elsewhere} weights belong to another plan and are kept with it: undo, the history or a variant "
                "lead back to them."
            )
        if models.dropped:
            plans = "one earlier plan" if models.dropped == 1 else f"{models.dropped} earlier plans"
            notes.append(f"The weights of {plans} were dropped: {limit}")
        return " ".join(notes)

    def calibrate(
        self, /, method: str = "minmax", *, steps: int | None = None, batch_size: int = BATCH_SIZE, **settings: Any
    ) -> qdq.CalibrationResult:
        """Find the activation ranges, and score the calibrated model if there are validation data and a loss.

        Calibration starts from the float model; undo restores corrected weights.

        Args:
            method: One of `qdq_workbench.calibration_methods()`, such as "minmax", "percentile" or "mse".
            steps: Maximum number of batches to read; None for all calibration data, or for the first 16 batches of the
                training data.
            batch_size: Samples per batch of an array.
            **settings: Settings of the method, such as `percentile=99.99`, and `power_of_two` and `checkpoint` of
                `qdq_workbench.calibrate`.

        Returns:
            The `CalibrationResult`.

        Raises:
            BenchError: If there are neither calibration nor training data.
        """
        plan = self._plans.plan
        with self._work.jobs.run("calibration") as job:
            result = self._calibrate(plan, job, method, steps, batch_size, settings)
            self._events.tell("calibration")
            if self._work.can_score() and not job.stop_requested:
                self.score_unless_stopped(plan, job, batch_size)
        return result

    def evaluate(self, *, batch_size: int = 32) -> Curves:
        """Score the float model and the calibrated model on the validation data.

        Args:
            batch_size: Samples per batch of an array.

        Returns:
            The curves, unchanged if the evaluation was stopped.

        Raises:
            BenchError: If the plan is not calibrated, or there are no labelled validation data or no loss.
        """
        plan, models = self._plans.plan, self._work.models
        if models.stage(plan) == "planned":
            models.get(plan)  # for its error: there are no ranges
        with self._work.jobs.run("evaluation") as job:
            return self.score_unless_stopped(plan, job, batch_size)

    def fine_tune(
        self,
        epochs: int = 1,
        *,
        learning_rate: float | None = None,
        batch_size: int = BATCH_SIZE,
        name: str | None = None,
        resume: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> TrainingRun:
        """Train the quantized model of the present plan; curves grow while it runs.

        Args:
            epochs: Number of passes over the training data.
            learning_rate: The rate; None for the optimizer's own.
            batch_size: Samples per batch of an array.
            name: Name of the run; None for a numbered one.
            resume: Whether to start from the weights that were trained last for this plan, instead of those of the
                calibrated model. Corrected weights are used in any case.
            checkpoint: A file, written after every epoch; if it exists, training goes on from it, also after a restart
                of the kernel. It belongs to one plan, its weights, the training data and the settings.

        Returns:
            The run, also in `curves.runs`; if it was stopped before training began, a run that is not kept.

        Raises:
            BenchError: If there are no labelled training data or no loss, or `epochs` is below 1.
            CheckpointError: If the checkpoint is of another training.
        """
        epochs, batch_size = whole(epochs), whole(batch_size)  # a saved bench holds them
        if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
            raise BenchError(f"epochs must be a whole number from 1 on. Received: epochs={epochs!r}")
        if learning_rate is not None:
            learning_rate = _rate(learning_rate)
        plan = self._plans.plan
        with self._work.jobs.run("fine-tuning") as job:
            job.report(None, "preparing")
            start = self._start(plan, job, batch_size, resume=resume)
            run = TrainingRun(name or self._unused_name(), plan.target, len(plan.tensors))
            if start is not None:
                run = run.replace(epochs=(0.0,), scores=(start,))
            if job.stop_requested:
                return run.replace(state="stopped")
            try:
                run = self._train(plan, job, run, epochs, learning_rate, batch_size, checkpoint, resume=resume)
            except BenchStoppedError:
                return run.replace(state="stopped")  # while the model was built
            except BaseException:
                self._on_failure(run.name)
                raise
        self._events.tell("stage")
        return run

    def score_unless_stopped(self, plan: Any, job: Job, batch_size: int) -> Curves:
        """Score the float model and the calibrated one unless their scores are known, and return the curves.

        If the job is stopped, the curves stay unchanged.
        """
        with contextlib.suppress(BenchStoppedError):
            self.curves = self._score(plan, job, batch_size)
            self._events.tell("curves")
        return self.curves

    def score_of_kept(self, plan: Any, job: Job, batch_size: int) -> Scores | None:
        """Return the scores of a plan's corrected or fine-tuned model; None if the job was stopped."""
        models = self._work.models
        if models.scores(plan) is None:
            with contextlib.suppress(BenchStoppedError):
                q_model = built(job, lambda: models.copy(plan))
                self._work.setup.compile(q_model)
                scores = evaluate(q_model, self._work.data.validation, batch_size, job)
                models.remember_scores(plan, models.stage(plan), scores)
        return models.scores(plan)

    def _calibrate(
        self, plan: Any, job: Job, method: str, steps: int | None, batch_size: int, settings: dict[str, Any]
    ) -> qdq.CalibrationResult:
        data, few = self._work.data.for_calibration()
        steps = few if steps is None else steps
        total = batch_count(data, batch_size)
        total = steps if total is None else min(total, steps or total)
        job.report(0.0, "building the quantized model")
        q_model = self._work.models.new(plan)  # to its end: a calibration that is stopped has read a batch

        def on_batch(count: int) -> bool:
            job.report(count / total if total else None, f"batch {count}" + (f" of {total}" if total else ""))
            return not job.stop_requested

        result = qdq.calibrate(
            q_model, data, method, steps=steps, batch_size=batch_size, verbose=False, on_batch=on_batch, **settings
        )
        models, plans = self._work.models, self._plans
        with plans.lock:
            corrected = models.stage(plan) == CORRECTED
            if corrected:
                plans.history.push("calibrate anew", plans.state, plans.plan, Aside(models.copy_contents()))
                models.remember_scores(plan, CORRECTED, None)
            models.calibrated(plan, q_model, result, (steps, batch_size))
        if corrected:
            self._events.tell("plan")
        return result

    def _score(self, plan: Any, job: Job, batch_size: int) -> Curves:
        models, curves, data = self._work.models, self.curves, self._work.data.validation
        known = models.scores(plan, CALIBRATED)
        if known is not None and curves.fp32 is not None:
            return curves.replace(ptq=known)
        q_model = built(job, lambda: models.build(plan))
        self._work.setup.compile(q_model)
        rest = (0.0, 1.0)
        if curves.fp32 is None:
            first, rest = (0.0, 0.5), (0.5, 1.0)
            # With the quantizers off, because compiling the user's own model would change it.
            fp32 = evaluate(q_model, data, batch_size, job, quantized=False, text="scoring the float model", part=first)
            curves = curves.replace(fp32=fp32)
        scores = evaluate(q_model, data, batch_size, job, text="scoring the quantized model", part=rest)
        models.remember_scores(plan, CALIBRATED, scores)
        return curves.replace(ptq=scores)

    def _start(self, plan: Any, job: Job, batch_size: int, *, resume: bool) -> Scores | None:
        """Return the scores of the model that training starts from; None if they are not known."""
        start = None
        if self._work.can_score() and self._work.models.calibration is not None:
            self.score_unless_stopped(plan, job, batch_size)
            start = self._work.models.scores(plan, CALIBRATED)
            if self._work.models.stage(plan) == CORRECTED:
                return self.score_of_kept(plan, job, batch_size)
        return (self._work.models.scores(plan) if resume else None) or start

    def _train(
        self,
        plan: Any,
        job: Job,
        run: TrainingRun,
        epochs: int,
        learning_rate: float | None,
        batch_size: int,
        checkpoint: str | os.PathLike[str] | None,
        *,
        resume: bool,
    ) -> TrainingRun:
        models, data = self._work.models, self._work.data
        goes_on = resume or models.stage(plan) == CORRECTED
        corrections = models.corrections(plan) if goes_on else ()
        before = models.fits(plan) if goes_on else ()
        how = models.calibrated_how()
        q_model = built(job, lambda: models.copy(plan) if goes_on else models.build(plan))
        self._work.setup.compile(q_model, learning_rate)
        saved = None
        if checkpoint is not None:
            told = [learning_rate, batch_size, self._work.setup.to_dict()]
            saved = qdq.files.TrainingCheckpoint(pathlib.Path(checkpoint), training_identity(q_model, data.train, told))
        finished = fine_tune(
            q_model,
            run,
            job,
            self._on_run,
            epochs=epochs,
            train_data=data.train,
            validation_data=data.validation,
            batch_size=batch_size,
            checkpoint=saved,
        )
        # Without a batch nothing was trained: the kept model stays.
        if finished.loss_trace:
            stopped = reached(finished)
            done = epochs if stopped is None else begun_epochs(stopped)
            fit = Fit(done, learning_rate, batch_size, how, stopped)
            models.put(plan, q_model, FINE_TUNED, corrections, (*before, fit))
            # Batches after the last finished epoch have changed what was scored.
            scored = len(finished.epochs) > 1 and finished.epochs[-1] == finished.loss_trace[-1][0]
            models.remember_scores(plan, FINE_TUNED, finished.scores[-1] if scored else None)
        return finished

    def _unused_name(self) -> str:
        """Return a numbered name that no run has: a run of a taken name would replace that one."""
        taken = {run.name for run in self.curves.runs}
        numbered = (f"QAT {number}" for number in itertools.count(len(taken) + 1))
        return next(name for name in numbered if name not in taken)

    def _on_run(self, run: TrainingRun) -> None:
        self.curves = self.curves.with_run(run)
        self._events.tell("curves")

    def _on_failure(self, name: str) -> None:
        for run in self.curves.runs:
            if run.name == name:
                self._on_run(run.replace(state="failed"))


def _rate(given: Any) -> float:
    """Return a learning rate as a number of Python: neither Keras nor JSON takes those of NumPy."""
    try:
        return float(given)
    except (TypeError, ValueError):
        raise BenchError(
            "learning_rate must be a number; give a schedule with the optimizer: Workbench(model, optimizer=...). "
            f"Received: learning_rate={given!r}"
        ) from None
