"""Translation of a plan and its encodings into the program of a firmware model; calls without a kernel are refused.

The lowering defines which calls have operators of their own, the plan which tensors are integers; the encodings are
those of the exported file. Only the layout is decided here. The lowering is that of an ONNX file for every target,
because firmware kernels pad their inputs, as ONNX operators do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from qdq_workbench.errors import ExportError
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.firmware.kernels import Kernels, pads_of
from qdq_workbench.export.firmware.program import WHAT_IT_LACKS, Program, refusal
from qdq_workbench.export.firmware.tensors import Floats, Integers, Padded, Pending, Value, same_grid
from qdq_workbench.graph.activations import maximum_of
from qdq_workbench.graph.free_names import free_name
from qdq_workbench.graph.kinds import BATCH_NORMALIZATION
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import JOINS_CONSTANTS, adds_constant
from qdq_workbench.placement.lowering import Lowering
from qdq_workbench.placement.plan import Placement, PlacementPlan

_CLAMPS = ("relu", "relu6", "clipped_relu")
_OUTSIDE = "Leave that part outside of the model (quantize the model without it), or export for another runtime"
_PAIR = "Quantize the result of the layer in front: spec.add(name, quantize_output=True)"
_NAMED = 6


class Walk:
    """Visits the calls of a plan in execution order and fills a program.

    Args:
        plan: The plan.
        activations: Pair name -> encoding.
        weights: Weight name -> encoding.
        biases: Weight name -> float bias of its layer.
    """

    def __init__(
        self,
        plan: PlacementPlan,
        activations: Mapping[str, Encoding],
        weights: Mapping[str, Encoding],
        biases: Mapping[str, Any],
    ) -> None:
        self._plan = plan
        self._graph: ModelGraph = plan.graph
        self._lowering = plan.onnx_lowering
        self._activations = activations
        self.program = Program()
        self._kernels = Kernels(self.program, weights, biases)
        self._values: dict[str, Value] = {}
        self._pairs: dict[str, Integers] = {}
        self._floats_of: dict[str, Floats] = {}

    def run(self) -> dict[str, str]:
        """Fill the program; return graph output -> name of its tensor in the program, in the order of the outputs."""
        _check_classes(self._graph, self._lowering)
        for node in self._graph.nodes:
            self._values[node.outputs[0]] = self._made(node)
        return {tensor: self._output(tensor) for tensor in dict.fromkeys(self._graph.outputs)}

    def _made(self, node: Node) -> Value:
        if not node.inputs:
            return self._input(node)
        step = self._lowering.nodes[node.name].step
        if step == "vanishes":
            return self._read(node, 0)
        if step == "folded":
            return self._pending(node).behind(node.name)
        if step == "absorbed":
            return self._absorbed(node)
        if node.is_activation:
            return self._activated(node, self._read(node, 0), node.outputs[0])
        made = _MAKERS[_operator(node)](self, node)
        return self._activated(node, made, node.outputs[0]) if node.activation_name != "linear" else made

    def _input(self, node: Node) -> Value:
        tensor = self._graph.tensors[node.outputs[0]]
        if not tensor.dtype.startswith("float"):
            raise refusal(node, f"the model reads {tensor.dtype}", _OUTSIDE)
        return self.program.floats(tensor.name, self._shape(node))

    def _shape(self, node: Node) -> tuple[int, ...]:
        """Return the shape of a call's result, without the batch."""
        shape = self._graph.tensors[node.outputs[0]].shape[1:]
        if any(size is None for size in shape):
            advice = "Build the model with a fixed size: firmware has no other"
            raise refusal(node, f"its result has the open shape {shape}", advice)
        return tuple(int(size) for size in shape if size is not None)

    def _absorbed(self, node: Node) -> Value:
        """Return the input with zero padding as a setting of its readers; refuse the addition of a constant."""
        if adds_constant(node):
            raise refusal(node, "it adds a constant", "Make the constant the bias of the layer in front of it")
        value, pads = self._read(node, 0), pads_of(node)
        if isinstance(value, Integers):
            return _padded(value, pads, (node.name,))
        if isinstance(value, Padded):
            return Padded(value.value, _sum(value.pads, pads), (*value.padded_by, node.name))
        return Padded(value, pads, (node.name,))

    def _activated(self, node: Node, value: Value, tensor: str) -> Value:
        name = node.activation_name
        if name == "softmax":
            axis = node.settings.get("axis", -1)
            if axis not in (-1, len(self._shape(node))):
                raise refusal(node, f"its softmax runs along axis {axis}", "Run it along the last axis")
            source = self._floats(node, value, node.inputs[0] if node.is_activation else f"{tensor}/logits")
            result = self.program.floats(tensor, source.shape)
            self.program.add(f"{node.name}/softmax" if node.weights else node.name, "Softmax", (source,), result)
            return result
        if isinstance(value, Integers):
            # An activation behind integers, such as a ReLU behind a pool, is the clamp of a requantization.
            value = self._kernels.regridding(node, "Requantize", (value,))
        if not isinstance(value, Pending):
            raise refusal(node, f"{name} follows floats", _PAIR)
        return value.behind(node.name, 0.0, maximum_of(node, name))

    def _read(self, node: Node, index: int) -> Value:
        """Return an input of a call, on the grid of its pair if the plan has one."""
        value = self._values[node.inputs[index]]
        # Several readers of one tensor may have pairs on different grids, or none.
        placement = self._plan.input_placement(node.name, index)
        return value if placement is None else self._quantized(value, placement)

    def _integers(self, node: Node, index: int = 0) -> Integers:
        value = self._read(node, index)
        if not isinstance(value, Integers):
            advice = (
                f"Quantize its inputs: spec.add({node.layer!r}, quantize_input=True), or quantize with AutoQDQCase()"
            )
            raise refusal(node, f"its input {node.inputs[index]!r} has no Q/DQ pair", advice)
        return value

    def _unpadded(self, node: Node, index: int = 0) -> Integers:
        value = self._integers(node, index)
        if value.pads:
            raise refusal(node, "it cannot pad", "Put another layer of zero padding in front of it")
        return value

    def _pending(self, node: Node) -> Pending:
        value = self._read(node, 0)
        if not isinstance(value, Pending):
            raise refusal(node, "it is folded into a layer whose result is quantized before it", _PAIR)
        return value

    def _quantized(self, value: Value, placement: Placement) -> Integers:
        """Return a value on the grid of a pair."""
        name = self._plan.pair_of(placement).name
        if name not in self._pairs:
            self._pairs[name] = self._on_grid(value, name, self._activations[name], self._node_of(placement))
        return self._pairs[name]

    def _node_of(self, placement: Placement) -> Node:
        return self._graph.producer(placement.tensor)

    def _on_grid(self, value: Value, name: str, encoding: Encoding, node: Node) -> Integers:
        if isinstance(value, Padded):
            # 0 lies on every grid, so the padding may follow the quantization.
            return _padded(self._on_grid(value.value, name, encoding, node), value.pads, value.padded_by)
        if isinstance(value, Floats):
            result = self.program.integers(name, value.shape, encoding)
            ends = [encoding.spec.qmin, encoding.spec.qmax]
            self.program.add(f"{name}/quantize", "Quantize", (value,), result, layers=[], clamp=ends)
            return result
        if isinstance(value, Integers):
            if same_grid(value.encoding, encoding):
                return value
            # A requantization does not pad: the readers of its result do.
            bare = Integers(value.name, value.shape, value.encoding)
            moved = self._kernels.regridding(node, "Requantize", (bare,))
            # Named after its pair: the call has a node already, and its result may be read on several grids.
            result = self.program.write(moved, name, encoding, node=f"{name}/requantize")
            return _padded(result, value.pads, value.padded_by)
        return self.program.write(value, name, encoding)

    def _on_input_grid(self, node: Node, shape: tuple[int, ...], encoding: Encoding) -> Integers:
        """Add the result of a call that keeps the grid of its input."""
        return self.program.integers(self._name_on(node.outputs[0], encoding), shape, encoding)

    def _name_on(self, tensor: str, encoding: Encoding) -> str:
        """Return the name of a tensor on a grid: that of its pair, unless the pair has another grid."""
        pair = self._activations.get(tensor)
        return tensor if pair is None or same_grid(pair, encoding) else f"{tensor}/input_grid"

    def _floats(self, node: Node, value: Value, name: str) -> Floats:
        """Return a value in float32; refuse padded values and unwritten results of kernels other than Dense."""
        if isinstance(value, Floats):
            return value
        if isinstance(value, Integers) and not value.pads:
            return self._dequantized(value, name)
        if isinstance(value, Pending) and value.operator == "Dense":
            return self.program.write_floats(value, name)
        raise refusal(node, "its result is read in float, and it has no Q/DQ pair", _PAIR)

    def _dequantized(self, value: Integers, name: str) -> Floats:
        if value.name not in self._floats_of:
            # The float tensor in front of a pair, such as a softmax with an output pair, has the plain name already.
            free = free_name(name, self.program.tensors, "@")
            result = self.program.floats(free, value.shape)
            self.program.add(f"{free}/dequantize", "Dequantize", (value,), result, layers=[])
            self._floats_of[value.name] = result
        return self._floats_of[value.name]

    def _output(self, tensor: str) -> str:
        value, placement = self._values[tensor], self._plan.output_placement(tensor)
        if placement is not None:
            value = self._quantized(value, placement)
        return self._floats(self._graph.producer(tensor), value, tensor).name

    def convolution(self, node: Node) -> Value:
        """Return a two-dimensional convolution."""
        return self._kernels.convolution(node, self._integers(node))

    def dense(self, node: Node) -> Value:
        """Return a matrix product."""
        return self._kernels.dense(node, self._unpadded(node))

    def addition(self, node: Node) -> Value:
        """Return the sum of two tensors."""
        operands = tuple(self._unpadded(node, index) for index in range(len(node.inputs)))
        return self._kernels.addition(node, operands)

    def average(self, node: Node) -> Value:
        """Return an average over windows, or over the image."""
        return self._kernels.average(node, self._unpadded(node))

    def maximum(self, node: Node) -> Value:
        """Write a maximum over windows, which stays on the grid of its input."""
        x = self._integers(node)
        window = self._kernels.maximum_window(node, x)
        result = self._on_input_grid(node, self._kernels.pooled_shape(node, x, window), x.encoding)
        self.program.add(node.name, "MaxPool", (x,), result, layers=[*x.padded_by, node.name], **window)
        return result

    def concatenation(self, node: Node) -> Value:
        """Return a concatenation: written at once if all inputs have one grid, else on the grid of the next pair."""
        operands = tuple(self._unpadded(node, index) for index in range(len(node.inputs)))
        rank = len(operands[0].shape) + 1
        axis = int(node.settings.get("axis", -1)) % rank
        if axis == 0:
            raise refusal(node, "it joins samples", _OUTSIDE)
        joined = self._kernels.regridding(node, "Concatenate", operands, axis=axis)
        if all(same_grid(operand.encoding, operands[0].encoding) for operand in operands):
            encoding = operands[0].encoding
            return self.program.write(joined, self._name_on(node.outputs[0], encoding), encoding)
        return joined

    def reshaping(self, node: Node) -> Value:
        """Write a reshape, which stays on the grid of its input."""
        value = self._read(node, 0)
        if isinstance(value, Floats):
            floats = self.program.floats(node.outputs[0], self._shape(node))
            self.program.add(node.name, "Reshape", (value,), floats)
            return floats
        x = self._unpadded(node)
        result = self._on_input_grid(node, self._shape(node), x.encoding)
        self.program.add(node.name, "Reshape", (x,), result)
        return result

    def padding(self, node: Node) -> Value:
        """Write zero padding as a node of its own."""
        value, pads = self._read(node, 0), [list(ends) for ends in pads_of(node)]
        if isinstance(value, Floats):
            floats = self.program.floats(node.outputs[0], self._shape(node))
            self.program.add(node.name, "Pad", (value,), floats, padding=pads)
            return floats
        x = self._unpadded(node)
        result = self._on_input_grid(node, self._shape(node), x.encoding)
        self.program.add(node.name, "Pad", (x,), result, padding=pads)
        return result


