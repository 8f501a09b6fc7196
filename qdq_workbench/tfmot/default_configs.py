"""The configs of TFMOT's default 8-bit scheme, with TFMOT's arguments, for users who create them directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from qdq_workbench import QuantizeConfig
from qdq_workbench.errors import SpecError
from qdq_workbench.tfmot.quantizers import LastValueQuantizer, MovingAverageQuantizer
from qdq_workbench.tfmot.trained_config import attribute_of

_QUANTIZED_BEHIND = ("relu", "swish", "silu", "gelu", "relu6")
_NOT_QUANTIZED_BEHIND = ("linear", "softmax", "sigmoid", "tanh")


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class Default8BitQuantizeConfig(QuantizeConfig):
    """8-bit weights with one scale per tensor, and 8-bit activations.

    Args:
        weight_attrs: Names of the attributes that hold the quantized weights.
        activation_attrs: Names of the attributes that hold the quantized activations.
        quantize_output: Whether the output is quantized.

    Example:
        >>> Default8BitQuantizeConfig(["kernel"], ["activation"], False).get_config()["weight_attrs"]
        ['kernel']
    """

    per_axis = False

    def __init__(self, weight_attrs: Sequence[str], activation_attrs: Sequence[str], quantize_output: bool) -> None:
        self.weight_attrs = list(weight_attrs)
        self.activation_attrs = list(activation_attrs)
        self.quantize_output = quantize_output
        self.weight_quantizer = LastValueQuantizer(8, per_axis=self.per_axis, symmetric=True, narrow_range=True)
        self.activation_quantizer = MovingAverageQuantizer(8)

    def get_weights_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:
        """Return the named weights, each with its quantizer."""
        return [(getattr(layer, attribute_of(layer, name)), self.weight_quantizer) for name in self.weight_attrs]

    def get_activations_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:
        """Return the named activations, each with its quantizer."""
        return [(getattr(layer, name), self.activation_quantizer) for name in self.activation_attrs]

    def set_quantize_weights(self, layer: Any, quantize_weights: list[Any]) -> None:
        """Set the layer's weights to the quantized ones.

        Args:
            layer: The layer.
            quantize_weights: The quantized weights, one per name in `weight_attrs`, of the same shapes.

        Raises:
            SpecError: If their number or a shape differs; the layer does not change.
        """
        _check_count(layer, "weight", self.weight_attrs, quantize_weights)
        names = [attribute_of(layer, name) for name in self.weight_attrs]
        for name, weight in zip(names, quantize_weights, strict=True):
            if tuple(getattr(layer, name).shape) != tuple(weight.shape):
                raise SpecError(
                    f"set_quantize_weights takes a value of shape {tuple(getattr(layer, name).shape)} for {name!r} of "
                    f"layer {layer.name!r}. Received: shape {tuple(weight.shape)}"
                )
        for name, weight in zip(names, quantize_weights, strict=True):
            setattr(layer, name, weight)

    def set_quantize_activations(self, layer: Any, quantize_activations: list[Any]) -> None:
        """Set the layer's activations to the quantized ones.

        Args:
            layer: The layer.
            quantize_activations: The quantized activations, one per name in `activation_attrs`.

        Raises:
            SpecError: If their number differs; the layer does not change.
        """
        _check_count(layer, "activation", self.activation_attrs, quantize_activations)
        for name, activation in zip(self.activation_attrs, quantize_activations, strict=True):
            setattr(layer, name, activation)

    def get_output_quantizers(self, layer: Any) -> list[Any]:  # noqa: ARG002 (the interface)
        """Return the quantizer of the output, if it is quantized."""
        return [self.activation_quantizer] if self.quantize_output else []

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "weight_attrs": self.weight_attrs,
            "activation_attrs": self.activation_attrs,
            "quantize_output": self.quantize_output,
        }

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.get_config() == other.get_config()

    def __hash__(self) -> int:
        return hash((type(self), repr(self.get_config())))


def _check_count(layer: Any, kind: str, names: Sequence[str], values: Sequence[Any]) -> None:
    """Raise SpecError unless there is one value per name."""
    if len(names) != len(values):
        raise SpecError(
            f"set_quantize_{kind}s takes one value for each of {list(names)} of layer {layer.name!r}, in this order. "
            f"Received: {len(values)} values"
        )


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class Default8BitConvQuantizeConfig(Default8BitQuantizeConfig):
    """The config for convolutions: one scale per slice along the weight's last axis."""

    per_axis = True


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class Default8BitConvTransposeQuantizeConfig(Default8BitQuantizeConfig):
    """The config for transposed convolutions: one scale per tensor."""


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class Default8BitOutputQuantizeConfig(Default8BitQuantizeConfig):
    """Quantizes the output only.

    Args:
        quantize_output: Whether the output is quantized.
    """

    def __init__(self, quantize_output: bool = True) -> None:
        super().__init__([], [], quantize_output)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"quantize_output": self.quantize_output}


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class Default8BitActivationQuantizeConfig(Default8BitOutputQuantizeConfig):
    """The config for `Activation` layers.

    The outputs of relu, relu6, swish and gelu are quantized, those of linear, softmax, sigmoid and tanh are not; TFMOT
    supports no others.
    """

    def get_output_quantizers(self, layer: Any) -> list[Any]:
        """Return the quantizer of the output, if outputs of the layer's activation are quantized.

        Args:
            layer: The `Activation` layer.

        Raises:
            SpecError: If it is another layer, or its activation is not supported.
        """
        if not self.quantize_output:
            return []
        name = getattr(getattr(layer, "activation", None), "__name__", None)
        if not isinstance(layer, keras.layers.Activation) or name not in (*_QUANTIZED_BEHIND, *_NOT_QUANTIZED_BEHIND):
            raise SpecError(
                "Default8BitActivationQuantizeConfig is for Activation layers with one of "
                f"{_QUANTIZED_BEHIND} (quantized behind) or {_NOT_QUANTIZED_BEHIND} (not quantized). Give the layer a "
                "QuantizeConfig of your own. "
                f"Received: {type(layer).__name__} {layer.name!r} with activation {name!r}"
            )
        return super().get_output_quantizers(layer) if name in _QUANTIZED_BEHIND else []


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class NoOpQuantizeConfig(Default8BitOutputQuantizeConfig):
    """The config of a layer that stays in float."""

    def __init__(self) -> None:
        super().__init__(quantize_output=False)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments: none."""
        return {}
