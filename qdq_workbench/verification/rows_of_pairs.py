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
        second = _second(file, first)
        if second is not None and _have_other_values(file, first, second):
            names = " and ".join(repr(node.name.rpartition("/")[0]) for node in (first, second))
            yield f"{names} are two pairs in a row, which ONNX Runtime merges, and the bias behind them does not change"


def _second(file: TypedFile, first: onnx.NodeProto) -> onnx.NodeProto | None:
    """Return the second QuantizeLinear of a row of two pairs that a node begins; None if it begins none."""
    pair = file.only_reader(first.output[0]) if first.op_type == QUANTIZE else None
    second = None if pair is None or pair.op_type != DEQUANTIZE else file.only_reader(pair.output[0])
    if second is None or second.op_type != QUANTIZE:
        return None
    # Its readers may have a DequantizeLinear each.
    readers = {node.op_type for node in file.graph.readers(second.output[0])}
    return second if readers == {DEQUANTIZE} else None


def _have_other_values(file: TypedFile, first: onnx.NodeProto, second: onnx.NodeProto) -> bool:
    """Return whether two QuantizeLinears have one scale each, on grids of one type with different values."""
    values = [file.graph.constant(tensor) for node in (first, second) for tensor in node.input[1:3]]
    known = [value.reshape(()) for value in values if value is not None and value.size == 1]
    if len(known) != 4:  # ONNX Runtime leaves them alone without zero points, too
        return False
    scale, zero, other_scale, other_zero = known
    if scale.dtype != np.float32 or zero.dtype != other_zero.dtype:
        return False
    return bool(scale != other_scale or zero != other_zero)
