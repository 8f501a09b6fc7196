"""What of a file is not a Q/DQ pair in its main graph: operations on integers themselves, branches and loop bodies."""

from __future__ import annotations

import os
from collections.abc import Iterable

from qdq_workbench.errors import FileAccessError
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE, QDQGraph, computes_on_integers


def integer_operations(graphs: Iterable[QDQGraph]) -> list[str]:
    """Return the kind of every operation that takes integers and their scales itself.

    Args:
        graphs: The graphs of a file.
    """
    return [node.op_type for graph in graphs for node in graph.nodes if computes_on_integers(node)]


def check_qdq_format(graphs: Iterable[QDQGraph], path: str | os.PathLike[str]) -> None:
    """Refuse files whose quantization is not, or not alone, in Q/DQ pairs.

    Args:
        graphs: The graphs of the file.
        path: The file.

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
    """Return how many Q and DQ nodes stand in branches and loop bodies.

    Args:
        graphs: The graphs of a file.
    """
    return sum(node.op_type in (QUANTIZE, DEQUANTIZE) for graph in graphs if graph.is_inner for node in graph.nodes)
