"""Corrections of the weights without labels: which of them apply to the present plan, each as one undoable step."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from qdq_widgets.background import Job
from qdq_widgets.corrected_models import CorrectedModels, bench_like, elsewhere
from qdq_widgets.corrections import BY_NAME, CORRECTIONS, Applied, Correction, why_not
from qdq_widgets.curves import Scores
from qdq_widgets.effects import Effects
from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.events import Events
from qdq_widgets.fitting import evaluate
from qdq_widgets.history import Aside
from qdq_widgets.plans import Plans
from qdq_widgets.snapshots import CORRECTED, FINE_TUNED
from qdq_widgets.state import BenchState
from qdq_widgets.training import Training
from qdq_widgets.work import Workshop

_SCORING_BATCH = 32
_LAYER_CHANGERS = {
    "fold_batch_norm": (
        "Batch normalizations folded",
        "Folds every batch normalization into the layer before it, so that the layer has a bias to correct or learn.",
    ),
    "shift_negative": (
        "Shift of the negative side",
        "Lets swish, gelu and similar activations start at 0; the biases behind them take it back.",
    ),
}
_SHIFTABLE = {"silu", "swish", "gelu", "hard_silu", "hard_swish", "elu", "selu"}
_FACTORS = {"gamma", "scale"}  # names of the weights by which normalizations scale their channels


@dataclasses.dataclass(frozen=True)
class Offer:
    """A correction, and whether it applies to the present plan.

    Args:
        name: Its name.
        title: Its title in the pane.
        purpose: What it does, in a sentence.
        why_not: Why it does not apply and what to do; empty if it applies.
    """

    name: str
    title: str
    purpose: str
    why_not: str = ""


class Correcting:
    """Corrections of the present plan's weights; a part of `Workbench`, as `wb.corrections`.

    `make` is the class `Workbench`.
    """

    def __init__(
        self, make: Any, plans: Plans, work: Workshop, training: Training, effects: Effects, events: Events
    ) -> None:
        self._make = make
        self._plans, self._work, self._training = plans, work, training
        self._effects, self._events = effects, events
        self._models = CorrectedModels(work)

    @property
    def applied(self) -> tuple[Applied, ...]:
        """The corrections of the present plan's weights, in the order in which they were applied."""
        return self._work.models.corrections(self._plans.plan)

    @property
    def unfinished(self) -> str:
        """A note about a stopped run of learned rounding that can be resumed; else empty."""
        return self._models.unfinished

    @property
    def offers(self) -> tuple[Offer, ...]:
        """All corrections, each with the reason if it does not apply to the present plan.

        Corrections that change the layers are listed only if the model has such layers.
        """
        offers = [Offer(each.name, each.title, each.purpose, self._why_not(each)) for each in CORRECTIONS]
        changers = [Offer(name, *texts, self._why_elsewhere(name)) for name, texts in _LAYER_CHANGERS.items()]
        return tuple(offers + [offer for offer in changers if offer.why_not])

    def correct(self, name: str, /, *, checkpoint: str | os.PathLike[str] | None = None, **settings: Any) -> Applied:
        """Correct the weights of the present plan's model without labels, and score it: one undoable step.

        Args:
            name: "equalize_scales", "smooth_scales", "clip_weights", "correct_biases" (corrections of the float model,
                which is calibrated again after them), "gptq_weights", "learn_rounding" or "estimate_statistics" (of
                the quantized model). `wb.corrections.offers` lists which of them apply.
            checkpoint: For "learn_rounding": a file to resume from, also after a restart; None for a temporary one,
                from which the same call resumes after a stop.
            **settings: Arguments of the function of that name in `qdq_workbench.correction`, and `samples`: how many
                samples to read at most from the calibration data, else from the training data.

        Returns:
            The applied correction, with the scores before and after it.

        Raises:
            BenchError: If it does not apply, changes nothing, or a setting is unknown.

        Example:
            `wb.correct("learn_rounding", steps=200)`
        """
        correction = self._named(name, checkpoint)
        given = correction.checked(settings)
        with self._plans.lock:
            state, plan = self._plans.state, self._plans.plan
        reason = self._why_not(correction)
        if reason:
            raise BenchError(f"{correction.title} does not apply here. {reason} Received: {name!r}")
        with self._work.jobs.run(correction.title) as job:
            applied = self._correct(correction, given, state, plan, job, checkpoint)
        self._effects.tell_score(correction.title, applied.before, applied.after, applied.metric)
        return applied

    def new_bench(self, name: str, /, **settings: Any) -> Any:
        """Return a bench of the corrected float model, for corrections of the float model that change its layers.

        It has the data, loss, optimizer, metrics, target and mode of this one, and its spec and cases if they fit.

        Args:
            name: "fold_batch_norm", "shift_negative", "equalize_scales", "smooth_scales", "clip_weights" or
                "correct_biases".
            **settings: Arguments of the function of that name in `qdq_workbench.correction`, and `samples`.

        Returns:
            A `Workbench`, not calibrated.

        Raises:
            BenchError: If there is no such correction of the float model.
        """
        of_float = [*_LAYER_CHANGERS, *(each.name for each in CORRECTIONS if each.of_float)]
        if name not in of_float:
            raise BenchError(f"There is no such correction of the float model: {of_float}. Received: {name!r}")
        with self._plans.lock:
            state, plan = self._plans.state, self._plans.plan
        with self._work.jobs.run("correcting the float model"):
            corrected = self._models.corrected_float(name, settings, plan)
        return bench_like(self._make, corrected, state, self._work)

    # ------------------------------------------------------------------ what applies

    @staticmethod
    def _named(name: str, checkpoint: Any) -> Correction:
        if name in _LAYER_CHANGERS:
            raise BenchError(f"{elsewhere(name)} Received: {name!r}")
        if name not in BY_NAME:
            raise BenchError(f"There is no such correction. Known: {', '.join(BY_NAME)}. Received: {name!r}")
        if checkpoint is not None and name != "learn_rounding":
            raise BenchError(f"Only learn_rounding has a checkpoint. Received: {name!r}, checkpoint={checkpoint!r}")
        return BY_NAME[name]

    def _why_not(self, correction: Correction) -> str:
        plan, models, data = self._plans.plan, self._work.models, self._work.data
        stage = models.stage(plan)
        if data.calibration is None and data.train is None:
            return "It needs data: Workbench(model, calibration_data=images), or train_data=(images, labels)."
        behind_training = correction.name == "estimate_statistics"
        if stage == "planned":
            return "Calibrate first: corrections go on from the calibrated model."
        if stage == FINE_TUNED and not behind_training:
            return "The weights of this plan are trained already, and know their rounding; correct before training."
        if not (behind_training or any(placement.site == "weight" for placement in plan.placements)):
            return "The plan quantizes no weights."
        return self._why_not_of_model(correction.name) or why_not(correction, models.corrections(plan))

    def _why_not_of_model(self, name: str) -> str:
        plan = self._plans.plan
        nodes = plan.graph.nodes
        normalizations = any(node.is_a("BatchNormalization") for node in nodes)
        if name == "equalize_scales" and normalizations:
            return f"It folds batch normalizations first. {elsewhere(name)}"
        if name == "estimate_statistics" and not normalizations:
            return "The model has no batch normalization."
        if name == "smooth_scales" and not any(map(_is_smoothable, nodes)):
            return "The model has no normalization and no Dense layer whose channels could be scaled."
        if name == "gptq_weights":
            weighted = {placement.layer for placement in plan.placements if placement.site == "weight"}
            if not any(node.layer in weighted and (node.is_a("Dense") or node.is_a("EinsumDense")) for node in nodes):
                return (
                    "The plan quantizes the kernel of no Dense or EinsumDense; learned rounding has convolutions too."
                )
        return ""

    def _why_elsewhere(self, name: str) -> str:
        nodes = self._plans.plan.graph.nodes
        if name == "fold_batch_norm":
            concerned = any(node.is_a("BatchNormalization") for node in nodes)
        else:
            concerned = any(
                _SHIFTABLE & {str(node.settings.get("activation")), node.class_name.lower()} for node in nodes
            )
        return elsewhere(name) if concerned else ""

    # ------------------------------------------------------------------ doing it

    def _correct(
        self, correction: Correction, given: dict[str, Any], state: BenchState, plan: Any, job: Job, checkpoint: Any
    ) -> Applied:
        models = self._work.models
        earlier, trained = models.corrections(plan), models.stage(plan) == FINE_TUNED
        before = self._score_before(plan, job)
        job.raise_if_stopped()
        q_model, report = self._models.make(correction, given, state, plan, job, checkpoint)
        job.raise_if_stopped()
        after = self._scored(q_model, job)
        metric = self._training.curves.metric
        how, kind = models.calibrated_how(), self._models.kind_of_data()
        applied = Applied(correction.name, given, how, kind, metric, before, after, trained, report)
        self._take(correction, plan, q_model, (*earlier, applied), after)
        return applied

    def _take(
        self, correction: Correction, plan: Any, q_model: Any, corrections: tuple[Applied, ...], after: Scores | None
    ) -> None:
        """Keep the corrected model as that of its plan, in a step whose undo restores the former models."""
        models, plans = self._work.models, self._plans
        stage = FINE_TUNED if corrections[-1].trained else CORRECTED
        with plans.lock:
            # Before the new model is put: undo swaps these contents back.
            aside = Aside(models.copy_contents())
            models.put(plan, q_model, stage, corrections, models.fits(plan))
            models.remember_scores(plan, stage, after)
            # The state may have changed while the job ran: the step exchanges models and leaves the plan as it is.
            plans.history.push(_label(correction, corrections[-1].settings), plans.state, plans.plan, aside)
        self._events.tell("plan", "stage", "curves")

    def _score_before(self, plan: Any, job: Job) -> Scores | None:
        models = self._work.models
        if not self._work.can_score():
            return None
        self._training.score_unless_stopped(plan, job, _SCORING_BATCH)
        if models.stage(plan) in (CORRECTED, FINE_TUNED):
            return self._training.score_of_kept(plan, job, _SCORING_BATCH)
        return models.scores(plan)

    def _scored(self, q_model: Any, job: Job) -> Scores | None:
        """Return the scores of a model; None if it cannot be scored or the scoring was stopped."""
        if not self._work.can_score():
            return None
        job.report(None, "scoring the model")
        self._work.setup.compile(q_model)
        with contextlib.suppress(BenchStoppedError):
            return evaluate(q_model, self._work.data.validation, _SCORING_BATCH, job)
        return None


def _is_smoothable(node: Any) -> bool:
    return node.is_a("Dense") or any(weight.name.split("/")[-1] in _FACTORS for weight in node.weights)


def _label(correction: Correction, settings: Mapping[str, Any]) -> str:
    """Return the label in the history: the title, the number of steps, and settings that are not the defaults."""
    usual = {setting.name: setting.default for setting in correction.settings}
    words = [f"{name}={value}" for name, value in settings.items() if value != usual[name] or name == "steps"]
    return ", ".join([correction.title, *words])
