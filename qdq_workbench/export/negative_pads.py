"""Transposed convolutions whose stride is larger than their kernel: tf2onnx writes negative paddings.

ONNX has an attribute of its own for what is added behind the result: `pads = [0, -1]` means `output_padding = 1`.
"""

from __future__ import annotations

from qdq_workbench.export.graph import Graph


def restore_output_padding(graph: Graph) -> None:
    """Write the negative paddings at the ends of transposed convolutions as output paddings.

    Args:
        graph: The float graph to change.
    """
    for node in graph.nodes:
        pads = node.get("pads")
        if node.op != "ConvTranspose" or pads is None or min(pads) >= 0:
            continue
        half = len(pads) // 2
        added = node.get("output_padding") or [0] * half
        ends = pads[half:]
        node.set("output_padding", [more - min(end, 0) for more, end in zip(added, ends, strict=True)])
        node.set("pads", [*pads[:half], *(max(end, 0) for end in ends)])
