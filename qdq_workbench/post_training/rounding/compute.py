"""Computing a piece of a quantized model on tensors: as it is, as the float model, or with other weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from keras import tree

from qdq_workbench.graph_builder import Call, TensorRef
from qdq_workbench.wrappers import BaseQuantizeWrapper, QuantizeDequantize
from qdq_workbench.wrappers.float_only import float_only
from qdq_workbench.wrappers.substitution import WeightSubstitution

#: From a Q/DQ layer, its input and its output to what is computed on with.
Between = Callable[[QuantizeDequantize, Any, Any], Any]
#: The values of weights, by the name of the layer in the quantized model, that of its wrapper where it has one.
Given = Mapping[str, Sequence[tuple[Any, Any]]]


def compute(
    calls: Iterable[Call], values: Mapping[str, Any], given: Given | None = None, between: Between | None = None
) -> dict[str, Any]:
    """Return the tensors that some calls of a quantized model make, and those given.

    Args:
        calls: The calls, in an order in which they can be computed.
        values: The tensors that they read.
        given: Weights that take the place of a layer's own, or of what its wrapper's quantizers make of them.
        between: What to go on with behind a Q/DQ layer; None for its output.
    """
    known = dict(values)
    for call in calls:
        args, kwargs = tree.map_structure(
            lambda leaf: known[leaf.name] if isinstance(leaf, TensorRef) else leaf, (call.args, call.kwargs)
        )
        operation: Any = call.operation
        if given and call.node.layer in given:
            inner = operation.layer if isinstance(operation, BaseQuantizeWrapper) else operation
            plain = kwargs.pop("plain_arguments", {})
            with WeightSubstitution(list(given[call.node.layer])):
                result = inner(*args, **kwargs, **plain)
        else:
            result = operation(*args, **kwargs)
        if between is not None and isinstance(operation, QuantizeDequantize):
            result = between(operation, tree.flatten(args)[0], result)
        known.update(zip(call.node.outputs, tree.flatten(result), strict=True))
    return known


def compute_float(calls: Iterable[Call], values: Mapping[str, Any], given: Given | None = None) -> dict[str, Any]:
    """Return the tensors that the same calls of the float model make.

    Args:
        calls: The calls.
        values: The tensors that they read, of the float model.
        given: Weights of another float model, which take the place of the layers' own.
    """
    with float_only():
        return compute(calls, values, given)
