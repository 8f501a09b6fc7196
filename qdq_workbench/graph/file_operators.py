"""The ONNX operators of each node in the file of a model, apart from those that only move values."""

from __future__ import annotations

from qdq_workbench.graph.kinds import KINDS, Kind
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import JOINS_CONSTANTS, MASKED, pads_with_zeros

#: Activations by name, each with its operators; others depend on the converter.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "linear": (),
    "relu": ("Relu",),
    "relu6": ("Clip",),
    "leaky_relu": ("LeakyRelu",),
    "sigmoid": ("Sigmoid",),
    "silu": ("Sigmoid", "Mul"),
    "tanh": ("Tanh",),
    "softmax": ("Softmax",),
    "elu": ("Elu",),
}


def find_operators(graph: ModelGraph) -> dict[str, tuple[str, ...] | None]:
    """Return the operators of every node by its name; None where they depend on more than its class and settings."""
    return {node.name: operators_of(node) for node in graph.nodes}


def operators_of(node: Node) -> tuple[str, ...] | None:
    """Return the operators of a node; None where they depend on more than its class and settings."""
    main = main_operators(node)
    if main is None or node.is_activation:
        return main
    own = _ACTIVATIONS.get(node.activation_name)
    causal = node.settings.get("padding") == "causal"  # one more operator pads
    return None if own is None or causal else (*main, *own)


def main_operators(node: Node) -> tuple[str, ...] | None:
    """Return the operators of a node without those of the activation inside it; None if they are unknown."""
    kind = _kind_of(node)
    if kind is None:
        return None
    if (node.is_a("Softmax") and not node.is_operation) or node.settings.get(MASKED):
        return None  # its operators depend on whether its inputs have masks
    if kind.role == "activation":
        settings = node.settings
        plain = len(node.inputs) == 1 and settings.get("alpha") in (None, 1, 1.0)
        # How the converter writes a softmax along several axes, or an ELU with another alpha, is not known here.
        plain = plain and not isinstance(settings.get("axis"), (list, tuple))
        if node.is_a("ReLU") and not node.is_operation:  # any combination of slope, threshold and maximum
            plain = plain and not settings.get("negative_slope") and not settings.get("threshold")
        return _ACTIVATIONS.get(node.activation_name) if plain else None
    if pads_with_zeros(node):
        return kind.operators
    constant = node.settings.get(JOINS_CONSTANTS) or (node.is_operation and len(node.inputs) != 2)
    if kind.operators is None or constant:
        return None  # with a constant, the operators depend on its value
    written = kind.operators
    # Keras merges n tensors two by two; only a Concat takes all at once.
    return written * (len(node.inputs) - 1) if kind.role == "merge" and written != ("Concat",) else written


def _kind_of(node: Node) -> Kind | None:
    if node.opaque:
        return None
    names = (node.class_name,) if node.is_operation else node.classes
    return next((KINDS[name] for name in names if name in KINDS), None)
