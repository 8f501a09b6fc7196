"""Identity nodes are removed, except those without which a graph output would lose its name."""

from __future__ import annotations

from collections.abc import Iterator

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.onnx_graph.graph import Graph, Node


def drop_identities(graph: Graph) -> None:
    """Remove Identity nodes, keeping the names of graph outputs."""
    for node in graph.sorted_nodes():
        if not _is_identity(node):
            continue
        source, written = node.inputs[0], node.output
        if written not in graph.outputs:
            graph.replace_reads(written, source)
            graph.remove(node)
            continue
        producer = graph.producer(source)
        if producer is not None and source not in graph.outputs:
            index = producer.outputs.index(source)
            graph.remove(node)
            graph.set_output(producer, written, index)
            graph.replace_reads(source, written)
            if source in graph.shapes:
                graph.shapes.setdefault(written, graph.shapes[source])
    graph.prune()


def _is_identity(node: Node) -> bool:
    return node.op == "Identity" and not node.domain


def _removable(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        source = node.inputs[0] if _is_identity(node) else ""
        gives_its_name = graph.producer(source) is not None and source not in graph.outputs
        if _is_identity(node) and (node.output not in graph.outputs or gives_its_name):
            yield node


PASS = GraphPass(
    drop_identities,
    needs="Nothing.",
    holds="No Identity is left but between a graph output and an input, a constant or another output.",
    refuses="Those, because a graph output keeps its name.",
    denied_by=_removable,
)
