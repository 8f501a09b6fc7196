"""Attributes that a user's code set on a quantized model, as part of the model's configuration."""

from __future__ import annotations

import json
import warnings
from typing import Any

import keras

from qdq_workbench._warned_line import warn_caller
from qdq_workbench.conversion.engine.own_training import is_container, is_tf_variable, own_attributes

_PLAIN = (type(None), bool, int, float, str)


def encode(model: Any) -> dict[str, Any]:
    """Return the user's attributes of a model that can be saved, in a JSON-compatible form.

    Warns:
        UserWarning: If Keras cannot write an attribute, or cannot read it again.
    """
    encoded, lost = {}, []
    for name, value in own_attributes(model).items():
        try:
            form = _encoded(value, model)
            json.dumps(form)
            encoded[name] = form  # even if Keras can read it only with custom_objects
            _check_readable(form, model)
        except Exception:  # noqa: BLE001, PERF203 - a user's get_config may raise anything
            lost.append(name)
    if lost:
        warn_caller(
            UserWarning(
                f"The file will not hold attributes of the model that Keras cannot write, or not read again: "
                f"{', '.join(lost)}. Register functions and classes (keras.saving.register_keras_serializable), or set "
                "the attributes again on the loaded model."
            )
        )
    return encoded


def decode(model: Any, encoded: dict[str, Any]) -> None:
    """Set the attributes of a loaded model.

    Args:
        model: The model.
        encoded: The result of `encode`.

    Warns:
        UserWarning: If Keras cannot read an attribute.
    """
    lost = []
    for name, value in encoded.items():
        try:
            setattr(model, name, _decoded(value, model))
        except Exception:  # noqa: BLE001, PERF203 - a user's from_config or setter may raise anything
            lost.append(name)
    if lost:
        warn_caller(
            UserWarning(
                f"Keras cannot read attributes of the model from the file: {', '.join(lost)}. Set them again, or "
                "register the functions and classes that they need before the file is loaded, or pass them as "
                "custom_objects."
            )
        )


def without_state(encoded: dict[str, Any]) -> dict[str, Any]:
    """Return the encoded attributes without layers, metrics and other objects whose state an HDF5 file lacks."""
    return {name: value for name, value in encoded.items() if not _has_state(value)}


def _has_state(encoded: dict[str, Any]) -> bool:
    ((kind, value),) = encoded.items()
    if kind == "keras":
        return isinstance(value, dict) and value.get("class_name") != "function"
    if kind == "dict":
        return any(_has_state(item) for _, item in value)
    return kind in ("list", "tuple") and any(map(_has_state, value))


def _check_readable(encoded: dict[str, Any], model: Any) -> None:
    """Raise the error that loading the attribute would raise; the model is only read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _decoded(encoded, model)


def _encoded(value: Any, model: Any) -> dict[str, Any]:
    if isinstance(value, _PLAIN):
        return {"plain": value}
    if isinstance(value, dict):
        # As pairs: JSON would make strings of other keys.
        return {"dict": [[_encoded(key, model), _encoded(item, model)] for key, item in value.items()]}
    if is_container(value):
        items = [_encoded(item, model) for item in value]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    if isinstance(value, keras.Variable):
        form = {"shape": list(value.shape), "dtype": value.dtype, "trainable": value.trainable, "name": value.name}
        return {"variable": form}
    if any(value is layer for layer in model.layers):
        return {"layer": value.name}
    return {"keras": _keras_form(value, model)}


def _keras_form(value: Any, model: Any) -> Any:
    if value is model or isinstance(value, keras.KerasTensor) or is_tf_variable(value):
        # Keras would recurse endlessly into a model that holds itself, and write a TensorFlow variable as a constant.
        raise TypeError
    name = getattr(value, "__name__", None)
    # Keras would write the bytecode, which safe mode refuses to read.
    if name == "<lambda>":
        raise TypeError
    form = keras.saving.serialize_keras_object(value)
    if name is not None and _is_name_clash(form, value):
        raise TypeError
    return form


def _is_name_clash(form: Any, function: Any) -> bool:
    """Return whether Keras would read another object of the same name, such as its own `relu` for a user's `relu`."""
    try:
        return keras.saving.deserialize_keras_object(form) is not function
    except Exception:  # noqa: BLE001 - nothing is found without custom_objects
        return False


def _decoded(encoded: dict[str, Any], model: Any) -> Any:
    ((kind, value),) = encoded.items()
    if kind == "dict":
        return {_decoded(key, model): _decoded(item, model) for key, item in value}
    if kind in ("list", "tuple"):
        items = [_decoded(item, model) for item in value]
        return tuple(items) if kind == "tuple" else items
    if kind == "variable":
        return keras.Variable("zeros", **{**value, "shape": tuple(value["shape"])})
    if kind == "layer":
        return model.get_layer(value)
    return keras.saving.deserialize_keras_object(value) if kind == "keras" else value
