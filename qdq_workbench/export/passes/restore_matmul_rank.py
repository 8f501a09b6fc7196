"""Reshape -> MatMul of rank 2 -> Reshape back becomes the MatMul of higher rank.

tf2onnx gives this form to a Dense layer on a tensor of rank 3 or more; the last sizes are computed at run time.
"""

from __future__ import annotations

from qdq_workbench.export.passes.contract import GraphPass, nodes_where
from qdq_workbench.onnx_graph.graph import Graph, Node


def restore_matmul_rank(graph: Graph) -> None:
    """Remove the Reshapes around a rank-2 MatMul, which then reads the tensor of higher rank."""
    for node in graph.sorted_nodes():
        found = _reshapes_around(graph, node) if node in graph else None
        if found is None:
            continue
        flatten, back = found
        graph.set_inputs(node, [flatten.inputs[0], node.inputs[1]])
        written = back.output
        graph.remove(back)
        graph.shapes.pop(node.output, None)
        graph.set_output(node, written)
    graph.prune()


def _restores_leading_axes(graph: Graph, reshape: Node, source: str) -> bool:
    """Return whether a Reshape restores the leading axes of `source`, computed from its shape or known statically."""
    before, after = graph.shape(source), graph.shape(reshape.output)
    if reshape.op != "Reshape" or before is None or after is None or len(before) != len(after):
        return False
    wanted = graph.constant(reshape.inputs[1])
    if wanted is not None:
        # A -1 in front gives back an open batch, and one of size 1.
        fixed = list(before[1:-1])
        return None not in fixed and [int(size) for size in wanted[1:-1]] == fixed and before[0] in (None, wanted[0], 1)
    # The form of computed sizes: Concat(Gather(Shape(source), [0, 1, ...]), units).
    concat = _through_casts(graph, reshape.inputs[1])
    if concat is None or concat.op != "Concat":
        return False
    gather = _through_casts(graph, concat.inputs[0])
    if gather is None or gather.op not in ("Gather", "Slice"):
        return False
    shape = _through_casts(graph, gather.inputs[0])
    leading = graph.constant(gather.inputs[1])
    return (
        shape is not None
        and shape.op == "Shape"
        and shape.inputs[0] == source
        and gather.op == "Gather"
        and leading is not None
        and [int(axis) for axis in leading.ravel()] == list(range(len(before) - 1))
    )


def _through_casts(graph: Graph, tensor: str) -> Node | None:
    node = graph.producer(tensor)
    while node is not None and node.op in ("Cast", "Identity"):
        node = graph.producer(node.inputs[0])
    return node


def _reshapes_around(graph: Graph, node: Node) -> tuple[Node, Node] | None:
    """Return the Reshapes that join the leading axes before a MatMul and split them again after it."""
    if node.op != "MatMul" or node.output in graph.outputs:
        return None
    flatten, kernel = graph.producer(node.inputs[0]), graph.shape(node.inputs[1])
    if flatten is None or flatten.op != "Reshape" or kernel is None or len(kernel) != 2:
        return None
    source, back = graph.shape(flatten.inputs[0]), graph.readers(node.output)
    if source is None or len(source) < 3 or source[-1] != kernel[0] or len(back) != 1:
        return None
    return (flatten, back[0]) if _restores_leading_axes(graph, back[0], flatten.inputs[0]) else None


PASS = GraphPass(
    restore_matmul_rank,
    needs="Known shapes around the MatMul; constant sizes of Reshapes where `fix_reshape_sizes` can give them.",
    holds="No MatMul stands between a Reshape that joins its input's leading axes and one that splits them again.",
    refuses="Reshapes that give other axes back than they took.",
    denied_by=nodes_where(_reshapes_around),
)
