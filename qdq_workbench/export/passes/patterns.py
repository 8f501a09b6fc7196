"""Patterns of nodes that several passes match."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from qdq_workbench.onnx_graph.graph import Graph, Node

#: A hard sigmoid is the cut of `x + SHIFT` to 0 and `WIDTH`, divided by `WIDTH`.
SHIFT, WIDTH = 3.0, 6.0


def constant_axes(graph: Graph, node: Node) -> list[int] | None:
    """Return the axes of a reduction or Squeeze, from its attribute or its constant input; None if unknown."""
    if "axes" in node.attributes:
        return [int(axis) for axis in node.get("axes")]
    if len(node.inputs) > 1 and node.inputs[1]:
        value = graph.constant(node.inputs[1])
        return None if value is None else [int(axis) for axis in value]
    return None


def constant_operand(graph: Graph, node: Node) -> int | None:
    """Return the index of the constant operand of a node with two operands; None unless exactly one is constant."""
    constant = [index for index, tensor in enumerate(node.inputs) if graph.constant(tensor) is not None]
    return constant[0] if len(constant) == 1 and len(node.inputs) == 2 else None


def is_number(graph: Graph, tensor: str, number: float) -> bool:
    """Return whether a tensor is one constant float32, as near to a number as float32 is."""
    value = graph.constant(tensor)
    if value is None or value.size != 1 or value.dtype != np.float32:
        return False
    # Roots and fractions arrive rounded to float32.
    return math.isclose(float(value.reshape(-1)[0]), number, rel_tol=1e-6)


def beside_number(graph: Graph, node: Node | None, op: str, number: float) -> str | None:
    """Return the other operand of an operator with this number; None for other nodes."""
    if node is None or node.op != op or node.domain:
        return None
    return next((one for one, other in (node.inputs, node.inputs[::-1]) if is_number(graph, other, number)), None)


def hard_sigmoid_source(graph: Graph, last: Node) -> str | None:
    """Return the input of the hard sigmoid whose last step this is; None for other nodes."""
    if beside_number(graph, last, "Mul", 1.0 / WIDTH) is None:
        return None
    clip = _step_before(graph, last)
    add = None if clip is None or not _is_cut(graph, clip) else _step_before(graph, clip)
    return None if add is None else beside_number(graph, add, "Add", SHIFT)


def _step_before(graph: Graph, node: Node) -> Node | None:
    """Return the node before a node if nothing else reads it and it belongs to the same layer."""
    constant = constant_operand(graph, node) if node.op == "Mul" else None
    before = graph.producer(node.inputs[0 if constant is None else 1 - constant])
    if before is None or not graph.has_one_reader(before.output) or not graph.may_join(before, node):
        return None
    return before


def _is_cut(graph: Graph, clip: Node) -> bool:
    bounds = clip.inputs[1:3] if clip.op == "Clip" else []
    return len(bounds) > 1 and is_number(graph, bounds[0], 0.0) and is_number(graph, bounds[1], WIDTH)


def begins_hard_sigmoid(graph: Graph, add: Node) -> bool:
    """Return whether an addition is the first of the three steps of a hard sigmoid, and so no bias."""
    step = add
    for _ in range(2):
        if not graph.has_one_reader(step.output):
            return False
        step = graph.readers(step.output)[0]
    return hard_sigmoid_source(graph, step) is not None


def channel_values(constant: np.ndarray, rank: int | None) -> np.ndarray | None:
    """Return a float32 operand that varies along axis 1 of a tensor alone, as a vector; None for others."""
    if rank is None or constant.ndim > rank or constant.dtype != np.float32:
        return None
    # Broadcasting aligns shapes at their last axis.
    full = constant.reshape([1] * (rank - constant.ndim) + list(constant.shape))
    return full.reshape(-1) if full.shape[1] == full.size else None


def biased_products(graph: Graph, op: str = "MatMul") -> Iterator[tuple[Node, int, Node]]:
    """Yield every addition of a constant to a product that nothing else reads: Add, its constant's index, product."""
    for add in graph.sorted_nodes():
        # Callers change the graph between two of them, so a node may be gone.
        operand = constant_operand(graph, add) if add.op == "Add" and add in graph else None
        product = None if operand is None else graph.producer(add.inputs[1 - operand])
        if operand is None or product is None or product.op != op or not graph.has_one_reader(product.output):
            continue
        yield add, operand, product


def write_instead(graph: Graph, node: Node, absorbed: Node) -> None:
    """Remove `absorbed`, the only reader of `node`, and let `node` write its output."""
    written = absorbed.output
    graph.remove(absorbed)
    graph.set_output(node, written)


def additions_where(
    wanted: Callable[[Graph, Node, int, Node], bool],
    op: str = "MatMul",
) -> Callable[[Graph], Iterator[Node]]:
    """Return a function that yields the additions of a constant to a product that satisfy a condition.

    `wanted` takes the graph, the addition, its constant's index, and the product.
    """
    return lambda graph: (found[0] for found in biased_products(graph, op) if wanted(graph, *found))
