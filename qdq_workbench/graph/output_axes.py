"""The axes of a weight along which the scales of integer kernels may lie: those of the output channels."""

from __future__ import annotations

from qdq_workbench.graph.contractions import product_terms
from qdq_workbench.graph.kinds import CONVOLUTIONS, DEPTHWISE, TRANSPOSED
from qdq_workbench.graph.model_graph import Node, Part


def output_axes(node: Node, weight: str) -> tuple[int, ...] | None:
    """Return the axes of a kernel that belong to the output, counted from 0; None if they are unknown.

    An integer kernel sums products over the other axes, which is exact only if the values along them have one scale.

    Example:
        >>> from qdq_workbench.graph.model_graph import Weight
        >>> output_axes(Node("d", "d", "Dense", weights=(Weight("kernel", (4, 3)),)), "kernel")
        (1,)
    """
    return node.once(_axes_by_weight).get(weight)


def _axes_by_weight(node: Node) -> dict[str, tuple[int, ...] | None]:
    return {weight.name: _output_axes(node, weight.name) for weight in node.weights}


def _output_axes(node: Node, weight: str) -> tuple[int, ...] | None:
    name = weight.rpartition("/")[2]
    owner, shape = owner_of(node, weight)
    if owner is None or not shape or not name.endswith("kernel"):
        return None
    classes = set(owner.bases if owner.opaque else owner.classes)
    if "EinsumDense" in classes:
        letters, result = kernel_letters(owner)
        return tuple(axis for axis, letter in enumerate(letters) if letter in result) if result else None
    # A depthwise filter reads one channel, so neither of the last two axes is summed over.
    if name == "depthwise_kernel" or not classes.isdisjoint(DEPTHWISE):
        return (len(shape) - 2, len(shape) - 1)
    if not classes.isdisjoint(TRANSPOSED):
        return (len(shape) - 2,)
    if classes.isdisjoint({*CONVOLUTIONS, "Dense"}):
        return None
    return (len(shape) - 1,)


def owner_of(node: Node, weight: str) -> tuple[Node | Part | None, tuple[int, ...]]:
    """Return the layer, or the layer inside it, that holds a weight (None if there is none), and the weight's shape."""
    path = weight.rpartition("/")[0]
    owner = node if not path else next((part for part in node.parts if part.name == path), None)
    return owner, next((item.shape for item in node.weights if item.name == weight), ())


def kernel_letters(owner: Node | Part) -> tuple[str, str]:
    """Return the letters of an einsum's kernel, one per axis, and those of its result; empty where unknown."""
    _, letters, result = product_terms(str(owner.settings.get("equation", "")))
    return letters, result
