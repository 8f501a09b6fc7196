"""Resizing by factors that float32 rounds.

ONNX computes the size as `floor(size * scale)`. From 3 pixels to 5, the scale 5/3 is 1.6666666 in float32, and
3 * 1.6666666 is below 5: the result is one pixel short, and so is everything that shapes are inferred for behind it.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from qdq_workbench.onnx_graph.graph import Shape, static_shape

_CLOSE = 1e-4


def raised_scales(scales: np.ndarray, shape: Shape) -> np.ndarray:
    """Return the scales of a Resize, raised where they give a size that is one less than meant."""
    return np.array([_raised(np.float32(s), size) for s, size in zip(scales, shape, strict=True)], np.float32)


def with_inferred_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with inferred shapes, and with raised scales: each may change the sizes that others resize."""
    resizes = [node for node in model.graph.node if node.op_type == "Resize" and len(node.input) > 2 and node.input[2]]
    while True:
        # `data_prop` follows the values of sizes that are computed at run time.
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        values = (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output) if resizes else ()
        shapes = {value.name: static_shape(value) for value in values}
        # One by one: the shapes behind the first that is raised are inferred again.
        if not any(_raise(model, node, shapes.get(node.input[0])) for node in resizes):
            return inferred


def _raise(model: onnx.ModelProto, node: onnx.NodeProto, shape: Shape | None) -> bool:
    """Raise the scales of a Resize; return whether any is another one then."""
    held = next((each for each in model.graph.initializer if each.name == node.input[2]), None)
    if held is None or shape is None:
        return False
    scales = onnx.numpy_helper.to_array(held)
    if len(scales) != len(shape):
        return False
    raised = raised_scales(scales, shape)
    if np.array_equal(raised, scales):
        return False
    name = f"{node.name}/scales"  # other nodes may read the same constant
    for each in [each for each in model.graph.initializer if each.name == name]:
        model.graph.initializer.remove(each)
    model.graph.initializer.append(onnx.numpy_helper.from_array(raised, name))
    node.input[2] = name
    return True


def _raised(scale: np.float32, size: int | None) -> np.float32:
    if size is None:
        return scale
    meant = round(float(scale) * size)
    # A scale that does not aim at a whole size: its result is rounded down as meant.
    if abs(float(scale) * size - meant) > _CLOSE:
        return scale
    # In float64: a product that is large enough here is so after rounding to float32, too.
    while math.floor(size * float(scale)) < meant:
        scale = np.nextafter(scale, np.float32(np.inf))
    return scale
