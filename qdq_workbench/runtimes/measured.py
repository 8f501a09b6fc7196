"""Measured gains and losses of INT8, by islands: the largest sets of layers between which integers flow.

A single quantized layer between floats may be faster by itself and still slow the file down: its input is converted to
integers and its output back. So gains are computed by island: the time that its kernels save minus the time of the
conversions at its borders. Only a whole island can be left in float without new conversions.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from qdq_workbench.errors import SpecError
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.runtimes.verdict import LayerExplanation

_MEASURED = "onnxruntime"  # the target whose kernels `profile_onnx` measures
_ENGINE = "ONNX Runtime"
_LEAST_SHARE = 0.005  # share of a run; a smaller loss is not worth a change of the plan


class Latency(Protocol):
    """The properties of a `LatencyReport` that are used here."""

    @property
    def gains(self) -> tuple[Any, ...]:
        """The gains of the layers against the float file."""

    @property
    def others(self) -> tuple[Any, ...]:
        """The times that belong to no layer, such as conversions."""

    @property
    def engine(self) -> str:
        """The runtime that was measured."""

    @property
    def target(self) -> str | None:
        """The target that the measured file was exported for; None if it is not known."""

    @property
    def noise(self) -> float:
        """The relative noise of the measurement."""

    @property
    def total_ms(self) -> float:
        """Milliseconds per run."""

    @property
    def baseline(self) -> Any:
        """The report of the float file, or None."""


@dataclasses.dataclass(frozen=True)
class Island:
    """Layers between which integers flow, with their measured gain.

    Args:
        layers: Their paths, in graph order.
        kernels_ms: Milliseconds per run that their kernels save against the float file; negative if they are slower.
        conversions_ms: Milliseconds per run of the conversions (QuantizeLinear, DequantizeLinear) at their borders.
        is_loss: Whether the file would be faster with them in float: the loss is more than 0.5 % of a run, and more
            than the noise of the measurement for their time.
    """

    layers: tuple[str, ...]
    kernels_ms: float
    conversions_ms: float
    is_loss: bool

    @property
    def gain_ms(self) -> float:
        """Milliseconds per run that the file saves by having them in INT8; negative for a loss."""
        return self.kernels_ms - self.conversions_ms

    def __str__(self) -> str:
        names = " + ".join(self.layers[:3]) + (f" + {len(self.layers) - 3} more" if len(self.layers) > 3 else "")
        return (
            f"{names}: {self.gain_ms:+.4f} ms (kernels {self.kernels_ms:+.4f}, conversions {-self.conversions_ms:+.4f})"
        )


def measured_islands(plan: PlacementPlan, layers: Sequence[LayerExplanation], latency: Latency) -> tuple[Island, ...]:
    """Return the islands of a plan with their measured gains, the largest loss first."""
    _check(plan, latency)
    islands = _Islands(plan, layers)
    for gain in latency.gains:
        # All before the first `home`, which a later join would change.
        islands.join_measured(gain.layers)
    saved, paid, taken = (defaultdict[str | None, float](float) for _ in range(3))
    for gain in latency.gains:
        home = islands.home(gain.layers)
        saved[home] += gain.gain_ms
        taken[home] += gain.ms
    for other in latency.others:
        if other.what == "pair":
            paid[islands.home_of_conversion(other.name)] += other.ms
    found = []
    for home, members in islands.all():
        uncertain = max(_LEAST_SHARE * latency.total_ms, latency.noise * (taken[home] + paid[home]))
        found.append(Island(members, saved[home], paid[home], is_loss=paid[home] - saved[home] > uncertain))
    return tuple(sorted(found, key=lambda island: island.gain_ms))


def _check(plan: PlacementPlan, latency: Latency) -> None:
    if plan.target != _MEASURED or latency.engine != _ENGINE:
        raise SpecError(
            "Times are measured in ONNX Runtime, and say nothing about what another runtime gains. Leave latency out, "
            f"or export and measure for target={_MEASURED!r}, and explain for it. Received: target={plan.target!r}, "
            f"measured in {latency.engine}"
        )
    if latency.target not in (None, _MEASURED):
        raise SpecError(
            "The measured file was exported for another target, so its kernels are not those of this plan. Export with "
            f"target={_MEASURED!r} and measure that file. Received: target={plan.target!r}, a file for "
            f"{latency.target}"
        )
    if latency.baseline is None:
        raise SpecError(
            "The measurement has no float file beside it, so nobody knows what INT8 gains. Measure with "
            "qdq.profiling.profile_onnx(path, baseline=float_path); qdq.files.export_float_onnx(model, float_path, "
            "target='onnxruntime') writes that file. Received: a latency report without a baseline"
        )
    known = set(plan.graph.layers)
    measured = {layer for gain in latency.gains for layer in gain.layers}
    if not measured & known:
        raise SpecError(
            "The measurement is of other layers than the plan's; measure the file of this plan. "
            f"Received: measured {sorted(measured)[:3]}, planned {sorted(known)[:3]}"
        )


class _Islands:
    """Disjoint sets of layers (union-find); each is identified by its root layer, the home."""

    def __init__(self, plan: PlacementPlan, layers: Sequence[LayerExplanation]) -> None:
        self._graph = plan.graph
        self._order = {layer: place for place, layer in enumerate(plan.graph.layers)}
        status = {entry.layer: entry.status for entry in layers}
        # A quantized layer that computes in float has no kernel to gain by, but pays for its conversions.
        planned = {placement.layer for placement in plan.placements if placement.author != "target"}
        integer = {layer for layer, what in status.items() if what != "float"}
        self._parent = {layer: layer for layer in status if layer in integer or layer in planned}
        for node in plan.graph.nodes:
            for tensor in node.inputs:
                before = plan.graph.producer(tensor).layer
                if before in integer and node.layer in integer:
                    self._join(before, node.layer)
        self._owners = dict(self._pair_owners(plan, integer))

    def join_measured(self, layers: Iterable[str]) -> None:
        """Join the islands of layers that were measured together."""
        inside = [layer for layer in layers if layer in self._parent]
        for layer in inside[1:]:
            self._join(inside[0], layer)

    def home(self, layers: Iterable[str]) -> str | None:
        """Return the home of the island of some layers; None if none of them is quantized."""
        return next((self._find(layer) for layer in layers if layer in self._parent), None)

    def home_of_conversion(self, node: str) -> str | None:
        """Return the home of the island that a Q/DQ node of the file belongs to, by the pair in the node's name."""
        owner = self._owners.get(node.rpartition("/")[0])
        return None if owner is None else self._find(owner)

    def all(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield every island's home and its layers in graph order."""
        members: dict[str, list[str]] = {}
        for layer in self._order:
            if layer in self._parent:
                members.setdefault(self._find(layer), []).append(layer)
        for home, layers in members.items():
            yield home, tuple(layers)

    def _pair_owners(self, plan: PlacementPlan, integer: set[str]) -> Iterator[tuple[str, str]]:
        """Yield every pair with its owner: a layer that runs on integers, else any quantized layer at the pair."""
        for pair in plan.tensors:
            if pair.kind == "weight":
                users = [placement.layer for placement in plan.placements if placement.tensor == pair.tensor]
            else:
                readers = [node.layer for node, _ in self._graph.readers(pair.tensor)]
                users = [*readers, self._graph.producer(pair.tensor).layer]
            inside = [layer for layer in users if layer in self._parent]
            owner = next((layer for layer in inside if layer in integer), next(iter(inside), None))
            if owner is not None:
                yield pair.name, owner

    def _find(self, layer: str) -> str:
        while self._parent[layer] != layer:
            self._parent[layer] = self._parent[self._parent[layer]]
            layer = self._parent[layer]
        return layer

    def _join(self, first: str, second: str) -> None:
        self._parent[self._find(second)] = self._find(first)
