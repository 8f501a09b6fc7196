"""The sides of a comparison that are read from a file: its operators and pairs, and the kernels of ONNX Runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.graph_payload import plan_state
from qdq_widgets.graph_tables import tensor_numbers
from qdq_widgets.sides import Side, merged_nodes, placed, short

_SHORT = {
    "QuantizeLinear": "Q",
    "DequantizeLinear": "DQ",
    "ReorderInput": "layout",
    "ReorderOutput": "layout",
    "Transpose": "layout",
}
_MOST_SHOWN = 4


def file_side(held: qdq.files.FileLayers, title: str = "") -> Side:
    """Return a file as a side, by default titled by its name: its operators by layer, and the pairs it contains."""
    plan = _only_held(held)
    positions = {node.name: place for place, node in enumerate(plan.graph.nodes)}
    merged = merged_nodes(held.plan)
    cards = {}
    for node in plan.graph.nodes:
        if node.name in merged:
            cards[node.name] = merged[node.name]
        elif node.inputs:
            # Operators that only move or cast values are not counted: a node without any other one moves.
            found = held.operators.get(node.layer)
            cards[node.name] = " + ".join(_times(name, count) for name, count in found.items()) if found else "moves"
    state = plan_state(plan)
    state["pairs"] = _labels(plan, {name: grid.label for name, grid in held.pairs.items()})
    operators = sum(sum(found.values()) for found in held.operators.values())
    return Side(
        title or held.path.name,
        f"{operators:,} operators, {len(held.pairs)} Q/DQ pairs, {len(held.weights)} integer weights",
        plan,
        state,
        {"badges": True, "cards": _numbered(cards, positions), "faded": sorted(positions[name] for name in merged)},
        grids=f"file {held.plan.target}",
        merged=merged,
        remarks=tuple((_node_of(plan, problem), "!", problem) for problem in held.problems),
        **placed(plan, {name: grid.dtype for name, grid in {**held.pairs, **held.weights}.items()}),
    )


def _only_held(held: qdq.files.FileLayers) -> qdq.PlacementPlan:
    """Return the plan of a file without the placements whose pairs are missing in the file."""
    names = {*held.pairs, *held.weights}
    kept = tuple(one for one in held.plan.placements if held.plan.pair_of(one).name in names)
    return dataclasses.replace(held.plan, placements=kept)


def _labels(plan: qdq.PlacementPlan, grids: Mapping[str, str]) -> dict[str, list[str]]:
    numbers = plan.graph.once(tensor_numbers)
    found: dict[str, list[str]] = {}
    for item in plan.tensors:
        if item.kind == "activation":
            found.setdefault(str(numbers[item.tensor]), []).append(grids[item.name])
    return found


def _node_of(plan: qdq.PlacementPlan, problem: str) -> str:
    """Return the node whose layer is named in a sentence; the first node if there is none."""
    named = [node.name for node in plan.graph.nodes if repr(node.layer) in problem]
    return named[0] if named else plan.graph.nodes[0].name


def runtime_side(
    found: qdq.profiling.RuntimeGraph, latency: qdq.LatencyReport | None = None, title: str = "ONNX Runtime"
) -> Side:
    """Return the kernels of ONNX Runtime for a file as a side: on integers or in float, by layer, with times if given.

    A file without a plan, whose layers are not known, raises `BenchError`.
    """
    if found.plan is None:
        raise BenchError(
            "The file carries no plan, so its kernels cannot be told by layer. Expected a file of export_onnx. "
            f"Received: {str(found.path)!r}"
        )
    return _RuntimeSide(found, found.plan).side(latency, title)


class _RuntimeSide:
    """Maps every node of a model to the kernel that computes it."""

    def __init__(self, found: qdq.profiling.RuntimeGraph, plan: qdq.PlacementPlan) -> None:
        self._found, self._plan, self._graph = found, plan, plan.graph
        self._positions = {node.name: place for place, node in enumerate(self._graph.nodes)}
        self._merged = merged_nodes(plan)
        self._statuses = found.statuses()
        self._led: dict[str, list[qdq.profiling.RuntimeKernel]] = {}
        self._in: dict[str, qdq.profiling.RuntimeKernel] = {}
        for kernel in found.kernels:
            for place, layer in enumerate(kernel.layers):
                # The main layer comes first; the others are fused into its kernel.
                if place == 0:
                    self._led.setdefault(layer, []).append(kernel)
                else:
                    self._in.setdefault(layer, kernel)
        self._nodes = {node.name: self._status_of(node.name) for node in self._graph.nodes}
        self._conversions = self._by_node()

    def side(self, latency: qdq.LatencyReport | None, title: str) -> Side:
        whole = [kernel for kernel in self._found.kernels if kernel.layers]
        integers = sum(kernel.on_integers for kernel in whole)
        time = "" if latency is None else f", {latency.total_ms:.3g} ms measured"
        cards, faded = self._cards()
        look = {
            "badges": False,
            "cards": _numbered(cards, self._positions),
            "faded": faded,
            "groups": self._groups(),
            "pills": self._pills(),
            **({} if latency is None else self._times(latency)),
        }
        values = {
            node: {"status": status, "reason": cards.get(node, "")} for node, status in self._nodes.items() if status
        }
        state = {**plan_state(self._plan), "states": self._states(), "pairs": {}, "target": "onnxruntime"}
        return Side(
            title,
            f"{len(whole):,} kernels, {integers:,} on integers, {len(self._found.conversions):,} conversions{time}",
            self._plan,
            state,
            look,
            statuses=self._statuses,
            values=values,
            grids="kernels",
            merged={node: text for node, text in cards.items() if self._positions[node] in set(faded)},
            remarks=tuple(self._remarks()),
        )

    def _status_of(self, name: str) -> str | None:
        """Return the status of a node; a folded or absorbed node has that of the node it is folded into."""
        step = self._plan.onnx_lowering.nodes[name]
        if step.step in ("folded", "absorbed") and step.into:
            return self._statuses.get(self._graph.node(step.into[0]).layer)
        return self._statuses.get(self._graph.node(name).layer)

    def _cards(self) -> tuple[dict[str, str], list[int]]:
        """Return the texts of the cards by node, and the positions of nodes without a kernel of their own."""
        cards: dict[str, str] = {}
        faded = []
        for node in self._graph.nodes:
            if not node.inputs:
                continue
            own = self._led.get(node.layer, ())
            if node.name in self._merged:
                cards[node.name] = self._merged[node.name]
            elif own:
                cards[node.name] = _operators(own)
            elif node.layer in self._in:
                kernel = self._in[node.layer]
                cards[node.name] = f"in {kernel.operator} of {short(kernel.layers[0])}"
            else:
                cards[node.name] = "no kernel"
            if not own:
                faded.append(self._positions[node.name])
        return cards, faded

    def _groups(self) -> list[list[int]]:
        """Return the nodes that one kernel computes together; layers with several calls are in no group."""
        into: dict[str, list[str]] = {}
        for step in self._plan.onnx_lowering.nodes.values():
            for name in step.into[:1]:
                into.setdefault(self._graph.node(name).layer, []).append(step.node)
        groups: dict[str, set[str]] = {}
        for kernel in self._found.kernels:
            for layer in kernel.layers:
                calls = self._graph.calls(layer) if layer in self._graph.layers else ()
                # A kernel names its layer, not the call.
                if len(calls) == 1:
                    groups.setdefault(kernel.layers[0], set()).update([calls[0].name, *into.get(layer, ())])
        found = (sorted(self._positions[name] for name in names) for names in groups.values())
        return [group for group in found if len(group) > 1]

    def _by_node(self) -> dict[str, list[str]]:
        """Return the conversions by the node whose result they convert: the last of those merged into one kernel."""
        found: dict[str, list[str]] = {}
        for kernel in self._found.conversions:
            if kernel.behind in self._graph.layers:
                node = self._last(self._graph.calls(kernel.behind)[-1].name)
                found.setdefault(node, []).append(_SHORT.get(kernel.operator, kernel.operator))
        return found

    def _last(self, name: str) -> str:
        while True:
            readers = {reader.name for reader, _ in self._graph.readers(self._graph.node(name).outputs[0])}
            if len(readers) != 1 or not readers & self._merged.keys():
                return name
            (name,) = readers

    def _pills(self) -> dict[str, str]:
        return {
            str(self._positions[node]): "·".join(_counted(names)[:_MOST_SHOWN])
            for node, names in self._conversions.items()
        }

    def _states(self) -> list[str]:
        """Return the states of all nodes; an input is on if it reads integers."""
        producers = {name: node.name for node in self._graph.nodes for name in node.outputs}
        written: dict[str, bool] = {}
        states = []
        for node in self._graph.nodes:
            status = self._nodes[node.name]
            # Nodes are in computing order: the producers were seen before.
            arriving = [written[producers[tensor]] for tensor in node.inputs]
            if self._merged.get(node.name) == "vanishes" and arriving:
                takes, gives = arriving[0], arriving[0]
            else:
                takes = gives = status in ("int8", "partial")
            names = self._conversions.get(node.name, ())
            # After a conversion to integers its readers get integers, also from a float kernel.
            written[node.name] = gives or "Q" in names
            codes = "".join("1" if takes and came else "0" for came in arriving)
            states.append(f"{codes}:0:0")
        return states

    def _times(self, latency: qdq.LatencyReport) -> dict[str, Any]:
        found = {entry.layer: entry.ms for entry in latency.layers if entry.layer in self._graph.layers}
        longest = max(found.values(), default=0.0) or 1.0
        places = {layer: str(self._positions[self._graph.calls(layer)[0].name]) for layer in found}
        return {
            "labels": {places[layer]: f"{ms:.3g} ms" for layer, ms in found.items()},
            "bars": {places[layer]: round(max(ms, 0.0) / longest, 3) for layer, ms in found.items()},
        }

    def _remarks(self) -> Iterable[tuple[str, str, str]]:
        for node, names in self._conversions.items():
            # A change of layout leaves the type of the values.
            kept = [name for name in names if name != "layout"]
            if kept and self._graph.node(node).inputs and self._read(node):
                yield node, "⇄", f"converted behind {node}: {' · '.join(_counted(kept))}"

    def _read(self, node: str) -> bool:
        """Return whether a node has readers: conversions at the outputs of the model are not remarkable."""
        return any(True for name in self._graph.node(node).outputs for _ in self._graph.readers(name))


def _operators(kernels: Sequence[qdq.profiling.RuntimeKernel]) -> str:
    return " + ".join(_counted([kernel.operator for kernel in kernels]))


def _counted(names: Sequence[str]) -> list[str]:
    """Return the names without repetitions, with how often each occurs."""
    return [_times(name, names.count(name)) for name in dict.fromkeys(names)]


def _times(name: str, count: int) -> str:
    return name if count == 1 else f"{count} {name}"


def _numbered(cards: Mapping[str, str], positions: Mapping[str, int]) -> dict[str, str]:
    return {str(positions[node]): text for node, text in cards.items()}
