"""Properties of layers that hold other layers, for the rule sets."""

from __future__ import annotations

from qdq_workbench.graph.kinds import CONVOLUTIONS, HOLDING_ONE, MATRIX_PRODUCTS, RECURRENT, SEPARABLE
from qdq_workbench.graph.model_graph import Node, Part

_PRODUCTS = frozenset({*CONVOLUTIONS, *MATRIX_PRODUCTS})


def is_transparent(node: Node) -> bool:
    """Return whether a layer only applies the one layer or model inside it."""
    return not node.is_operation and node.is_a(*HOLDING_ONE)


def operands(node: Node) -> range:
    """Return the indices of the inputs that a node computes with: the mask of a wrapper is none of them."""
    return range(1 if is_transparent(node) else len(node.inputs))


def is_recurrent(node: Node) -> bool:
    """Return whether a layer is recurrent, or holds a layer that is."""
    classes = {name for part in node.parts for name in part.classes}
    return not node.is_operation and (node.is_a(*RECURRENT, "Bidirectional") or "RNN" in classes)


def inner_products(node: Node) -> list[Part]:
    """Return the layers inside a layer, at any depth, that are convolutions or matrix products."""
    return [part for part in node.parts if not _PRODUCTS.isdisjoint(part.classes)]


def computes_several(parts: list[Part]) -> bool:
    """Return whether the layers of `inner_products` are several products; a separable convolution counts as two."""
    return len(parts) > 1 or any(not set(SEPARABLE).isdisjoint(part.classes) for part in parts)


def why_no_pair_inside(products: list[Part]) -> str:
    """Return the reason why several layers of `inner_products` do not all run on integers."""
    names = " and ".join(f"{part.class_name} {part.name!r}" for part in products)
    return f"no pair can stand inside it, where {names} is computed"
