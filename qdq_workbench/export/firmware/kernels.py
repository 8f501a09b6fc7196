"""The kernels of firmware: the node of each layer, from its settings, its weight and the grids of input and result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from qdq_workbench.export.encodings import Encoding, encode_bias
from qdq_workbench.export.firmware.multipliers import addition, divided, quantize_multiplier
from qdq_workbench.export.firmware.program import Program, refusal
from qdq_workbench.export.firmware.tensors import Finish, Integers, Pending, same_grid
from qdq_workbench.graph.kinds import DEPTHWISE
from qdq_workbench.graph.model_graph import Node

Pair = tuple[int, int]

#: By operator: the weight's axes in a kernel, and the permutation of the Keras axes (depthwise weights are reshaped).
_DEPTHWISE = "DepthwiseConv2D"
_LAYOUTS = {"Conv2D": ("OHWI", (3, 0, 1, 2)), "Dense": ("OI", (1, 0))}
_QUANTIZE_WEIGHT = "Quantize its weight (spec.add(name, quantize_weight=True)) with one scale, or one per output"


class Kernels:
    """Makes the kernels of a model's layers.

    Args:
        program: The program to which their arrays are added.
        weights: Weight name `<layer>/<weight>` -> encoding.
        biases: Weight name -> float bias of its layer.
    """

    def __init__(self, program: Program, weights: Mapping[str, Encoding], biases: Mapping[str, Any]) -> None:
        self._program = program
        self._weights = weights
        self._biases = biases

    def convolution(self, node: Node, x: Integers) -> Pending:
        """Return the kernel of a two-dimensional convolution, depthwise or not."""
        operator = _DEPTHWISE if node.is_a(*DEPTHWISE) else "Conv2D"
        codes = self._codes(node)
        window = _window(node, x, codes.shape[:2])
        if operator == _DEPTHWISE:
            channels = codes.shape[2] * codes.shape[3]
            window["depth_multiplier"] = codes.shape[3]
        else:
            channels = codes.shape[3]
            window["groups"] = x.shape[2] // codes.shape[2]
        return self._product(node, operator, x, (*_window_sizes(x, window), channels), window)

    def dense(self, node: Node, x: Integers) -> Pending:
        """Return the kernel of a matrix product."""
        if len(x.shape) != 1:
            raise refusal(node, f"it multiplies a tensor of shape {x.shape}", "Flatten in front of it")
        return self._product(node, "Dense", x, (self._codes(node).shape[1],), {})

    def addition(self, node: Node, operands: tuple[Integers, ...]) -> Pending:
        """Return the kernel of the sum of two tensors."""
        if len(operands) != 2 or operands[0].shape != operands[1].shape:
            shapes = [operand.shape for operand in operands]
            raise refusal(node, f"it adds tensors of shapes {shapes}", "Add two tensors of one shape at a time")
        scales = (float(operands[0].encoding.scale), float(operands[1].encoding.scale))
        return _pending(node, "Add", operands, operands[0].shape, lambda y: addition(scales, _scale(y)))

    def average(self, node: Node, x: Integers) -> Pending:
        """Return the kernel of an average over windows, or over the whole image."""
        whole = node.settings.get("pool_size") is None
        window = _whole_image(x) if whole else _window(node, x, tuple(_two(node, "pool_size")))
        shape = self.pooled_shape(node, x, window)
        counts = _counts(x, window)

        def finish(y: Encoding | None) -> dict[str, Any]:
            if not whole and y is not None and same_grid(x.encoding, y):
                return {}  # on one grid the mean of the integers is the result
            multiplier, shift = quantize_multiplier(float(x.encoding.scale) / _scale(y))
            return {"multipliers": {str(n): list(divided(int(multiplier), int(shift), n)) for n in counts}}

        return _pending(node, "GlobalAveragePool" if whole else "AveragePool", (x,), shape, finish, window)

    def maximum_window(self, node: Node, x: Integers) -> dict[str, Any]:
        """Return the settings of a maximum over windows, or over the whole image."""
        whole = node.settings.get("pool_size") is None
        return _whole_image(x) if whole else _window(node, x, tuple(_two(node, "pool_size")))

    @staticmethod
    def pooled_shape(node: Node, x: Integers, window: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the shape of a pooling layer's result."""
        whole = node.settings.get("pool_size") is None
        if whole and not node.settings.get("keepdims"):
            return (x.shape[2],)
        return (*_window_sizes(x, window), x.shape[2])

    def regridding(self, node: Node, operator: str, operands: tuple[Integers, ...], **fixed: Any) -> Pending:
        """Return the kernel that requantizes tensors to one grid, and joins them along `axis` if it is given."""

        def finish(y: Encoding | None) -> dict[str, Any]:
            factors = np.array([float(operand.encoding.scale) / _scale(y) for operand in operands])
            multiplier, shift = quantize_multiplier(factors)
            return {"multiplier": multiplier.tolist(), "shift": shift.tolist()}

        shape = list(operands[0].shape)
        if "axis" in fixed:
            shape[fixed["axis"] - 1] = sum(operand.shape[fixed["axis"] - 1] for operand in operands)
        return _pending(node, operator, operands, tuple(shape), finish, fixed)

    def _encoding(self, node: Node) -> Encoding:
        encoding = self._weights.get(f"{node.layer}/kernel")
        if encoding is None:
            raise refusal(node, "its weight stays in float", _QUANTIZE_WEIGHT)
        if np.any(encoding.zero_point) or encoding.dtype != np.int8:
            why = f"its weight is {encoding.spec.label} with zero points other than 0, or is no int8"
            raise refusal(node, why, "Quantize it with signed=True, symmetric=True and at most 8 bits")
        return encoding

    def _codes(self, node: Node) -> np.ndarray:
        return np.asarray(self._encoding(node).codes)

    def _product(
        self, node: Node, operator: str, x: Integers, shape: tuple[int, ...], settings: dict[str, Any]
    ) -> Pending:
        """Return the kernel of an integer convolution or matrix product; add its weight and bias to the program."""
        encoding, codes = self._encoding(node), self._codes(node)
        scales = _scale_per_output(node, encoding, operator)
        bias = np.asarray(self._biases.get(f"{node.layer}/kernel", np.zeros(scales.shape, np.float32)))
        # `encode_bias` reads the scales alone; the axis is what an `Encoding` with several scales must have.
        per_output = dataclasses.replace(
            encoding, scale=scales, zero_point=np.zeros(scales.shape, np.int32), spec=encoding.spec.replace(axis=-1)
        )
        encoded = encode_bias(bias, x.encoding, per_output)
        if encoded is None:
            why = "its bias does not fit into int32 beside the scales of its input and weight"
            raise refusal(node, why, "Calibrate it on data of its own size, or leave it outside")
        if operator == _DEPTHWISE:
            axes, codes = "1HWO", codes.reshape(*codes.shape[:2], -1)[np.newaxis]
        else:
            axes, order = _LAYOUTS[operator]
            codes = codes.transpose(order)
        add = self._program.array
        # The names of weights are those of the layer, which its calls share; a bias depends on the scale of the input.
        arrays = {
            "weights": add(f"{node.layer}/kernel", codes, axes),
            "weight_scale": add(f"{node.layer}/kernel/scale", scales, "O"),
            "bias": add(f"{node.name}/bias", encoded.codes, "O"),
        }

        def finish(y: Encoding | None) -> dict[str, Any]:
            if y is None:
                return {"arrays": arrays}
            factor = float(x.encoding.scale) * scales.astype(np.float64) / _scale(y)
            multiplier, shift = quantize_multiplier(factor)
            fixed_point = {
                "multiplier": add(f"{node.name}/multiplier", multiplier, "O"),
                "shift": add(f"{node.name}/shift", shift, "O"),
            }
            return {"arrays": {**arrays, **fixed_point}}

        return _pending(node, operator, (x,), shape, finish, settings)


