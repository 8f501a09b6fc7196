"""Conv(x, w) + c -> Conv(x, w, b = c), c constant per channel."""

from __future__ import annotations

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass, nodes_where
from qdq_workbench.export.passes.patterns import (
    begins_hard_sigmoid,
    channel_values,
    constant_operand,
    write_instead,
)
from qdq_workbench.graph.operators import CONVOLUTIONS
from qdq_workbench.onnx_graph.graph import Graph, Node


def fold_bias_additions(graph: Graph) -> None:
    """Fold the addition of one constant per channel into the convolution before it."""
    for add in graph.sorted_nodes():
        found = _biased(graph, add) if add in graph else None
        if found is None:
            continue
        conv, channels = found
        bias = graph.add_constant(f"{conv.name}/bias", channels)
        graph.set_inputs(conv, [*conv.inputs[:2], bias])
        write_instead(graph, conv, add)
    graph.prune()


def _per_channel(graph: Graph, value: np.ndarray, conv: Node) -> np.ndarray | None:
    """Return a constant as one value per output channel of a convolution, None where it varies otherwise."""
    values, kernel = channel_values(value, graph.rank(conv.output)), graph.shape(conv.inputs[1])
    if values is None or kernel is None:
        return None
    # A Conv's kernel is (out, in / group, ...), a ConvTranspose's (in, out / group, ...).
    channels = kernel[0] if conv.op == "Conv" else (kernel[1] or 0) * int(conv.get("group", 1))
    return None if channels is None or values.size not in (1, channels) else np.broadcast_to(values, (channels,)).copy()


def _biased(graph: Graph, add: Node) -> tuple[Node, np.ndarray] | None:
    """Return the convolution to which a node adds one constant per channel, and its bias with that constant in it."""
    operand = constant_operand(graph, add) if add.op == "Add" else None
    conv = None if operand is None else graph.producer(add.inputs[1 - operand])
    if operand is None or conv is None or conv.op not in CONVOLUTIONS:
        return None
    channels = _per_channel(graph, graph.constants[add.inputs[operand]], conv)
    if channels is None or not graph.has_one_reader(conv.output) or not graph.may_join(add, conv):
        return None
    # Within a layer the plan tells nothing of it.
    if begins_hard_sigmoid(graph, add):
        return None
    if len(conv.inputs) < 3:
        return conv, channels
    existing = graph.constant(conv.inputs[2])
    return None if existing is None else (conv, existing + channels)


PASS = GraphPass(
    fold_bias_additions,
    needs="Convolutions and additions in one layout; biases still float.",
    holds="No constant per channel, but that of a hard sigmoid, is added to a convolution that nothing else reads.",
    refuses="Constants that vary within a channel or that the plan keeps, and biases that are computed.",
    denied_by=nodes_where(_biased),
)
