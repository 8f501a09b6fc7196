"""Description of a Keras layer or operation as a framework-independent node."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import tree

from qdq_workbench.graph.kinds import MERGES, PADDING_OPERATIONS, PRODUCT_OPERATIONS
from qdq_workbench.graph.model_graph import Node, Part, Weight
from qdq_workbench.graph.op_kinds import INFINITE, JOINS_CONSTANTS, ZEROS
from qdq_workbench.graph_builder.layer_parts import layer_parts, layer_weights
from qdq_workbench.graph_builder.own_activations import beginning
from qdq_workbench.graph_builder.references import TensorRef

_SETTINGS = (
    "activation",
    "alpha",
    "axis",
    "data_format",
    "dilation_rate",
    "epsilon",
    "equation",
    "filters",
    "groups",
    "interpolation",
    "keepdims",
    "kernel_size",
    "lora_rank",
    "max_value",
    "negative_slope",
    "padding",
    "pool_size",
    "strides",
    "threshold",
    "units",
    "use_bias",
)
# Settings of single classes, whose names have another meaning in other layers.
_SETTINGS_OF = {"CustomScaleLayer": ("scale",), "Einsum": ("subscripts",)}


def describe(
    operation: Any,
    name: str,
    path: str,
    call: tuple[tuple[Any, ...], Mapping[str, Any]],
    outputs: tuple[str, ...],
) -> Node:
    """Return the node of one call of a Keras layer or operation; tensors in the call are `TensorRef`."""
    is_layer = isinstance(operation, keras.layers.Layer)
    return Node(
        name=name,
        layer=path,
        class_name=type(operation).__name__,
        bases=tuple(_parent_classes(type(operation))),
        inputs=tuple(leaf.name for leaf in tree.flatten(call) if isinstance(leaf, TensorRef)),
        outputs=outputs,
        arguments=_arguments(operation, *call) if is_layer else (),
        is_operation=not is_layer,
        weights=tuple(_weights(operation)) if is_layer else (),
        parts=tuple(_parts(operation)) if is_layer else (),
        settings=_settings(operation)
        | (
            _way_back(call) | _joined(operation, call[0])
            if is_layer
            else _constant(call) | _operands(operation, call[0]) | _zeros(operation, call)
        ),
        opaque=_why_opaque(operation) if is_layer else "",
    )


def describe_layer(layer: Any) -> Node:
    """Return a node for a layer by itself, without inputs and outputs."""
    return describe(layer, layer.name, layer.name, ((), {}), ())


def normalized_call(
    operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a layer call's arguments with the first one positional, as layer wrappers expect it.

    Calls of operations are returned as they are.
    """
    if args or not isinstance(operation, keras.layers.Layer):
        return args, kwargs
    first = next(iter(inspect.signature(operation.call).parameters), None)
    if first not in kwargs:
        return args, kwargs
    return (kwargs[first],), {key: value for key, value in kwargs.items() if key != first}


