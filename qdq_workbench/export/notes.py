"""Notes of an export on weights that are stored as integers and computed in float."""

from __future__ import annotations

import onnx

from qdq_workbench.graph.operators import WEIGHTED
from qdq_workbench.onnx_graph.graph import Graph

# Operations with integer kernels in some runtime, and Gather, which only looks up rows.
_TAKES_INTEGERS = WEIGHTED | {"Gather"}
_SHOWN = 4


def notes_on_float_weights(proto: onnx.ModelProto) -> list[str]:
    """Return a note on the integer weights of operations without an integer form, such as an LSTM, if it has any."""
    graph = Graph(proto)
    found: dict[str, str] = {}
    for node in graph.sorted_nodes():
        codes = graph.constant(node.inputs[0]) if node.op == "DequantizeLinear" else None
        if codes is None or codes.dtype.itemsize > 2:  # biases are int32
            continue
        others = {reader.op for reader in graph.readers(node.output)} - _TAKES_INTEGERS
        if others:
            found[node.name.removesuffix("/DequantizeLinear")] = " and ".join(sorted(others))
    if not found:
        return []
    shown = ", ".join(f"{weight} ({op})" for weight, op in list(found.items())[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    note = (
        f"Stored as integers but computed in float, because the operation has no integer form: {shown}{more}. "
        "The values are those of the quantized model, and the file is smaller; it is not faster there."
    )
    return [note]
