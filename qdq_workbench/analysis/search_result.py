"""What a search found: the cheapest placement that is accurate enough, and everything that it tried."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from qdq_workbench._files import write_text
from qdq_workbench.analysis.cost import layer_costs
from qdq_workbench.analysis.levels import FLOAT, Level
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.spec.quantization_spec import QuantizationSpec

_FORMAT = "qdq-workbench/search-result"


@dataclasses.dataclass(frozen=True)
class SearchStep:
    """One placement that a search tried.

    Args:
        levels: The layers that differ from the plan: "float", or a number of bits.
        accuracy: The metric on the data.
        weight_bytes: Bytes of all weights.
        float_macs: Multiply-accumulate operations in float, per sample.
        meets: Whether the accuracy reaches the floor.
    """

    levels: Mapping[str, Level]
    accuracy: float
    weight_bytes: int
    float_macs: int
    meets: bool

    @property
    def cost(self) -> tuple[int, int]:
        """What a search keeps small: bytes of weights first, then multiply-accumulate operations in float."""
        return (self.weight_bytes, self.float_macs)

    def to_dict(self) -> dict[str, Any]:
        """Return the step as a JSON-compatible dictionary."""
        return {**dataclasses.asdict(self), "levels": dict(self.levels)}


def cost_of(plan: PlacementPlan) -> tuple[int, int]:
    """Return the bytes of all weights and the multiply-accumulate operations in float that a plan leads to."""
    costs = layer_costs(plan).values()
    return sum(cost.weight_bytes for cost in costs), sum(cost.float_macs for cost in costs)


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """The best placement that a search found; made by `search`.

    Args:
        model: Name of the model.
        accuracy_floor: What was asked for.
        metric: Name of the metric.
        met: Whether the best placement reaches the floor.
        reason: A sentence about the outcome; says why the floor cannot be met where it is not.
        accuracy: The metric of the best placement.
        float_accuracy: The metric of the float model.
        quantized_accuracy: The metric of the plan as it was given.
        spec: Entries for the raised layers, behind those of the `spec` that was given.
        plan: The best placement.
        q_model: The quantized model of that plan, with ranges.
        history: Everything that was tried, in order.
        complete: Whether the search came to its end; False after a stop.
    """

    model: str
    accuracy_floor: float
    metric: str
    met: bool
    reason: str
    accuracy: float
    float_accuracy: float
    quantized_accuracy: float
    spec: QuantizationSpec
    plan: PlacementPlan
    q_model: QuantizedModel
    history: tuple[SearchStep, ...]
    complete: bool = True

    @property
    def float_layers(self) -> list[str]:
        """The layers that the best placement keeps in float although the plan quantizes them."""
        return [layer for layer, level in self.best.levels.items() if level == FLOAT]

    @property
    def best(self) -> SearchStep:
        """The step of the best placement: the cheapest that reaches the floor, else the most accurate."""
        return best_of(self.history)

    def summary(self) -> str:
        """Return the outcome and everything that was tried as a text table."""
        quantized = f"all quantized {self.quantized_accuracy:.4f}, found {self.accuracy:.4f}"
        head = [
            self.reason,
            f"{self.metric}: float {self.float_accuracy:.4f}, {quantized}, floor {self.accuracy_floor:.4f}",
            f"{'step':>4}  {self.metric:>10}  {'weight bytes':>12}  {'float MACs':>12}  raised layers",
        ]
        rows = [
            f"{number:>4}  {step.accuracy:>10.4f}  {step.weight_bytes:>12,}  {step.float_macs:>12,}  {_levels(step)}"
            for number, step in enumerate(self.history)
        ]
        return "\n".join([*head, *rows])

    def to_dict(self) -> dict[str, Any]:
        """Return the result, without the model, as a JSON-compatible dictionary."""
        plain = ("model", "accuracy_floor", "metric", "met", "reason", "accuracy", "float_accuracy")
        return {
            "format": _FORMAT,
            "version": 1,
            **{name: getattr(self, name) for name in plain},
            "quantized_accuracy": self.quantized_accuracy,
            "complete": self.complete,
            "spec": self.spec.to_dict(),
            "plan": self.plan.to_dict(),
            "history": [step.to_dict() for step in self.history],
        }

    def save(self, path: str | pathlib.Path) -> None:
        """Write the result, without the model, to a JSON file, atomically.

        Args:
            path: Where to write.

        Raises:
            OutputPathError: If the file cannot be written.
        """
        write_text(path, json.dumps(self.to_dict(), indent=2) + "\n")


def best_of(steps: tuple[SearchStep, ...] | list[SearchStep]) -> SearchStep:
    """Return the cheapest step that reaches the floor, else the most accurate, and of these the cheapest."""
    meeting = [step for step in steps if step.meets]
    if meeting:
        return min(meeting, key=lambda step: (step.cost, -step.accuracy))
    return min(steps, key=lambda step: (-step.accuracy, step.cost))


def _levels(step: SearchStep) -> str:
    parts = [f"{layer}: {level if level == FLOAT else f'{level} bits'}" for layer, level in step.levels.items()]
    return ", ".join(parts) or "none"
