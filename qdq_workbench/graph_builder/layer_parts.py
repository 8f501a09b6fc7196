"""Names of the layers and variables inside a layer that are the same in a clone or a loaded copy of the layer.

Keras's own paths are not: they contain the names of inner layers, which Keras numbers in the order of creation. A part
is named after the public attribute that holds it (`cell/kernel` of an LSTM, `forward_layer/cell/kernel` of a
Bidirectional), or by its own name if its class fixes that (`query/kernel` of a MultiHeadAttention).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import keras

from qdq_workbench.graph.free_names import take_name

# Default names of Keras's variables, numbered in the order of creation: a copy has others.
_UNNAMED = re.compile(r"variable(_\d+)?")


def inner_layers(layer: Any) -> list[Any]:
    """Return the layers inside a layer, at any depth."""
    return list(layer._flatten_layers(include_self=False))


def takes_training(operation: Any) -> bool:
    """Return whether a layer's call has a `training` argument."""
    return bool(getattr(operation, "_call_has_training_arg", False))


def carries_mask(tensor: Any) -> bool:
    """Return whether a tensor carries a mask, as the output of `Embedding(mask_zero=True)` does."""
    return getattr(tensor, "_keras_mask", None) is not None


def layer_weights(layer: Any) -> list[tuple[str, Any]]:
    """Return the variables of a layer, each with its path below the layer, such as `kernel` or `cell/kernel`."""
    names: dict[int, str] = {}
    _name_variables(layer, "", names, set())
    return [(names[id(variable)], variable) for variable in layer.weights]


def _name_variables(layer: Any, prefix: str, names: dict[int, str], taken: set[str]) -> None:
    for name, part in _direct_parts(layer):
        _name_variables(part, f"{prefix}{name}/", names, taken)
    attributes = {id(value): key.lstrip("_") for key, value in vars(layer).items() if hasattr(value, "assign")}
    for variable in layer.weights:
        if id(variable) in names:
            continue
        name = variable.name
        if _UNNAMED.fullmatch(name):
            name = attributes.get(id(variable), "variable")
        names[id(variable)] = take_name(prefix + name, taken, "~")  # two variables may have the same name


def layer_parts(layer: Any) -> list[tuple[str, Any]]:
    """Return the layers inside a layer, at any depth, each with its path below the layer."""
    return list(_all_parts(layer, ""))


def _all_parts(layer: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, part in _direct_parts(layer):
        yield prefix + name, part
        yield from _all_parts(part, f"{prefix}{name}/")


def _direct_parts(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yield the direct inner layers of a layer, each once, with its name."""
    inside = layer._layers
    if not inside:
        return
    if isinstance(layer, keras.Sequential) or hasattr(layer, "_nodes_by_depth"):
        yield from ((part.name, part) for part in layer.layers)
        return
    fixed_names = type(layer).__module__.startswith("keras.")
    attributes = _attributes_by_part(layer)
    for index, part in enumerate(inside):
        attribute = attributes.get(id(part), f"_layers/{index}")
        private = attribute.startswith("_")
        yield part.name if private and fixed_names else attribute.lstrip("_"), part


def _attributes_by_part(layer: Any) -> dict[int, str]:
    """Return the attribute that holds each inner layer, `blocks/0` for the first of a list; public ones win."""
    found: dict[int, str] = {}
    held = {
        key: value
        for key, value in vars(layer).items()
        if not key.startswith("_self_")
        or isinstance(value, keras.layers.Layer)  # the others are TensorFlow's own lists
    }
    for key, value in sorted(held.items(), key=lambda item: item[0].startswith("_")):
        if isinstance(value, keras.layers.Layer):
            found.setdefault(id(value), key)
        elif isinstance(value, (list, tuple)) and key != "_layers":
            for index, item in enumerate(value):
                if isinstance(item, keras.layers.Layer):
                    found.setdefault(id(item), f"{key}/{index}")
        elif isinstance(value, dict):
            for name, item in value.items():
                if isinstance(item, keras.layers.Layer):
                    found.setdefault(id(item), f"{key}/{name}")
    return found
