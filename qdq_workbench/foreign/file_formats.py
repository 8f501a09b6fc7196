"""Quantization beside the Q/DQ pairs of a file's main graph: operations on integers, pairs in branches and bodies."""

from __future__ import annotations

import os
from collections.abc import Iterable

from qdq_workbench.errors import FileAccessError
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE, QDQGraph, computes_on_integers


def integer_operations(graphs: Iterable[QDQGraph]) -> list[str]:
    """Return the operator of every node that takes integers and their scales as inputs."""
    return [node.op_type for graph in graphs for node in graph.nodes if computes_on_integers(node)]


def check_qdq_format(graphs: Iterable[QDQGraph], path: str | os.PathLike[str]) -> None:
    """Refuse a file that is quantized by other operations than Q/DQ pairs, or by others too.

    Raises:
        FileAccessError: If the file is in the QOperator format, or quantized dynamically.
    """
    kinds = sorted(set(integer_operations(graphs)))
    if kinds:
        raise FileAccessError(
            f"The file is in the QOperator format, or quantized dynamically: {', '.join(kinds)} take integers "
            "themselves, without Q/DQ pairs. Expected: QuantizeLinear and DequantizeLinear around float operations. "
            "Make the file with quantize_static(..., quant_format=QuantFormat.QDQ), and take it as it is before a "
            f"runtime optimizes it. Received: path={os.fspath(path)!r}"
        )


def pairs_in_branches(graphs: Iterable[QDQGraph]) -> int:
    """Return the number of Q and DQ nodes in branches and loop bodies."""
    return sum(node.op_type in (QUANTIZE, DEQUANTIZE) for graph in graphs if graph.is_inner for node in graph.nodes)
