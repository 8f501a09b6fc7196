"""TFMOT's default 8-bit scheme: the layers that it quantizes, and their quantizers.

Weights: 8 bits, symmetric, narrow, last value; per axis for convolutions, per tensor for Dense and Conv2DTranspose.
Outputs: 8 bits, asymmetric, moving average. Inputs of the model: 8 bits, asymmetric, all values. Biases stay float.

No pair is placed inside a pattern that a runtime fuses: Conv, BatchNormalization and ReLU have one pair, after the
last of them, and so do Add and ReLU. A tensor that only a Concatenate reads has no pair; the output of the Concatenate
has one.
"""

from __future__ import annotations

from typing import Any

import keras

from qdq_workbench import LastValueQuantizer, ModelGraph, Node, QuantizeConfig
from qdq_workbench.errors import SpecError
from qdq_workbench.graph.op_kinds import BEFORE_ACTIVATION
from qdq_workbench.placement.defaults import find_default
from qdq_workbench.tfmot.quantizers import MovingAverageQuantizer
from qdq_workbench.tfmot.schemes import DefaultQuantizeScheme

_PER_TENSOR = ("Dense", "Conv2DTranspose")
_OUTPUT = (
    "ReLU", "LeakyReLU", "PReLU", "ELU", "Concatenate", "Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum",
    "UpSampling1D", "UpSampling2D", "UpSampling3D", "Resizing", "AveragePooling1D", "AveragePooling2D",
    "AveragePooling3D", "GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D",
    "BatchNormalization",
)  # fmt: skip
_NOTHING = (
    "Softmax", "Cropping1D", "Cropping2D", "Cropping3D", "ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D",
    "ActivityRegularization", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "Flatten",
    "Permute", "Reshape", "GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D", "MaxPooling1D",
    "MaxPooling2D", "MaxPooling3D", "Identity", "InputLayer",
)  # fmt: skip
_BEFORE_BATCH_NORM = ("Conv2D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D", "Conv1D", "Conv3D", "Dense")
_BEFORE_RELU = (*_BEFORE_BATCH_NORM, "BatchNormalization", "Add")
_AFTER_ACTIVATION = ("linear", "relu", "silu", "gelu")


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class SchemeQuantizeConfig(QuantizeConfig):
    """The default of TFMOT's schemes for one layer.

    Args:
        weight_attrs: Names of the attributes that hold the quantized weights.
        per_axis: Whether each weight has one scale per slice along its last axis; or a list of one axis per weight.
        quantize_output: Whether the output is quantized.
        weight_bits: Width of the weights' integers.
        output_bits: Width of the output's integers.

    Example:
        >>> SchemeQuantizeConfig(["kernel"]).get_config()["weight_attrs"]
        ['kernel']
    """

    def __init__(
        self,
        weight_attrs: Any = (),
        per_axis: bool | list[int] = False,
        quantize_output: bool = True,
        weight_bits: int = 8,
        output_bits: int = 8,
    ) -> None:
        self.weight_attrs = list(weight_attrs)
        self.per_axis = per_axis
        self.quantize_output = quantize_output
        self.weight_bits = weight_bits
        self.output_bits = output_bits

    def get_weights_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:
        """Return the named weights, each with a `LastValueQuantizer`."""
        axes = self.per_axis if isinstance(self.per_axis, list) else [-1] * len(self.weight_attrs)
        settings = {"per_axis": bool(self.per_axis), "symmetric": True, "narrow_range": True}
        return [
            (getattr(layer, name), LastValueQuantizer(self.weight_bits, **settings, axis=axis))
            for name, axis in zip(self.weight_attrs, axes, strict=True)
        ]

    def get_activations_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:  # noqa: ARG002 (the interface)
        """Return an empty list: the output of the activation is the output of the layer."""
        return []

    def set_quantize_weights(self, layer: Any, quantize_weights: list[Any]) -> None:
        """Set the layer's weights to the quantized ones."""
        for name, weight in zip(self.weight_attrs, quantize_weights, strict=True):
            setattr(layer, name, weight)

    def set_quantize_activations(self, layer: Any, quantize_activations: list[Any]) -> None:
        """Do nothing.

        Args:
            layer: The layer.
            quantize_activations: Not used.
        """

    def get_output_quantizers(self, layer: Any) -> list[Any]:  # noqa: ARG002 (the interface)
        """Return the quantizer of the output, if it is quantized."""
        return [MovingAverageQuantizer(self.output_bits)] if self.quantize_output else []

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "weight_attrs": self.weight_attrs,
            "per_axis": self.per_axis,
            "quantize_output": self.quantize_output,
            "weight_bits": self.weight_bits,
            "output_bits": self.output_bits,
        }


