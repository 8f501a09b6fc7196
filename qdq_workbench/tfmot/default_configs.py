"""The configs that TFMOT's users build by hand: those of its default 8-bit scheme, with TFMOT's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from qdq_workbench import QuantizeConfig
from qdq_workbench.tfmot.quantizers import LastValueQuantizer, MovingAverageQuantizer

_QUANTIZED_BEHIND = ("relu", "swish", "silu", "gelu", "relu6")


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class Default8BitQuantizeConfig(QuantizeConfig):
    """8-bit weights with one scale each, and 8-bit activations.

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
        """Return the named weights, each with its quantizer.

        Args:
            layer: The layer.
        """
        return [(getattr(layer, name), self.weight_quantizer) for name in self.weight_attrs]

    def get_activations_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:
        """Return the named activations, each with its quantizer.

        Args:
            layer: The layer.
        """
        return [(getattr(layer, name), self.activation_quantizer) for name in self.activation_attrs]

    def set_quantize_weights(self, layer: Any, quantize_weights: list[Any]) -> None:
        """Put the quantized weights into their places.

        Args:
            layer: The layer.
            quantize_weights: The quantized weights.
        """
        for name, weight in zip(self.weight_attrs, quantize_weights, strict=True):
            setattr(layer, name, weight)

    def set_quantize_activations(self, layer: Any, quantize_activations: list[Any]) -> None:
        """Put the quantized activations into their places.

        Args:
            layer: The layer.
            quantize_activations: The quantized activations.
        """
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


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class Default8BitConvQuantizeConfig(Default8BitQuantizeConfig):
    """The same for convolutions: one scale per slice of the weight's last axis."""

    per_axis = True


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class Default8BitConvTransposeQuantizeConfig(Default8BitQuantizeConfig):
    """The same for transposed convolutions: one scale."""


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
    """For `Activation` layers: the result of relu, relu6, swish and gelu is quantized, that of others is not."""

    def get_output_quantizers(self, layer: Any) -> list[Any]:
        """Return the quantizer of the output, if its activation is one of those.

        Args:
            layer: The `Activation` layer.
        """
        quantizes = getattr(layer.activation, "__name__", "") in _QUANTIZED_BEHIND
        return super().get_output_quantizers(layer) if quantizes else []


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class NoOpQuantizeConfig(Default8BitOutputQuantizeConfig):
    """Quantizes nothing of a layer."""

    def __init__(self) -> None:
        super().__init__(quantize_output=False)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments: none."""
        return {}
