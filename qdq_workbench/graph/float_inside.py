"""Layers that compute in float inside however their inputs and outputs are quantized, and the advice for them."""

from __future__ import annotations

from qdq_workbench.graph.kinds import MULTI_HEAD_ATTENTION, SEPARABLE, WINDOWED_OPERATIONS
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import JOINS_CONSTANTS, MASKED


def why_float_inside(node: Node) -> str:
    """Return why integer kernels cannot compute a layer as it is, with advice; "" if they can."""
    return "; ".join(filter(None, float_inside(node)))


def float_inside(node: Node) -> tuple[str, str]:
    """Return why integer kernels cannot compute a layer as it is, and the advice; both "" if they can."""
    return node.once(_float_inside)


def has_low_rank_update(node: Node) -> bool:
    """Return whether a layer adds a low-rank update (LoRA) to its weights."""
    return any(weight.name.rpartition("/")[2].startswith("lora_") for weight in node.weights)


def _float_inside(node: Node) -> tuple[str, str]:
    if has_low_rank_update(node):
        return (
            "its low-rank update (LoRA) is added to the dequantized weight, so it is computed in float",
            "quantize merge_lora(model) to run it on integers",
        )
    if node.is_a(*SEPARABLE) and not node.is_operation:
        return (
            "its two convolutions have no Q/DQ pair between them, so they are not both computed on integers",
            "quantize split_separable_convolutions(model) to run both on integers",
        )
    if node.is_a(*MULTI_HEAD_ATTENTION) and not node.is_operation:
        return (
            (
                "between its projections no Q/DQ pair can stand, so its products of queries by keys and of scores by "
                "values are computed in float"
            ),
            "quantize split_attention(model) to run them on integers",
        )
    if node.is_operation and node.is_a(*WINDOWED_OPERATIONS) and len(node.inputs) == 1:
        return (
            "its kernel is a constant of the operation, and a constant in float has no Q/DQ pair",
            "a convolution layer that holds the kernel runs on integers",
        )
    if node.settings.get(JOINS_CONSTANTS):
        return "it joins constants to its tensors, and a constant in float has no Q/DQ pair", ""
    if node.settings.get(MASKED):
        return "it chooses between values by the mask of its inputs, and no Q/DQ pair stands behind that choice", ""
    return "", ""
