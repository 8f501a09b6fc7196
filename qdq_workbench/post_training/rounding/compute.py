"""Computing a piece of a model on tensors, for inference: as it is, as the float model, or with other weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from keras import tree

from qdq_workbench.graph_builder import Call, TensorRef, takes_training
from qdq_workbench.wrappers import BaseQuantizeWrapper, QuantizeDequantize
from qdq_workbench.wrappers.float_only import float_only
from qdq_workbench.wrappers.substitution import WeightSubstitution

#: Returns the tensor to continue with behind a Q/DQ layer, given the layer, its input and its output.
Between = Callable[[QuantizeDequantize, Any, Any], Any]
#: Pairs of variables and values by the name of the layer in the quantized model (of its wrapper if it has one).
Given = Mapping[str, Sequence[tuple[Any, Any]]]


def compute(
    calls: Iterable[Call], values: Mapping[str, Any], given: Given | None = None, between: Between | None = None
) -> dict[str, Any]:
    """Return the outputs of some calls of a model, together with the given tensors.

    Args:
        calls: The calls, in an order in which they can be computed.
        values: The tensors that they read.
        given: Weights that replace a layer's own, after the quantizers of its wrapper.
        between: Returns the tensor to continue with behind a Q/DQ layer; None for its output.
    """
    known = dict(values)
    for call in calls:
        args, kwargs = tree.map_structure(
            lambda leaf: known[leaf.name] if isinstance(leaf, TensorRef) else leaf, (call.args, call.kwargs)
        )
        operation: Any = call.operation
        if given and call.node.layer in given:
            inner = operation.layer if isinstance(operation, BaseQuantizeWrapper) else operation
            # An argument of the wrapper only: the arguments of the layer's call that hold no tensors.
            plain = dict(kwargs.pop("plain_arguments", ()))
            with WeightSubstitution(list(given[call.node.layer])):
                result = inner(*args, **{**kwargs, **plain, **_at_inference(inner)})
        else:
            result = operation(*args, **{**kwargs, **_at_inference(operation)})
        if between is not None and isinstance(operation, QuantizeDequantize):
            result = between(operation, tree.flatten(args)[0], result)
        known.update(zip(call.node.outputs, tree.flatten(result), strict=True))
    return known


def _at_inference(operation: Any) -> dict[str, bool]:
    """Return the argument that makes a layer compute as at inference, whatever its own default is."""
    return {"training": False} if takes_training(operation) else {}


def compute_float(calls: Iterable[Call], values: Mapping[str, Any], given: Given | None = None) -> dict[str, Any]:
    """Return the outputs of the same calls in the float model; `given` replaces weights by those of another one."""
    with float_only():
        return compute(calls, values, given)
