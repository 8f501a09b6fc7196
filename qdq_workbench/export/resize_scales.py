"""Resizing by factors that float32 rounds down: ONNX computes `floor(size * scale)`, one pixel short of the size meant.

3 pixels to 5: the scale 5/3 is 1.6666666 in float32, and 3 * 1.6666666 is below 5.
"""

from __future__ import annotations

import math

import numpy as np

from qdq_workbench.export.graph import Graph

_CLOSE = 1e-4


def round_scales_up(graph: Graph) -> None:
    """Raise the scales of Resize nodes by the last bit where they miss the size that is meant.

    Args:
        graph: The float graph to change.
    """
    for node in graph.nodes:
        if node.op != "Resize" or len(node.inputs) < 3 or not node.inputs[2]:
            continue
        scales, shape = graph.constant(node.inputs[2]), graph.shape(node.inputs[0])
        if scales is None or shape is None or len(shape) != len(scales):
            continue
        raised = np.array([_raised(np.float32(s), size) for s, size in zip(scales, shape, strict=True)], np.float32)
        if not np.array_equal(raised, scales):
            graph.set_inputs(
                node, [*node.inputs[:2], graph.add_constant(f"{node.name}/scales", raised), *node.inputs[3:]]
            )


def _raised(scale: np.float32, size: int | None) -> np.float32:
    if size is None:
        return scale
    meant = round(float(scale) * size)
    if abs(float(scale) * size - meant) > _CLOSE:
        return scale
    while math.floor(size * float(scale)) < meant:
        scale = np.nextafter(scale, np.float32(np.inf))
    return scale
