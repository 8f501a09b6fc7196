"""The configs that TFMOT's users build by hand: those of its default 8-bit scheme, with TFMOT's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from qdq_workbench import QuantizeConfig
from qdq_workbench.errors import SpecError
from qdq_workbench.tfmot.quantizers import LastValueQuantizer, MovingAverageQuantizer

_QUANTIZED_BEHIND = ("relu", "swish", "silu", "gelu", "relu6")
_NOT_QUANTIZED_BEHIND = ("linear", "softmax", "sigmoid", "tanh")


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
        """Return the named weights, each with its quantizer."""
        return [(getattr(layer, name), self.weight_quantizer) for name in self.weight_attrs]

    def get_activations_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:
        """Return the named activations, each with its quantizer."""
        return [(getattr(layer, name), self.activation_quantizer) for name in self.activation_attrs]

    def set_quantize_weights(self, layer: Any, quantize_weights: list[Any]) -> None:
        """Put the quantized weights into their places.

        Args:
            layer: The layer.
            quantize_weights: The quantized weights, as many as `weight_attrs` and of the shapes of the layer's.

        Raises:
            SpecError: If they are more or fewer, or of other shapes; the layer is left as it was.
        """
        _check_count(layer, "weight", self.weight_attrs, quantize_weights)
        for name, weight in zip(self.weight_attrs, quantize_weights, strict=True):
            if tuple(getattr(layer, name).shape) != tuple(weight.shape):
                raise SpecError(
                    f"set_quantize_weights takes a value of shape {tuple(getattr(layer, name).shape)} for {name!r} of "
                    f"layer {layer.name!r}. Received: shape {tuple(weight.shape)}"
                )
        for name, weight in zip(self.weight_attrs, quantize_weights, strict=True):
            setattr(layer, name, weight)

    def set_quantize_activations(self, layer: Any, quantize_activations: list[Any]) -> None:
        """Put the quantized activations into their places.

        Args:
            layer: The layer.
            quantize_activations: The quantized activations, as many as `activation_attrs`.

        Raises:
            SpecError: If they are more or fewer; the layer is left as it was.
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
    """Refuse another number of values than the config has names, before the first is put into its place."""
    if len(names) != len(values):
        raise SpecError(
            f"set_quantize_{kind}s takes one value for each of {list(names)} of layer {layer.name!r}, in this order. "
            f"Received: {len(values)} values"
        )


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
    """For `Activation` layers.

    The results of relu, relu6, swish and gelu are quantized, those of linear, softmax, sigmoid and tanh are not; TFMOT
    knows no others.
    """

    def get_output_quantizers(self, layer: Any) -> list[Any]:
        """Return the quantizer of the output, if its activation is one of those.

        Args:
            layer: The `Activation` layer.

        Raises:
            SpecError: If it is another layer, or its activation is none of those.
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
    """Quantizes nothing of a layer."""

    def __init__(self) -> None:
        super().__init__(quantize_output=False)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments: none."""
        return {}
