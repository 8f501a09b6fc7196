"""What happens to a layer that nobody named: the default of its class.

The first ten rows are those of NVIDIA's tensorflow-quantization toolkit; the others follow their kin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from qdq_workbench.graph.model_graph import Node


@dataclasses.dataclass(frozen=True)
class LayerDefault:
    """How a layer class is quantized unless a spec or a case says otherwise.

    Args:
        quantize_input: Whether its inputs get Q/DQ pairs.
        quantize_weight: Whether its weights are quantized.
        weights: The weights that are quantized, by name below the layer, each with the axis of its scales (None
            for one scale).
    """

    quantize_input: bool
    quantize_weight: bool = False
    weights: Mapping[str, int | None] = dataclasses.field(default_factory=dict)


def _weighted(weights: Mapping[str, int | None]) -> LayerDefault:
    return LayerDefault(quantize_input=True, quantize_weight=True, weights=weights)


def _kernel(axis: int = -1) -> LayerDefault:
    return _weighted({"kernel": axis})


_INPUT = LayerDefault(quantize_input=True)
_OFF = LayerDefault(quantize_input=False)
_SEPARABLE = _weighted({"depthwise_kernel": -2, "pointwise_kernel": -1})

_KEPT = frozenset(
    {
        "Conv2D",
        "Dense",
        "DepthwiseConv2D",
        "AveragePooling2D",
        "GlobalAveragePooling2D",
        "MaxPooling2D",
        "BatchNormalization",
        "Concatenate",
        "Add",
        "Multiply",
    }
)
_DEFAULTS: dict[str, LayerDefault] = {
    "Conv2D": _kernel(),
    "Dense": _kernel(),
    "DepthwiseConv2D": _kernel(-2),
    "AveragePooling2D": _INPUT,
    "GlobalAveragePooling2D": _INPUT,
    "MaxPooling2D": _OFF,
    "BatchNormalization": _OFF,
    "Concatenate": _OFF,
    "Add": _OFF,
    "Multiply": _OFF,
    "Conv1D": _kernel(),
    "Conv3D": _kernel(),
    "Conv1DTranspose": _kernel(-2),
    "Conv2DTranspose": _kernel(-2),
    "Conv3DTranspose": _kernel(-2),
    "DepthwiseConv1D": _kernel(-2),
    "SeparableConv1D": _SEPARABLE,
    "SeparableConv2D": _SEPARABLE,
    "EinsumDense": _weighted({"kernel": None}),
    "Embedding": LayerDefault(quantize_input=False, quantize_weight=True, weights={"embeddings": None}),
    "AveragePooling1D": _INPUT,
    "AveragePooling3D": _INPUT,
    "GlobalAveragePooling1D": _INPUT,
    "GlobalAveragePooling3D": _INPUT,
    "MaxPooling1D": _OFF,
    "MaxPooling3D": _OFF,
    "GlobalMaxPooling1D": _OFF,
    "GlobalMaxPooling2D": _OFF,
    "GlobalMaxPooling3D": _OFF,
    "Subtract": _OFF,
    "Average": _OFF,
    "Maximum": _OFF,
    "Minimum": _OFF,
    "Dot": _OFF,
    "Matmul": _OFF,
    "Resizing": _OFF,
    "UpSampling1D": _OFF,
    "UpSampling2D": _OFF,
    "UpSampling3D": _OFF,
}


def class_name_of(name: str) -> str:
    """Return the class that Keras means by an alias such as `GlobalMaxPool2D`; other names as they are.

    Args:
        name: A layer class name or one of Keras's aliases for it.

    Example:
        >>> class_name_of("GlobalMaxPool2D"), class_name_of("Convolution2D"), class_name_of("Dense")
        ('GlobalMaxPooling2D', 'Conv2D', 'Dense')
    """
    for short, full in (("AvgPool", "AveragePooling"), ("MaxPool", "MaxPooling"), ("AveragePool", "AveragePooling")):
        for dimension in ("1D", "2D", "3D"):
            if name in (f"{short}{dimension}", f"Global{short}{dimension}"):
                return name.replace(f"{short}{dimension}", f"{full}{dimension}")
    if "Convolution" in name:
        return name.replace("Convolution", "Conv")
    return name


def find_default(node: Node) -> LayerDefault | None:
    """Return the default of the node's class, or of its nearest known parent class; None if nobody knows it."""
    return _first_known(node.classes)


def default_of_class(layer_class: type) -> LayerDefault | None:
    """Return the default of a layer class, or of its nearest known parent; None if nobody knows it.

    Args:
        layer_class: A Keras layer class.
    """
    return _first_known(tuple(parent.__name__ for parent in layer_class.__mro__))


def _first_known(class_names: tuple[str, ...]) -> LayerDefault | None:
    for name in class_names:  # asked several times per node and plan: no generator
        if name in _DEFAULTS:
            return _DEFAULTS[name]
    return None


def register_default(class_name: str, default: LayerDefault) -> None:
    """Make a layer class known, so that it is quantized by default.

    The predecessor's ten classes keep their defaults: a wrapper for one of them changes how it is computed, not
    whether it is quantized. Known weights keep the axis of their scales.

    Args:
        class_name: The layer class; aliases count.
        default: What happens to its layers.
    """
    name = class_name_of(class_name)
    if name in _KEPT:
        return
    known = _DEFAULTS.get(name)
    if known is not None and known.weights:
        default = dataclasses.replace(default, weights=known.weights)
    _DEFAULTS[name] = default
