"""Copies of layers whose `get_config` is incomplete.

The `get_config` of a layer may lack an argument of the constructor, return one that the constructor does not take, or
fail. The arguments are then read from the attributes of the same name (`units` or `_units`). The copy must equal its
source in every plain attribute, and in every attribute that was used as an argument.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import keras

_PLAIN = (bool, int, float, str, type(None))
# A copy has another name and may have another dtype; it is not built yet.
_OF_KERAS = ("name", "built", "trainable", "dtype")


def copy_from_attributes(layer: Any, name: str, *, float32: bool = False) -> Any:
    """Return a copy of a layer, made from its attributes that are named like the constructor's arguments.

    ValueError is raised if an argument is found nowhere, or the copy differs from the layer.
    """
    config = config_from_attributes(layer)
    config = {**config, "name": name} if "name" in config else config
    clone = type(layer).from_config(in_float32(config) if float32 else config)
    for key in (vars(layer).keys() & vars(clone).keys()) - {*_OF_KERAS}:  # the clone lacks those that `build` creates
        value = vars(layer)[key]
        plain = not key.startswith("_") and isinstance(value, _PLAIN)
        if (plain or key.lstrip("_") in config) and not _is_same(vars(clone)[key], value):
            raise ValueError(f"its attribute {key!r} is not what an argument of the constructor of that name was")
    tell_config(clone)
    return clone


def config_from_attributes(layer: Any) -> dict[str, Any]:
    """Return the arguments of a layer's constructor, read from its attributes or else from its `get_config`.

    Raises:
        ValueError: If an argument without a default is found in neither.
    """
    parameters = inspect.signature(type(layer).__init__).parameters
    open_ended = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    written = _written(layer)
    always = {
        "name": layer.name,
        "trainable": layer.trainable,
        "dtype": keras.dtype_policies.serialize(layer.dtype_policy),
    }
    config = {key: value for key, value in always.items() if open_ended or key in parameters}
    for key, parameter in list(parameters.items())[1:]:
        if key in config or parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
            continue
        found = next((held for held in (key, f"_{key}") if held in vars(layer)), None)
        if found is not None:
            config[key] = _serialized(getattr(layer, found))
        elif key in written:
            config[key] = written[key]
        elif parameter.default is inspect.Parameter.empty:
            raise ValueError(f"the argument {key!r} of its constructor is kept under no attribute of that name")
    return config


def tell_config(layer: Any) -> None:
    """Replace `get_config` of a layer by `config_from_attributes`, so that the layer can be saved."""
    vars(layer)["get_config"] = lambda: config_from_attributes(layer)


def repair_config(layer: Any) -> None:
    """Replace `get_config` of a layer if Keras cannot copy the layer from it, but `copy_from_attributes` can."""
    if type(layer).__module__.startswith(("keras.", "qdq_workbench.")) or "get_config" in vars(layer):
        return
    try:
        type(layer).from_config(layer.get_config())
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        with contextlib.suppress(Exception):  # such as classes known only inside a custom_object_scope
            copy_from_attributes(layer, layer.name)
            tell_config(layer)


def in_float32(config: Any) -> Any:
    """Return a configuration with float32 in place of every floating-point dtype policy, at any depth."""
    if isinstance(config, (list, tuple)):
        return type(config)(in_float32(item) for item in config)
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == "DTypePolicy" and "float" in str(config.get("config", {}).get("name")):
        return {**config, "config": {**config["config"], "name": "float32"}}
    return {key: in_float32(value) for key, value in config.items()}


def _is_same(one: Any, other: Any) -> bool:
    return str(_serialized(one)) == str(_serialized(other))


def _written(layer: Any) -> dict[str, Any]:
    try:
        return dict(layer.get_config())
    except Exception:  # noqa: BLE001 - as above
        return {}


def _serialized(value: Any) -> Any:
    return value if isinstance(value, (*_PLAIN, list, tuple, dict)) else keras.saving.serialize_keras_object(value)