def pads_of(node: Node) -> tuple[Pair, Pair]:
    """Return the zeros that a ZeroPadding2D layer adds, (before, after) for height and width."""
    (top, bottom), (left, right) = node.settings["padding"]
    return (int(top), int(bottom)), (int(left), int(right))


def _pending(
    node: Node,
    operator: str,
    sources: tuple[Integers, ...],
    shape: tuple[int, ...],
    finish: Finish,
    fixed: Mapping[str, Any] | None = None,
) -> Pending:
    padded_by = dict.fromkeys(layer for source in sources for layer in source.padded_by)
    return Pending(node, operator, sources, shape, finish, dict(fixed or {}), layers=(*padded_by, node.name))


def _scale(encoding: Encoding | None) -> float:
    if encoding is None:
        raise AssertionError("Only products have results in float32; `Walk` refuses the others.")
    return float(encoding.scale)


def _scale_per_output(node: Node, encoding: Encoding, operator: str) -> np.ndarray:
    """Return the scale of every output channel of a weight; refuse scales along another axis."""
    codes = np.asarray(encoding.codes)
    full = np.broadcast_to(encoding.broadcast(encoding.scale), codes.shape)
    outputs = codes.shape[2] * codes.shape[3] if operator == _DEPTHWISE else codes.shape[-1]
    rows = full.reshape(-1, outputs)
    if np.any(rows != rows[:1]):
        raise refusal(node, f"its weight has scales along axis {encoding.spec.axis}", _QUANTIZE_WEIGHT)
    return rows[0].copy()


