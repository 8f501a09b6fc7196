"""Reading a user's `QuantizeConfig` for a layer, once, during planning.

The getters receive the layer itself; the variables that they return determine the weight of each quantizer. The
setters receive a stand-in that records assignments, because Keras 3 refuses to replace a weight by a tensor and
because the user's layer must not change. A setter must assign every quantized weight unchanged: a value computed from
it cannot be expressed by a Q/DQ pair, and is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import BEFORE_ACTIVATION
from qdq_workbench.placement.settings import Settings


def ask_config(config: Any, node: Node, layer: Any, weights: Sequence[tuple[str, Any]], source: str) -> Settings:
    """Return the settings that a `QuantizeConfig` gives a layer; `source` is the entry that holds it, for messages."""
    where = f"{source}, {type(config).__name__} for layer {node.layer!r}"
    found: dict[str, Any] = {"weights": _weights(config, layer, weights, where)}
    output = _output(config, node, layer, where)
    if output is not None:
        found["output"] = output
        found["quantize_output"] = True
    return found


def _weights(config: Any, layer: Any, weights: Sequence[tuple[str, Any]], where: str) -> dict[str, Any]:
    """Return the settings per weight, and check that the setter assigns each quantized weight unchanged."""
    # By identity: `==` of Keras variables compares their values.
    names = {id(variable): name for name, variable in weights}
    found: dict[str, Any] = {}
    chosen: dict[str, Any] = {}
    for variable, quantizer in _asked(config, "get_weights_and_quantizers", layer, where):
        name = names.get(id(variable))
        if name is None:
            raise SpecError(
                f"{where}: get_weights_and_quantizers returned something that is no weight of this layer. Return the "
                f"layer's own variables, such as layer.kernel; this layer has {[name for name, _ in weights]}. "
                f"Received: {getattr(variable, 'path', None) or type(variable).__name__}"
            )
        if name in found:
            raise SpecError(f"{where}: get_weights_and_quantizers returned a weight twice. Received: {name!r}")
        found[name] = _settings(quantizer, where)
        chosen[name] = variable
    if chosen:
        _check_setter(config, layer, chosen, where)
    return found


def _check_setter(config: Any, layer: Any, chosen: dict[str, Any], where: str) -> None:
    """Raise an error unless `set_quantize_weights` assigns every quantized weight to its own attribute, unchanged."""
    assigned: list[_Assignment] = []
    quantized = list(chosen.values())  # the variables themselves stand for their quantized values
    _call(config, "set_quantize_weights", where, _StandIn(layer, assigned), list(quantized))
    taken = {id(each.value) for each in assigned}
    for index, (name, variable) in enumerate(chosen.items()):
        if id(variable) not in taken:
            raise SpecError(
                f"{where}: set_quantize_weights does not put the quantized {name!r} into the layer as it is; assign it "
                f"unchanged, as in {_as_python(layer, name, variable)} = quantize_weights[{index}], because a file "
                "holds integers and a scale and nothing between them and the layer. "
                f"Received: assignments to {sorted(each.path for each in assigned)}"
            )
    for each in assigned:
        own = getattr(each.holder, each.attribute, None)
        if any(own is variable for variable in quantized) and own is not each.value:
            raise SpecError(
                f"{where}: set_quantize_weights puts another value into layer.{each.path} than that weight's own; keep "
                "the order of get_weights_and_quantizers. "
                f"Received: layer.{each.path} = {getattr(each.value, 'path', type(each.value).__name__)}"
            )


def _as_python(layer: Any, name: str, variable: Any) -> str:
    """Return the expression of a weight, such as `layer.conv1.kernel` of the weight "conv1/kernel"."""
    expression, holder = "layer", layer
    for part in name.split("/"):
        try:
            holder = holder[int(part)] if part.isdigit() else getattr(holder, part)
        except (AttributeError, IndexError, KeyError, TypeError):
            break
        expression += f"[{part}]" if part.isdigit() else f".{part}"
    return expression if holder is variable else "the attribute of the layer that holds it"


def _output(config: Any, node: Node, layer: Any, where: str) -> Any:
    """Return the settings of the output, from the activation's or the output's quantizer; None without either."""
    activations = _asked(config, "get_activations_and_quantizers", layer, where)
    quantizers = [_settings(quantizer, where) for _, quantizer in activations if quantizer is not None]
    if quantizers:
        _check_activation(node, activations, layer, where)
        _call(
            config,
            "set_quantize_activations",
            where,
            _StandIn(layer, []),
            [activation for activation, _ in activations],
        )
    returned = _call(config, "get_output_quantizers", where, layer)
    if not isinstance(returned or (), Iterable):
        raise SpecError(f"{where}: get_output_quantizers must return a list of quantizers. Received: {returned!r}")
    outputs = list(returned or ())
    if len(outputs) > 1 or len(quantizers) > 1:
        raise SpecError(
            f"{where}: a layer has one output tensor, so it takes one quantizer for it. "
            f"Received: {len(quantizers)} activation quantizers, {len(outputs)} output quantizers"
        )
    found = [*quantizers, *(_settings(quantizer, where) for quantizer in outputs)]
    if any(settings["per_axis"] for settings in found):
        raise SpecError(
            f"{where}: activations have one scale per tensor, because inference runtimes take no other on a Q/DQ pair "
            "between layers. Received: a quantizer with per_axis=True"
        )
    if len(found) == 2 and found[0] != found[1]:
        raise SpecError(
            f"{where}: the activation and the output of this layer are one tensor, which two quantizers cannot hold "
            f"one behind the other in a file. Return only one of them. Received: {found[0]} and {found[1]}"
        )
    return found[0] if found else None


def _check_activation(node: Node, activations: Sequence[tuple[Any, Any]], layer: Any, where: str) -> None:
    """Raise an error if the quantized values are inside the layer, where no file can hold a Q/DQ pair."""
    for activation, _ in activations:
        attributes = [str(name) for name in vars(layer) if getattr(layer, str(name), None) is activation]
        if hasattr(layer, "activation") and getattr(layer, "activation", None) is not activation:
            raise SpecError(
                f"{where}: only the activation that makes the layer's output can be quantized in a file; the other "
                f"values of {node.class_name} stay inside the layer. Return [(layer.activation, quantizer)] or []. "
                f"Received: {attributes or getattr(activation, '__name__', type(activation).__name__)}"
            )
    name = node.activation_name
    if name in BEFORE_ACTIVATION:
        raise SpecError(
            f"{where}: values are quantized before {name}, that is inside the layer, where no file can hold a Q/DQ "
            f"pair. Split the layer into one without activation and keras.layers.Activation({name!r}) (which "
            "qdq_workbench.tfmot.quantize_apply does by itself), or quantize the output with get_output_quantizers. "
            f"Received: a layer with activation={name!r}"
        )


def _asked(config: Any, method: str, layer: Any, where: str) -> list[tuple[Any, Any]]:
    """Return the result of a getter as a list of pairs."""
    found = _call(config, method, where, layer)
    pairs = list(found or ()) if isinstance(found or (), Iterable) else [found]
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise SpecError(f"{where}: {method} must return a list of pairs (value, quantizer). Received: {found!r}")
    return [(pair[0], pair[1]) for pair in pairs]


def _call(config: Any, method: str, where: str, *arguments: Any) -> Any:
    """Call a method of the user's config; an error names the method."""
    try:
        return getattr(config, method)(*arguments)
    except Exception as error:
        raise SpecError(
            f"{where}: {method} failed with {type(error).__name__}: {error}. Does the config fit this class of layers? "
            f"Received: {type(config).__name__}"
        ) from error


