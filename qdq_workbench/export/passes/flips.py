"""Functions that change a node from channels-last to channels-first, one per kind of operation.

Each changes a node's inputs and attributes in place and returns, for each output, the permutation that brings the new
output back to the old layout. For a node that it cannot change, it returns None and has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qdq_workbench.export.passes.patterns import constant_axes
from qdq_workbench.graph.operators import BROADCASTING, UNARY, operators_of
from qdq_workbench.onnx_graph.graph import Graph, Node, Shape
from qdq_workbench.onnx_graph.qdq_graph import PAIR_OPERATORS
from qdq_workbench.onnx_graph.transposes import to_channels_first, to_channels_last, transposed_input

Flip = Callable[[Graph, Node, int], "list[tuple[int, ...]] | None"]


def _flip_first_input(graph: Graph, node: Node, rank: int) -> list[tuple[int, ...]] | None:
    graph.set_inputs(node, [transposed_input(graph, node.inputs[0], rank), *node.inputs[1:]])
    return [to_channels_last(rank)] * len(node.outputs)


def _flip_pair_half(graph: Graph, node: Node, rank: int) -> list[tuple[int, ...]] | None:
    # The DequantizeLinear of a weight: its layout is that of the operator that reads it.
    if graph.constant(node.inputs[0]) is not None:
        return None
    if graph.rank(node.inputs[1]) == 1:
        node.set("axis", to_channels_last(rank)[int(node.get("axis", 1))])
    return _flip_first_input(graph, node, rank)


def _flip_broadcasting(graph: Graph, node: Node, rank: int) -> list[tuple[int, ...]] | None:
    inputs = []
    for tensor in node.inputs:
        value, shape = graph.constant(tensor), graph.shape(tensor)
        if value is not None and value.size == 1:
            scalar = value.reshape([1] * rank if value.ndim else [])
            inputs.append(tensor if scalar.shape == value.shape else graph.add_constant(tensor, scalar))
        elif value is not None:
            full = value.reshape([1] * (rank - value.ndim) + list(value.shape))
            inputs.append(graph.add_constant(tensor, np.transpose(full, to_channels_first(rank)).copy()))
        elif shape is not None and len(shape) == 0:
            inputs.append(tensor)
        else:
            inputs.append(transposed_input(graph, _expanded(graph, tensor, shape or (), rank), rank))
    graph.set_inputs(node, inputs)
    return [to_channels_last(rank)]


def _expanded(graph: Graph, tensor: str, shape: Shape, rank: int) -> str:
    """Return a tensor with leading axes of size 1 up to a rank, as broadcasting adds them."""
    if len(shape) == rank:
        return tensor
    axes = graph.add_constant(f"{tensor}/axes", np.arange(rank - len(shape), dtype=np.int64))
    node = graph.add("Unsqueeze", [tensor, axes], f"{tensor}/Unsqueeze")
    graph.shapes[node.output] = (*[1] * (rank - len(shape)), *shape)
    return node.output


def _flip_one_axis(graph: Graph, node: Node, rank: int) -> list[tuple[int, ...]] | None:
    # ONNX's defaults from opset 13 on; Concat has none.
    default = -1 if node.op in operators_of("softmax") else 0
    axis = to_channels_last(rank)[int(node.get("axis", default)) % rank]
    if node.op == "Concat":
        if any(graph.rank(tensor) != rank for tensor in node.inputs):
            return None
        graph.set_inputs(node, [_concat_operand(graph, tensor, rank) for tensor in node.inputs])
        node.set("axis", axis)
        return [to_channels_last(rank)]
    node.set("axis", axis)
    return _flip_first_input(graph, node, rank)


def _concat_operand(graph: Graph, tensor: str, rank: int) -> str:
    value = graph.constant(tensor)
    if value is None:
        return transposed_input(graph, tensor, rank)
    return graph.add_constant(tensor, np.transpose(value, to_channels_first(rank)).copy())


def _flip_dropping_axes(graph: Graph, node: Node, rank: int) -> list[tuple[int, ...]] | None:
    """Flip a reduction or a Squeeze; if its axes are dropped, the permutation is that of the remaining axes."""
    axes = constant_axes(graph, node)
    if axes is None:
        return None
    last = to_channels_last(rank)
    new_axes = sorted(last[axis % rank] for axis in axes)
    keeps = node.op != "Squeeze" and node.get("keepdims", 1)
    if "axes" in node.attributes:
        node.set("axes", new_axes)
        rest = node.inputs[1:]
    else:
        rest = [graph.add_constant(f"{node.name}/axes", np.array(new_axes, np.int64)), *node.inputs[2:]]
    graph.set_inputs(node, [transposed_input(graph, node.inputs[0], rank), *rest])
    if keeps:
        return [last]
    # The layout change of the remaining axes, numbered without the dropped ones.
    left = [axis for axis in range(rank) if axis not in new_axes]
    return [tuple(left.index(axis) for axis in last if axis in left)]


def _flip_pad(graph: Graph, node: Node, rank: int) -> list[tuple[int, ...]] | None:
    pads = graph.constant(node.inputs[1])
    if pads is None or pads.size != 2 * rank or (len(node.inputs) > 3 and node.inputs[3]):
        return None
    first = list(to_channels_first(rank))
    moved = np.concatenate([pads[:rank][first], pads[rank:][first]])
    source = transposed_input(graph, node.inputs[0], rank)
    graph.set_inputs(node, [source, graph.add_constant(f"{node.name}/pads", moved), *node.inputs[2:]])
    return [to_channels_last(rank)]


def _flip_slice(graph: Graph, node: Node, rank: int) -> list[tuple[int, ...]] | None:
    starts = graph.shape(node.inputs[1])
    if starts is None or starts[0] is None:
        return None
    # Without axes a Slice starts at the first one; their order changes with the layout, so they must be given.
    axes: np.ndarray | None = np.arange(starts[0])
    if len(node.inputs) > 3 and node.inputs[3]:
        axes = graph.constant(node.inputs[3])
    if axes is None:
        return None
    given = [graph.constant(name) for name in node.inputs[1:] if name]
    kind = next((value.dtype for value in given if value is not None), np.int64)  # starts, ends, axes, steps share one
    moved = np.array([to_channels_last(rank)[int(axis) % rank] for axis in axes], kind)
    source = transposed_input(graph, node.inputs[0], rank)
    new_axes = graph.add_constant(f"{node.name}/axes", moved)
    graph.set_inputs(node, [source, *node.inputs[1:3], new_axes, *node.inputs[4:]])
    return [to_channels_last(rank)]


FLIPS: dict[str, Flip] = {
    **dict.fromkeys((*UNARY, "Identity"), _flip_first_input),
    **dict.fromkeys(BROADCASTING, _flip_broadcasting),
    **dict.fromkeys((*operators_of("softmax", "concatenation"), "Split"), _flip_one_axis),
    **dict.fromkeys(operators_of("reduction"), _flip_dropping_axes),
    **dict.fromkeys(PAIR_OPERATORS, _flip_pair_half),
    "Pad": _flip_pad,
    "Slice": _flip_slice,
    "Squeeze": _flip_dropping_axes,
}
