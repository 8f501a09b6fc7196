"""Transposes between the channels-first and channels-last layouts: making, cancelling and merging them."""

from __future__ import annotations

import numpy as np

from qdq_workbench.onnx_graph.graph import Graph, Node


def to_channels_last(rank: int) -> tuple[int, ...]:
    """Return the permutation from channels-first to channels-last, e.g. `(0, 2, 3, 1)` for rank 4."""
    return (0, *range(2, rank), 1)


def to_channels_first(rank: int) -> tuple[int, ...]:
    """Return the permutation from channels-last to channels-first, e.g. `(0, 3, 1, 2)` for rank 4."""
    return (0, rank - 1, *range(1, rank - 1))


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that undoes another."""
    return tuple(int(axis) for axis in np.argsort(perm))


def permutation(node: Node | None) -> tuple[int, ...] | None:
    """Return the permutation of a Transpose; None for any other node, and for one without the attribute `perm`."""
    if node is None or node.op != "Transpose" or node.domain:
        return None
    perm = node.get("perm")
    return None if perm is None else tuple(perm)


def transposed_input(graph: Graph, tensor: str, rank: int) -> str:
    """Return `tensor` in channels-first layout, as `transposed` does."""
    return transposed(graph, tensor, to_channels_first(rank))


def transposed(graph: Graph, tensor: str, perm: tuple[int, ...]) -> str:
    """Return `tensor` with its axes in another order; a Transpose before it is cancelled, one after it reused."""
    if perm == tuple(range(len(perm))):
        return tensor
    producer = graph.producer(tensor)
    if producer is not None and permutation(producer) == inverse(perm):
        return producer.inputs[0]
    for reader in graph.readers(tensor):
        if permutation(reader) == perm and reader.output not in graph.outputs:
            return reader.output
    node = graph.add("Transpose", [tensor], f"{tensor}/to_channels_first", perm=list(perm))
    _permute_shape(graph, tensor, node.output, perm)
    return node.output


def transpose_output(graph: Graph, node: Node, index: int, perm: tuple[int, ...]) -> None:
    """Make a flipped node write a channels-first tensor, and transpose it back for the old readers."""
    old = node.outputs[index]
    if perm == tuple(range(len(perm))):
        return
    new = graph.fresh(f"{old}/channels_first")
    graph.set_output(node, new, index)
    back = inverse(perm)
    _permute_shape(graph, old, new, back)
    for reader in graph.readers(old):
        if permutation(reader) == back and reader.output not in graph.outputs:
            graph.replace_reads(reader.output, new)
            graph.remove(reader)
    if graph.readers(old) or old in graph.outputs:
        graph.add("Transpose", [new], f"{old}/to_channels_last", output=old, perm=list(perm))


def _permute_shape(graph: Graph, old: str, new: str, perm: tuple[int, ...]) -> None:
    shape = graph.shapes.get(old)
    if shape is not None and len(shape) == len(perm):
        graph.shapes[new] = tuple(shape[axis] for axis in perm)


def merge_transposes(graph: Graph) -> None:
    """Compose Transposes that follow each other, drop those that do nothing, and merge equal ones."""
    seen: dict[tuple[str, tuple[int, ...]], Node] = {}
    for node in graph.sorted_nodes():
        perm = permutation(node)
        if perm is None or node not in graph:
            continue
        before = graph.producer(node.inputs[0])
        inner = permutation(before)
        if before is not None and inner is not None:
            perm = tuple(inner[axis] for axis in perm)
            graph.set_inputs(node, [before.inputs[0]])
            node.set("perm", list(perm))
        # The name of a graph output has to stay, and with it the node that writes it.
        if node.output in graph.outputs:
            continue
        if perm == tuple(range(len(perm))):
            graph.replace_reads(node.output, node.inputs[0])
            graph.remove(node)
            continue
        first = seen.setdefault((node.inputs[0], perm), node)
        if first is not node:
            graph.replace_reads(node.output, first.output)
            graph.remove(node)
    # Transposes that others were composed with may have no reader left.
    graph.prune()
