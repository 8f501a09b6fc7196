"""Comparison of the pairs and integer weights that a file holds with those that follow from the plan alone.

The exporter omits what no output of the model depends on. Where the plan tells what a node reads, it also tells what
must be in the file; custom layers and some operations may ignore an input or a weight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from qdq_workbench.export.left_out import written_tensors
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.onnx_graph.graph import standard_opset
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, NARROWING, QUANTIZE, QDQGraph
from qdq_workbench.placement.opsets import is_packed
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.quantizers.numerics import storage_dtype


def presence_differences(plan: PlacementPlan, proto: onnx.ModelProto) -> Iterator[str]:
    """Yield the ends, pairs and integer weights that a file lacks, and those that the plan does not have."""
    inputs, outputs = ([value.name for value in ends] for ends in (proto.graph.input, proto.graph.output))
    if inputs != list(plan.graph.inputs):
        yield f"the inputs are {', '.join(inputs)}, expected {', '.join(plan.graph.inputs)}"
    if len(outputs) != len(plan.graph.outputs):
        yield f"it has {len(outputs)} outputs, expected {len(plan.graph.outputs)}"
    held, needs = written_tensors(proto), needed_tensors(plan)
    missing = {each for each, certain in needs.items() if certain} - held
    for found, wrong in (
        (missing, "is missing"),
        (held - set(needs), "is not in the plan, or no output depends on it"),
    ):
        for kind, name in sorted(found):
            yield f"the {'weight' if kind == 'weight' else 'pair'} {name!r} {wrong}"


def grid_differences(plan: PlacementPlan, proto: onnx.ModelProto) -> Iterator[str]:
    """Yield the pairs and integer weights of a file that are stored in another way than by the plan's quantizers."""
    graph, opset = QDQGraph(proto), standard_opset(proto)
    nodes = {node.name: node for node in proto.graph.node}
    folded = {fold.layer.layer for fold in plan.onnx_lowering.folds}
    for tensor in plan.tensors:
        node = nodes.get(f"{tensor.name}/{DEQUANTIZE if tensor.kind == 'weight' else QUANTIZE}")
        found = None if node is None else graph.parameters(node)
        if node is None or found is None:
            continue
        scale, zero = found
        of_weight = tensor.kind == "weight"
        spec = tensor.quantizer if of_weight else plan.target_object.activation_in_file(tensor.quantizer)
        wanted = str(storage_dtype(spec))
        if of_weight and is_packed(spec, opset):
            wanted = "int4" if spec.signed else "uint4"
        wrong = [] if str(zero.dtype) == wanted else [f"is stored as {zero.dtype}, expected {wanted}"]
        # Without a code below -qmax, also a negative gain mirrors the codes around 0.
        if spec.symmetric and spec.signed and spec.qmin == -spec.qmax and np.any(zero.astype(np.int32)):
            wrong.append("has a zero point, and a symmetric grid")
        if scale.size > 1 and (not of_weight or (spec.axis is None and _layer_of(plan, tensor.name) not in folded)):
            wrong.append(f"has {scale.size} scales, expected one")
        clipped = f"{tensor.name}{NARROWING}" in nodes
        if not of_weight and clipped != (spec.qmax - spec.qmin + 1 < 2 ** (8 * zero.dtype.itemsize)):
            wrong.append(
                "has a Clip in front, and all integers" if clipped else "has no Clip in front of fewer integers"
            )
        yield from (f"the {tensor.kind if of_weight else 'pair'} {tensor.name!r} {each}" for each in wrong)


def _layer_of(plan: PlacementPlan, weight: str) -> str:
    return next(p.layer for p in plan.placements if p.weight is not None and p.tensor == weight)


def needed_tensors(plan: PlacementPlan, constant: Collection[str] = ()) -> dict[tuple[str, str], bool]:
    """Return ("activation" or "weight", name) of all that an output may depend on, and whether it certainly does.

    No value that a layer without quantized weights reads reaches its results in `constant`, names of tensors.
    """
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
    quantized = {placement.layer for placement in plan.placements if placement.weight is not None}
    for node in reversed(plan.graph.nodes):
        if tensors.keys().isdisjoint(node.outputs):
            continue
        certain = any(tensors.get(output, False) for output in node.outputs)
        add(layers, node.layer, certain=certain and not node.opaque)
        is_constant = node.layer not in quantized and all(output in constant for output in node.outputs)
        reads = certain and not is_constant and _reads_all(plan, node, tensors)
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
