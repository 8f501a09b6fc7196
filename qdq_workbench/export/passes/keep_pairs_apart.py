"""A Clip between two pairs in a row, which ONNX Runtime would merge into one with a range of its own.

When it loads a file, ONNX Runtime (1.32, `double_qdq_pairs_remover.cc`) replaces two pairs on grids of one type (of 8
or 16 bits), the second of which alone reads the first, by one with the range that both can represent. Values are then
rounded otherwise than in training; and the int32 bias of a product behind keeps the scale that belonged to the second
pair: a QGemm adds a bias that is wrong by the ratio of the scales, and a Conv stays in float. A Clip to the limits of
the first pair keeps them apart, and changes no value.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.pair_clips import insert_clip
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE


def keep_pairs_apart(graph: Graph) -> None:
    """Insert a Clip in front of every second pair of a row that ONNX Runtime would merge with the first."""
    for quantize, pair in list(_merged_by_runtime(graph)):
        insert_clip(graph, quantize, pair)


def _merged_by_runtime(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield the second QuantizeLinear of every such row, with the DequantizeLinear in front of it."""
    for node in graph.sorted_nodes():
        pair = graph.producer(node.inputs[0]) if node.op == QUANTIZE else None
        if pair is None or pair.op != DEQUANTIZE:
            continue
        first = graph.producer(pair.inputs[0])
        if first is None or first.op != QUANTIZE:
            continue
        in_row = graph.has_one_reader(first.output) and graph.has_one_reader(pair.output)
        # Of the second pair every reader may have a DequantizeLinear of its own.
        ends = {reader.op for reader in graph.readers(node.output)}
        if in_row and ends == {DEQUANTIZE} and _differ(graph, pair, node):
            yield node, pair


def _differ(graph: Graph, first: Node, second: Node) -> bool:
    """Return whether two pairs have grids of one type with different values."""
    values = [graph.constant(tensor) for node in (first, second) for tensor in node.inputs[1:3]]
    known = [value for value in values if value is not None and value.size == 1]
    if len(known) != 4:
        return False
    scale, zero_point, other_scale, other_zero_point = known
    if scale.dtype != np.float32 or zero_point.dtype != other_zero_point.dtype:
        return False
    return not (np.array_equal(scale, other_scale) and np.array_equal(zero_point, other_zero_point))


PASS = GraphPass(
    keep_pairs_apart,
    needs="Pads folded, and every pair in its place.",
    holds="No pair with one scale alone reads another one of the same type and other values.",
    refuses="Pairs that something else reads as well, which ONNX Runtime does not merge.",
    denied_by=lambda graph: (node for node, _ in _merged_by_runtime(graph)),
)
