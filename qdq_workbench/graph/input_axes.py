"""The axis of a kernel along which it reads the channels of an input."""

from __future__ import annotations

from qdq_workbench.graph.contractions import product_terms
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.output_axes import output_axes, owner_of


def input_axis(node: Node, weight: str) -> int | None:
    """Return the axis of a kernel that belongs to the channels it multiplies, counted from 0; None if it is unknown.

    Channels are the last axis of what the kernel reads (of a channels-first convolution, the second one). Behind a
    depthwise kernel the inputs of the axis stay apart; all others are summed up over it.

    Example:
        >>> from qdq_workbench.graph.model_graph import Weight
        >>> input_axis(Node("d", "d", "Dense", weights=(Weight("kernel", (4, 3)),)), "kernel")
        0
    """
    axes = output_axes(node, weight)
    owner, shape = owner_of(node, weight)
    if owner is None or not axes or len(shape) < 2:
        return None
    if "EinsumDense" in (owner.bases if owner.opaque else owner.classes):
        read, letters, _ = product_terms(str(owner.settings.get("equation", "")))
        return letters.find(read[-1]) if read[-1:] in letters else None
    # Only a transposed convolution (height, width, output, input) has its input behind its output.
    return len(shape) - 1 if axes == (len(shape) - 2,) else len(shape) - 2
