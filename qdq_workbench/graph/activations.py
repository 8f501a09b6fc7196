"""The activation function of a node, whether it is a layer or a `keras.ops` function."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from qdq_workbench.graph.kinds import ACTIVATION_LAYERS, KINDS

if TYPE_CHECKING:
    from qdq_workbench.graph.model_graph import Node

#: The setting of a layer that says how the activation of a user begins, before it computes more, and its values.
BEGINS = "activation_begins"
CLIP, SUM_AND_CLIP = "clip", "sum and clip"
#: The layers that compute one activation function, whatever their settings.
_FUNCTIONS = tuple(name for name in ACTIVATION_LAYERS if KINDS[name].activation and name != "ReLU")


def only_activates(node: Node) -> bool:
    """Return whether the node only applies an activation function: a layer of any class, or an operation."""
    if node.is_operation:
        return _activation_of(node.class_name) != ""
    return node.is_a(*ACTIVATION_LAYERS)


def find_activation(node: Node) -> str:
    """Return the activation that a node applies, also one inside a layer; "linear" for none."""
    if node.is_operation:
        return _activation_of(node.class_name) or "linear"
    if node.is_a("ReLU"):
        return _relu_name(node)
    if node.is_a(*_FUNCTIONS):
        return next(KINDS[name].activation for name in _FUNCTIONS if node.is_a(name))
    name: str = node.settings.get("activation") or "linear"
    return {"swish": "silu", "hard_swish": "hard_silu"}.get(name, name)


def _activation_of(class_name: str) -> str:
    return KINDS[class_name].activation if class_name in KINDS else ""


def _relu_name(node: Node) -> str:
    """Return the activation that the settings of a `ReLU` layer describe."""
    maximum = node.settings.get("max_value")
    if node.settings.get("threshold"):
        return "thresholded_leaky_relu" if node.settings.get("negative_slope") else "thresholded_relu"
    if node.settings.get("negative_slope"):
        return "leaky_relu" if maximum is None else "clipped_leaky_relu"
    if maximum is None:
        return "relu"
    return "relu6" if float(maximum) == 6.0 else "clipped_relu"


def maximum_of(node: Node, activation: str) -> float:
    """Return the maximum of a ReLU with one, by the name of the activation that a node applies; infinity for others."""
    if activation == "relu6":
        return 6.0
    return float(node.settings["max_value"]) if activation == "clipped_relu" else math.inf
