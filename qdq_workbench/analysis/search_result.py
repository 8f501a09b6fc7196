"""The result of a search: the best placement under its constraints, and everything that it tried."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from qdq_workbench._documents import SavedReport, json_number
from qdq_workbench.analysis.cost import layer_costs
from qdq_workbench.analysis.levels import FLOAT, Level, raise_layers
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.retarget import replan
from qdq_workbench.errors import SpecError
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.profiling.latency import SATURATES
from qdq_workbench.runtimes.other_target import other_target_remark
from qdq_workbench.spec.quantization_spec import QuantizationSpec

_FORMAT = "qdq-workbench/search-result"


@dataclasses.dataclass(frozen=True)
class SearchStep:
    """One placement that a search tried.

    Args:
        levels: The level of each layer that differs from the plan of its case: "float", a number of bits, or the
            places of its pairs, such as "inputs 0, 1 with output".
        accuracy: The metric on the data.
        weight_bytes: Bytes of all weights.
        float_macs: Multiply-accumulate operations in float, per sample.
        meets: Whether it meets the constraints on the samples of the search.
        ms: Milliseconds per run of its file in ONNX Runtime; None if it was not timed.
        on_front: Whether it is on the Pareto front: no other placement that was tried is better in one of accuracy,
            bytes, float operations and time and at least equal in the others.
        case: Name of the insertion case that replaces the plan's cases and defaults; "defaults" for the defaults
            without any case, empty for the given plan.
    """

    levels: Mapping[str, Level]
    accuracy: float
    weight_bytes: int
    float_macs: int
    meets: bool
    ms: float | None = None
    on_front: bool = False
    case: str = ""

    @property
    def cost(self) -> tuple[int, int]:
        """The cost that a search minimizes: bytes of weights first, then multiply-accumulate operations in float."""
        return (self.weight_bytes, self.float_macs)

    @property
    def label(self) -> str:
        """The placement as text: its case, and the layers at other levels, grouped by level."""
        layers: dict[Level, list[str]] = {}
        for layer, level in self.levels.items():
            layers.setdefault(level, []).append(layer)
        texts = (f"{level} bits" if isinstance(level, int) else str(level) for level in layers)
        parts = [f"{', '.join(names)}: {text}" for names, text in zip(layers.values(), texts, strict=True)]
        return "; ".join([*([self.case] if self.case else []), *parts]) or "as given"

    def to_dict(self) -> dict[str, Any]:
        """Return the step as a JSON-compatible dictionary; infinite values and NaN are strings."""
        return {**dataclasses.asdict(self), "accuracy": json_number(self.accuracy), "levels": dict(self.levels)}


def cost_of(plan: PlacementPlan) -> tuple[int, int]:
    """Return the bytes of all weights and the multiply-accumulate operations in float of a plan, per sample."""
    costs = layer_costs(plan).values()
    return sum(cost.weight_bytes for cost in costs), sum(cost.float_macs for cost in costs)


def _loss(step: SearchStep) -> float:
    """Return the metric as a cost: lower is better, infinite for NaN, which compares with nothing."""
    return math.inf if math.isnan(step.accuracy) else -step.accuracy


def with_front(steps: list[SearchStep]) -> list[SearchStep]:
    """Return the steps with the Pareto front marked."""

    def costs(step: SearchStep) -> tuple[float, ...]:
        # An untimed placement never beats a timed one.
        ms = float("inf") if step.ms is None else step.ms
        return (_loss(step), float(step.weight_bytes), float(step.float_macs), ms)

    every = [costs(step) for step in steps]
    front: set[tuple[float, ...]] = set()
    # What beats a placement comes before it in this order, and is on the front or beaten by one that is.
    for own in sorted(set(every)):
        if not any(all(a <= b for a, b in zip(other, own, strict=True)) for other in front):
            front.add(own)
    return [dataclasses.replace(step, on_front=own in front) for step, own in zip(steps, every, strict=True)]


@dataclasses.dataclass(frozen=True)
class SearchResult(SavedReport):
    """The best placement that a search found; made by `search`.

    Floors, losses and accuracies are in the unit of the metric: an accuracy is a share of 1, an SQNR is in dB.

    Args:
        model: Name of the model.
        accuracy_floor: The requested minimum of the metric; None for no minimum.
        metric: Name of the metric.
        met: Whether the placement meets the constraints, those of accuracy on samples that did not choose it too; None
            if it meets them, and no such samples confirm it: `reason` says how to.
        reason: A sentence about the outcome; if the constraints are not met, why.
        accuracy: The metric of the placement, on the samples that confirm it, or by `confirm`, if there are any.
        float_accuracy: The metric of the float model, on the same samples.
        quantized_accuracy: The metric of the given plan, on the same samples.
        spec: The given `spec`, followed by entries for the layers that the placement changes.
        plan: The plan of the placement.
        base: The given plan.
        q_model: The quantized model of `plan`, with ranges.
        best: The step of the placement.
        history: Everything that was tried, in order.
        complete: Whether the search came to its end; False after a stop.
        exact: Whether every placement that may be better was tried.
        objective: The objective, as for `search`.
        max_bytes: The requested maximum of the bytes of weights; None for no limit.
        max_ms: The requested maximum of milliseconds per run; None for no limit.
        search_accuracy: The metric of the placement on the samples that chose it.
        confirmed_on: Number of held-out samples that the placement was measured on; 0 if none were held out, some of
            them also chose it, or `confirm` measured it.
        unconfirmed: Number of placements that met the floor on the samples of the search but not on the held-out ones.
        max_loss: The requested maximum of the loss against the float model's metric; None for no limit.
        search_floor: The minimum of the metric on the samples of the search; None for no minimum.
        starts: The plan of each case, by its name, before the level of any layer is changed.
        searched: The calibrated model that was searched; it is only read. None for `q_model`.
        saturates: Whether sums may saturate in kernels that were timed, on a processor without VNNI.
    """

    model: str
    accuracy_floor: float | None
    metric: str
    met: bool | None
    reason: str
    accuracy: float
    float_accuracy: float
    quantized_accuracy: float
    spec: QuantizationSpec
    plan: PlacementPlan
    base: PlacementPlan
    q_model: QuantizedModel
    best: SearchStep
    history: tuple[SearchStep, ...]
    complete: bool = True
    exact: bool = False
    objective: str = "bytes"
    max_bytes: int | None = None
    max_ms: float | None = None
    search_accuracy: float = 0.0
    confirmed_on: int = 0
    unconfirmed: int = 0
    max_loss: float | None = None
    search_floor: float | None = None
    starts: Mapping[str, PlacementPlan] = dataclasses.field(default_factory=dict)
    searched: QuantizedModel | None = None
    saturates: bool = False

    @property
    def float_layers(self) -> list[str]:
        """The layers that the placement keeps in float although the plan quantizes them."""
        return [layer for layer, level in self.best.levels.items() if level == FLOAT]

    @property
    def pareto(self) -> tuple[SearchStep, ...]:
        """Everything that was tried, the cheapest first; `on_front` marks the Pareto front."""
        return tuple(sorted(self.history, key=lambda step: (step.cost, _loss(step))))

    @property
    def target_remark(self) -> str:
        """A remark if files for another target than ONNX Runtime were timed in it, with a remedy; else empty."""
        timed = any(step.ms is not None for step in self.history)
        return other_target_remark(self.plan.target, what="What was timed", do="search") if timed else ""

    @property
    def processor_remark(self) -> str:
        """A remark if sums may saturate in the timed kernels (no VNNI), with a remedy; else empty."""
        return SATURATES if self.saturates else ""

    def apply(self, step: SearchStep | None = None) -> QuantizedModel:
        """Return the quantized model of a placement that was tried.

        Args:
            step: One of `history` or `pareto`; None for the best.

        Raises:
            SpecError: If the step is not of this search.
        """
        if step is None:
            return self.q_model
        known = isinstance(step, SearchStep) and any(
            (step.case, step.levels) == (tried.case, tried.levels) for tried in self.history
        )
        if not known:
            raise SpecError(f"The step is not of this search; take one of result.pareto. Received: {step!r}")
        plan = self.starts.get(step.case, self.base)
        source = self.q_model if self.searched is None else self.searched
        return replan(source, raise_layers(plan, step.levels) if step.levels else plan)

    def plot(self) -> Any:
        """Draw everything that was tried; see `qdq_workbench.results.pareto_figure`.

        Returns:
            A `plotly.graph_objects.Figure`.
        """
        import qdq_workbench

        return qdq_workbench.pareto_figure(self)

    def summary(self) -> str:
        """Return the outcome and everything that was tried as a text table."""
        quantized = f"all quantized {self.quantized_accuracy:.4f}, found {self.accuracy:.4f}"
        where = f" on {self.confirmed_on} held-out samples" if self.confirmed_on else ""
        floor = "" if self.accuracy_floor is None else f", floor {self.accuracy_floor:.4f}"
        if self.max_loss is not None:
            floor += f", at most {self.max_loss:.4f} below float"
        timed = any(step.ms is not None for step in self.history)
        ms = f"  {'ms':>8}" if timed else ""
        head = [
            self.reason,
            *(remark for remark in (self.target_remark, self.processor_remark) if remark),
            f"{self.metric}{where}: float {self.float_accuracy:.4f}, {quantized}{floor}",
            f"{'step':>4}    {self.metric:>10}  {'weight bytes':>12}  {'float MACs':>12}{ms}  placement",
        ]
        rows = [
            f"{number:>4} {'*' if step.on_front else ' '}  {step.accuracy:>10.4f}  {step.weight_bytes:>12,}  "
            f"{step.float_macs:>12,}{_time(step) if timed else ''}  {step.label}"
            for number, step in enumerate(self.history)
        ]
        return "\n".join([*head, *rows, "* on the Pareto front"])

    def to_dict(self) -> dict[str, Any]:
        """Return the result without the model, JSON-compatible; infinite values and NaN are strings."""
        plain = ("model", "accuracy_floor", "max_bytes", "max_ms", "objective", "metric", "met", "reason", "accuracy")
        more = ("float_accuracy", "quantized_accuracy", "search_accuracy", "search_floor", "confirmed_on")
        last = ("max_loss", "unconfirmed", "complete", "exact", "target_remark", "processor_remark", "saturates")
        return {
            "format": _FORMAT,
            "version": 1,
            **{name: json_number(getattr(self, name)) for name in (*plain, *more, *last)},
            "spec": self.spec.to_dict(),
            "plan": self.plan.to_dict(),
            "history": [step.to_dict() for step in self.history],
        }


def _time(step: SearchStep) -> str:
    return f"  {step.ms:>8.4f}" if step.ms is not None else f"  {'':>8}"
