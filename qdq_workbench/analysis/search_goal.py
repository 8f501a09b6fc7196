"""The constraints and the objective of a search, and the order of placements that they define."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from qdq_workbench._numbers import real
from qdq_workbench.analysis.metrics import METRICS, Metric
from qdq_workbench.analysis.search_result import SearchStep
from qdq_workbench.errors import DataError

_ROUNDING = 1e-9
OBJECTIVES = ("bytes", "ms", "macs", "accuracy")


@dataclasses.dataclass(frozen=True)
class Goal:
    """Constraints and the objective.

    Args:
        objective: What is optimized: "bytes" of weights, "ms" per run, "macs" in float, or "accuracy".
        floor: Minimum of the metric; None for no minimum.
        max_bytes: Maximum bytes of weights; None for no limit.
        max_ms: Maximum milliseconds per run; None for no limit.
        max_loss: Maximum by which the metric may be below the float model's, on the same samples; None for no limit.
        ceiling: The float model's metric on the samples of the search; higher values count as equal to it.
    """

    objective: str
    floor: float | None
    max_bytes: int | None
    max_ms: float | None
    max_loss: float | None = None
    ceiling: float = float("inf")

    def __post_init__(self) -> None:
        """Make numbers of Python of the numbers, whose comparisons are saved as JSON."""
        for field in ("floor", "max_bytes", "max_ms", "max_loss", "ceiling"):
            object.__setattr__(self, field, real(getattr(self, field)))

    @property
    def is_timed(self) -> bool:
        """Whether files have to be timed."""
        return self.objective == "ms" or self.max_ms is not None

    @property
    def has_floor(self) -> bool:
        """Whether there is a constraint on accuracy."""
        return self.floor is not None or self.max_loss is not None

    def floor_beside(self, float_accuracy: float) -> float | None:
        """Return the minimum of the metric on samples where the float model has `float_accuracy`; None for none."""
        # Shares of samples are no exact binary numbers, nor is a loss of 0.01.
        below = [] if self.max_loss is None else [float_accuracy - self.max_loss - _ROUNDING]
        return max([*([] if self.floor is None else [self.floor]), *below], default=None)

    def is_accurate(self, accuracy: float, float_accuracy: float | None = None) -> bool:
        """Return whether a value of the metric meets the constraints on accuracy.

        `float_accuracy` is that of the float model on the same samples; None for that on the samples of the search.
        """
        floor = self.floor_beside(self.ceiling if float_accuracy is None else float_accuracy)
        # NaN is refused by name: without a floor there is no comparison that it would fail.
        return not math.isnan(accuracy) and (floor is None or accuracy >= floor)

    def is_small(self, weight_bytes: int) -> bool:
        """Return whether weights are small enough."""
        return self.max_bytes is None or weight_bytes <= self.max_bytes

    def is_fast(self, ms: float | None) -> bool:
        """Return whether a measured time is short enough."""
        return self.max_ms is None or (ms is not None and ms <= self.max_ms)

    def key(self, step: SearchStep) -> tuple[float, ...]:
        """Return the sort key of placements that meet the constraints: smaller is better, NaN the worst accuracy."""
        accuracy = -math.inf if math.isnan(step.accuracy) else step.accuracy
        # The number of changed layers breaks ties.
        cost = (float(step.weight_bytes), float(step.float_macs), -accuracy, float(len(step.levels)))
        if self.objective == "accuracy":
            # More accuracy than the float model has is chance of the samples.
            return (-min(accuracy, self.ceiling), *cost[:2], cost[3])
        if self.objective == "macs":
            return (cost[1], cost[0], *cost[2:])
        return (float("inf") if step.ms is None else step.ms, *cost) if self.objective == "ms" else cost

    def is_met(self, step: SearchStep) -> bool:
        """Return whether a placement meets all constraints on the samples of the search."""
        return self.is_accurate(step.accuracy) and self.is_small(step.weight_bytes) and self.is_fast(step.ms)

    def best(self, steps: list[SearchStep]) -> SearchStep:
        """Return the best placement that meets the constraints; if none does, the one that misses them least."""
        meeting = [step for step in steps if step.meets]
        if meeting:
            return min(meeting, key=self.key)
        return min(steps, key=self._miss)

    def promise(self, step: SearchStep) -> tuple[float, ...]:
        """Return the sort key of placements to continue a search from: those that meet the constraints come first."""
        return (0.0, *self.key(step)) if step.meets else (1.0, *self._miss(step))

    def _miss(self, step: SearchStep) -> tuple[float, ...]:
        """Return the sort key of placements that miss the constraints: first the sum of the relative excesses.

        A placement is timed only if it meets all other constraints, so one without a time comes after all timed ones.
        """
        untimed = self.is_timed and step.ms is None
        beyond = 0.0 if self.max_bytes is None else max(0.0, step.weight_bytes / max(self.max_bytes, 1) - 1.0)
        if self.max_ms is not None and step.ms is not None:
            beyond += max(0.0, step.ms / self.max_ms - 1.0)
        floor = self.floor_beside(self.ceiling)
        # A NaN in the key would leave the order to chance, since it compares as False with everything.
        if math.isnan(step.accuracy):
            return (float(untimed), math.inf, math.inf, *map(float, step.cost))
        if floor is not None:
            beyond += max(0.0, floor - step.accuracy) / max(abs(floor), _ROUNDING)
        return (float(untimed), beyond, -step.accuracy, *map(float, step.cost))


def check_goal(goal: Goal, metric: Metric, evaluate: Any) -> None:
    """Raise `DataError` if a value of a goal has the wrong type or range, or the goal has no constraint and objective.

    Raises:
        DataError: If an option is unknown or out of range, lower values of the metric are better, or there is neither
            a constraint nor another objective than "bytes".
    """
    if goal.objective not in OBJECTIVES:
        names = ", ".join(map(repr, OBJECTIVES))
        raise DataError(f"objective must be one of {names}. Received: objective={goal.objective!r}")
    if evaluate is None and not metric.higher_is_better:
        raise DataError(
            f"A floor needs a metric of which more is better; {metric.name!r} is the opposite. Use 'accuracy', 'sqnr', "
            "'cosine' or a function of your own."
        )
    if goal.floor is not None:
        if not _is_number(goal.floor):
            raise DataError(
                f"accuracy_floor must be a number, such as 0.9, and finite. Received: accuracy_floor={goal.floor!r}"
            )
        if evaluate is None and metric is METRICS["accuracy"] and not 0.0 <= float(goal.floor) <= 1.0:
            raise DataError(
                f"An accuracy is a share from 0 to 1; for 90 % give 0.9. Received: accuracy_floor={goal.floor!r}"
            )
    _check_limits(goal)
    # The SQNR of the float model is infinite, so a `max_loss` is refused before any work.
    if evaluate is None and metric is METRICS["sqnr"]:
        check_float_accuracy(goal, math.inf, metric.name)
    if not goal.has_floor and goal.max_bytes is None and goal.max_ms is None and goal.objective == "bytes":
        raise DataError(
            "Nothing is asked for: give accuracy_floor=0.9 or max_loss=0.01, a budget (max_bytes=, max_ms=) with "
            "objective='accuracy', or objective='ms'. Received: no floor, no budget"
        )


def _check_limits(goal: Goal) -> None:
    """Raise `DataError` if a limit on bytes, time or loss has the wrong type or range."""
    for name, value in (("max_bytes", goal.max_bytes), ("max_ms", goal.max_ms)):
        if value is not None and (not _is_number(value) or float(value) <= 0.0):
            raise DataError(f"{name} must be a number above 0 and finite, or None. Received: {name}={value!r}")
    if goal.max_loss is not None and (not _is_number(goal.max_loss) or float(goal.max_loss) < 0.0):
        raise DataError(
            "max_loss must be a number of at least 0, such as 0.01 for one point of accuracy, and finite. "
            f"Received: max_loss={goal.max_loss!r}"
        )


def check_float_accuracy(goal: Goal, accuracy: float, name: str) -> float:
    """Return the float model's metric; raise `DataError` if it is NaN, or infinite while the goal has a `max_loss`."""
    if math.isnan(accuracy):
        raise DataError(
            "The metric of the float model is NaN, so no placement can be compared with it. Check the function and the "
            f"data. Received: metric {name!r}"
        )
    if goal.max_loss is not None and math.isinf(accuracy):
        raise DataError(
            "max_loss counts from the metric of the float model, which is infinite here, as the SQNR of equal outputs "
            "is: only the float model itself would be near enough. Give accuracy_floor instead, such as 30 for 30 dB. "
            f"Received: max_loss={goal.max_loss!r}, metric {name!r}"
        )
    return accuracy


def _is_number(value: Any) -> bool:
    is_number = not isinstance(value, bool) and hasattr(value, "__float__") and getattr(value, "shape", ()) == ()
    try:
        return is_number and math.isfinite(float(value))
    except OverflowError:  # an integer beyond the largest float
        return False
