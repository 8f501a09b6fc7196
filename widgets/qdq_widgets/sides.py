"""One side of a comparison of two graphs: a plan, what a file holds, or what ONNX Runtime makes of a file.

Both sides are drawn on the layers of the model, so that each stands beside itself: what has no operator or kernel of
its own is drawn faintly and says whose it became a part of.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.graph_colors import NO_COLORS, graph_colors
from qdq_widgets.graph_payload import plan_state
from qdq_widgets.targets import execution_values, target_title

Place = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Side:
    """What is drawn on one side, and what it is compared by.

    Args:
        title: What it is, in a few words.
        note: Its figures, in a sentence.
        plan: The plan that it follows from.
        state: As `plan_state` makes it.
        look: What its cards say where that differs from a plan's; `SideLook` in `widgets/src/traits.ts` describes it.
        statuses: "int8", "partial" or "float" by layer; None where that is not known.
        values: The same with reasons, as the graph takes them for its colours.
        pairs: The grids of the pairs on tensors, by name of the tensor; None where there are no pairs any more.
        weights: The grids of the integer weights by (layer, name); None as for `pairs`.
        inputs: The inputs that take a pair, by node and position; None as for `pairs`.
        grids: Of which kind the grids are: only those of one kind are compared.
        merged: What became of nodes without an operator or a kernel of their own.
        remarks: What is to be known besides: node, sign ("!" for a fault, "⇄" for a conversion) and sentence.
    """

    title: str
    note: str
    plan: qdq.PlacementPlan
    state: dict[str, Any]
    look: Mapping[str, Any]
    statuses: Mapping[str, str] | None = None
    values: Mapping[str, Any] | None = None
    pairs: Mapping[str, str] | None = None
    weights: Mapping[tuple[str, str], str] | None = None
    inputs: frozenset[Place] | None = None
    grids: str = "plan"
    merged: Mapping[str, str] = dataclasses.field(default_factory=dict)
    remarks: tuple[tuple[str, str, str], ...] = ()

    @property
    def graph(self) -> qdq.ModelGraph:
        """The model's graph."""
        return self.plan.graph

    def colors(self, *, by_status: bool) -> dict[str, Any]:
        """Return how its nodes are coloured.

        Args:
            by_status: By how the layers run, where that is known; else by what is quantized.
        """
        if not by_status or self.values is None:
            return dict(NO_COLORS)
        return graph_colors(self.graph, "precision", self.values)


def plan_side(plan: qdq.PlacementPlan, title: str = "Plan", explanation: qdq.Explanation | None = None) -> Side:
    """Return a plan as a side.

    Args:
        plan: The plan.
        title: What it is called.
        explanation: What its target does with every layer; None to find out.
    """
    if explanation is None:
        with contextlib.suppress(qdq.errors.TargetError):  # a target without rules
            explanation = qdq.explain(plan, target=plan.target)
    return Side(
        title,
        f"{_counted(len(plan.graph.nodes), 'layer')}, {_counted(len(plan.tensors), 'pair')}, "
        f"{target_title(plan.target)}",
        plan,
        plan_state(plan),
        {"badges": True},
        statuses=None if explanation is None else {entry.layer: entry.status for entry in explanation.layers},
        values=None if explanation is None else execution_values(explanation),
        **placed(plan, {item.name: item.quantizer.label for item in plan.tensors}),
    )


def placed(plan: qdq.PlacementPlan, grids: Mapping[str, str]) -> dict[str, Any]:
    """Return the pairs, weights and inputs of a side.

    Args:
        plan: A plan that has no other pairs than the side.
        grids: The grids of its pairs by name.
    """
    pairs: dict[str, list[str]] = {}
    weights, inputs = {}, set()
    for item in plan.tensors:
        if item.kind == "activation":
            pairs.setdefault(item.tensor, []).append(grids[item.name])
    for one in plan.placements:
        if one.site == "weight":
            weights[one.layer, one.tensor] = grids[plan.pair_of(one).name]
        elif one.site == "input":
            inputs.add((one.node, one.input_index))
    everywhere = {one.tensor for one in plan.placements if one.site == "output"}
    inputs |= {
        (node.name, index)
        for node in plan.graph.nodes
        for index, tensor in enumerate(node.inputs)
        if tensor in everywhere
    }
    shown = {tensor: "; ".join(found) for tensor, found in pairs.items()}
    return {"pairs": shown, "weights": weights, "inputs": frozenset(inputs)}


def merged_nodes(plan: qdq.PlacementPlan) -> dict[str, str]:
    """Return what becomes of the nodes that have no operators of their own in an ONNX file, in a few words.

    Args:
        plan: The plan.
    """
    words = {"folded": "folded into", "absorbed": "absorbed into"}
    found = {}
    for node in plan.onnx_lowering.nodes.values():
        if node.step == "vanishes":
            found[node.node] = "vanishes"
        elif node.step in words:
            found[node.node] = f"{words[node.step]} {', '.join(map(short, node.into))}"
    return found


def short(path: str) -> str:
    """Return the last part of a layer's path, as its card shows it.

    Args:
        path: Path of the layer.
    """
    return path.rsplit("/", 1)[-1]


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
