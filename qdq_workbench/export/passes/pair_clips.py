"""A Clip to the limits of a pair: it changes no value, and ONNX Runtime forms no integer kernel behind it."""

from __future__ import annotations

import numpy as np

from qdq_workbench.graph.operators import MOVES
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.qdq_graph import IN_FLOAT


def pair_before(graph: Graph, node: Node) -> Node | None:
    """Return the DequantizeLinear with one scale that a node reads, over operators that move or pad values."""
    producer = graph.producer(node.inputs[0])
    # ONNX Runtime moves pairs through some of them, and folds paddings before it looks for products.
    while producer is not None and _keeps_limits(graph, producer):
        producer = graph.producer(producer.inputs[0])
    if producer is None or producer.op != "DequantizeLinear":
        return None
    scale = graph.constant(producer.inputs[1])
    return producer if scale is not None and scale.size == 1 and len(producer.inputs) > 2 else None


def insert_clip(graph: Graph, node: Node, pair: Node) -> None:
    """Insert a Clip to the limits of a pair in front of the first input of a node, which reads its values."""
    name = f"{node.name}{IN_FLOAT}"
    low, high = _limits(graph, pair)
    bounds = [graph.add_constant(f"{name}/low", low), graph.add_constant(f"{name}/high", high)]
    clip = graph.add("Clip", [node.inputs[0], *bounds], name, output=f"{name}:0")
    shape = graph.shape(node.inputs[0])
    if shape is not None:
        graph.shapes[clip.output] = shape
    graph.set_inputs(node, [clip.output, *node.inputs[1:]])


def _keeps_limits(graph: Graph, node: Node) -> bool:
    """Return whether all values of an operator's result are values of its input, or 0, which is on every grid."""
    if node.op != "Pad":
        return node.op in MOVES
    value = graph.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(())
    return value is not None and not value.any()


def _limits(graph: Graph, pair: Node) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest value that a DequantizeLinear can return."""
    scale, zero_point = (graph.constants[tensor].reshape(()) for tensor in pair.inputs[1:3])
    grid = np.iinfo(zero_point.dtype)
    low, high = (np.float32(bound - int(zero_point)) * scale.astype(np.float32) for bound in (grid.min, grid.max))
    return np.asarray(low, np.float32), np.asarray(high, np.float32)
