"""The program of a firmware model: tensors, nodes in execution order, and arrays."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from qdq_workbench._pages import page
from qdq_workbench.errors import ExportError
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.firmware.tensors import Floats, Integers, Pending, clamp, same_grid
from qdq_workbench.graph.model_graph import Node

#: The section about what firmware has and refuses, for messages.
WHAT_IT_LACKS = page("howto/firmware.md", "What it does not have")
_AXES = {1: "C", 3: "HWC"}


@dataclasses.dataclass
class Program:
    """The tensors, nodes and arrays of a model, filled while its plan is read.

    Args:
        tensors: Tensor name -> shape, axes and dtype, for integers also scale and zero point.
        nodes: The nodes in execution order.
        arrays: Weights, biases, scales, multipliers and shifts by name.
        axes: Array name -> its axes as letters: O output channels, H height, W width, I input channels.
    """

    tensors: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    nodes: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    axes: dict[str, str] = dataclasses.field(default_factory=dict)
    _names: set[str] = dataclasses.field(default_factory=set)

    def array(self, name: str, values: np.ndarray, axes: str) -> str:
        """Add an array and return its name; the calls of a shared layer add the same one."""
        self.arrays[name], self.axes[name] = np.ascontiguousarray(values), axes
        return name

    def integers(self, name: str, shape: tuple[int, ...], encoding: Encoding) -> Integers:
        """Add a tensor of integers; `name` is that of its pair, or of the float tensor that it stands for."""
        full = f"{name}/quantized"
        grid = {"scale": float(encoding.scale), "zero_point": int(encoding.zero_point)}
        self._define(full, shape, str(encoding.dtype), **grid)
        return Integers(full, shape, encoding)

    def floats(self, name: str, shape: tuple[int, ...]) -> Floats:
        """Add a tensor in float32."""
        self._define(name, shape, "float32")
        return Floats(name, shape)

    def _define(self, name: str, shape: tuple[int, ...], dtype: str, **grid: float) -> None:
        if name in self.tensors:
            # The nodes read and write tensors by name, so the second writer would replace the values and the grid.
            raise ExportError(
                "Two nodes of the firmware program would write one tensor. Rename the layer whose name ends in "
                f"'quantized' or 'input_grid', if there is one. Received: tensor={name!r}"
            )
        self.tensors[name] = {"shape": list(shape), "axes": _AXES.get(len(shape), ""), "dtype": dtype, **grid}

    def add(
        self, name: str, operator: str, sources: tuple[Integers | Floats, ...], result: Integers | Floats, **parts: Any
    ) -> None:
        """Add a node; its name, for most nodes that of the call that it computes, must be new.

        Its `arrays` map a role, such as "weights", to the name of an array; its `layers` are the calls that it
        computes, by default `name`.
        """
        if name in self._names:
            raise ExportError(
                "Two nodes of the firmware program would have one name. Rename the layer of that name, or the one "
                f"whose name ends in 'requantize', 'softmax' or 'clip', if there is one. Received: node={name!r}"
            )
        self._names.add(name)
        given = {"layers": [name], "arrays": {}, **parts}
        inputs = [source.name for source in sources]
        self.nodes.append({"name": name, "operator": operator, "inputs": inputs, "outputs": [result.name], **given})

    def write(self, pending: Pending, name: str, encoding: Encoding, *, node: str = "") -> Integers:
        """Add the node of a kernel with an integer result, unless it is there with this grid and this activation.

        `name` is the result's, as for `integers`; `node` that of the node, "" for the kernel's call.
        """
        for low, high, found in pending.written:
            alike = (low, high) == (pending.low, pending.high)
            if alike and isinstance(found, Integers) and same_grid(found.encoding, encoding):
                return found
        _check_unread(pending)
        result = self.integers(name, pending.shape, encoding)
        parts = {**pending.fixed, **pending.finish(encoding), "clamp": clamp(encoding, pending.low, pending.high)}
        # A layer with an activation of its own is listed twice: for the kernel and for the clamp.
        layers = list(dict.fromkeys(pending.layers))
        self.add(node or pending.node.name, pending.operator, pending.sources, result, **{**parts, "layers": layers})
        pending.written.append((pending.low, pending.high, result))
        return result

    def write_floats(self, pending: Pending, name: str) -> Floats:
        """Add the node of a kernel with a float32 result, and a Clip node for its activation.

        Raises:
            ExportError: If the result is read in two forms.
        """
        for low, high, found in pending.written:
            if (low, high) == (pending.low, pending.high) and isinstance(found, Floats):
                return found
        _check_unread(pending)
        clipped = math.isfinite(pending.low) or math.isfinite(pending.high)
        result = self.floats(f"{name}/linear" if clipped else name, pending.shape)
        parts = {**pending.fixed, **pending.finish(None), "layers": list(dict.fromkeys(pending.layers))}
        self.add(pending.node.name, pending.operator, pending.sources, result, **parts)
        if not clipped:
            pending.written.append((pending.low, pending.high, result))
            return result
        after = self.floats(name, pending.shape)
        pending.written.append((pending.low, pending.high, after))
        limits = {
            "minimum": pending.low if math.isfinite(pending.low) else None,
            "maximum": pending.high if math.isfinite(pending.high) else None,
        }
        self.add(f"{pending.node.name}/clip", "Clip", (result,), after, **limits, layers=[pending.layers[-1]])
        return after


def _check_unread(pending: Pending) -> None:
    if pending.written:
        raise refusal(
            pending.node,
            "its result is read in two forms: on two grids, as integers and as floats, or with and without the "
            "activation behind it",
            "Give all its readers one pair: quantize the output of the layer, or of its activation, once",
        )


def refusal(node: Node, why: str, advice: str) -> ExportError:
    """Return the error for a layer without an integer form for firmware; reason and advice have no full stop."""
    return ExportError(
        f"The layer {node.layer!r} has no integer form for firmware: {why}. {advice}. More on {WHAT_IT_LACKS}. "
        f"Received: {node.class_name} {node.name!r}"
    )
