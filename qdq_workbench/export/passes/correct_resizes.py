"""Resizing by factors that float32 rounds: the scales are corrected, or the pixels taken by Gather.

With the scale raised (see `qdq_workbench.onnx_graph.resizes`), or even without, the nearest pixel may differ from
TensorFlow's: from 6 pixels to 5, the third lies at 2.5 / (5/6), which is 3 or a little less.
"""

from __future__ import annotations

import math

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass, nodes_where
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.resizes import raised_scales

_HALF_PIXEL = b"tf_half_pixel_for_nn"


def correct_resizes(graph: Graph) -> None:
    """Raise the scales of Resize nodes that give a wrong size; use Gather where the pixels would be wrong."""
    for node in graph.nodes:
        found = _correction(graph, node)
        if found is None:
            continue
        scales, pixels = found
        if pixels:
            _pick_pixels(graph, node, scales, pixels)
        else:
            constant = graph.add_constant(f"{node.name}/scales", scales)
            graph.set_inputs(node, [*node.inputs[:2], constant, *node.inputs[3:]])


def _correction(graph: Graph, node: Node) -> tuple[np.ndarray, dict[int, np.ndarray]] | None:
    """Return the corrected scales of a Resize, and by axis the pixels to take where no scale gives the right ones."""
    if node.op != "Resize" or len(node.inputs) < 3 or not node.inputs[2]:
        return None
    scales, shape = graph.constant(node.inputs[2]), graph.shape(node.inputs[0])
    if scales is None or shape is None or len(shape) != len(scales):
        return None
    raised = raised_scales(scales, shape)
    pixels = _corrected_pixels(raised, shape) if _is_nearest(node) else {}
    return (raised, pixels) if pixels or not np.array_equal(raised, scales) else None


def _is_nearest(node: Node) -> bool:
    """Return whether a Resize is tf2onnx's form of TensorFlow's ResizeNearestNeighbor with half-pixel centers."""
    return node.get("mode", b"nearest") == b"nearest" and node.get("coordinate_transformation_mode") == _HALF_PIXEL


def _corrected_pixels(scales: np.ndarray, shape: tuple[int | None, ...]) -> dict[int, np.ndarray]:
    """Return the pixels that TensorFlow picks, by axis, for the axes where ONNX Runtime picks other ones."""
    found = {}
    for axis, (scale, size) in enumerate(zip(scales, shape, strict=True)):
        if size is None or scale == 1:
            continue  # an axis of open size is only ever resized by a whole number, which picks the same ones
        count = math.floor(size * float(scale))
        # ONNX Runtime computes floor((i + 0.5) / scale), TensorFlow floor((i + 0.5) * (size / count)), both in float32.
        theirs = np.floor((np.arange(count, dtype=np.float32) + np.float32(0.5)) / scale)
        pixels = _nearest(size, count)
        if not np.array_equal(np.minimum(theirs, size - 1), pixels):
            found[axis] = pixels
    return found


def _nearest(size: int, count: int) -> np.ndarray:
    """Return the index of the pixel that TensorFlow takes for each of `count` new ones."""
    step = np.float32(size) / np.float32(count)
    found = np.floor((np.arange(count, dtype=np.float32) + np.float32(0.5)) * step)
    return np.minimum(found, size - 1).astype(np.int64)


def _pick_pixels(graph: Graph, node: Node, scales: np.ndarray, pixels: dict[int, np.ndarray]) -> None:
    """Replace a Resize by Gathers of these pixels along their axes."""
    tensor, shape = node.inputs[0], list(graph.shape(node.inputs[0]) or ())
    for axis, picked in pixels.items():
        constant = graph.add_constant(f"{node.name}/pixels", picked)
        tensor = graph.add("Gather", [tensor, constant], f"{node.name}/axis_{axis}", axis=axis).output
        shape[axis] = len(picked)
        graph.shapes[tensor] = tuple(shape)
        scales[axis] = 1
    if np.all(scales == 1):
        written = node.output
        graph.remove(node)
        graph.add("Identity", [tensor], node.name, output=written)
        return
    rest = graph.add_constant(f"{node.name}/scales", scales)
    graph.set_inputs(node, [tensor, node.inputs[1], rest, *node.inputs[3:]])


PASS = GraphPass(
    correct_resizes,
    needs="Constant scales, and shapes of the inputs.",
    holds="Every Resize of known size gives the size that is meant, and takes TensorFlow's pixels.",
    refuses="Open sizes, which are resized by whole numbers alone.",
    denied_by=nodes_where(_correction),
)