_MAKERS: dict[str, Callable[[Walk, Node], Value]] = {
    "Conv2D": Walk.convolution,
    "DepthwiseConv2D": Walk.convolution,
    "Dense": Walk.dense,
    "Add": Walk.addition,
    "AveragePooling2D": Walk.average,
    "GlobalAveragePooling2D": Walk.average,
    "MaxPooling2D": Walk.maximum,
    "GlobalMaxPooling2D": Walk.maximum,
    "Concatenate": Walk.concatenation,
    "Flatten": Walk.reshaping,
    "Reshape": Walk.reshaping,
    "ZeroPadding2D": Walk.padding,
}
#: The layers that firmware has, for messages.
KNOWN = (*_MAKERS, "ReLU", "Softmax")


def _operator(node: Node) -> str:
    """Return the class of `_MAKERS` that a call is an instance of; empty for others."""
    if node.opaque:
        return ""
    # A subclass of a layer that planning can see into computes as its base class does.
    names = (node.class_name,) if node.is_operation else node.classes
    return next((name for name in names if name in _MAKERS), "")


def _check_classes(graph: ModelGraph, lowering: Lowering) -> None:
    """Refuse a model with calls that firmware has no kernel for, and name them.

    Raises:
        ExportError: If there are any.
    """
    found = []
    for node in graph.nodes:
        if not node.inputs or not lowering.nodes[node.name].has_operators:
            continue
        why = _why_unknown(node)
        if why:
            found.append(f"{node.name!r} ({why})")
    if found:
        shown = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
        raise ExportError(
            f"Firmware has no integer form of these layers. {_OUTSIDE}. It has: {', '.join(KNOWN)}; activations ReLU "
            f"and ReLU6 behind them, softmax at the end: {WHAT_IT_LACKS}. Received: {shown}"
        )


