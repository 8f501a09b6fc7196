"""Patterns of nodes that several passes match."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from qdq_workbench.onnx_graph.graph import Graph, Node


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
