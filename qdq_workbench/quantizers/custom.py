"""Quantizers of classes outside of the library: how a plan names them, and how they are made again.

A plan holds such a quantizer as Keras serializes it. Keras finds a class again when it is registered, importable or
named in a custom object scope; within one process the class is remembered here as well, so that classes defined in a
function or a notebook cell work without any of that.
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
    """Return a quantizer as Keras serializes it, and remember its class.

    Args:
        quantizer: An object with `get_config`.

    Raises:
        QuantizerError: If its configuration cannot be written as JSON.
    """
    try:
        data: dict[str, Any] = json.loads(json.dumps(keras.saving.serialize_keras_object(quantizer)))
    except (TypeError, ValueError, NotImplementedError) as error:
        raise QuantizerError(
            f"The quantizer {type(quantizer).__name__} cannot be written into a plan: its get_config must return plain "
            f"values. {error}. Received: {quantizer!r}"
        ) from error
    _CLASSES[_key(data)] = type(quantizer)
    return data


def recall(data: Mapping[str, Any]) -> Any:
    """Return a new quantizer like the one that `remember` was given.

    Args:
        data: What `remember` returned.

    Raises:
        QuantizerError: If its class is not known here.
    """
    known = _CLASSES.get(_key(data))
    if known is not None:
        return known.from_config(dict(data["config"]))  # type: ignore[attr-defined]
    if str(data.get("module", "")).startswith(f"{__package__.partition('.')[0]}."):
        importlib.import_module(data["module"])  # one of the library's own rooms that nobody asked for yet
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
