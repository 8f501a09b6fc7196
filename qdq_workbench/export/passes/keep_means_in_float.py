"""A Clip in front of a GlobalAveragePool between scales that ONNX Runtime's integer kernel refuses to compute with.

QLinearGlobalAveragePool multiplies the sum of `n` integers by `s_x / (s_y * n)`. Where that factor is less than 2^-32,
or 256 or more, ONNX Runtime (1.32) opens the file and fails to run it: "parameter out of computation range". So it is
behind a normalization of every image, whose means are 0 but for rounding. The file is run by ONNX Runtime whatever its
target, so the target does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.pair_clips import insert_clip, pair_before
from qdq_workbench.graph.operators import CLIPS, PROPAGATING
from qdq_workbench.onnx_graph.graph import Graph, Node

_LEAST, _LIMIT = np.float32(2.0**-32), np.float32(256.0)
_LARGEST_IMAGE = 2**20  # values in a mean, where sizes are open


def keep_means_in_float(graph: Graph) -> None:
    """Insert a Clip in front of every GlobalAveragePool that the integer kernel cannot compute."""
    for node, pair in list(_refused(graph)):
        insert_clip(graph, node, pair)


def _refused(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield the pools that ONNX Runtime fails to run, with the DequantizeLinear before each."""
    for node in graph.nodes:
        if node.op != "GlobalAveragePool" or node.domain:
            continue
        before, behind = pair_before(graph, node), _scale_behind(graph, node.output)
        if before is not None and behind is not None:
            scale = graph.constants[before.inputs[1]].reshape(())
            if not all(_computes(scale, behind, count) for count in _counts(graph, node)):
                yield node, before


def _scale_behind(graph: Graph, tensor: str) -> np.ndarray | None:
    """Return the scale of the QuantizeLinear that alone reads a tensor, over what ONNX Runtime moves it; else None."""
    while graph.has_one_reader(tensor):
        reader = graph.readers(tensor)[0]
        if reader.op == "QuantizeLinear":
            scale = graph.constant(reader.inputs[1])
            return scale.reshape(()) if scale is not None and scale.size == 1 else None
        if reader.op not in CLIPS and reader.op not in PROPAGATING:
            return None
        tensor = reader.output
    return None


def _counts(graph: Graph, node: Node) -> list[int]:
    """Return how many values are in a mean: one number, or the ends of what open sizes may be."""
    shape = graph.shape(node.inputs[0])
    known = [None] if shape is None else list(shape[2:])
    product = math.prod(size for size in known if size is not None)
    return [product] if None not in known else [product, max(product, _LARGEST_IMAGE)]


def _computes(before: np.ndarray, behind: np.ndarray, count: int) -> bool:
    """Return whether the kernel computes a mean, by its own test in float32."""
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        factor = np.float32(before) / (np.float32(behind) * np.float32(count))
    return bool(_LEAST <= factor < _LIMIT)


PASS = GraphPass(
    keep_means_in_float,
    needs="`restore_global_average_pools`; pairs joined.",
    holds="No GlobalAveragePool reads a pair, and is read by one alone, whose scales the integer kernel refuses.",
    refuses="Scales that are computed, or of every channel, with which no integer kernel is formed.",
    denied_by=lambda graph: (node for node, _ in _refused(graph)),
)
