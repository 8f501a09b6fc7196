"""Serialization of quantizers whose class is outside the library, for plans.

A plan holds such a quantizer in the serialized form of Keras. Keras finds the class if it is registered, importable or
in a custom object scope; within one process this module also keeps the class, so that classes defined in a function or
a notebook cell work without registration.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import Any

import keras

from qdq_workbench.errors import QuantizerError

_CLASSES: dict[str, type] = {}


def remember(quantizer: Any) -> dict[str, Any]:
    """Return a quantizer in the serialized form of Keras, and keep its class for `recall`.

    Raises:
        QuantizerError: If its configuration cannot be written as JSON.
    """
    try:
        # Through JSON, so that it equals what is read from the file of a plan, where tuples are lists.
        data: dict[str, Any] = json.loads(json.dumps(keras.saving.serialize_keras_object(quantizer)))
    except (TypeError, ValueError, NotImplementedError) as error:
        raise QuantizerError(
            f"The quantizer {type(quantizer).__name__} cannot be written into a plan: its get_config must return plain "
            f"values. {error}. Received: {quantizer!r}"
        ) from error
    _CLASSES[_key(data)] = type(quantizer)
    return data


def recall(data: Mapping[str, Any]) -> Any:
    """Return a new quantizer from the dictionary that `remember` returned.

    Raises:
        QuantizerError: If its class is unknown.
    """
    known = _CLASSES.get(_key(data))
    if known is not None:
        return known.from_config(dict(data["config"]))  # type: ignore[attr-defined]
    if str(data.get("module", "")).startswith(f"{__package__.partition('.')[0]}."):
        importlib.import_module(data["module"])  # registers a class of the library whose module is not imported yet
    try:
        return keras.saving.deserialize_keras_object(dict(data))
    except (TypeError, ValueError) as error:
        raise QuantizerError(
            "The class of a quantizer is not known here. Import the module that defines it and register it with "
            "@keras.saving.register_keras_serializable(), or work inside keras.saving.custom_object_scope({...}). "
            f"Received: class {data.get('class_name')!r}"
        ) from error


def _key(data: Mapping[str, Any]) -> str:
    return json.dumps([data.get(part) for part in ("module", "class_name", "registered_name")])
