"""Pad(0) -> [Q -> DQ ->] Conv becomes [Q -> DQ ->] Conv with pads: exact, since 0 is on every grid.

In front of a Q there may be the Clip to a grid of fewer bits. Pad(0) of values >= 0 is folded into MaxPool in the same
way.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.insert_qdq import narrows
from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.graph.operators import keeps_never_negative, makes_never_negative, read_values
from qdq_workbench.onnx_graph.graph import Graph, Node


def fold_pads(graph: Graph) -> None:
    """Fold zero padding into the convolution or max pool after it, also through a Q/DQ pair."""
    for pad in graph.sorted_nodes():
        if pad.op != "Pad" or pad not in graph or pad.output in graph.outputs:
            continue
        pads = _spatial_zero_pads(graph, pad)
        readers, pair = _readers_through_pair(graph, pad)
        if pads is None or not readers:
            continue
        if not all(_takes_pads(graph, reader, pad) for reader in readers):
            _keep_from_max_pool(graph, pad)
            continue
        for reader in readers:
            existing = reader.get("pads") or [0] * len(pads)
            reader.set("pads", [int(a + b) for a, b in zip(existing, pads, strict=True)])
        for tensor in [pad.output, *pair]:
            if graph.shape(pad.inputs[0]) is not None:
                graph.shapes[tensor] = graph.shapes[pad.inputs[0]]
        graph.replace_reads(pad.output, pad.inputs[0])
        graph.remove(pad)
    graph.prune()


def _keep_from_max_pool(graph: Graph, pad: Node) -> None:
    """Stop ONNX Runtime (1.31) from folding zero padding into a MaxPool, which pads with minus infinity.

    It folds every padding with exactly 0, also of negative values, where the result is wrong. Padding with the
    smallest normal number makes no difference after any rounding.
    """
    existing = graph.constant(pad.inputs[2]) if len(pad.inputs) > 2 else None
    is_float32 = existing is None or existing.dtype == np.float32
    if is_float32 and any(reader.op == "MaxPool" for reader in graph.readers(pad.output)):
        value = graph.add_constant(f"{pad.name}/value", np.array(np.finfo(np.float32).tiny, np.float32))
        graph.set_inputs(pad, [*pad.inputs[:2], value, *pad.inputs[3:]])


def _spatial_zero_pads(graph: Graph, pad: Node) -> list[int] | None:
    pads = graph.constant(pad.inputs[1])
    value = graph.constant(pad.inputs[2]) if len(pad.inputs) > 2 and pad.inputs[2] else np.zeros(())
    axes_given = len(pad.inputs) > 3 and bool(pad.inputs[3])
    if pads is None or value is None or float(value.reshape(-1)[0]) != 0.0 or axes_given:
        return None
    rank = pads.size // 2
    outside = [pads[0], pads[1], pads[rank], pads[rank + 1]] if rank > 2 else [1]
    if pad.get("mode", b"constant") != b"constant" or any(outside) or np.any(pads < 0):
        return None
    return [int(size) for size in (*pads[2:rank], *pads[rank + 2 :])]


def _readers_through_pair(graph: Graph, pad: Node) -> tuple[list[Node], list[str]]:
    """Return the readers of the padded tensor, directly or through a pair, and the tensors of those pairs."""
    readers: list[Node] = []
    tensors: list[str] = []
    for reader in graph.readers(pad.output):
        if narrows(graph, reader):
            tensors.append(reader.output)
            reader = graph.readers(reader.output)[0]  # noqa: PLW2901 - the QuantizeLinear behind it
        if reader.op != "QuantizeLinear":
            readers.append(reader)
            continue
        if reader.output in graph.outputs:
            return [], []
        tensors.append(reader.output)
        for dequantize in graph.readers(reader.output):
            if dequantize.op != "DequantizeLinear" or dequantize.output in graph.outputs:
                return [], []
            tensors.append(dequantize.output)
            readers.extend(graph.readers(dequantize.output))
    return readers, tensors


def _takes_pads(graph: Graph, node: Node, pad: Node) -> bool:
    if node.get("auto_pad", b"NOTSET") != b"NOTSET" or not graph.may_join(pad, node):
        return False
    if node.op == "Conv":
        return True
    if node.op != "MaxPool" or node.get("ceil_mode", 0) or not _is_never_negative(graph, pad.inputs[0]):
        return False
    pads = _spatial_zero_pads(graph, pad) or []
    existing = node.get("pads") or [0] * len(pads)
    kernel = node.get("kernel_shape")
    # ONNX Runtime refuses a max pool that pads by as much as its window.
    return all(a + b < kernel[index % len(kernel)] for index, (a, b) in enumerate(zip(existing, pads, strict=True)))


def _is_never_negative(graph: Graph, tensor: str) -> bool:
    pending, seen = [tensor], {tensor}
    while pending:
        name = pending.pop()
        node, constant = graph.producer(name), graph.constant(name)
        # An operand of a Concat may be constant.
        if constant is not None and not np.any(constant < 0):
            continue
        if node is None:
            return False
        if not _makes_never_negative(graph, node):
            mode = node.get("mode", b"") if node.op == "Resize" else b""
            if not keeps_never_negative(node.op, mode.decode()):
                return False
            pending += [source for source in read_values(node.op, node.inputs) if source not in seen]
            seen.update(pending)
    return True


def _makes_never_negative(graph: Graph, node: Node) -> bool:
    if node.op != "Clip":
        return makes_never_negative(node.op)
    low = graph.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return low is not None and float(low) >= 0.0


def _foldable(graph: Graph) -> Iterator[Node]:
    for pad in graph.nodes:
        if pad.op == "Pad" and pad.output not in graph.outputs and _spatial_zero_pads(graph, pad) is not None:
            readers, _ = _readers_through_pair(graph, pad)
            if readers and all(_takes_pads(graph, reader, pad) for reader in readers):
                yield pad


PASS = GraphPass(
    fold_pads,
    needs="Channels first; a pair stands between the padding and what reads it at most once.",
    holds="No padding with 0 along spatial axes is read by convolutions (and, of values that are never negative, max "
    "pools) alone.",
    refuses="Padding that the plan keeps or that has another reader, and max pools of values that may be negative: "
    "they pad with minus infinity, and the 0 becomes the smallest normal number, so that ONNX Runtime keeps it.",
    denied_by=_foldable,
)
