"""The layer after which an output is quantized, if not at once; the graph finds the same in `quantized_after.ts`."""

from __future__ import annotations

from typing import Any

import qdq_workbench as qdq


def quantized_after(plan: qdq.PlacementPlan, node: Any) -> str | None:
    """Return the node after which the output of another node is quantized, on the single path behind it.

    A layer with weights ends the path, but for batch normalizations: they are folded and activations fused, so that the
    first node runs in integers though its own output has no pair.

    Returns:
        The name of the node; None if the output has a pair itself, or no output on the path has one.
    """
    paired = {tensor.tensor for tensor in plan.tensors if tensor.kind == "activation"}
    readers: dict[str, list[Any]] = {}
    for other in plan.graph.nodes:
        for tensor in other.inputs:
            readers.setdefault(tensor, []).append(other)
    at = node
    while len(at.outputs) == 1 and at.outputs[0] not in paired:
        (tensor,) = at.outputs
        if len(readers.get(tensor, ())) != 1 or tensor in plan.graph.outputs:
            return None
        (at,) = readers[tensor]
        has_kernel = at.weights and at.class_name != "BatchNormalization"
        if len(at.inputs) != 1 or has_kernel:
            return None
    return None if at is node or len(at.outputs) > 1 else str(at.name)
