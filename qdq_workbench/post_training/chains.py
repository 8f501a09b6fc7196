"""Finding a layer whose output channels are exactly the input channels of another one."""

from __future__ import annotations

import dataclasses

from qdq_workbench.graph.float_inside import has_low_rank_update
from qdq_workbench.graph.input_axes import input_axis
from qdq_workbench.graph.kinds import ACTIVATION_LAYERS, CROPPINGS, DROPOUTS, PADDINGS, POOLINGS, UPSAMPLINGS
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.output_axes import output_axes

#: The layers whose weights are rewritten.
REWRITTEN = ("Conv2D", "Conv1D", "Dense", "DepthwiseConv2D")
#: The layers whose channels are scaled.
SCALED = (*REWRITTEN, "Conv2DTranspose", "Conv1DTranspose")
#: f(s * x) = s * f(x) for every s > 0.
HOMOGENEOUS = ("linear", "relu", "leaky_relu", "prelu")
#: Layers that treat every channel by itself and are homogeneous.
PER_CHANNEL = (*DROPOUTS, *POOLINGS, *PADDINGS, *CROPPINGS, *UPSAMPLINGS)


@dataclasses.dataclass(frozen=True)
class Chain:
    """Two layers with weights, and the layers between them.

    Args:
        producer: The layer whose output channels are scaled.
        between: The layers between the two, in order.
        consumer: The only layer with weights that reads these channels.
        axes: The axis of the producer's kernel for these channels, and that of the consumer's.
    """

    producer: Node
    between: tuple[Node, ...]
    consumer: Node
    axes: tuple[int, int]


def find_chains(graph: ModelGraph) -> list[Chain]:
    """Return the chains of a model whose channels can be scaled without changing what the model computes.

    Between the two layers there are only positively homogeneous activations and layers that treat every channel by
    itself; every tensor has one reader, and the layers have one call each. Batch normalizations must be folded.
    """
    chains = []
    for node in graph.nodes:
        if _is_rewritable(graph, node) and node.activation_name in HOMOGENEOUS:
            chain = _follow(graph, node)
            if chain is not None:
                chains.append(chain)
    return chains


def _follow(graph: ModelGraph, producer: Node) -> Chain | None:
    between: list[Node] = []
    node = producer
    while graph.has_one_use(node.outputs[0]):
        node = graph.readers(node.outputs[0])[0][0]
        if _is_rewritable(graph, node):
            made, read = output_axes(producer, "kernel"), input_axis(node, "kernel")
            # Of a depthwise kernel (height, width, channels, multiplier) the first one: its multiplier is 1.
            return None if not made or read is None else Chain(producer, tuple(between), node, (made[0], read))
        if not _passes_channels(graph, node):
            return None
        between.append(node)
    return None


def _is_rewritable(graph: ModelGraph, node: Node) -> bool:
    """Return whether a layer's kernel may be scaled: a class of `SCALED`, channels last, no groups, one call."""
    return (
        node.class_name in SCALED
        and not node.is_operation
        and not node.opaque
        and len(node.inputs) == 1
        and node.settings.get("data_format", "channels_last") == "channels_last"
        and node.settings.get("groups", 1) == 1
        and len(graph.calls(node.layer)) == 1
        and any(weight.name == "kernel" for weight in node.weights)
        # Scaling the kernel alone would leave the update as it is.
        and not has_low_rank_update(node)
        # With a multiplier every channel has several outputs, which axis 2 of the kernel cannot scale one by one.
        and (node.class_name != "DepthwiseConv2D" or _kernel_shape(node)[-1] == 1)
    )


def _kernel_shape(node: Node) -> tuple[int, ...]:
    return next(weight.shape for weight in node.weights if weight.name == "kernel")


def _passes_channels(graph: ModelGraph, node: Node) -> bool:
    if node.is_operation:
        return node.class_name == "Relu" and len(node.inputs) == 1
    if len(node.inputs) != 1 or len(graph.calls(node.layer)) != 1:
        return False
    if node.class_name in ACTIVATION_LAYERS:
        return node.activation_name in HOMOGENEOUS
    return node.class_name in PER_CHANNEL and node.settings.get("data_format", "channels_last") == "channels_last"
