"""Composite layers: custom layers that call layers, and are entered like nested models."""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from typing import Any

import keras
from keras import tree

from qdq_workbench.graph.kinds import MULTI_HEAD_ATTENTION
from qdq_workbench.graph_builder.contents import content
from qdq_workbench.graph_builder.keras_layers import keras_layers
from qdq_workbench.graph_builder.layer_parts import inner_layers
from qdq_workbench.graph_builder.steps import CannotEnterError, Trace, unique_tensors
from qdq_workbench.graph_builder.trace import trace_call
from qdq_workbench.placement.defaults import has_own_wrapper

_CONTAINERS = (list, tuple, dict, set)
#: The latest traces by layer: state of the layer, form of the call, and the trace or why there is none.
_TRACES: weakref.WeakKeyDictionary[Any, list[tuple[Any, Any, Trace | str]]] = weakref.WeakKeyDictionary()
_KEPT = 4
#: One trace at a time: it modifies the layers inside temporarily, and threads may share a model.
_LOCK = threading.RLock()


def is_composite(operation: Any, *, inside: bool) -> bool:
    """Return whether a layer is entered: a layer of a custom class that holds layers and has no wrapper of its own.

    Keras's own layers and subclasses of them are known to planning and not entered, except attention inside a composite
    layer.
    """
    if not isinstance(operation, keras.layers.Layer) or isinstance(operation, keras.Model):
        return False
    if getattr(operation, "_qdq_transparent", False) or type(operation).__module__.startswith("qdq_workbench."):
        return False
    if not inner_layers(operation) or has_own_wrapper(type(operation).__name__):
        return False
    if isinstance(operation, keras_layers(MULTI_HEAD_ATTENTION)):
        return inside and not getattr(operation, "_flash_attention", False)
    parents = type(operation).__mro__[: type(operation).__mro__.index(keras.layers.Layer)]
    return not any(parent.__module__.startswith("keras.") for parent in parents)


def trace_of(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: list[Any]) -> Trace | str:
    """Return the trace of one call of a composite layer on symbolic tensors, or the reason why there is none."""
    state, form = _state(layer), _form(args, kwargs, outputs)
    with _LOCK:
        known = _TRACES.setdefault(layer, [])
        for at_state, at_form, found in known:
            if (at_state, at_form) == (state, form):
                return found
        made: Trace | str
        try:
            made = trace_call(layer, *_without_training(layer, args, kwargs), outputs)
        except CannotEnterError as error:
            made = str(error)
        known.append((state, form, made))
        del known[:-_KEPT]
        return made


def training_of(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
    """Return the `training` argument of a call; None if it is not given as a bool."""
    signature = inspect.signature(layer.call)
    found = signature.bind_partial(*args, **_that_it_takes(signature, kwargs)).arguments.get("training")
    return found if isinstance(found, bool) else None


def _without_training(
    layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    signature = inspect.signature(layer.call)
    kwargs = _that_it_takes(signature, kwargs)
    bound = signature.bind(*args, **kwargs)
    if "training" not in bound.arguments:
        return args, kwargs
    kwargs = {key: value for key, value in kwargs.items() if key != "training"}
    if bound.signature.parameters["training"].kind is inspect.Parameter.KEYWORD_ONLY:
        return args, kwargs
    names = list(bound.signature.parameters)
    position = names.index("training")
    behind = dict(zip(names[position + 1 :], args[position + 1 :], strict=False))
    return args[:position], {**behind, **kwargs}


def _that_it_takes(signature: inspect.Signature, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments without a `training` that `call` does not take: Keras keeps it from such a layer."""
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values())
    if takes_any or "training" in signature.parameters:
        return kwargs
    return {key: value for key, value in kwargs.items() if key != "training"}


def _state(layer: Any) -> Any:
    """Return the attributes of a layer on which its traces depend, to detect later changes."""
    return {
        # What Keras and TensorFlow record in containers of their own changes with every call.
        name: type(value) if isinstance(value, _CONTAINERS) and _is_recorded(name) else content(value)
        for name, value in vars(layer).items()
    }


def _is_recorded(name: str) -> bool:
    return name.startswith("_self_") or name in _of_every_layer()


@functools.cache
def _of_every_layer() -> frozenset[str]:
    return frozenset(vars(keras.layers.Layer(name="layer")))


def _form(args: tuple[Any, ...], kwargs: dict[str, Any], outputs: list[Any]) -> Any:
    order = {id(tensor): number for number, tensor in enumerate(unique_tensors((args, kwargs)))}

    def plain(value: Any) -> Any:
        if isinstance(value, keras.KerasTensor):
            masked = getattr(value, "_keras_mask", None) is not None
            return f"tensor {order.get(id(value))} {tuple(value.shape)} {value.dtype} {masked}"
        return content(value)

    return tree.map_structure(plain, (args, kwargs, outputs))
