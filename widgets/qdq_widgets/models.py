"""The quantized models of a bench: one per plan, so that undo leads back to what was calibrated and trained."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.curves import Scores
from qdq_widgets.errors import BenchError
from qdq_widgets.state import PlanKey, plan_key

KEPT_MODELS = 8


@dataclasses.dataclass(frozen=True)
class BenchModel:
    """A quantized model and how far it is.

    Args:
        model: The quantized Keras model.
        stage: "calibrated" or "fine-tuned".
    """

    model: Any
    stage: str


class ModelStore:
    """Builds quantized models on demand and keeps the last few.

    A calibration records the range of every tensor of the network, so that a model for another plan needs no data:
    the recorded ranges are applied to it. Fine-tuned weights belong to the plan that they were trained with.

    Args:
        model: The float model; only read.
    """

    def __init__(self, model: Any) -> None:
        self.float_model = model
        self._kept: collections.OrderedDict[PlanKey, BenchModel] = collections.OrderedDict()
        self._scores: dict[tuple[PlanKey, str], Scores] = {}
        self._sizes: dict[PlanKey, int] = {}
        self._digests: set[bytes] = set()
        self.calibration: Any = None

    def scores(self, plan: Any, stage: str | None = None) -> Scores | None:
        """Return what the model of a plan scored last; None if it was not scored.

        Args:
            plan: The plan.
            stage: "calibrated" or "fine-tuned"; None for the one that the plan has reached.
        """
        return self._scores.get((plan_key(plan), stage or self.stage(plan)))

    def size(self, plan: Any) -> int | None:
        """Return the bytes of the file that was exported last for a plan; None if there is none.

        Args:
            plan: The plan.
        """
        return self._sizes.get(plan_key(plan))

    def remember_scores(self, plan: Any, stage: str, scores: Scores | None) -> None:
        """Remember what the model of a plan scored.

        Args:
            plan: The plan.
            stage: "calibrated" or "fine-tuned".
            scores: What it scored; None forgets it.
        """
        if scores is None:
            self._scores.pop((plan_key(plan), stage), None)
        else:
            self._scores[plan_key(plan), stage] = scores

    def remember_size(self, plan: Any, size: int) -> None:
        """Remember the size of the file of a plan.

        Args:
            plan: The plan.
            size: Its bytes.
        """
        self._sizes[plan_key(plan)] = size

    def stage(self, plan: Any) -> str:
        """Return how far the model of a plan is: "planned", "calibrated" or "fine-tuned".

        Args:
            plan: The plan.
        """
        kept = self._kept.get(plan_key(plan))
        if kept is not None:
            return kept.stage
        return "planned" if self.calibration is None else "calibrated"

    def trained_otherwise(self, plan: Any) -> bool:
        """Return whether a plan has no fine-tuned weights of its own, while another one has.

        Args:
            plan: The plan.
        """
        return self.stage(plan) != "fine-tuned" and any(kept.stage == "fine-tuned" for kept in self._kept.values())

    def adopt(self, other: ModelStore, *, with_scores: bool) -> None:
        """Take over the calibration and the quantized models of another store for the same float model.

        Args:
            other: The other store.
            with_scores: Whether its scores hold here too, which they do on the same data.
        """
        self.calibration = other.calibration
        self._kept, self._sizes = other._kept.copy(), dict(other._sizes)
        self._digests = set(other._digests)
        self._scores = dict(other._scores) if with_scores else {}

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

    def build(self, plan: Any) -> Any:
        """Return a new model of a plan, with the ranges of the last calibration if there was one.

        Args:
            plan: The plan.
        """
        q_model = self.new(plan)
        if self.calibration is not None:
            qdq.apply_calibration(q_model, self.calibration)
        return q_model

    def get(self, plan: Any) -> Any:
        """Return the calibrated or fine-tuned model of a plan.

        Args:
            plan: The plan.

        Raises:
            BenchError: If nothing was calibrated or trained yet.
        """
        key = plan_key(plan)
        if key not in self._kept:
            if self.calibration is None:
                raise BenchError(
                    "The activation ranges are not known yet. Calibrate first: wb.calibrate(), or the button in the "
                    "Calibration pane. Received: a plan that was neither calibrated nor trained"
                )
            self._keep(key, BenchModel(self.build(plan), "calibrated"))
        self._kept.move_to_end(key)
        return self._kept[key].model

    def present(self, plan: Any) -> Any:
        """Return the model of a plan as far as it is: fine-tuned, calibrated, or a new one without ranges.

        Args:
            plan: The plan.
        """
        return self.build(plan) if self.stage(plan) == "planned" else self.get(plan)

    def copy(self, plan: Any) -> Any:
        """Return a copy of the model of a plan, to train further without touching the kept one.

        Args:
            plan: The plan.
        """
        kept = self.get(plan)
        q_model = self.build(plan)
        q_model.set_weights(kept.get_weights())
        return q_model

    def put(self, plan: Any, q_model: Any, stage: str) -> None:
        """Keep a model as the one of a plan.

        Args:
            plan: The plan.
            q_model: The model.
            stage: "calibrated" or "fine-tuned".
        """
        self._keep(plan_key(plan), BenchModel(q_model, stage))

    def calibrated(self, plan: Any, q_model: Any, result: Any) -> None:
        """Remember a calibration; models that only had an earlier one are built anew when they are needed.

        Args:
            plan: The plan that was calibrated.
            q_model: Its model.
            result: What `calibrate` returned.
        """
        self.calibration = result
        self._scores = {known: scores for known, scores in self._scores.items() if known[1] != "calibrated"}
        for key in [key for key, kept in self._kept.items() if kept.stage == "calibrated"]:
            del self._kept[key]
        self.put(plan, q_model, "calibrated")

    def _keep(self, key: PlanKey, model: BenchModel) -> None:
        self._kept[key] = model
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MODELS:
            # What was only calibrated is built anew in seconds; what was trained would be lost.
            others = [(kept.stage != "calibrated", age, old) for age, (old, kept) in enumerate(self._kept.items())]
            self._kept.pop(min(others[:-1])[2])


def _weights_digest(model: Any) -> bytes:
    import keras

    digest = hashlib.sha256()
    for weight in model.weights:
        digest.update(keras.ops.convert_to_numpy(weight).tobytes())
    return digest.digest()
