"""The scores that the bench compares: FP32, after calibration, and along every fine-tuning run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

_CERTAINTY = 1.96  # standard deviations that hold 95 %


@dataclasses.dataclass(frozen=True)
class Scores:
    """The loss and the metrics of a model on the validation data.

    Args:
        loss: The loss; lower is better.
        metrics: Metrics by name, as compiled.
    """

    loss: float
    metrics: Mapping[str, float]

    @classmethod
    def of_logs(cls, logs: Mapping[str, Any]) -> Scores:
        """Return the scores from the result of Keras's `evaluate(return_dict=True)`."""
        values = {name: float(value) for name, value in logs.items()}
        loss = values.pop("loss", float("nan"))
        return cls(loss, values)


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """One fine-tuning run; an immutable value, which `Curves.with_run` replaces while the run grows.

    Args:
        name: Its name.
        target: The target whose grids it trained with.
        pairs: The number of Q/DQ pairs of the trained model.
        loss_trace: Training loss as (epochs done, running mean of the loss in this epoch).
        epochs: Numbers of epochs done, ascending; 0 stands for the start.
        scores: Validation scores after each of them; empty without validation data.
        state: "running", "done", "stopped" or "failed".
    """

    name: str
    target: str
    pairs: int
    loss_trace: tuple[tuple[float, float], ...] = ()
    epochs: tuple[float, ...] = ()
    scores: tuple[Scores, ...] = ()
    state: str = "running"

    @property
    def last(self) -> Scores | None:
        """The scores after the last epoch."""
        return self.scores[-1] if self.scores else None

    def replace(self, **changes: Any) -> TrainingRun:
        """Return a run with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the run as a JSON-compatible dictionary."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainingRun:
        """Rebuild a run from the dictionary of `to_dict`, also after a round trip through JSON."""
        scores = tuple(Scores(**value) for value in data["scores"])
        trace = tuple((float(at), float(loss)) for at, loss in data["loss_trace"])
        return cls(**{**data, "epochs": tuple(data["epochs"]), "scores": scores, "loss_trace": trace})


@dataclasses.dataclass(frozen=True)
class Curves:
    """All scores of a bench.

    Args:
        fp32: The float model's; None before the first evaluation.
        ptq: The calibrated model's, before training, for the plan it was last measured on.
        runs: The fine-tuning runs, oldest first.
    """

    fp32: Scores | None = None
    ptq: Scores | None = None
    runs: tuple[TrainingRun, ...] = ()

    @property
    def metric(self) -> str:
        """Name of the drawn metric: the first accuracy, else the first metric; empty without any."""
        found = [scores for scores in (self.fp32, self.ptq, *(run.last for run in self.runs)) if scores is not None]
        names = list(found[0].metrics) if found else []
        return next(filter(is_share, names), names[0] if names else "")

    def with_run(self, run: TrainingRun) -> Curves:
        """Return the curves with a run added, or with the run of that name replaced."""
        others = [run if other.name == run.name else other for other in self.runs]
        if all(other.name != run.name for other in self.runs):
            others.append(run)
        return dataclasses.replace(self, runs=tuple(others))

    def replace(self, **changes: Any) -> Curves:
        """Return curves with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the curves as a JSON-compatible dictionary."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Curves:
        """Rebuild curves from the dictionary of `to_dict`, also after a round trip through JSON."""
        runs = map(TrainingRun.from_dict, data["runs"])
        fp32, ptq = (None if data[key] is None else Scores(**data[key]) for key in ("fp32", "ptq"))
        return cls(fp32, ptq, tuple(runs))

    def summary(self) -> str:
        """Return the scores as a text table."""
        rows = [("FP32", self.fp32), ("calibrated (PTQ)", self.ptq), *((run.name, run.last) for run in self.runs)]
        lines = []
        for name, scores in rows:
            if scores is not None:
                metrics = "  ".join(f"{key} {value:.4f}" for key, value in scores.metrics.items())
                lines.append(f"{name:<24} loss {scores.loss:.4f}  {metrics}".rstrip())
        return "\n".join(lines) or "Nothing has been evaluated yet."


def is_share(metric: str) -> bool:
    """Return whether a metric is a share of the samples, from 0 to 1: whether its name contains "acc".

    Example:
        >>> is_share("val_accuracy"), is_share("mae")
        (True, False)
    """
    return "acc" in metric.lower()


def interval(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % score interval of a share of one or more samples (Wilson 1927).

    Example:
        >>> [round(end, 3) for end in interval(0.9, 100)]
        [0.826, 0.945]
    """
    squared = _CERTAINTY**2
    middle = (share + squared / (2 * count)) / (1 + squared / count)
    spread = math.sqrt(share * (1 - share) / count + squared / (4 * count**2)) * _CERTAINTY / (1 + squared / count)
    # The interval lies within 0 and 1; only rounding leads beyond.
    return max(0.0, middle - spread), min(1.0, middle + spread)
