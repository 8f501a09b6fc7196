"""The parts of a file between its pairs, each run on given integers instead of those of the part before.

A difference in one part then does not reach the next. The graph is cut between each QuantizeLinear and its
DequantizeLinear, so that ONNX Runtime still finds the patterns that it fuses into integer kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE
from qdq_workbench.onnx_graph.sessions import run_once

Arrays = Mapping[str, np.ndarray]


def cut_behind(proto: onnx.ModelProto, codes: Arrays) -> onnx.ModelProto:
    """Return a copy whose DequantizeLinear nodes read new graph inputs `<tensor>/given` in place of the given tensors.

    The integers in `codes` determine type and shape of the new inputs.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for node in copy.graph.node:
        if node.op_type == DEQUANTIZE and node.input[0] in codes:
            node.input[0] = f"{node.input[0]}/given"
    for tensor, values in codes.items():
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        copy.graph.input.append(helper.make_tensor_value_info(f"{tensor}/given", kind, values.shape))
    return copy


def run_parts(
    parts: onnxruntime.InferenceSession, names: Sequence[str], inputs: Arrays, codes: Arrays
) -> dict[str, np.ndarray]:
    """Return tensors of a model that `cut_behind` made, given samples and the integers of its pairs by tensor.

    Those that the session does not take, because no output depends on them, are left out.
    """
    given = {**inputs, **{f"{tensor}/given": values for tensor, values in codes.items()}}
    fed = {value.name: given[value.name] for value in parts.get_inputs()}
    return dict(zip(names, run_once(parts, list(names), fed), strict=True))