def _why_unknown(node: Node) -> str:
    """Return why firmware has no kernel for a call; empty where it has."""
    if node.is_activation:
        known = node.activation_name in (*_CLAMPS, "softmax") and len(node.inputs) == 1
        return "" if known else f"{node.class_name}, {node.activation_name}"
    if node.is_a(*BATCH_NORMALIZATION):
        return f"{node.class_name} that no layer in front of it takes up"
    if not _operator(node):
        return node.class_name
    if node.activation_name not in ("linear", "relu", "relu6", "softmax"):
        return f"{node.class_name} with activation {node.activation_name}"
    if node.settings.get("data_format") == "channels_first":
        return f"{node.class_name}, channels first"
    constant = node.settings.get(JOINS_CONSTANTS) or len(node.inputs) == 1
    if node.settings.get(JOINS_CONSTANTS) or (node.is_operation and (_operator(node) != "Add" or constant)):
        return f"the operation {node.class_name} {'with a constant' if constant else 'in place of the layer'}"
    return ""


def _padded(value: Integers, pads: tuple[tuple[int, int], ...], padded_by: tuple[str, ...]) -> Integers:
    own = value.pads or tuple((0, 0) for _ in pads)
    both = (*value.padded_by, *padded_by)
    return Integers(value.name, value.shape, value.encoding, _sum(own, pads) if pads else value.pads, both)


def _sum(one: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return tuple((a + c, b + d) for (a, b), (c, d) in zip(one, other, strict=True))