def _settings(quantizer: Any, where: str) -> dict[str, Any]:
    """Return the settings of a quantizer."""
    if not hasattr(quantizer, "settings"):
        raise SpecError(
            f"{where}: a quantizer must be one of qdq_workbench's, or of a subclass of "
            "qdq_workbench.quantizers.Quantizer. "
            f"Received: {type(quantizer).__module__}.{type(quantizer).__name__}"
        )
    return dict(quantizer.settings())


@dataclasses.dataclass(frozen=True)
class _Assignment:
    """An assignment of a setter, `layer.<path> = value`; the path ends in an attribute of `holder`."""

    holder: Any
    attribute: str
    path: str
    value: Any


class _StandIn:
    """Looks like a layer, with its inner layers, and records assignments instead of carrying them out."""

    def __init__(self, layer: Any, assigned: list[_Assignment], path: str = "") -> None:
        # Not `self._layer = ...`, which `__setattr__` would record.
        object.__setattr__(self, "_layer", layer)
        object.__setattr__(self, "_assigned", assigned)
        object.__setattr__(self, "_path", path)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The layer's class, for `isinstance`."""
        return type(object.__getattribute__(self, "_layer"))

    def __getattr__(self, name: str) -> Any:
        layer, assigned, path = (object.__getattribute__(self, key) for key in ("_layer", "_assigned", "_path"))
        # A setter may read what it has assigned before; the last assignment counts.
        for each in reversed(assigned):
            if each.holder is layer and each.attribute == name:
                return each.value
        return _replaced_inside(getattr(layer, name), assigned, f"{path}{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        layer, assigned, path = (object.__getattribute__(self, key) for key in ("_layer", "_assigned", "_path"))
        assigned.append(_Assignment(layer, name, f"{path}{name}", value))


def _replaced_inside(value: Any, assigned: list[_Assignment], path: str) -> Any:
    """Return stand-ins for inner layers, alone or in a list or dictionary; other values as they are."""
    # By their interface, because this package does not import Keras.
    if hasattr(value, "trainable_weights") and callable(getattr(value, "call", None)):
        return _StandIn(value, assigned, f"{path}.")
    if isinstance(value, (list, tuple)):
        return [_replaced_inside(item, assigned, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _replaced_inside(item, assigned, f"{path}[{key!r}]") for key, item in value.items()}
    return value
