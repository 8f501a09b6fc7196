"""Which tensors must still exist once batch normalizations are folded; every exporter and every rule set asks here."""

from __future__ import annotations

from qdq_workbench.placement.defaults import find_default
from qdq_workbench.placement.plan import Placement, PlacementPlan


def tensors_kept(plan: PlacementPlan) -> frozenset[str]:
    """Return the tensors that folding must leave: those with a pair, and those that `kept_for_scales` names.

    Args:
        plan: The plan.
    """
    return frozenset(tensor.tensor for tensor in plan.tensors if tensor.kind == "activation") | kept_for_scales(plan)


def kept_for_scales(plan: PlacementPlan) -> frozenset[str]:
    """Return the outputs of layers whose weight scales lie along another axis than the gains of a normalization.

    Args:
        plan: The plan.
    """
    layers = {placement.layer for placement in scales_along_other_axes(plan)}
    return frozenset(tensor for layer in layers for node in plan.graph.calls(layer) for tensor in node.outputs)


def scales_along_other_axes(plan: PlacementPlan) -> list[Placement]:
    """Return the weights whose scales lie along another axis than their layer's channels.

    Args:
        plan: The plan.
    """
    found = []
    for placement in plan.placements:
        axis = placement.quantizer.axis
        if placement.weight is None or axis is None:
            continue
        node = plan.graph.node(placement.node)
        default = find_default(node)
        own = default.weights.get(placement.weight) if default is not None else None
        rank = next(len(weight.shape) for weight in node.weights if weight.name == placement.weight)
        if own is None or own % rank != axis:
            found.append(placement)
    return found
