"""A ReLU or Clip after a product with weights in blocks becomes Max and Min.

ONNX Runtime (1.32) fuses a ReLU or Clip with one reader into the MatMul or Gemm directly before it, which it then no
longer replaces by MatMulNBits. It does not fuse Max and Min, which compute the same.
"""

from __future__ import annotations

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass, nodes_where
from qdq_workbench.graph.operators import MATRIX_PRODUCTS
from qdq_workbench.onnx_graph.graph import Graph, Node

#: Suffixes of the last node that replaces a ReLU or a Clip.
APART = {"Relu": "/apart_of_relu", "Clip": "/apart_of_clip"}


def keep_clips_from_blocks(graph: Graph) -> None:
    """Replace a ReLU or Clip after a product with weights in blocks by Max and Min."""
    for clip in graph.sorted_nodes():
        limits = _limits(graph, clip)
        if limits is None:
            continue
        source, name, written, end = clip.inputs[0], clip.name, clip.output, APART[clip.op]
        graph.remove(clip)
        for (operator, limit), last in zip(limits, [False] * (len(limits) - 1) + [True], strict=True):
            bound = graph.add_constant(f"{name}/{operator.lower()}", np.array(limit, np.float32))
            own = f"{name}/{operator}{end}"
            source = graph.add(operator, [source, bound], own, output=written if last else f"{name}/{operator}").output
    graph.prune()


def _limits(graph: Graph, clip: Node) -> list[tuple[str, float]] | None:
    """Return the operators and bounds that replace a ReLU or Clip; None where it stays."""
    if clip.op not in APART or clip.domain or not graph.has_one_reader(clip.output):
        return None
    product = graph.producer(clip.inputs[0])
    if product is None or product.op not in MATRIX_PRODUCTS or not graph.has_one_reader(product.output):
        return None
    weight = graph.producer(product.inputs[1])
    if weight is None or weight.op != "DequantizeLinear" or not weight.get("block_size", 0):
        return None
    if clip.op == "Relu":
        return [("Max", 0.0)]
    bounds = [graph.constant(tensor) if tensor else None for tensor in clip.inputs[1:3]]
    if len(bounds) < 2 or any(bound is None or bound.size != 1 or bound.dtype != np.float32 for bound in bounds):
        return None
    low, high = (float(bound.reshape(-1)[0]) for bound in bounds if bound is not None)
    return [("Max", low), ("Min", high)]


PASS = GraphPass(
    keep_clips_from_blocks,
    needs="Weights joined; Gemm restored.",
    holds="No ReLU, and no float32 Clip of two numbers, with one reader is the one reader of a product with weights in "
    "blocks.",
    refuses="Clips with computed or missing bounds, or in half precision.",
    denied_by=nodes_where(_limits),
)
