"""Properties of layers that hold other layers, for the rule sets."""

from __future__ import annotations

from qdq_workbench.graph.contractions import product_terms
from qdq_workbench.graph.kinds import (
    CONVOLUTIONS,
    DIRECT_CONVOLUTIONS,
    HOLDING_ONE,
    MATRIX_PRODUCTS,
    RECURRENT,
    SEPARABLE,
)
from qdq_workbench.graph.model_graph import ModelGraph, Node, Part

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


def held_product(node: Node) -> Part | None:
    """Return the convolution or matrix product that is all a layer holds; None for other layers."""
    if not is_transparent(node):
        return None
    products = inner_products(node)
    others = [part for part in node.parts if part not in products and not set(HOLDING_ONE).intersection(part.classes)]
    kinds = {*DIRECT_CONVOLUTIONS, *MATRIX_PRODUCTS}
    if len(products) != 1 or others or not kinds.intersection(products[0].classes):
        return None
    # A subclass of such a layer may take the mask beside it, and is then computed step by step.
    if len(node.inputs) > 1 and products[0].class_name not in kinds:
        return None
    return products[0]


def levels_of_steps(node: Node) -> int:
    """Return how many axes of steps a layer makes one with the batch."""
    return sum("TimeDistributed" in classes for classes in (node.classes, *(part.classes for part in node.parts)))


def own_activation(node: Node) -> str:
    """Return the activation that a layer applies, or the one product that it holds; "linear" for none."""
    held = held_product(node)
    return node.activation_name if held is None else held.settings.get("activation") or "linear"


def owns_bias(node: Node) -> bool:
    """Return whether a layer has a bias of its own, or the one product that it holds."""
    names = [weight.name for weight in node.weights]
    return "bias" in (names if held_product(node) is None else [name.rpartition("/")[2] for name in names])


def is_moved(node: Node) -> bool:
    """Return whether the result of a matrix product is reshaped or transposed before anything else is done to it.

    Only an einsum moves it, unless its result has the axes of its input but those summed over, and one of the kernel.
    """
    held = held_product(node)
    equation = (node.settings if held is None else held.settings).get("equation", "")
    left, right, result = product_terms(str(equation).replace("...", "-"))
    summed, own = set(left) & set(right), set(right) - set(left)
    kept = "".join(letter for letter in left if letter not in summed)
    return bool(result) and (len(own) != 1 or result != kept + "".join(own))


def multiplies_matrices(node: Node) -> bool:
    """Return whether a layer is a matrix product, or holds one and no more."""
    held = held_product(node)
    product = held is not None and not set(MATRIX_PRODUCTS).isdisjoint(held.classes)
    return product or (node.is_a(*MATRIX_PRODUCTS) and not node.is_operation)


def stands_alone(graph: ModelGraph, node: Node) -> bool:
    """Return whether the matrix product inside a layer is in the file as if it stood by itself, with no Reshape."""
    steps = levels_of_steps(node)
    # Where all sizes are known, the exporter removes the Reshapes around a MatMul that no Gemm or ReLU follows.
    known = None not in graph.tensors[node.inputs[0]].shape[1:]
    removed = known and own_activation(node) == "linear" and not owns_bias(node) and not is_moved(node)
    return multiplies_matrices(node) and (steps == 0 or removed)
