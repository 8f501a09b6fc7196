"""Comparison of the pairs and integer weights that a file holds with those that follow from the plan alone.

The exporter omits what no output of the model depends on. Where the plan tells what a node reads, it also tells what
must be in the file; custom layers and some operations may ignore an input or a weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx

from qdq_workbench.export.left_out import written_tensors
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.placement.plan import PlacementPlan


def presence_differences(plan: PlacementPlan, proto: onnx.ModelProto) -> Iterator[str]:
    """Yield the pairs and integer weights that a file lacks, and those that the plan does not have."""
    held, needs = written_tensors(proto), needed_tensors(plan)
    missing = {each for each, certain in needs.items() if certain} - held
    for found, wrong in (
        (missing, "is missing"),
        (held - set(needs), "is not in the plan, or no output depends on it"),
    ):
        for kind, name in sorted(found):
            yield f"the {'weight' if kind == 'weight' else 'pair'} {name!r} {wrong}"


def needed_tensors(plan: PlacementPlan) -> dict[tuple[str, str], bool]:
    """Return ("activation" or "weight", name) of all that an output may depend on, and whether it certainly does."""
    needs: dict[tuple[str, str], bool] = {}
    tensors: dict[str, bool] = {}

    def add(found: dict[Any, bool], key: Any, *, certain: bool) -> None:
        found[key] = certain or found.get(key, False)

    def read(tensor: str, node: str | None, index: int, *, certain: bool) -> None:
        placement = plan.output_placement(tensor) if node is None else plan.input_placement(node, index)
        if placement is not None:
            add(needs, ("activation", plan.pair_of(placement).name), certain=certain)
        add(tensors, tensor, certain=certain)

    for tensor in plan.graph.outputs:
        read(tensor, None, 0, certain=True)
    layers: dict[str, bool] = {}
    for node in reversed(plan.graph.nodes):
        if tensors.keys().isdisjoint(node.outputs):
            continue
        certain = any(tensors.get(output, False) for output in node.outputs)
        add(layers, node.layer, certain=certain and not node.opaque)
        reads = certain and _reads_all(plan, node, tensors)
        for index, tensor in enumerate(node.inputs):
            # A layer may ignore its mask, as a BatchNormalization does at inference.
            is_mask = bool(node.arguments) and "mask" in node.arguments[index]
            read(tensor, node.name, index, certain=reads and not is_mask)
    for placement in plan.placements:
        if placement.weight is not None and placement.layer in layers:
            needs["weight", placement.tensor] = layers[placement.layer]
    return needs


def _reads_all(plan: PlacementPlan, node: Node, needed: Mapping[str, bool]) -> bool:
    """Return whether a node certainly reads the values of all its inputs to compute what is needed of it."""
    if node.opaque or not all(needed.get(output, False) for output in node.outputs):
        return False
    lowered = plan.onnx_lowering.nodes[node.name]
    # An operation whose operators are unknown may read a shape alone, as `ops.zeros_like` does.
    return not node.is_operation or lowered.operators is not None
