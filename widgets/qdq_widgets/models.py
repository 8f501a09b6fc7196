"""The quantized models of a bench, one per plan, so that undo restores calibrated and trained models."""

from __future__ import annotations

import hashlib
import pathlib
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.curves import Scores
from qdq_widgets.errors import BenchError
from qdq_widgets.snapshots import CALIBRATED, CORRECTED, FINE_TUNED, Snapshot
from qdq_widgets.state import PlanKey, plan_key
from qdq_widgets.store_contents import BenchModel, StoreContents

KEPT_MODELS = 8


class ModelStore:
    """Builds quantized models on demand and keeps the last few, by plan.

    A calibration records the range of every tensor of the network, so that a model for another plan needs no data:
    the recorded ranges are applied to it. Fine-tuned weights belong to the plan that they were trained with.

    Args:
        model: The float model; only read.
    """

    def __init__(self, model: Any) -> None:
        self.float_model = model
        self._now = StoreContents()
        self._digests: set[bytes] = set()

    @classmethod
    def restored(cls, model: Any, plan: Any, work: Snapshot) -> ModelStore:
        """Return a new store for a float model with the work on one plan."""
        store = cls(model)
        if work.stage != "planned":
            # The work was done with these weights; `weights_changed` compares later ones with them.
            store.note_weights()
        store.restore(plan, work)
        return store

    @property
    def calibration(self) -> Any:
        """The `CalibrationResult` whose ranges new models get; None before the first."""
        return self._now.calibration

    @property
    def read(self) -> tuple[int | None, int] | None:
        """The calibration's maximum number of batches (None for all) and its batch size; None if not known."""
        return self._now.read

    def use_calibration(self, result: Any) -> None:
        """Take the ranges of another calibration; models that were only calibrated are built again when needed."""
        now = self._now
        now.calibration, now.read = result, None
        now.scores = {known: scores for known, scores in now.scores.items() if known[1] != CALIBRATED}
        # Trained and corrected models, and their files, have ranges of their own. Sizes and times depend on no ranges.
        tuned = {key for key, kept in now.kept.items() if kept.stage != CALIBRATED}
        for key in now.kept.keys() - tuned:
            del now.kept[key]
        now.files = {key: file for key, file in now.files.items() if key in tuned}

    def snapshot(self, plan: Any) -> Snapshot:
        """Return the work on a plan: its stage, model, ranges, scores and file."""
        key, now = plan_key(plan), self._now
        kept = now.kept.get(key)
        stages = (CALIBRATED, CORRECTED, FINE_TUNED)
        scores = {stage: now.scores[key, stage] for stage in stages if (key, stage) in now.scores}
        return Snapshot(
            self.stage(plan),
            None if kept is None else kept.model,
            now.calibration,
            scores,
            now.sizes.get(key),
            now.files.get(key),
            now.latencies.get(key),
            () if kept is None else kept.corrections,
            self.fits(plan),
        )

    def restore(self, plan: Any, work: Snapshot) -> None:
        """Replace the work on a plan by a snapshot of it.

        A snapshot without ranges leaves the present ranges: there are no others to restore.
        """
        key, now = plan_key(plan), self._now
        now.dropped.pop(key, None)
        if work.calibration is not None and work.calibration is not now.calibration:
            self.use_calibration(work.calibration)
        kept = now.kept.get(key)
        # A model that was only calibrated follows from the present ranges, which a planned snapshot leaves.
        if work.stage != "planned" or (kept is not None and kept.stage != CALIBRATED):
            now.kept.pop(key, None)
            now.files.pop(key, None)
            for stage in (CORRECTED, FINE_TUNED):
                now.scores.pop((key, stage), None)
        if work.model is not None:
            self._keep(key, BenchModel(work.model, work.stage, work.corrections, work.fits))
        now.scores.update({(key, stage): scores for stage, scores in work.scores.items()})
        if work.size is not None:
            now.sizes[key] = work.size
        if work.file is not None:
            now.files[key] = work.file
        if work.latency is not None:
            now.latencies[key] = work.latency

    def swap(self, contents: StoreContents) -> StoreContents:
        """Replace the contents by those of `copy_contents` or an earlier `swap`, and return the former ones."""
        before, self._now = self._now, contents
        return before

    def copy_contents(self) -> StoreContents:
        """Return a copy of the present contents, which does not follow later changes."""
        return self._now.copy()

    def scores(self, plan: Any, stage: str | None = None) -> Scores | None:
        """Return the scores of a plan's model at a stage, by default its present one; None if it was not scored."""
        return self._now.scores.get((plan_key(plan), stage or self.stage(plan)))

    def file(self, plan: Any) -> pathlib.Path | None:
        """Return the file that was exported with the present weights of a plan; None if there is none."""
        return self._now.files.get(plan_key(plan))

    def latency(self, plan: Any) -> Any:
        """Return the `LatencyReport` of a plan's file; None if it was not measured."""
        return self._now.latencies.get(plan_key(plan))

    @property
    def last_latency(self) -> Any:
        """The last `LatencyReport` of any plan; None before the first."""
        return next(reversed(self._now.latencies.values()), None)

    def remember_latency(self, plan: Any, report: Any) -> None:
        """Store the `LatencyReport` of a plan's file."""
        self._now.latencies.pop(plan_key(plan), None)  # for `last_latency`: measured last comes last
        self._now.latencies[plan_key(plan)] = report

    def remember_scores(self, plan: Any, stage: str, scores: Scores | None) -> None:
        """Store the scores of a plan's model at a stage; None removes them."""
        if scores is None:
            self._now.scores.pop((plan_key(plan), stage), None)
        else:
            self._now.scores[plan_key(plan), stage] = scores

    def remember_file(self, plan: Any, size: int, path: pathlib.Path | None = None) -> None:
        """Store the size in bytes of a plan's file, and its path; None for a temporary file."""
        self._now.sizes[plan_key(plan)] = size
        if path is not None:
            self._now.files[plan_key(plan)] = path

    def stage(self, plan: Any) -> str:
        """Return the stage of a plan's model: "planned", "calibrated", "corrected" or "fine-tuned"."""
        kept = self._now.kept.get(plan_key(plan))
        if kept is not None:
            return kept.stage
        return "planned" if self.calibration is None else CALIBRATED

    def stage_elsewhere(self, plan: Any) -> str:
        """Return "fine-tuned" or "corrected" if another plan has such weights and this one has neither; else empty."""
        stages = {kept.stage for kept in self._now.kept.values()}
        missing = [stage for stage in (FINE_TUNED, CORRECTED) if stage in stages]
        return missing[0] if missing and self.stage(plan) not in (CORRECTED, FINE_TUNED) else ""

    def stage_dropped(self, plan: Any) -> str:
        """Return "fine-tuned" or "corrected" if a plan's model at that stage was dropped for newer ones; else empty."""
        return self._now.dropped.get(plan_key(plan), "")

    @property
    def dropped(self) -> int:
        """The number of plans whose corrected or trained models were dropped for newer ones."""
        return len(self._now.dropped)

    def corrections(self, plan: Any) -> tuple[Any, ...]:
        """Return the corrections of a plan's weights, in the order in which they were applied."""
        kept = self._now.kept.get(plan_key(plan))
        return () if kept is None else kept.corrections

    def fits(self, plan: Any) -> tuple[Any, ...]:
        """Return the calls of `fit` that trained a plan's weights, in their order."""
        kept = self._now.kept.get(plan_key(plan))
        return () if kept is None else kept.fits

    def calibrated_how(self) -> dict[str, Any]:
        """Return the arguments of the last calibration; for a loaded one, the batch size follows from its counts."""
        result, read = self.calibration, self.read
        if result is None:
            return {}
        if read is None:
            # Only the counts are saved: the default batch size if it explains them, else the mean size, rounded up.
            usual = -(-result.samples // 32) == result.batches
            read = result.batches, 32 if usual else -(-result.samples // max(1, result.batches))
        return {"method": result.method, "steps": read[0], "batch_size": read[1], **result.settings}

    def adopt(self, other: ModelStore, *, with_scores: bool) -> None:
        """Take over the calibration and the quantized models of another store for the same float model.

        `with_scores` also takes over its scores, which are valid for the same validation data only.
        """
        self._now = other._now.copy()
        self._digests = set(other._digests)
        if not with_scores:
            self._now.scores = {}

    def note_weights(self) -> None:
        """Record the present weights of the float model as used for a model or a measurement."""
        self._digests.add(_weights_digest(self.float_model))

    @property
    def weights_changed(self) -> bool:
        """Whether the float model's weights differ from those of any recorded use."""
        return bool(self._digests) and self._digests != {_weights_digest(self.float_model)}

    def new(self, plan: Any) -> Any:
        """Return a new quantized model of a plan, without ranges."""
        self.note_weights()
        return qdq.quantize_model(self.float_model, plan=plan)

    def build(self, plan: Any, calibration: Any = None) -> Any:
        """Return a new model of a plan, with the ranges of the given calibration or of the last one, if any."""
        q_model = self.new(plan)
        calibration = self.calibration if calibration is None else calibration
        if calibration is not None:
            qdq.apply_calibration(q_model, calibration)
        return q_model

    def get(self, plan: Any) -> Any:
        """Return the kept model of a plan; if there is none, build and keep one with the last calibration.

        Raises:
            BenchError: If there is neither a kept model nor a calibration.
        """
        key = plan_key(plan)
        if key not in self._now.kept:
            if self.calibration is None:
                raise BenchError(
                    "The activation ranges are not known yet. Calibrate first: wb.calibrate(), or the button in the "
                    "Calibration pane. Received: a plan that was neither calibrated nor trained"
                )
            self._keep(key, BenchModel(self.build(plan), CALIBRATED))
        self._now.kept.move_to_end(key)
        return self._now.kept[key].model

    def present(self, plan: Any) -> Any:
        """Return the model of a plan at its present stage; for a planned one, a new model without ranges."""
        return self.build(plan) if self.stage(plan) == "planned" else self.get(plan)

    def copy(self, plan: Any) -> Any:
        """Return a copy of a plan's model, to train or correct it without changing the kept one."""
        kept = self.get(plan)
        if self.corrections(plan):
            return qdq.retarget(kept, plan.target)  # with its own ranges, and the biases that a correction added
        q_model = self.build(plan)
        q_model.set_weights(kept.get_weights())
        return q_model

    def put(
        self, plan: Any, q_model: Any, stage: str, corrections: tuple[Any, ...] = (), fits: tuple[Any, ...] = ()
    ) -> None:
        """Keep a model as that of a plan, at the stage "calibrated", "corrected" or "fine-tuned"."""
        self._now.files.pop(plan_key(plan), None)  # it holds other weights
        self._keep(plan_key(plan), BenchModel(q_model, stage, corrections, fits))

    def calibrated(self, plan: Any, q_model: Any, result: Any, read: tuple[int | None, int]) -> None:
        """Store a calibration and its model; `read` is the maximum number of batches and the batch size."""
        self.use_calibration(result)
        self._now.read = read
        self._now.dropped.pop(plan_key(plan), None)
        self.put(plan, q_model, CALIBRATED)

    def _keep(self, key: PlanKey, model: BenchModel) -> None:
        every = self._now.kept
        every[key] = model
        every.move_to_end(key)
        if model.stage != CALIBRATED:
            self._now.dropped.pop(key, None)
        while len(every) > KEPT_MODELS:
            # Models that were only calibrated go first: they are rebuilt in seconds, trained ones would be lost.
            others = [(kept.stage != CALIBRATED, age, old) for age, (old, kept) in enumerate(every.items())]
            # The last one was added just now and stays.
            is_lost, _, oldest = min(others[:-1])
            if is_lost and model.stage == CALIBRATED:
                break
            self._drop(oldest)

    def _drop(self, key: PlanKey) -> None:
        """Remove a model; of a corrected or trained one the scores and the file go too, since no model has them."""
        now = self._now
        stage = now.kept.pop(key).stage
        if stage == CALIBRATED:
            return
        now.dropped[key] = stage
        now.files.pop(key, None)
        for scored in (CORRECTED, FINE_TUNED):
            now.scores.pop((key, scored), None)


def _weights_digest(model: Any) -> bytes:
    import keras

    digest = hashlib.sha256()
    for weight in model.weights:
        digest.update(keras.ops.convert_to_numpy(weight).tobytes())
    return digest.digest()
