"""Shift-negative correction: activations with a short negative side are shifted to start at 0.

An activation such as swish has a short negative side, m <= f(x) with m = -0.278, that costs a signed grid half of its
levels. With s = -m the sum y = f(x) + s has no negative values, and the layer behind subtracts the shift in its bias:

    W f(x) + b = W y + (b - s * sum(W))           sum over all inputs of an output channel

A convolution with padding pads y with s, since f(x) was padded with 0. The shift helps where a grid without negative
values has a smaller scale than one with them: with `power_of_two="scale"` on an asymmetric grid the scale is halved.
An asymmetric grid with a free scale gains nothing, and a symmetric one loses a little.

Source: MCT's `shift_negative_activation.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import keras
import numpy as np

from qdq_workbench._numbers import real
from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph_builder import BoundGraph, Call
from qdq_workbench.post_training.added_biases import BiasRebuilder
from qdq_workbench.post_training.chains import REWRITTEN
from qdq_workbench.post_training.weight_grids import bind_float

#: The kinds of inserted operations.
Inserted = Literal["shift", "pad"]
#: Lowest values of activations, rounded down; for gelu that of the tanh approximation, which is lower than the exact.
LOWEST = {"silu": -0.27847, "gelu": -0.17005, "hard_silu": -0.375, "elu": -1.0, "selu": -1.7581}


def shift_negative(
    model: keras.Model, ratio: float = 1.0, *, largest: Callable[[str], float] | None = None
) -> keras.Model:
    """Return a copy of a float model whose activations with a short negative side start at 0.

    It shifts activation layers and `keras.ops` activations (swish, gelu, hard_swish, elu, selu) if all of their
    readers are `Conv1D`, `Conv2D`, `DepthwiseConv2D` or `Dense` layers with one call; others stay as they are. Readers
    without a bias get one. The function of the model stays the same up to float rounding.

    Args:
        model: A built functional or sequential Keras model; it is only read. Nested models are flattened.
        ratio: Shift an activation only if the shift is at most this share of its largest value, at least 0; it has an
            effect only with `largest`.
        largest: A function that returns the largest value of a tensor by its name, such as the recorded range of a
            calibration; None shifts all.

    Returns:
        The corrected model, not compiled.

    Raises:
        SpecError: If `ratio` is not a number of at least 0.
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> image = keras.Input((4,), name="image")
        >>> hidden = keras.layers.Activation("swish", name="swish")(keras.layers.Dense(4, name="first")(image))
        >>> model = keras.Model(image, keras.layers.Dense(2, name="second")(hidden))
        >>> x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
        >>> bool(np.allclose(shift_negative(model)(x), model(x), atol=1e-5))
        True
    """
    return shifted(model, ratio, largest)[0]


def shifted(
    model: keras.Model, ratio: float, largest: Callable[[str], float] | None
) -> tuple[keras.Model, dict[str, Inserted]]:
    """Return the copy that `shift_negative` makes, and the kind of every operation that it has inserted, by name."""
    ratio = real(ratio)
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not ratio >= 0.0:
        raise SpecError(f"ratio must be a number from 0 on: a share of the largest value. Received: ratio={ratio!r}")
    bound = bind_float(model)
    shifts = {
        node.outputs[0]: -LOWEST[node.activation_name]
        for node in bound.graph.nodes
        if _is_shiftable(bound.graph, node) and _is_worth_it(node, ratio, largest)
    }
    builder = _ShiftingRebuilder(bound, shifts)
    return builder.rebuilt(model.name), builder.inserted


def _is_worth_it(node: Node, ratio: float, largest: Callable[[str], float] | None) -> bool:
    return largest is None or -LOWEST[node.activation_name] <= ratio * largest(node.outputs[0])


def _is_shiftable(graph: ModelGraph, node: Node) -> bool:
    tensor = node.outputs[0]
    readers = [reader for reader, _ in graph.readers(tensor)]
    return (
        node.is_activation
        and node.activation_name in LOWEST
        # `LOWEST` holds the value for alpha = 1.
        and not (node.activation_name == "elu" and float(node.settings.get("alpha", 1.0) or 1.0) != 1.0)
        and bool(readers)
        and tensor not in graph.outputs
        and all(_can_take_back(graph, reader) for reader in readers)
    )


def _can_take_back(graph: ModelGraph, node: Node) -> bool:
    return (
        node.class_name in REWRITTEN
        and not node.is_operation
        and not node.opaque
        and len(graph.calls(node.layer)) == 1
        and node.settings.get("data_format", "channels_last") == "channels_last"
        and node.settings.get("padding", "valid") in ("valid", "same")
        and not (node.settings.get("padding") == "same" and _pads_by_size(graph, node))
    )


def _pads_by_size(graph: ModelGraph, node: Node) -> bool:
    """Return whether the padding depends on a size that is not known."""
    shape = graph.tensors[node.inputs[0]].shape
    return None in shape[1:-1] and any(stride != 1 for stride in _per_axis(node, "strides", shape))


class _ShiftingRebuilder(BiasRebuilder):
    """Adds the shift behind activations, and subtracts it in the biases of their readers."""

    def __init__(self, bound: BoundGraph, shifts: dict[str, float]) -> None:
        self._shifts = shifts
        self._readers = {
            reader.layer: shift for tensor, shift in shifts.items() for reader, _ in bound.graph.readers(tensor)
        }
        self.inserted: dict[str, Inserted] = {}
        super().__init__(bound, self._readers)

    def compute(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Shift the output of an activation; pad the input of a convolution with the shift."""
        if call.node.layer in self._readers and call.node.settings.get("padding") == "same":
            shift = self._readers[call.node.layer]
            padded = keras.ops.pad(args[0], _padding(call.node, args[0].shape), constant_values=shift)
            padded = self._inserted(padded, call, "pad")
            return self.replacement(call)(padded, *args[1:], **kwargs)
        result = super().compute(call, args, kwargs)
        tensor = call.node.outputs[0]
        if tensor not in self._shifts:
            return result
        return self._inserted(result + self._shifts[tensor], call, "shift")

    def _inserted(self, tensor: Any, call: Call, kind: Inserted) -> Any:
        """Name the operation that produced a tensor after a call, and record it."""
        named = self.named(tensor, f"{self.names[call.node.layer]}_{kind}")
        self.inserted[named._keras_history.operation.name] = kind  # noqa: SLF001 - Keras has no other way to it
        return named

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration of a reader with a bias and no padding of its own."""
        config = super().settings(config)
        return {**config, "padding": "valid"} if config.get("padding") == "same" else config

    def copy_weights(self) -> None:
        """Copy all variables and subtract the shifts in the biases of the readers."""
        super().copy_weights()
        for layer, shift in self._readers.items():
            clone = self.clones[layer]
            kernel = np.asarray(clone.kernel, np.float64)
            total = kernel.sum(axis=tuple(range(kernel.ndim - 1)))
            if isinstance(clone, keras.layers.DepthwiseConv2D):
                total = kernel.sum(axis=(0, 1)).reshape(-1)
            clone.bias.assign((np.asarray(clone.bias, np.float64) - shift * total).astype(np.float32))


def _padding(node: Node, shape: tuple[int | None, ...]) -> list[tuple[int, int]]:
    """Return the padding that `padding="same"` adds on both sides of every axis."""
    spatial = []
    sizes = zip(shape[1:-1], _per_axis(node, "kernel_size", shape), strict=True)
    steps = zip(_per_axis(node, "strides", shape), _per_axis(node, "dilation_rate", shape), strict=True)
    for (size, kernel), (stride, dilation) in zip(sizes, steps, strict=True):
        reach = (kernel - 1) * dilation + 1
        # With stride 1 the sum does not depend on the size; `_pads_by_size` excludes unknown sizes with other strides.
        total = max(0, (-(-size // stride) - 1) * stride + reach - size) if size is not None else reach - 1
        # TensorFlow puts an odd element behind the values.
        spatial.append((total // 2, total - total // 2))
    return [(0, 0), *spatial, (0, 0)]


def _per_axis(node: Node, setting: str, shape: tuple[int | None, ...]) -> list[int]:
    value = node.settings.get(setting, 1)
    return [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)] * (len(shape) - 2)
