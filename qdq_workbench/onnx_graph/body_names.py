"""The names of a graph and of the loop and branch bodies in it: nodes, tensors and the graphs themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import onnx

from qdq_workbench.onnx_graph.qdq_graph import subgraphs


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph, followed by the bodies in it and in those."""
    yield graph
    for body in bodies_of(graph.node):
        yield from all_graphs(body)


def bodies_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of nodes, without those in bodies."""
    for node in nodes:
        yield from subgraphs(node)


def tensors_in(graph: onnx.GraphProto) -> list[str]:
    """Return the tensors that a graph and its bodies write, read or declare, each once and in order."""
    found: dict[str, None] = {}
    for part in all_graphs(graph):
        found |= dict.fromkeys(value.name for value in (*part.input, *part.initializer))
        for node in part.node:
            found |= dict.fromkeys((*node.input, *node.output))
        found |= dict.fromkeys(value.name for value in part.output)
    found.pop("", None)
    return list(found)


def nodes_in(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the nodes of a graph and its bodies, each once and in order."""
    return list(dict.fromkeys(node.name for part in all_graphs(graph) for node in part.node if node.name))


def rename_in(
    graph: onnx.GraphProto, nodes: Mapping[str, str], tensors: Mapping[str, str], graph_name: Callable[[str], str]
) -> None:
    """Rename all at once what a graph and its bodies hold: two names may change places."""
    for part in all_graphs(graph):
        part.name = graph_name(part.name)
        for value in (*part.input, *part.initializer, *part.output, *part.value_info):
            value.name = tensors.get(value.name, value.name)
        for node in part.node:
            node.name = nodes.get(node.name, node.name)
            node.input[:] = [tensors.get(tensor, tensor) for tensor in node.input]
            node.output[:] = [tensors.get(tensor, tensor) for tensor in node.output]
