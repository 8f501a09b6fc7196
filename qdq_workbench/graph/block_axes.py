"""The axes of a weight along which blocks may lie: those that a product sums over."""

from __future__ import annotations

import math

from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.output_axes import kernel_letters, owner_of


def block_axes(node: Node, weight: str) -> tuple[int, ...]:
    """Return the axes that blocks of a weight may lie along, counted from 0; empty if it can have no blocks.

    A matrix product sums over these axes, so that the values of one block are summed together. The rows of an embedding
    are looked up whole: their blocks lie along the last axis.

    Example:
        >>> from qdq_workbench.graph.model_graph import Weight
        >>> block_axes(Node("d", "d", "Dense", weights=(Weight("kernel", (4, 3)),)), "kernel")
        (0,)
    """
    name = weight.rpartition("/")[2]
    owner, shape = owner_of(node, weight)
    rank = len(shape)
    if owner is None or rank < 2:
        return ()
    classes = set(owner.bases if owner.opaque else owner.classes)
    if "EinsumDense" in classes and name == "kernel":
        letters, result = kernel_letters(owner)
        return (
            tuple(axis for axis, letter in enumerate(letters) if letter not in result) if len(letters) == rank else ()
        )
    if "Dense" in classes and name == "kernel":
        return (0,)
    if not classes.isdisjoint({"Embedding", "ReversibleEmbedding"}):
        # The reverse table is (features, words), and a product sums over its features.
        return {"embeddings": (1,), "reverse_embeddings": (0,)}.get(name, ())
    return ()


def block_in_file(node: Node, weight: str, axis: int, block: int) -> int:
    """Return how many values share a scale if a file holds the weight as a matrix that is summed over one axis.

    Several summed axes are merged into one, the last of them innermost. A block that does not divide its axis is then
    cut into pieces of equal length, as `export.moved_scales` does.

    Example:
        >>> from qdq_workbench.graph.model_graph import Weight
        >>> kernel = Weight("kernel", (4, 24, 64))
        >>> out = Node("o", "o", "EinsumDense", weights=(kernel,), settings={"equation": "abde,dec->abc"})
        >>> block_in_file(out, "kernel", 1, 32), block_in_file(out, "kernel", 1, 16)
        (24, 8)
    """
    shape = next(item.shape for item in node.weights if item.name == weight)
    axes = block_axes(node, weight)
    inner = math.prod(shape[other] for other in axes if other > axis)
    outer = math.prod(shape[other] for other in axes if other < axis)
    if outer == 1:
        return block * inner
    return inner * (shape[axis] if shape[axis] <= block else math.gcd(block, shape[axis]))
