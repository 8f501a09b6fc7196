"""The rules of `lint_onnx` about the axis of scales: it must exist, have their number, and be the output channels."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from qdq_workbench.foreign.finding import Finding
from qdq_workbench.graph.operators import WEIGHTED
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE, QDQGraph, attribute, name_of


def axes(graph: QDQGraph) -> Iterator[Finding]:
    """Scales that do not fit the shape of their constant."""
    for node in graph.nodes:
        if node.op_type not in (QUANTIZE, DEQUANTIZE):
            continue
        found, values = graph.parameters(node), graph.constant(node.input[0])
        if found is None or values is None or found[0].size == 1:
            continue
        message = _misfit(found[0].shape, values.shape, attribute(node, "axis", 1), attribute(node, "block_size", 0))
        if message:
            yield Finding("QDQ-AXIS", name_of(node), message)


def channel_axes(graph: QDQGraph) -> Iterator[Finding]:
    """Per-axis weights whose scales lie along another axis than that of the output channels."""
    for node in graph.nodes:
        dequantize, turns = _turned_weight(graph, node) if node.op_type in WEIGHTED else (None, [])
        found = None if dequantize is None else graph.parameters(dequantize)
        values = None if dequantize is None else graph.stored(dequantize)
        if dequantize is None or found is None or values is None or found[0].size == 1:
            continue
        axis = attribute(dequantize, "axis", 1)
        if found[0].ndim > 1 or _misfit(found[0].shape, values.shape, axis, 0):
            continue  # blocks may lie along any axis; scales that do not fit are findings of `axes`
        axis %= values.ndim
        for turn in turns:
            # Axis i of a Transpose's output is axis perm[i] of its input, so perm has to be inverted.
            axis = turn.index(axis) if turn else values.ndim - 1 - axis
        expected = _channel_axis(node, values.ndim)
        if axis != expected:
            yield Finding(
                "QDQ-AXIS",
                name_of(dequantize),
                f"its scales lie along axis {axis}{' behind the Transpose' if turns else ''}; "
                f"the output channels of {node.op_type} are axis {expected}",
            )


def _turned_weight(graph: QDQGraph, node: onnx.NodeProto) -> tuple[onnx.NodeProto | None, list[list[int]]]:
    """Return the DQ of a node's weight, and the `perm` of the Transposes after it in order ([] reverses the axes)."""
    turns: list[list[int]] = []
    source = graph.producer(node.input[1])
    while source is not None and source.op_type in ("Transpose", "Identity"):
        if source.op_type == "Transpose":
            orders = [list(item.ints) for item in source.attribute if item.name == "perm"]
            # The search goes against the data flow, and the order of the result follows it.
            turns.insert(0, orders[0] if orders else [])
        source = graph.producer(source.input[0])
    return (source, turns) if source is not None and source.op_type == DEQUANTIZE else (None, [])


def _channel_axis(node: onnx.NodeProto, rank: int) -> int:
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1
    return 0 if node.op_type == "Gemm" and attribute(node, "transB", 0) else rank - 1


def _misfit(scales: tuple[int, ...], shape: tuple[int, ...], axis: int, block: int) -> str:
    """Return why scales of a shape do not fit a constant of a shape; "" if they do."""
    if not -len(shape) <= axis < len(shape):
        return f"its axis {axis} does not exist: the constant has shape {shape}"
    axis %= len(shape)
    if block:
        blocks = tuple(-(-size // block) if index == axis else size for index, size in enumerate(shape))
        return (
            ""
            if scales == blocks
            else f"scales of shape {scales} do not fit blocks of {block} on axis {axis}, {blocks}"
        )
    if len(scales) > 1:
        return f"scales of shape {scales} need a block_size"
    return "" if scales[0] == shape[axis] else f"{scales[0]} scales do not fit axis {axis} of shape {shape}"
