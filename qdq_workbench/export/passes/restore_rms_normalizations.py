"""A root-mean-square normalization is written in the form that ONNX Runtime fuses into one kernel.

ONNX Runtime (SimplifiedLayerNormFusion) matches a quotient, where TensorFlow multiplies by a reciprocal.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass, nodes_where
from qdq_workbench.export.passes.patterns import constant_axes
from qdq_workbench.onnx_graph.graph import Graph, Node


@dataclasses.dataclass(frozen=True)
class RootMeanSquare:
    """A root-mean-square normalization: x / sqrt(mean(x * x) + epsilon) * gamma.

    Args:
        source: The tensor x.
        mean: The node that takes the mean.
        epsilon: The tensor that is added to the mean.
        gamma: The tensor of the factors.
    """

    source: str
    mean: Node
    epsilon: str
    gamma: str


def restore_rms_normalizations(graph: Graph) -> None:
    """Turn x * (gamma * (1 / r)), with r the root of the mean of x * x, into x / r * gamma."""
    for last in graph.sorted_nodes():
        found = _with_reciprocal(graph, last)
        if found is None:
            continue
        name, written = last.name, last.output
        two = graph.add_constant(f"{name}/two", np.array(2.0, np.float32))
        square = graph.add("Pow", [found.source, two], f"{name}/Pow").output
        axes = found.mean.inputs[1:]
        old_axes = found.mean.get("axes")
        mean = graph.add("ReduceMean", [square, *axes], f"{name}/ReduceMean", axes=old_axes, keepdims=1).output
        total = graph.add("Add", [mean, found.epsilon], f"{name}/Add").output
        root = graph.add("Sqrt", [total], f"{name}/Sqrt").output
        quotient = graph.add("Div", [found.source, root], f"{name}/Div").output
        graph.remove(last)
        graph.add("Mul", [quotient, found.gamma], name, output=written)
        shape = graph.shape(found.source) or ()
        # Without shapes only the first step would be moved to channels-first, with Transposes between the others.
        graph.shapes.update(dict.fromkeys((square, quotient), shape))
        graph.shapes.update(dict.fromkeys((mean, total, root), (*shape[:-1], 1)))
    graph.prune()


def find_rms_normalization(graph: Graph, last: Node) -> RootMeanSquare | None:
    """Return the root-mean-square normalization, in either form, whose last node this is; None for other nodes."""
    return _with_reciprocal(graph, last) or _with_quotient(graph, last)


def _with_reciprocal(graph: Graph, last: Node) -> RootMeanSquare | None:
    for source, scale in _operands(last):
        for gamma, inverse in _operands(graph.producer(scale)):
            reciprocal = graph.producer(inverse)
            if _are_factors(graph, gamma) and reciprocal is not None and reciprocal.op == "Reciprocal":
                found = _mean_and_epsilon(graph, reciprocal.inputs[0], source)
                if found is not None:
                    return RootMeanSquare(source, *found, gamma)
    return None


def _with_quotient(graph: Graph, last: Node) -> RootMeanSquare | None:
    for gamma, normalized in _operands(last):
        quotient = graph.producer(normalized)
        if _are_factors(graph, gamma) and quotient is not None and quotient.op == "Div":
            source, root = quotient.inputs
            found = _mean_and_epsilon(graph, root, source)
            if found is not None:
                return RootMeanSquare(source, *found, gamma)
    return None


def _operands(node: Node | None) -> tuple[list[str], ...]:
    """Return the operands of a product, in both orders."""
    if node is None or node.op != "Mul" or node.domain or len(node.inputs) != 2:
        return ()
    return node.inputs, node.inputs[::-1]


def _are_factors(graph: Graph, tensor: str) -> bool:
    value = graph.constant(tensor)
    return value is not None and value.dtype == np.float32 and value.size > 1


def _mean_and_epsilon(graph: Graph, written: str, source: str) -> tuple[Node, str] | None:
    """Return the mean of the squares over the last axis, and the epsilon that is added to it before the root."""
    rank, root = graph.rank(source), graph.producer(written)
    total = graph.producer(root.inputs[0]) if root is not None and root.op == "Sqrt" else None
    if total is None or total.op != "Add" or rank is None:
        return None
    for epsilon, squares in (total.inputs, total.inputs[::-1]):
        value, mean = graph.constant(epsilon), graph.producer(squares)
        if value is None or value.size != 1 or mean is None or mean.op != "ReduceMean" or not mean.get("keepdims", 1):
            continue
        axes, square = constant_axes(graph, mean), graph.producer(mean.inputs[0])
        last_alone = axes is not None and [axis % rank for axis in axes] == [rank - 1]
        if last_alone and square is not None and _is_square(graph, square, source):
            return mean, epsilon
    return None


def _is_square(graph: Graph, square: Node, source: str) -> bool:
    if square.op == "Mul":
        return list(square.inputs) == [source, source]
    power = graph.constant(square.inputs[1]) if square.op == "Pow" else None
    return power is not None and square.inputs[0] == source and bool(np.all(power == 2))


PASS = GraphPass(
    restore_rms_normalizations,
    needs="Shapes known.",
    holds="No root-mean-square normalization over the last axis multiplies by a reciprocal.",
    refuses="Other axes, factors that are computed or quantized, and other types than float32.",
    denied_by=nodes_where(_with_reciprocal),
)
