"""One side of a comparison of two graphs: a plan, the layers of a file, or the kernels of ONNX Runtime for a file.

Both sides are drawn on the nodes of the model, so that every node has its counterpart: a node without an operator or
kernel of its own is drawn faintly, with the name of the node that it was merged into.
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
    """One side: the data to draw, and the data to compare.

    Args:
        title: The title.
        note: Its numbers, in a sentence.
        plan: The plan that it follows from.
        state: A state of `plan_state`.
        look: Texts and marks of its cards; `SideLook` in `widgets/src/traits.ts` describes them.
        statuses: "int8", "partial" or "float" by layer; None if they are not known.
        values: The statuses with reasons, as values of `graph_colors`.
        pairs: The grids of the pairs on tensors, by name of the tensor; None for kernels, which have no pairs.
        weights: The grids of the integer weights by (layer, name); None as for `pairs`.
        inputs: The inputs that read a pair, by (node, index); None as for `pairs`.
        grids: The kind of the grids: only grids of the same kind are compared.
        merged: Texts by node without an operator or kernel of its own, such as "vanishes" and "folded into conv".
        remarks: Further rows: node, sign ("!" for a fault, "⇄" for a conversion) and sentence.
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
        """Return the colours of its nodes: by status if wanted and known, else by what is quantized."""
        if not by_status or self.values is None:
            return dict(NO_COLORS)
        return graph_colors(self.graph, "precision", self.values)


def plan_side(plan: qdq.PlacementPlan, title: str = "Plan", explanation: qdq.Explanation | None = None) -> Side:
    """Return a plan as a side; without an explanation the plan is explained here."""
    if explanation is None:
        with contextlib.suppress(qdq.errors.TargetError):  # a target without rules
            explanation = qdq.explain(plan, target=plan.target)
    return Side(
        title,
        f"{_counted(len(plan.graph.layers), 'layer')}, {_counted(len(plan.tensors), 'pair')}, "
        f"{target_title(plan.target)}",
        plan,
        plan_state(plan),
        {"badges": True},
        statuses=None if explanation is None else {entry.layer: entry.status for entry in explanation.layers},
        values=None if explanation is None else execution_values(explanation),
        **placed(plan, {item.name: item.quantizer.label for item in plan.tensors}),
    )


def placed(plan: qdq.PlacementPlan, grids: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields `pairs`, `weights` and `inputs` of a side, from a plan with exactly its pairs.

    `grids` are the grids of the pairs by name of the pair.
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
    """Return by node without operators of its own in an ONNX file: "vanishes", or the nodes that it is merged into."""
    words = {"folded": "folded into", "absorbed": "absorbed into"}
    found = {}
    for node in plan.onnx_lowering.nodes.values():
        if node.step == "vanishes":
            found[node.node] = "vanishes"
        elif node.step in words:
            found[node.node] = f"{words[node.step]} {', '.join(map(short, node.into))}"
    return found


def short(path: str) -> str:
    """Return the last part of a layer's path, as its card shows it."""
    return path.rsplit("/", 1)[-1]


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
