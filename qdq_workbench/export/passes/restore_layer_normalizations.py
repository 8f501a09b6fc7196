"""A layer normalization, which arrives as a dozen operators, becomes one LayerNormalization.

ONNX Runtime and OpenVINO have one kernel for it, and TensorRT sums its statistics up in float32, whatever the type of
the network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass, nodes_where
from qdq_workbench.export.passes.patterns import constant_axes, constant_operand
from qdq_workbench.onnx_graph.graph import Graph, Node

_LEAST_OPSET = 17
_IMAGE_RANK = 4


@dataclasses.dataclass(frozen=True)
class Normalization:
    """A layer normalization: (x - mean) / sqrt(variance + epsilon) * gamma + beta.

    Args:
        source: The tensor x.
        axis: The first normalized axis; all axes after it are normalized too.
        epsilon: What is added to the variance.
        gamma: The factors, with the shape of these axes.
        beta: What is added, of the same shape; None for nothing.
    """

    source: str
    axis: int
    epsilon: float
    gamma: np.ndarray
    beta: np.ndarray | None


def restore_layer_normalizations(graph: Graph) -> None:
    """Turn x * s - mean * s, with s = gamma / sqrt(variance + epsilon), into LayerNormalization."""
    for last in graph.sorted_nodes():
        found = _written_as_one(graph, last)
        if found is None:
            continue
        name, written = last.name, last.output
        inputs = [found.source, graph.add_constant(f"{name}/gamma", found.gamma)]
        if found.beta is not None:
            inputs.append(graph.add_constant(f"{name}/beta", found.beta))
        graph.remove(last)
        graph.add("LayerNormalization", inputs, name, output=written, axis=found.axis, epsilon=found.epsilon)
    graph.prune()


def find_layer_normalization(graph: Graph, last: Node) -> Normalization | None:
    """Return the layer normalization whose last node this is; None for other nodes."""
    # x * s + (beta + -mean * s), as Keras computes it; beta may be missing.
    for scaled, shift in _producers_both_ways(graph, last, "Add"):
        beta: np.ndarray | None = None
        shifted: Node | None = shift
        if shift.op == "Add":
            beta, shifted = _constant_and_producer(graph, shift)
        if scaled.op != "Mul" or shifted is None or shifted.op != "Mul":
            continue
        scale = next((tensor for tensor in scaled.inputs if tensor in shifted.inputs), None)
        if scale is None:
            continue
        source, negative = (_other(node, scale) for node in (scaled, shifted))
        minus = graph.producer(negative)
        if minus is None or minus.op != "Neg":
            continue
        found = _with_statistics(graph, source, minus.inputs[0], scale)
        if found is not None:
            axis, epsilon, gamma = found
            return _shaped(graph, source, axis, epsilon, gamma, beta)
    return None


def _written_as_one(graph: Graph, last: Node) -> Normalization | None:
    found = find_layer_normalization(graph, last) if graph.opset >= _LEAST_OPSET else None
    # The operator needs the normalized axes last, so between convolutions it stands between two Transposes.
    if found is not None and graph.slow_transposes and len(graph.shape(found.source) or ()) >= _IMAGE_RANK:
        return None
    return found


def _with_statistics(graph: Graph, source: str, mean: str, scale: str) -> tuple[int, float, np.ndarray | None] | None:
    """Return first axis, epsilon and gamma, if the scale is gamma / sqrt(variance of the source + epsilon)."""
    gamma: np.ndarray | None = None
    inverse = graph.producer(scale)
    if inverse is not None and inverse.op == "Mul":
        gamma, inverse = _constant_and_producer(graph, inverse)
        if gamma is None:
            return None
    root = _producer_of(graph, inverse, "Reciprocal")
    total = _producer_of(graph, root, "Sqrt")
    if total is None or total.op != "Add":
        return None
    epsilon, variance = _constant_and_producer(graph, total)
    axes = _mean_axes(graph, graph.producer(mean), source)
    squares = graph.producer(variance.inputs[0]) if variance is not None and variance.op == "ReduceMean" else None
    if epsilon is None or epsilon.size != 1 or axes is None or variance is None or squares is None:
        return None
    if _mean_axes(graph, variance, squares.output) != axes or not _is_square_of_difference(
        graph, squares, source, mean
    ):
        return None
    rank = graph.rank(source)
    # ONNX's LayerNormalization normalizes all axes from `axis` on.
    if rank is None or axes != tuple(range(axes[0], rank)):
        return None
    return axes[0], float(epsilon.reshape(-1)[0]), gamma


def _mean_axes(graph: Graph, node: Node | None, source: str) -> tuple[int, ...] | None:
    """Return the axes, sorted and not negative, of a ReduceMean of a tensor that keeps them with size 1."""
    rank = graph.rank(source)
    if node is None or node.op != "ReduceMean" or node.inputs[0] != source or not node.get("keepdims", 1) or not rank:
        return None
    axes = constant_axes(graph, node)
    return None if axes is None else tuple(sorted(axis % rank for axis in axes))


def _is_square_of_difference(graph: Graph, squares: Node, source: str, mean: str) -> bool:
    if squares.op == "Mul" and len(set(squares.inputs)) == 1:
        difference = graph.producer(squares.inputs[0])
    elif squares.op == "Pow":
        power = graph.constant(squares.inputs[1])
        difference = graph.producer(squares.inputs[0]) if power is not None and np.all(power == 2) else None
    else:
        return False
    return difference is not None and difference.op == "Sub" and list(difference.inputs) == [source, mean]


def _shaped(
    graph: Graph, source: str, axis: int, epsilon: float, gamma: np.ndarray | None, beta: np.ndarray | None
) -> Normalization | None:
    """Return a normalization with gamma and beta in the shape of its axes; None if shapes or types do not fit."""
    shape = graph.shape(source)
    sizes = None if shape is None else shape[axis:]
    given = [value for value in (gamma, beta) if value is not None]
    if sizes is None or shape is None or None in sizes or any(value.dtype != np.float32 for value in given):
        return None
    whole = tuple(size for size in sizes if size is not None)
    before = (1,) * axis
    try:
        made = [
            None if value is None else np.ascontiguousarray(np.broadcast_to(value, (*before, *whole))).reshape(whole)
            for value in (gamma, beta)
        ]
    except ValueError:  # they vary along axes before the normalized ones
        return None
    ones = np.ones(whole, np.float32)
    return Normalization(source, axis, epsilon, ones if made[0] is None else made[0], made[1])


def _producers_both_ways(graph: Graph, node: Node, operator: str) -> Iterator[tuple[Node, Node]]:
    if node.op != operator or node.domain or len(node.inputs) != 2:
        return
    first, second = (graph.producer(tensor) for tensor in node.inputs)
    if first is not None and second is not None:
        yield first, second
        yield second, first


def _constant_and_producer(graph: Graph, node: Node) -> tuple[np.ndarray | None, Node | None]:
    """Return the constant operand of a node with two operands, and the producer of the other one."""
    index = constant_operand(graph, node)
    if index is None:
        return None, None
    return graph.constant(node.inputs[index]), graph.producer(node.inputs[1 - index])


def _producer_of(graph: Graph, node: Node | None, operator: str) -> Node | None:
    return graph.producer(node.inputs[0]) if node is not None and node.op == operator else None


def _other(node: Node, tensor: str) -> str:
    return node.inputs[1] if node.inputs[0] == tensor else node.inputs[0]


PASS = GraphPass(
    restore_layer_normalizations,
    needs="Shapes known.",
    holds="From opset 17 on, no layer normalization over the last axes stands in steps.",
    refuses="Other axes, open sizes, factors that are computed or quantized, other types than float32; images, for "
    "targets where transpositions cost more.",
    denied_by=nodes_where(_written_as_one),
)
