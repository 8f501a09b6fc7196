"""The errors of operators that compute in float: how far two correct programs may be apart in a result.

Most are a relative error of the last bit, which no comparison notices. These are not: functions that saturate have an
absolute error (TensorFlow gives 3e-20 for sigmoid(-45), ONNX Runtime 0), and where large terms cancel, a sum has the
error of its terms: of terms up to 1e30, one program may get 0 and the other 1e23. The error of a sum in any order is
within a multiple of the sum of its absolute terms (Higham 2002, Accuracy and stability of numerical algorithms, 4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper

from qdq_workbench.graph.operators import operators_of, operators_where
from qdq_workbench.onnx_graph.graph import node_reads
from qdq_workbench.onnx_graph.qdq_graph import attribute
from qdq_workbench.verification.parts import Arrays

#: The absolute error of functions that saturate, twice the spacing of float32 numbers just above 1; of sums, relative
#: to the sum of their absolute terms.
SPACINGS = 2 * 2.0**-23
_SATURATING = operators_where(lambda operator: operator.saturates)
#: Recurrent layers, as operators and loops: saturating functions of sums that are computed inside.
_RECURRENT = operators_of("recurrent", "loop")
_SUMS = operators_where(lambda operator: operator.sums)


def error_of(node: onnx.NodeProto) -> Callable[[onnx.NodeProto, Arrays, str], np.ndarray] | None:
    """Return the function that measures the error of an operator, in multiples of `SPACINGS`; None if negligible.

    It takes the node, the values of its `measured` tensors and the name of a result, and returns an array that
    broadcasts to that result.
    """
    if node.op_type in _SATURATING:
        return _one
    if node.op_type in _RECURRENT:
        return _largest_input
    if node.op_type in _SUMS:
        return _absolute_terms
    return _normalized if node.op_type == "LayerNormalization" else None


def measured(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensors that measuring the error of an operator needs, some of which `with_terms` computes."""
    yield from (name for name in node.output if name)
    if node.op_type in _SUMS:
        yield _terms(node)
    elif node.op_type not in _SATURATING:
        yield from node_reads(node)


def with_terms(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy that also computes the sum of the absolute terms of every sum."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    known: dict[str, str] = {}
    for node in proto.graph.node:
        if node.op_type not in _SUMS:
            continue
        inputs = []
        for number, name in enumerate(node.input):
            if not name or (number and node.op_type.startswith("Reduce")):  # the axes
                inputs.append(name)
                continue
            if name not in known:
                known[name] = f"{name}/absolute"
                copy.graph.node.append(helper.make_node("Abs", [name], [known[name]]))
            inputs.append(known[name])
        twin = helper.make_node("Add" if node.op_type == "Sub" else node.op_type, inputs, [_terms(node)])
        twin.attribute.extend(node.attribute)
        copy.graph.node.append(twin)
    return copy


def _terms(node: onnx.NodeProto) -> str:
    return f"{node.output[0]}/terms"


def _one(_node: onnx.NodeProto, _values: Arrays, _result: str) -> np.ndarray:
    return np.ones(())


def _largest_input(node: onnx.NodeProto, values: Arrays, result: str) -> np.ndarray:
    """Return the largest number that a recurrent layer reads, at least 1; its gates change by no more than sums do.

    Where sums cancel, a gate may be open in one program and closed in the other: their results are of one size.
    """
    read = max([1.0, *(_size(values[name]) for name in node_reads(node) if name in values)])
    return np.asarray(min(read, 2 * max(1.0, _size(values[result])) / SPACINGS))


def _size(array: np.ndarray) -> float:
    return float(np.abs(array).max(initial=0.0)) if array.dtype == np.float32 else 0.0


def _absolute_terms(node: onnx.NodeProto, values: Arrays, _result: str) -> np.ndarray:
    return values[_terms(node)]


def _normalized(node: onnx.NodeProto, values: Arrays, _result: str) -> np.ndarray:
    """Return what a value is without the mean subtracted: some programs subtract the two after the division."""
    x = np.asarray(values[node.input[0]], np.float64)
    axes = tuple(range(x.ndim))[int(attribute(node, "axis", -1)) :]
    epsilon = next((item.f for item in node.attribute if item.name == "epsilon"), 1e-5)
    deviation = np.sqrt(x.var(axis=axes, keepdims=True) + epsilon)
    scale = np.abs(np.asarray(values[node.input[1]], np.float64)).max(initial=0.0)
    return np.maximum(np.abs(x), np.abs(x.mean(axis=axes, keepdims=True))) / deviation * scale
