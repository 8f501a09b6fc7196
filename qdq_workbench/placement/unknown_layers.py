"""Layers that have no pairs by default: why they stay in float, and the advice for it."""

from __future__ import annotations

from qdq_workbench._pages import page
from qdq_workbench.graph.kinds import KINDS
from qdq_workbench.graph.model_graph import Node

#: The advice how to let planning enter custom layers.
WAY_OUT = (
    "let planning enter such layers: they call layers of Keras and functions of keras.ops alone, as "
    f"{page('layer_families.md', 'Composite layers')} says; {page('howto/custom_layer.md')} has an example"
)
#: Prefix of the reason why a composite layer stays one node.
NOT_ENTERED = "it is not entered: "
_NAME_IT = "name it to switch it on"


def why_no_default(node: Node) -> str:
    """Return why no default quantizes anything of a layer for which `find_default` returns None, with advice."""
    kind = next((KINDS[name] for name in node.classes if name in KINDS), None)
    if node.opaque:
        return f"{node.opaque}; {advice_on(node)}"
    if kind is None:
        return f"no rule is known for {node.class_name}; {_NAME_IT}"
    if kind.role == "preprocessing":
        return (
            f"{node.class_name} prepares the data for the network, and stays in float so that they keep their "
            f"precision up to the first quantized layer; {_NAME_IT}"
        )
    return f"nothing of {node.class_name} ({kind.role}) is quantized by default; {_NAME_IT}"


def advice_on(node: Node) -> str:
    """Return how to let planning enter an opaque layer or quantize it as it is; "" for other layers."""
    if not node.opaque:
        return ""
    # These are the beginnings of the reasons that `graph_builder.describe` writes.
    if node.opaque.startswith("a Lambda layer"):
        return "call its functions of keras.ops on the tensors of the model, without a Lambda layer"
    if node.opaque.startswith("a subclassed model"):
        return "make it a functional model, keras.Model(inputs, outputs), which planning enters"
    if NOT_ENTERED in node.opaque:
        return f"what lets planning enter it says {page('layer_families.md', 'Composite layers')}"
    return (
        "build it from layers of Keras and functions of keras.ops, or write a "
        f"{node.class_name}QuantizeWrapper: {page('howto/custom_layer.md')}"
    )