def default_config(
    graph: ModelGraph, node: Node, defaults: set[str], scheme: DefaultQuantizeScheme
) -> SchemeQuantizeConfig | None:
    """Return the scheme's config of a layer; None if it stays in float.

    Args:
        graph: The model, with the activations split off whose input is quantized.
        node: The layer.
        defaults: The names of the nodes quantized by the scheme; only these can be part of a fused pattern.
        scheme: The widths, and whether weights have scales per axis.

    Raises:
        SpecError: If the scheme has no rule for the layer or its activation.
    """
    quantize_output = _quantizes_output(node) and not _is_fused_with_reader(graph, node, defaults)
    widths = (scheme.num_bits_weight, scheme.num_bits_activation)
    default = find_default(node)
    if default is not None and default.weights and not node.is_a("Embedding"):
        # Weights of inner layers, such as cell/kernel, are no attributes of the layer, which TFMOT's configs name.
        names = [name for name in default.weights if "/" not in name]
        if len(names) < len(default.weights):
            raise _unknown(node)
        per_axis = False if scheme.disable_per_axis else _per_axis(node, default.weights)
        return SchemeQuantizeConfig(names, per_axis, quantize_output, *widths)
    return SchemeQuantizeConfig((), quantize_output=True, output_bits=widths[1]) if quantize_output else None


def output_config(node: Node, scheme: DefaultQuantizeScheme) -> SchemeQuantizeConfig | None:
    """Return the output config of a layer without annotation before an annotated one.

    None if the scheme does not quantize such an output, or has no rule for the layer.
    """
    try:
        quantizes = _quantizes_output(node) and node.activation_name not in BEFORE_ACTIVATION
    except SpecError:
        return None
    return SchemeQuantizeConfig(quantize_output=True, output_bits=scheme.num_bits_activation) if quantizes else None


def _per_axis(node: Node, axes: Any) -> Any:
    """Return `per_axis` for a config; a depthwise kernel's last axis is the multiplier, so size 1 is per tensor."""
    if node.is_a(*_PER_TENSOR):
        return False
    if node.is_a("DepthwiseConv2D", "DepthwiseConv1D"):
        return any(weight.name == "kernel" and weight.shape[-1] > 1 for weight in node.weights)
    return False if None in axes.values() else list(axes.values())


def _quantizes_output(node: Node) -> bool:
    default, activation = find_default(node), node.activation_name
    if node.is_operation or node.is_a("Activation"):
        known = (*_AFTER_ACTIVATION, "relu6")
        if activation not in (*known, *BEFORE_ACTIVATION):
            raise _unknown(node)
        # As in TFMOT: the output of a layer with weights is quantized, that of an Activation('linear') layer is not.
        return activation in known and activation != "linear"
    if node.is_a(*_OUTPUT):
        return True
    if node.is_a(*_NOTHING):
        return False
    if default is not None and default.weights:
        if activation not in _AFTER_ACTIVATION:
            raise _unknown(node)
        return True
    raise _unknown(node)


def _is_fused_with_reader(graph: ModelGraph, node: Node, defaults: set[str]) -> bool:
    """Return whether a layer is fused with its only reader, whose output has the pair instead."""
    tensor = node.outputs[0]
    if not graph.has_one_use(tensor):
        return False
    reader = graph.readers(tensor)[0][0]
    if reader.name not in defaults:
        return False
    if reader.is_a("Concatenate"):
        return True
    if node.activation_name != "linear" or node.is_a("ReLU"):
        return False
    if reader.is_a("BatchNormalization"):
        return node.is_a(*_BEFORE_BATCH_NORM)
    is_relu = reader.is_a("ReLU") or (reader.is_a("Activation") and reader.activation_name in ("relu", "relu6"))
    return is_relu and node.is_a(*_BEFORE_RELU)


def _unknown(node: Node) -> SpecError:
    activation = node.activation_name
    with_activation = "" if activation == "linear" else f" with activation {activation!r}"
    return SpecError(
        f"TFMOT's default 8-bit scheme has no rule for layer {node.layer!r}, a {node.class_name}{with_activation}. "
        "Annotate it with a QuantizeConfig, annotate only the other layers, or use qdq_workbench.quantize_model, which "
        f"knows more layers. Received: layer {node.layer!r}"
    )
