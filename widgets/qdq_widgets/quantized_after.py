"""The layer after which an output is quantized, if not at once; the graph finds the same in `quantized_after.ts`."""

from __future__ import annotations

from typing import Any

import qdq_workbench as qdq


def quantized_after(plan: qdq.PlacementPlan, node: Any) -> str | None:
    """Return the node after which the output of another node is quantized; no node on the way has a kernel.

    Normalizations and activations on the way are folded or fused, so that the first node runs in integers though its
    own output has no pair.

    Returns:
        The name of the node; None if the output has a pair itself, or no output on the way has one.
    """
    paired = {tensor.tensor for tensor in plan.tensors if tensor.kind == "activation"}
    weighted = {placement.layer for placement in plan.placements if placement.site == "weight"}
    readers: dict[str, list[Any]] = {}
    for other in plan.graph.nodes:
        for tensor in other.inputs:
            readers.setdefault(tensor, []).append(other)
    if any(tensor in paired for tensor in node.outputs):
        return None
    at = node
    while len(at.outputs) == 1 and len(readers.get(at.outputs[0], ())) == 1:
        at = readers[at.outputs[0]][0]
        has_kernel = any(weight.name in ("kernel", "depthwise_kernel") for weight in at.weights)
        if len(at.inputs) != 1 or at.layer in weighted or has_kernel or len(at.outputs) > 1:
            return None
        if at.outputs[0] in paired:
            return str(at.name)
    return None
