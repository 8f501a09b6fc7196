"""Transposes that only move axes of size 1 are merged into Reshapes, and Reshapes that do nothing are removed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.patterns import write_instead
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.transposes import merge_transposes, permutation


def simplify_reshapes(graph: Graph) -> None:
    """Merge Transposes that only move axes of size 1 into Reshapes, and drop Reshapes that do nothing."""
    for node in graph.sorted_nodes():
        if node not in graph:
            continue
        if permutation(node) is not None:
            _merge_transpose_into_reshape(graph, node)
        elif node.op == "Reshape":
            _shorten_reshape(graph, node)
    # A Reshape that is gone may have stood between two Transposes.
    merge_transposes(graph)


def _merge_transpose_into_reshape(graph: Graph, node: Node) -> None:
    """Write a Reshape to (N, 1, 1, C) and a Transpose to channels-first as one Reshape to (N, C, 1, 1)."""
    found = _turned_reshape(graph, node)
    if found is not None:
        before, sizes = found
        graph.set_inputs(before, [before.inputs[0], graph.add_constant(f"{before.name}/shape", sizes)])
        write_instead(graph, before, node)


def _turned_reshape(graph: Graph, node: Node) -> tuple[Node, np.ndarray] | None:
    """Return the Reshape whose axes of size 1 a Transpose moves, and the sizes after the Transpose."""
    perm, before = permutation(node), graph.producer(node.inputs[0])
    if perm is None or before is None or before.op != "Reshape" or not graph.has_one_reader(before.output):
        return None
    sizes = graph.constant(before.inputs[1])
    # With one axis longer than 1, or open, behind the batch the values keep their order.
    if sizes is None or perm[0] != 0 or np.any(sizes[1:] == 0) or np.sum(sizes[1:] != 1) > 1:
        return None
    return before, sizes[list(perm)]


def _shorten_reshape(graph: Graph, node: Node) -> None:
    """Skip a Squeeze or Unsqueeze before a Reshape; drop a Reshape to the shape of its input."""
    sizes, before = graph.constant(node.inputs[1]), graph.producer(node.inputs[0])
    if sizes is None or np.any(sizes == 0):
        return
    # A Reshape to constant sizes gives the same values whatever axes of size 1 its input has.
    if before is not None and before.op in ("Squeeze", "Unsqueeze"):
        graph.set_inputs(node, [before.inputs[0], node.inputs[1]])
    shape = graph.shape(node.inputs[0])
    if shape is None or len(shape) != len(sizes) or node.output in graph.outputs:
        return
    wanted = [None if size == -1 else int(size) for size in sizes]
    # With one open size a -1 can only stand for that one.
    if shape.count(None) <= 1 and all(want in (None, size) for want, size in zip(wanted, shape, strict=True)):
        graph.replace_reads(node.output, node.inputs[0])
        graph.remove(node)


def _superfluous(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        if _turned_reshape(graph, node) is not None:
            yield node
        sizes = graph.constant(node.inputs[1]) if node.op == "Reshape" else None
        shape = None if sizes is None or node.output in graph.outputs else graph.shape(node.inputs[0])
        if sizes is not None and shape is not None and None not in shape and tuple(sizes) == shape and 0 not in shape:
            yield node


PASS = GraphPass(
    simplify_reshapes,
    needs="Constant sizes of Reshapes.",
    holds="No Reshape gives the shape that is there already, no Transpose moves the axes of size 1 that one made.",
    refuses="Sizes of 0, which stand for the input's, and shapes with more than one open size.",
    denied_by=_superfluous,
)
