"""The errors of operators that compute in float: how far two correct programs may be apart in a result.

Most are a relative error of the last bit, which no comparison notices. These are not: functions that saturate have an
absolute error (TensorFlow gives 3e-20 for sigmoid(-45), ONNX Runtime 0), and where large terms cancel, a sum has the
error of its terms: of terms up to 1e30, one program may get 0 and the other 1e23.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from qdq_workbench.onnx_graph.qdq_graph import attribute
from qdq_workbench.verification.parts import Arrays

#: The absolute error of functions that saturate, twice the spacing of float32 numbers just above 1; of sums, relative
#: to their terms.
SPACINGS = 2 * 2.0**-23
_SATURATING = frozenset({"Erf", "Gelu", "HardSigmoid", "Sigmoid", "Softmax", "Tanh"})
#: Recurrent layers, as operators and loops: saturating functions of sums that are computed inside.
_RECURRENT = frozenset({"GRU", "LSTM", "Loop", "RNN", "Scan"})
#: Sums of products, whose terms are not at hand; the largest sum of the tensor is seldom smaller.
_SUMS_OF_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def largest_term(node: onnx.NodeProto) -> Callable[[onnx.NodeProto, Arrays], np.ndarray] | None:
    """Return the function to whose result the error of an operator is relative; None if the error is negligible.

    It takes the node and its tensors by name, and returns an array that broadcasts to the result.
    """
    if node.op_type in _SATURATING:
        return _one
    if node.op_type in _RECURRENT:
        return _largest_input
    return _largest_sum if node.op_type in _SUMS_OF_PRODUCTS else _TERMS.get(node.op_type)


def _one(_node: onnx.NodeProto, _values: Arrays) -> np.ndarray:
    return np.ones(())


def _largest_input(node: onnx.NodeProto, values: Arrays) -> np.ndarray:
    """Return the largest number that a recurrent layer reads, at least 1; its gates change by no more than sums do."""
    floats = [values[name] for name in node.input if name in values and values[name].dtype == np.float32]
    return np.asarray(max([1.0, *(np.abs(array).max(initial=0.0) for array in floats)]))


def _largest_sum(node: onnx.NodeProto, values: Arrays) -> np.ndarray:
    return np.abs(values[node.output[0]]).max(initial=0.0)


def _larger_operand(node: onnx.NodeProto, values: Arrays) -> np.ndarray:
    found = np.zeros(())
    for name in node.input:
        found = np.maximum(found, np.abs(values[name]))
    return found


def _largest_operand(node: onnx.NodeProto, values: Arrays) -> np.ndarray:
    return np.abs(values[node.input[0]]).max(initial=0.0)


def _normalized(node: onnx.NodeProto, values: Arrays) -> np.ndarray:
    """Return what a value is without the mean subtracted: some programs subtract the two after the division."""
    x = np.asarray(values[node.input[0]], np.float64)
    axes = tuple(range(x.ndim))[int(attribute(node, "axis", -1)) :]
    epsilon = next((item.f for item in node.attribute if item.name == "epsilon"), 1e-5)
    deviation = np.sqrt(x.var(axis=axes, keepdims=True) + epsilon)
    scale = np.abs(np.asarray(values[node.input[1]], np.float64)).max(initial=0.0)
    return np.maximum(np.abs(x), np.abs(x.mean(axis=axes, keepdims=True))) / deviation * scale


_TERMS: dict[str, Callable[[onnx.NodeProto, Arrays], np.ndarray]] = {
    **dict.fromkeys(("Add", "Sub", "Sum"), _larger_operand),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"), _largest_operand),
    "LayerNormalization": _normalized,
}
