"""Resizing by factors that float32 rounds.

ONNX computes the size as `floor(size * scale)`. 3 pixels to 5: the scale 5/3 is 1.6666666 in float32, and
3 * 1.6666666 is below 5, one pixel short. With such a scale raised, or even without, the nearest pixel may be another
one than TensorFlow's: 6 pixels to 5, the third lies at 2.5 / (5/6), which is 3 or a little less.
"""

from __future__ import annotations

import math

import numpy as np

from qdq_workbench.export.graph import Graph, Node

_CLOSE = 1e-4
_HALF_PIXEL = b"tf_half_pixel_for_nn"


def correct_resizes(graph: Graph) -> None:
    """Raise the scales of Resize nodes where they miss the size that is meant; use Gather where pixels would be wrong.

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
        sizes = {axis: size for axis, size in enumerate(shape) if raised[axis] != 1}
        if _is_nearest(node) and not all(_same_pixels(raised[axis], size) for axis, size in sizes.items()):
            _pick_pixels(graph, node, raised)
        elif not np.array_equal(raised, scales):
            graph.set_inputs(
                node, [*node.inputs[:2], graph.add_constant(f"{node.name}/scales", raised), *node.inputs[3:]]
            )


def _is_nearest(node: Node) -> bool:
    """Tell whether a Resize is the converter's form of TensorFlow's ResizeNearestNeighbor with half-pixel centers."""
    return node.get("mode", b"nearest") == b"nearest" and node.get("coordinate_transformation_mode") == _HALF_PIXEL


def _same_pixels(scale: np.float32, size: int | None) -> bool:
    """Return whether ONNX Runtime picks the pixels that TensorFlow picks."""
    if size is None:
        return True  # an axis of open size is only ever resized by a whole number, which picks the same ones
    count = math.floor(size * float(scale))
    theirs = np.floor((np.arange(count, dtype=np.float32) + np.float32(0.5)) / scale)
    return np.array_equal(np.minimum(theirs, size - 1), _nearest(size, count))


def _nearest(size: int, count: int) -> np.ndarray:
    """Return the index of the pixel that TensorFlow takes for each of `count` new ones."""
    step = np.float32(size) / np.float32(count)
    found = np.floor((np.arange(count, dtype=np.float32) + np.float32(0.5)) * step)
    return np.minimum(found, size - 1).astype(np.int64)


def _pick_pixels(graph: Graph, node: Node, scales: np.ndarray) -> None:
    """Replace a Resize by Gathers, along the axes where it picks other pixels than TensorFlow."""
    tensor = node.inputs[0]
    for axis, scale in enumerate(scales):
        shape = graph.shape(tensor)
        size = None if shape is None else shape[axis]
        if shape is None or size is None or scale == 1 or _same_pixels(scale, size):
            continue
        pixels = _nearest(size, math.floor(size * float(scale)))
        constant = graph.add_constant(f"{node.name}/pixels", pixels)
        tensor = graph.add("Gather", [tensor, constant], f"{node.name}/axis_{axis}", axis=axis).output
        graph.shapes[tensor] = (*shape[:axis], len(pixels), *shape[axis + 1 :])
        scales[axis] = 1
    if np.all(scales == 1):
        written = node.output
        graph.remove(node)
        graph.add("Identity", [tensor], node.name, output=written)
        return
    rest = graph.add_constant(f"{node.name}/scales", scales)
    graph.set_inputs(node, [tensor, node.inputs[1], rest, *node.inputs[3:]])


def _raised(scale: np.float32, size: int | None) -> np.float32:
    if size is None:
        return scale
    meant = round(float(scale) * size)
    if abs(float(scale) * size - meant) > _CLOSE:
        return scale
    while math.floor(size * float(scale)) < meant:
        scale = np.nextafter(scale, np.float32(np.inf))
    return scale
