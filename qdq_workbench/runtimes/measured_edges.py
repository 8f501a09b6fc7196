"""The layers of an island, judged one by one: the time that each would save in float.

A layer at the edge of an island can stay in float alone: the conversion at the border moves to its other side. The
times of its kernels in both files and of the present conversion are measured. The time of the moved conversion is
estimated from the number of values that it converts; changes of layout that move with it are not counted. A layer
inside an island needs new conversions on both sides, which are estimated in the same way.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.runtimes.measured import Island, Latency

_WORTH_IT = 0.02  # share of a run; the estimate is too rough for smaller losses
Side = Literal["first", "last", "inside"]


@dataclasses.dataclass(frozen=True)
class IslandEdge:
    """A layer of an island judged alone, together with the layers that its kernels compute too.

    Args:
        layers: Their paths, in graph order.
        side: "first" if they read no tensor of the rest of the island, else "last" if the rest reads none of theirs,
            else "inside".
        ms: Milliseconds per run of their kernels in the file.
        baseline_ms: Milliseconds per run of their kernels in the float file.
        conversions_ms: Milliseconds per run of the conversions that only they need.
        moved_ms: Estimated milliseconds per run of the conversions between them and the rest of the island that they
            would need in float: the number of values times the file's average time per converted value.
        is_loss: Whether the estimate says that the file would be faster with them in float, by more than 2 % of a run
            and by more than the noise of the measurement for their time.
    """

    layers: tuple[str, ...]
    side: Side
    ms: float
    baseline_ms: float
    conversions_ms: float
    moved_ms: float
    is_loss: bool

    @property
    def gain_ms(self) -> float:
        """Estimated milliseconds per run that the file saves by having them in INT8; negative if float is faster."""
        # In float the layers take `baseline_ms + moved_ms`, in INT8 `ms + conversions_ms`.
        return self.baseline_ms - self.ms - self.conversions_ms + self.moved_ms

    def __str__(self) -> str:
        return (
            f"{' + '.join(self.layers)} ({self.side}): {self.gain_ms:+.4f} ms (kernels {self.ms:.4f} in INT8, "
            f"{self.baseline_ms:.4f} in float; conversions {self.conversions_ms:.4f} before, estimated "
            f"{self.moved_ms:.4f} behind)"
        )


def judged_alone(plan: PlacementPlan, islands: Sequence[Island], latency: Latency) -> tuple[IslandEdge, ...]:
    """Return the layers of measured islands, each judged alone, the largest loss first.

    Layers without a measured conversion of activations, or with an unknown size, cannot be judged and are left out.
    """
    costs = _Conversions(plan, latency)
    found = []
    for island in islands:
        for layers, ms, baseline_ms in _groups(plan, island, latency):
            side = _side(plan, layers, island.layers)
            now, moved = costs.now(layers, island.layers), costs.moved(layers, island.layers)
            if moved is None:
                continue
            uncertain = max(_WORTH_IT * latency.total_ms, latency.noise * (ms + now))
            edge = IslandEdge(layers, side, ms, baseline_ms, now, moved, is_loss=False)
            found.append(dataclasses.replace(edge, is_loss=-edge.gain_ms > uncertain))
    return tuple(sorted(found, key=lambda edge: edge.gain_ms))


def _groups(plan: PlacementPlan, island: Island, latency: Latency) -> Iterator[tuple[tuple[str, ...], float, float]]:
    """Yield the layers of an island that were measured together, with the layers folded into them, and their times."""
    inside = set(island.layers)
    folded: dict[str, list[str]] = {}
    for layer in island.layers:
        for call in plan.graph.calls(layer):
            for into in plan.onnx_lowering.nodes[call.name].into:
                folded.setdefault(plan.graph.node(into).layer, []).append(layer)
    for gain in latency.gains:
        if not inside.issuperset(gain.layers):
            continue
        group = {*gain.layers, *(each for layer in gain.layers for each in folded.get(layer, ()))}
        if group & inside != inside:  # a group that is the whole island is judged by `measured_islands`
            yield tuple(layer for layer in island.layers if layer in group), gain.ms, gain.baseline_ms


def _side(plan: PlacementPlan, layers: Collection[str], island: Collection[str]) -> Side:
    """Return at which edge of an island some of its layers are."""
    rest = set(island) - set(layers)
    if not any(plan.graph.producer(tensor).layer in rest for tensor in _read(plan, layers)):
        return "first"
    written = {tensor for layer in layers for call in plan.graph.calls(layer) for tensor in call.outputs}
    read = any(node.layer in rest for tensor in written for node, _ in plan.graph.readers(tensor))
    return "inside" if read else "last"


def _read(plan: PlacementPlan, layers: Iterable[str]) -> set[str]:
    return {tensor for layer in layers for call in plan.graph.calls(layer) for tensor in call.inputs}


class _Conversions:
    """The times of conversions: measured for those of the file, estimated for those that would move."""

    def __init__(self, plan: PlacementPlan, latency: Latency) -> None:
        self._plan = plan
        self._shapes = {name: tensor.shape for name, tensor in plan.graph.tensors.items()}
        self._ms: dict[str, float] = {}
        for other in latency.others:
            if other.what == "pair":
                # Q/DQ nodes are named `<pair>/QuantizeLinear` and `<pair>/DequantizeLinear`.
                pair = other.name.rpartition("/")[0]
                self._ms[pair] = self._ms.get(pair, 0.0) + other.ms
        activations = [pair for pair in plan.tensors if pair.kind == "activation" and pair.name in self._ms]
        sizes = [self._values(pair.tensor) for pair in activations]
        values = sum(size for size in sizes if size is not None)
        spent = sum(self._ms[pair.name] for pair, size in zip(activations, sizes, strict=True) if size is not None)
        self._per_value = spent / values if values else None

    def now(self, layers: Collection[str], island: Collection[str]) -> float:
        """Return the time of the conversions that only these layers of an island need."""
        rest, found = set(island) - set(layers), 0.0
        for pair in self._plan.tensors:
            if pair.kind == "weight":
                users = {placement.layer for placement in self._plan.placements if placement.tensor == pair.tensor}
            else:
                users = {node.layer for node, _ in self._plan.graph.readers(pair.tensor)}
                users.add(self._plan.graph.producer(pair.tensor).layer)
            if users & set(layers) and not users & rest:
                found += self._ms.get(pair.name, 0.0)
        return found

    def moved(self, layers: Collection[str], island: Collection[str]) -> float | None:
        """Return the estimated time of conversions between these layers and the rest of an island; None if unknown."""
        rest, graph = set(island) - set(layers), self._plan.graph
        between = {tensor for tensor in _read(self._plan, layers) if graph.producer(tensor).layer in rest}
        between |= {tensor for tensor in _read(self._plan, rest) if graph.producer(tensor).layer in set(layers)}
        sizes = [self._values(tensor) for tensor in between]
        if self._per_value is None or None in sizes:
            return None
        return self._per_value * sum(size for size in sizes if size is not None)

    def _values(self, tensor: str) -> int | None:
        """Return the number of values of a tensor per sample; None if sizes besides the batch are open."""
        sizes = self._shapes[tensor][1:]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)
