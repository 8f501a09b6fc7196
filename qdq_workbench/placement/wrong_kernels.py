"""Integer kernels that compute wrong numbers, and the pairs that a plan omits so that they are not formed.

A softmax along an axis of one element is 1. ONNX Runtime's integer kernel (1.32) returns the integer below, so that
the network after it computes with 0.996. The kernel needs pairs on both sides. A runtime moves pairs through
operations that only move or select values, so there must be none after such a softmax, nor after such operations that
follow it.
"""

from __future__ import annotations

import math

from qdq_workbench.graph.kinds import CROPPINGS, GLOBAL_MAXIMA, MAXIMA, MOVEMENTS, UPSAMPLINGS, VANISHING
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import vanishes
from qdq_workbench.placement.placement import Placement
from qdq_workbench.placement.targets import Target

WHY_FLOAT = "a softmax along an axis of one element is always 1, and the target's integer kernel computes it wrongly"
_MOVING = (*MOVEMENTS, *VANISHING, *MAXIMA, *GLOBAL_MAXIMA, *UPSAMPLINGS, *CROPPINGS)


def is_softmax_of_one(graph: ModelGraph, node: Node) -> bool:
    """Return whether a node is a softmax along axes that together have one element."""
    if not node.is_activation or node.activation_name != "softmax" or not node.inputs:
        return False
    axes = node.settings.get("axis", -1)
    shape = graph.tensors[node.inputs[0]].shape
    chosen = axes if isinstance(axes, (list, tuple)) else [axes]
    sizes = [shape[axis] for axis in chosen if isinstance(axis, int) and -len(shape) <= axis < len(shape)]
    return bool(sizes) and None not in sizes and math.prod(size for size in sizes if size is not None) == 1


def tensors_without_pairs(graph: ModelGraph, target: Target) -> frozenset[str]:
    """Return the tensors that get no pair, because the target would form a kernel that computes wrong numbers."""
    if "softmax" not in target.integer_activations:
        return frozenset()
    found: set[str] = set()
    waiting = [node.outputs[0] for node in graph.nodes if is_softmax_of_one(graph, node)]
    while waiting:
        tensor = waiting.pop()
        if tensor not in found:
            found.add(tensor)
            # `vanishes` knows `Activation("linear")`, too; the classes, a user's own dropout.
            moves = [reader for reader, _ in graph.readers(tensor) if reader.is_a(*_MOVING) or vanishes(reader)]
            waiting.extend(result for move in moves for result in move.outputs)
    return frozenset(found)


def without_wrong_kernels(graph: ModelGraph, placements: list[Placement], target: Target) -> list[Placement]:
    """Return the placements without those with which the target would compute wrong numbers."""
    float_tensors = tensors_without_pairs(graph, target)
    return [p for p in placements if p.site == "weight" or p.tensor not in float_tensors]
