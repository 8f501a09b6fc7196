"""The quantized models of a bench: one per plan, so that undo leads back to what was calibrated and trained."""

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
    """Builds quantized models on demand and keeps the last few.

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
        """Return a store that knows what was known of one plan.

        Args:
            model: The float model.
            plan: The plan.
            work: What `snapshot` returned.
        """
        store = cls(model)
        if work.stage != "planned":
            store.note_weights()
        store.restore(plan, work)
        return store

    @property
    def calibration(self) -> Any:
        """The `CalibrationResult` whose ranges new models get; None before the first."""
        return self._now.calibration

    @property
    def read(self) -> tuple[int | None, int] | None:
        """How many batches the calibration read at most, and of how many samples; None where that is not known."""
        return self._now.read

    def use_calibration(self, result: Any) -> None:
        """Take other ranges; models that only had the former ones are built anew when they are needed.

        Args:
            result: A `CalibrationResult`.
        """
        now = self._now
        now.calibration, now.read = result, None
        now.scores = {known: scores for known, scores in now.scores.items() if known[1] != CALIBRATED}
        tuned = {key for key, kept in now.kept.items() if kept.stage != CALIBRATED}
        for key in now.kept.keys() - tuned:
            del now.kept[key]
        now.files = {key: file for key, file in now.files.items() if key in tuned}

    def snapshot(self, plan: Any) -> Snapshot:
        """Return what is known of a plan now.

        Args:
            plan: The plan.
        """
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
        )

    def restore(self, plan: Any, work: Snapshot) -> None:
        """Make what was known of a plan at one time what is known of it now.

        A plan that was kept before there were ranges takes those that there are: there is nothing else to go back to.

        Args:
            plan: The plan.
            work: What `snapshot` returned.
        """
        key, now = plan_key(plan), self._now
        if work.calibration is not None and work.calibration is not now.calibration:
            self.use_calibration(work.calibration)
        kept = now.kept.get(key)
        if work.stage != "planned" or (kept is not None and kept.stage != CALIBRATED):
            now.kept.pop(key, None)
            now.files.pop(key, None)
            for stage in (CORRECTED, FINE_TUNED):
                now.scores.pop((key, stage), None)
        if work.model is not None:
            self._keep(key, BenchModel(work.model, work.stage, work.corrections))
        now.scores.update({(key, stage): scores for stage, scores in work.scores.items()})
        if work.size is not None:
            now.sizes[key] = work.size
        if work.file is not None:
            now.files[key] = work.file
        if work.latency is not None:
            now.latencies[key] = work.latency

    def swap(self, contents: StoreContents) -> StoreContents:
        """Take other contents and return those that were there.

        Args:
            contents: What `put_aside` or `swap` returned.
        """
        before, self._now = self._now, contents
        return before

    def put_aside(self) -> StoreContents:
        """Return the present contents, which later changes leave alone."""
        return self._now.copy()

    def scores(self, plan: Any, stage: str | None = None) -> Scores | None:
        """Return what the model of a plan scored last; None if it was not scored.

        Args:
            plan: The plan.
            stage: "calibrated", "corrected" or "fine-tuned"; None for the one that the plan has reached.
        """
        return self._now.scores.get((plan_key(plan), stage or self.stage(plan)))

    def size(self, plan: Any) -> int | None:
        """Return the bytes of the file that was exported last for a plan; None if there is none.

        Args:
            plan: The plan.
        """
        return self._now.sizes.get(plan_key(plan))

    def file(self, plan: Any) -> pathlib.Path | None:
        """Return the file that was exported of the present weights of a plan; None if there is none.

        Args:
            plan: The plan.
        """
        return self._now.files.get(plan_key(plan))

    def latency(self, plan: Any) -> Any:
        """Return the `LatencyReport` of a plan's file; None if it was not measured.

        Args:
            plan: The plan.
        """
        return self._now.latencies.get(plan_key(plan))

    @property
    def last_latency(self) -> Any:
        """The `LatencyReport` that was measured last, of any plan; None before the first."""
        return next(reversed(self._now.latencies.values()), None)

    def remember_latency(self, plan: Any, report: Any) -> None:
        """Remember how long the file of a plan takes.

        Args:
            plan: The plan.
            report: The `LatencyReport`.
        """
        self._now.latencies[plan_key(plan)] = report

    def remember_scores(self, plan: Any, stage: str, scores: Scores | None) -> None:
        """Remember what the model of a plan scored.

        Args:
            plan: The plan.
            stage: "calibrated", "corrected" or "fine-tuned".
            scores: What it scored; None forgets it.
        """
        if scores is None:
            self._now.scores.pop((plan_key(plan), stage), None)
        else:
            self._now.scores[plan_key(plan), stage] = scores

    def remember_file(self, plan: Any, size: int, path: pathlib.Path | None = None) -> None:
        """Remember the file of a plan.

        Args:
            plan: The plan.
            size: Its bytes.
            path: Where it is; None for a file that is gone again.
        """
        self._now.sizes[plan_key(plan)] = size
        if path is not None:
            self._now.files[plan_key(plan)] = path

    def stage(self, plan: Any) -> str:
        """Return how far the model of a plan is: "planned", "calibrated", "corrected" or "fine-tuned".

        Args:
            plan: The plan.
        """
        kept = self._now.kept.get(plan_key(plan))
        if kept is not None:
            return kept.stage
        return "planned" if self.calibration is None else CALIBRATED

    def stage_elsewhere(self, plan: Any) -> str:
        """Return how far weights are that another plan has, and this one not; empty where there are none.

        Args:
            plan: The plan.
        """
        stages = {kept.stage for kept in self._now.kept.values()}
        missing = [stage for stage in (FINE_TUNED, CORRECTED) if stage in stages]
        return missing[0] if missing and self.stage(plan) not in (CORRECTED, FINE_TUNED) else ""

    def corrections(self, plan: Any) -> tuple[Any, ...]:
        """Return what the weights of a plan were corrected by, in that order.

        Args:
            plan: The plan.
        """
        kept = self._now.kept.get(plan_key(plan))
        return () if kept is None else kept.corrections

    def adopt(self, other: ModelStore, *, with_scores: bool) -> None:
        """Take over the calibration and the quantized models of another store for the same float model.

        Args:
            other: The other store.
            with_scores: Whether its scores hold here too, which they do on the same data.
        """
        self._now = other._now.copy()
        self._digests = set(other._digests)
        if not with_scores:
            self._now.scores = {}

    def note_weights(self) -> None:
        """Remember that something was built or measured with the present weights of the float model."""
        self._digests.add(_weights_digest(self.float_model))

    @property
    def weights_changed(self) -> bool:
        """Whether anything was built or measured with other weights than those that the float model has now."""
        return bool(self._digests) and self._digests != {_weights_digest(self.float_model)}

    def new(self, plan: Any) -> Any:
        """Return a new model of a plan, without ranges.

        Args:
            plan: The plan.
        """
        self.note_weights()
        return qdq.quantize_model(self.float_model, plan=plan)

    def build(self, plan: Any, calibration: Any = None) -> Any:
        """Return a new model of a plan, with the ranges of a calibration if there was one.

        Args:
            plan: The plan.
            calibration: The `CalibrationResult`; None for the last one.
        """
        q_model = self.new(plan)
        calibration = self.calibration if calibration is None else calibration
        if calibration is not None:
            qdq.apply_calibration(q_model, calibration)
        return q_model

    def get(self, plan: Any) -> Any:
        """Return the calibrated or fine-tuned model of a plan.

        Args:
            plan: The plan.

        Raises:
            BenchError: If nothing was calibrated or trained yet.
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
        """Return the model of a plan as far as it is: fine-tuned, calibrated, or a new one without ranges.

        Args:
            plan: The plan.
        """
        return self.build(plan) if self.stage(plan) == "planned" else self.get(plan)

    def copy(self, plan: Any) -> Any:
        """Return a copy of the model of a plan, to train or correct further without touching the kept one.

        Args:
            plan: The plan.
        """
        kept = self.get(plan)
        if self.corrections(plan):
            return qdq.retarget(kept, plan.target)  # with its own ranges, and the biases that a correction added
        q_model = self.build(plan)
        q_model.set_weights(kept.get_weights())
        return q_model

    def put(self, plan: Any, q_model: Any, stage: str, corrections: tuple[Any, ...] = ()) -> None:
        """Keep a model as the one of a plan.

        Args:
            plan: The plan.
            q_model: The model.
            stage: "calibrated", "corrected" or "fine-tuned".
            corrections: What its weights were corrected by.
        """
        self._now.files.pop(plan_key(plan), None)  # it holds other weights
        self._keep(plan_key(plan), BenchModel(q_model, stage, corrections))

    def calibrated(self, plan: Any, q_model: Any, result: Any, read: tuple[int | None, int]) -> None:
        """Remember a calibration and its model.

        Args:
            plan: The plan that was calibrated.
            q_model: Its model.
            result: What `calibrate` returned.
            read: How many batches it read at most, and of how many samples.
        """
        self.use_calibration(result)
        self._now.read = read
        self.put(plan, q_model, CALIBRATED)

    def _keep(self, key: PlanKey, model: BenchModel) -> None:
        every = self._now.kept
        every[key] = model
        every.move_to_end(key)
        while len(every) > KEPT_MODELS:
            # What was only calibrated is built anew in seconds; what was trained would be lost.
            others = [(kept.stage != CALIBRATED, age, old) for age, (old, kept) in enumerate(every.items())]
            every.pop(min(others[:-1])[2])


def _weights_digest(model: Any) -> bytes:
    import keras

    digest = hashlib.sha256()
    for weight in model.weights:
        digest.update(keras.ops.convert_to_numpy(weight).tobytes())
    return digest.digest()
