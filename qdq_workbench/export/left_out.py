"""Pairs and weights that a file leaves out because no output of the model depends on them.

Planning leaves out those that it can detect (`graph.unread_weights`). The others are weights of custom layers that the
call does not use, and inputs that a call ignores.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx

from qdq_workbench.errors import ExportError
from qdq_workbench.export.keras_side.trace import EndNames
from qdq_workbench.onnx_graph.graph import Graph

_INT32 = onnx.TensorProto.INT32
_SHOWN = 4


def needed_ends(graph: Graph, ends: EndNames) -> set[str]:
    """Return the names of the pairs and weights that an output depends on, in a float graph still cut at its pairs."""
    pairs = {placeholder: name for name, placeholder in ends.placeholders.items()}
    weights = {source: name for name, source in ends.weights.items()}
    needed: set[str] = set()
    seen: set[str] = set()
    todo = list(ends.outputs.values())
    while todo:
        tensor = todo.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        if tensor in pairs:
            needed.add(pairs[tensor])
            # The graph is cut: behind the placeholder of a pair it goes on at the pair's source.
            todo.append(ends.sources[pairs[tensor]])
        elif tensor in weights:
            needed.add(weights[tensor])
        producer = graph.producer(tensor)
        if producer is not None:
            todo.extend(graph.reads(producer))
    return needed


def written_tensors(proto: onnx.ModelProto) -> set[tuple[str, str]]:
    """Return ("activation" or "weight", name) of every Q/DQ pair and integer weight, but no int32 bias, of a file."""
    constants = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    written = set()
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear":
            written.add(("activation", node.name.removesuffix("/QuantizeLinear")))
        # The DequantizeLinear of a pair reads no constant and is skipped like a bias: its QuantizeLinear counts.
        elif node.op_type == "DequantizeLinear" and constants.get(node.input[0], _INT32) != _INT32:
            written.add(("weight", node.name.removesuffix("/DequantizeLinear")))
    return written


def check_written(proto: onnx.ModelProto, expected: Collection[str]) -> None:
    """Raise unless a file holds exactly the pairs and integer weights of these names.

    Raises:
        ExportError: If one is missing, or another one is there.
    """
    written = {name for _, name in written_tensors(proto)}
    if written != set(expected):
        lost, extra = sorted(set(expected) - written), sorted(written - set(expected))
        raise ExportError(
            "The file would not hold what was planned; no file was written. Please report this with the model's "
            f"summary. Received: missing {lost[:3]}, not planned {extra[:3]}"
        )


def left_out_note(names: Collection[str]) -> str:
    """Return a note on pairs and weights, at least one, that were planned and are not in the file."""
    shown = ", ".join(sorted(names)[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"Planned but not in the file, because no output of the model depends on them: {shown}{more}."
