"""Reshape with sizes computed at run time -> Reshape with constant sizes, where the shape is known."""

from __future__ import annotations

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass, nodes_where
from qdq_workbench.onnx_graph.graph import Graph, Node, Shape


def fix_reshape_sizes(graph: Graph) -> None:
    """Make the sizes of a Reshape constant where at most one size of its result is unknown."""
    for node in graph.sorted_nodes():
        shape = _known_shape(graph, node)
        if shape is None:
            continue
        sizes = np.array([-1 if size is None else size for size in shape], np.int64)
        graph.set_inputs(node, [node.inputs[0], graph.add_constant(f"{node.name}/shape", sizes)])
    graph.prune()


def _known_shape(graph: Graph, node: Node) -> Shape | None:
    """Return the shape of a Reshape's result if its sizes are computed and at most one of them is unknown."""
    if node.op != "Reshape" or node.domain or graph.constant(node.inputs[1]) is not None:
        return None
    shape = graph.shape(node.output)
    return None if shape is None or shape.count(None) > 1 or 0 in shape else shape


PASS = GraphPass(
    fix_reshape_sizes,
    needs="Shapes as tf2onnx infers them.",
    holds="Every Reshape whose result has at most one open size has constant sizes.",
    refuses="Results with two open sizes, or with a size of 0, which a Reshape reads as a copy of the input's.",
    denied_by=nodes_where(_known_shape),
)
