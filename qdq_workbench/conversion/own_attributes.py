"""What a user's code set on a quantized model, as part of the model's configuration."""

from __future__ import annotations

import warnings
from typing import Any

import keras

from qdq_workbench.conversion.own_training import each, is_container, own_attributes

_PLAIN = (type(None), bool, int, float, str)


def encode(model: Any) -> dict[str, Any]:
    """Return the attributes of a model that can be written to a file, JSON-compatible.

    Args:
        model: A quantized model of a user's class.

    Warns:
        UserWarning: If an attribute is nothing that Keras can write.
    """
    encoded, lost = {}, []
    for name, value in own_attributes(model).items():
        try:
            encoded[name] = _encoded(value, model)
        except Exception:  # noqa: BLE001, PERF203 - get_config is the code of whoever wrote the class
            lost.append(name)
    if lost:
        warnings.warn(
            f"The file will not hold attributes of the model that Keras cannot write: {', '.join(lost)}. Set them "
            "again on the loaded model.",
            UserWarning,
            stacklevel=2,
        )
    return encoded


def decode(model: Any, encoded: dict[str, Any]) -> None:
    """Set the attributes of a loaded model.

    Args:
        model: The model.
        encoded: What `encode` returned.
    """
    for name, value in encoded.items():
        setattr(model, name, _decoded(value, model))


def _encoded(value: Any, model: Any) -> dict[str, Any]:
    if isinstance(value, _PLAIN):
        return {"plain": value}
    if is_container(value):
        items = each(value, lambda item: _encoded(item, model))
        return {"dict" if isinstance(value, dict) else "tuple" if isinstance(value, tuple) else "list": items}
    if isinstance(value, keras.Variable):
        form = {"shape": list(value.shape), "dtype": value.dtype, "trainable": value.trainable, "name": value.name}
        return {"variable": form}
    if any(value is layer for layer in model.layers):
        return {"layer": value.name}
    if callable(value) and not isinstance(value, keras.KerasTensor) and getattr(value, "__name__", "") == "<lambda>":
        raise TypeError
    return {"keras": keras.saving.serialize_keras_object(value)}


def _decoded(encoded: dict[str, Any], model: Any) -> Any:
    ((kind, value),) = encoded.items()
    if kind in ("list", "tuple", "dict"):
        items = each(value, lambda item: _decoded(item, model))
        return tuple(items) if kind == "tuple" else items
    if kind == "variable":
        return keras.Variable("zeros", **{**value, "shape": tuple(value["shape"])})
    if kind == "layer":
        return model.get_layer(value)
    return keras.saving.deserialize_keras_object(value) if kind == "keras" else value