def _arguments(layer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return, for each tensor that a call reads, the argument that it belongs to; empty if there is only one."""
    if len(args) + len(kwargs) < 2:
        return ()
    parameters = inspect.signature(layer.call).parameters.values()
    # Behind `*args`, which takes all further positional arguments, there are only keywords.
    keywords = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind not in keywords]
    found = []
    for path, leaf in tree.flatten_with_path((args, dict(kwargs))):
        if isinstance(leaf, TensorRef):
            key = path[1]
            found.append(names[min(key, len(names) - 1)] if path[0] == 0 else str(key))
    return tuple(found) if len(set(found)) > 1 else ()


def _parts(layer: Any) -> Iterator[Part]:
    for path, part in layer_parts(layer):
        yield Part(path, type(part).__name__, tuple(_parent_classes(type(part))), _settings(part), _why_opaque(part))


def _parent_classes(cls: type) -> Iterator[str]:
    for parent in cls.__mro__[1:]:
        if parent in (keras.layers.Layer, keras.Operation, object):
            return
        theirs = getattr(keras.layers, parent.__name__, parent)
        if theirs is parent or parent.__module__.startswith("keras."):  # else it only has the name of a Keras class
            yield parent.__name__


def _weights(layer: Any) -> Iterator[Weight]:
    for name, variable in layer_weights(layer):
        yield Weight(name, tuple(variable.shape), keras.backend.standardize_dtype(variable.dtype), variable.trainable)


def _settings(operation: Any) -> dict[str, Any]:
    """Return the settings that planning reads, as plain JSON values."""
    found = {}
    for key in (*_SETTINGS, *_SETTINGS_OF.get(type(operation).__name__, ())):
        value = getattr(operation, key, None)
        if callable(value):
            value = getattr(value, "__name__", type(value).__name__)
        if value is None:
            continue
        try:
            # As in a plan that was read from JSON, where tuples are lists: its graph is compared with the model's.
            found[key] = json.loads(json.dumps(value))
        except TypeError:
            found[key] = str(value)
    return found | beginning(getattr(operation, "activation", None)) | _attention_axes(operation)


def _way_back(call: tuple[tuple[Any, ...], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the setting of an embedding's call that multiplies with its table, as for a language model's logits."""
    return {"reverse": True} if call[1].get("reverse") is True else {}


def _joined(layer: Any, operands: tuple[Any, ...]) -> dict[str, Any]:
    """Return for a merge such as `Add()([x, array])` that it has constants, and the shape of one beside one tensor."""
    joined = operands[0] if operands and isinstance(operands[0], (list, tuple)) else ()
    if all(isinstance(operand, TensorRef) for operand in joined):
        return {}
    if {type(layer).__name__, *_parent_classes(type(layer))}.isdisjoint(MERGES):
        return {}
    return {JOINS_CONSTANTS: True} | _constant((tuple(joined), {}))


def _constant(call: tuple[tuple[Any, ...], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the shape of the constant that an operation such as `x + 3` combines with its one tensor.

    For operations on a list of operands, such as `concatenate`, return whether constants are among them.
    """
    operands = call[0]
    if operands and isinstance(operands[0], (list, tuple)) and not all(isinstance(x, TensorRef) for x in operands[0]):
        return {JOINS_CONSTANTS: True}
    if len(operands) != 2 or call[1] or sum(isinstance(operand, TensorRef) for operand in operands) != 1:
        return {}
    constant = next(operand for operand in operands if not isinstance(operand, TensorRef))
    if isinstance(constant, (bool, int, float)):
        return {"constant_shape": []}
    shape = getattr(constant, "shape", None)
    return {} if shape is None else {"constant_shape": [int(size) for size in shape]}


def _operands(operation: Any, operands: tuple[Any, ...]) -> dict[str, Any]:
    """Return the shapes of the operands of a product, if constants are among them; None stands for a tensor."""
    if type(operation).__name__ not in PRODUCT_OPERATIONS or all(isinstance(item, TensorRef) for item in operands):
        return {}
    given = [item for item in operands if item is not None]
    return {"operands": [None if isinstance(item, TensorRef) else list(np.shape(item)) for item in given]}


def _zeros(operation: Any, call: tuple[tuple[Any, ...], Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many zeros `ops.pad` adds before and after each axis, or whether it pads with infinity."""
    kind = type(operation)
    # An operation of the user's own may be called `Pad` too.
    if kind.__name__ not in PADDING_OPERATIONS or not kind.__module__.startswith("keras."):
        return {}
    if operation.mode != "constant":
        return {}
    value = call[1].get("constant_values", call[0][1] if len(call[0]) > 1 else None)
    is_number = isinstance(value, (int, float, np.number))
    if is_number and not np.isfinite(value):
        return {INFINITE: True}
    if not (value is None or (is_number and value == 0)):
        return {}
    return {ZEROS: [[int(size) for size in sizes] for sizes in operation.pad_width]}


def _attention_axes(layer: Any) -> dict[str, Any]:
    """Return the axes along which attention runs, unless these are all axes but batch and features."""
    axes = tuple(getattr(layer, "attention_axes", None) or ()) if isinstance(layer, keras.layers.Layer) else ()
    query = str(getattr(getattr(layer, "query_dense", None), "equation", "")).partition(",")[0]
    return {"attention_axes": list(axes)} if axes and axes != tuple(range(1, len(query) - 1)) else {}


def _why_opaque(layer: Any) -> str:
    if isinstance(layer, keras.Model):
        return "a subclassed model: its inside is Python code, not a graph of layers"
    if isinstance(layer, keras.layers.Lambda):
        return "a Lambda layer: its inside is Python code, not a graph of layers"
    if not type(layer).__module__.startswith("keras.") and not getattr(layer, "_qdq_transparent", False):
        return "a layer of the user's own: nothing is known about its inside"
    return ""
