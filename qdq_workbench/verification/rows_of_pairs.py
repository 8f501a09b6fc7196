"""Two Q/DQ pairs in a row in a file, which a runtime would merge into one with a range of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE
from qdq_workbench.verification.typed_file import TypedFile


def row_differences(file: TypedFile) -> Iterator[str]:
    """Yield the rows of a file that the runtime of its target would merge; none for other targets."""
    for first in file.graph.nodes if file.plan.target_object.merges_pairs else ():
        row = list(_row(file, first))
        if len(row) == 3 and _have_other_values(file, first, row[1]):
            names = " and ".join(repr(node.name.rpartition("/")[0]) for node in (first, row[1]))
            yield f"{names} are two pairs in a row, which ONNX Runtime merges, and the bias behind them does not change"


def _row(file: TypedFile, first: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield what follows a QuantizeLinear, as long as it is alone and of the next kind of a row of two pairs."""
    node = first if first.op_type == QUANTIZE else None
    for wanted in (DEQUANTIZE, QUANTIZE, DEQUANTIZE):
        node = None if node is None else file.only_reader(node.output[0])
        if node is None or node.op_type != wanted:
            return
        yield node


def _have_other_values(file: TypedFile, first: onnx.NodeProto, second: onnx.NodeProto) -> bool:
    found = [file.graph.parameters(node) for node in (first, second)]
    if None in found:
        return False
    (scale, zero), (other_scale, other_zero) = ((np.ravel(a), np.ravel(b)) for a, b in filter(None, found))
    if scale.dtype != np.float32 or zero.dtype != other_zero.dtype or zero.dtype.itemsize > 1:
        return False
    return not (np.array_equal(scale, other_scale) and np.array_equal(zero, other_zero))