def _two(node: Node, setting: str, default: int = 1) -> Pair:
    value = node.settings.get(setting, default)
    first, second = value if isinstance(value, (list, tuple)) else (value, value)
    return int(first), int(second)


def _window(node: Node, x: Integers, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Return the settings of a sliding window; its padding is (before, after) per axis, that of the input included."""
    if len(x.shape) != 3:
        raise refusal(node, f"it reads a tensor of shape {x.shape}", "Only images (height, width, channels) are known")
    # A pooling layer without strides moves by its window.
    strides = _two(node, "strides") if node.settings.get("strides") is not None else (kernel[0], kernel[1])
    dilation = _two(node, "dilation_rate")
    own = [(0, 0), (0, 0)]
    given = x.pads or ((0, 0), (0, 0))
    if node.settings.get("padding", "valid") == "same":
        for axis in range(2):
            size = x.shape[axis] + sum(given[axis])
            # TensorFlow's SAME: ceil(size / stride) windows, and of an odd total the larger half at the end.
            reach = (-(-size // strides[axis]) - 1) * strides[axis] + (kernel[axis] - 1) * dilation[axis] + 1
            total = max(reach - size, 0)
            own[axis] = (total // 2, total - total // 2)
    padding = [[a + c, b + d] for (a, b), (c, d) in zip(given, own, strict=True)]
    return {"kernel": list(kernel), "strides": list(strides), "dilation": list(dilation), "padding": padding}


def _whole_image(x: Integers) -> dict[str, Any]:
    return {"kernel": list(x.shape[:2]), "strides": [1, 1], "dilation": [1, 1], "padding": [[0, 0], [0, 0]]}


def _window_sizes(x: Integers, window: Mapping[str, Any]) -> Pair:
    sizes = [
        (size + sum(pads) - (kernel - 1) * dilation - 1) // stride + 1
        for size, pads, kernel, dilation, stride in zip(
            x.shape[:2], window["padding"], window["kernel"], window["dilation"], window["strides"], strict=True
        )
    ]
    return sizes[0], sizes[1]


def _counts(x: Integers, window: Mapping[str, Any]) -> list[int]:
    """Return the distinct numbers of image elements, without padding, that the windows contain."""
    along = []
    for axis, outputs in enumerate(_window_sizes(x, window)):
        starts = np.arange(outputs) * window["strides"][axis] - window["padding"][axis][0]
        # Pooling layers have no dilation.
        ends = np.minimum(starts + window["kernel"][axis], x.shape[axis])
        along.append(ends - np.maximum(starts, 0))
    return sorted({int(n) for n in np.outer(*along).ravel()})
