"""The calls of `fit` that trained the weights of a model, recorded with it so that generated code can repeat them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from qdq_widgets.curves import TrainingRun
from qdq_widgets.errors import BenchError


@dataclasses.dataclass(frozen=True)
class Fit:
    """One call of `fit`.

    Args:
        epochs: The number of passes over the data; of a stopped run, those that it began.
        learning_rate: The rate; None for the optimizer's own.
        batch_size: Samples per batch of an array.
        calibration: Arguments of the calibration that the weights started from; empty if there was none.
        stopped_after: The number of epochs after which the run was stopped; None if it was complete.
    """

    epochs: int
    learning_rate: float | None
    batch_size: int
    calibration: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stopped_after: float | None = None

    @property
    def note(self) -> str:
        """A comment on the call if it was stopped; else empty."""
        return "" if self.stopped_after is None else stopped_note(self.stopped_after)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON-compatible dictionary."""
        return {**vars(self), "calibration": dict(self.calibration)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Fit:
        """Rebuild it from the dictionary of `to_dict`.

        Raises:
            BenchError: If the calibration has no valid arguments.
        """
        rate, stopped = (None if data[key] is None else float(data[key]) for key in ("learning_rate", "stopped_after"))
        if not all(map(str.isidentifier, data["calibration"])):  # they become code
            raise BenchError(f"These are no settings of a calibration. Received: {sorted(data['calibration'])}")
        return cls(int(data["epochs"]), rate, int(data["batch_size"]), dict(data["calibration"]), stopped)


def reached(run: TrainingRun) -> float | None:
    """Return the number of epochs after which a run was stopped; None if it was not."""
    if run.state != "stopped":
        return None
    return run.loss_trace[-1][0] if run.loss_trace else 0.0


def begun_epochs(stopped_after: float) -> int:
    """Return the number of epochs that a stopped run began, at least 1."""
    return max(1, math.ceil(stopped_after))


def stopped_note(stopped_after: float) -> str:
    """Return the comment on a call that was stopped."""
    return f"stopped after {stopped_after:.3g} epochs"
