"""Notes of an export on what is computed in float between integers: weights of some operations, and some means."""

from __future__ import annotations

import onnx

from qdq_workbench.graph.operators import WEIGHTED
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.qdq_graph import keeps_in_float

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
    note = (
        "Stored as integers but computed in float, because the operation has no integer form: "
        f"{_listed([f'{weight} ({op})' for weight, op in found.items()])}. "
        "The values are those of the quantized model, and the file is smaller; it is not faster there."
    )
    return [note]


def notes_on_float_means(proto: onnx.ModelProto) -> list[str]:
    """Return a note on the means between pairs that ONNX Runtime computes in float for their scales, if there are any.

    The explanation of a plan, which has no ranges, calls them INT8.
    """
    clips = {node.output[0] for node in proto.graph.node if keeps_in_float(node)}
    pools = [node for node in proto.graph.node if node.op_type == "GlobalAveragePool"]
    held = [pool.name.partition("/")[0] for pool in pools if pool.input[0] in clips]
    if not held:
        return []
    note = (
        f"Means that ONNX Runtime computes in float, though they are between pairs: {_listed(held)}. "
        "Its integer kernel refuses scales as far apart as those of these pairs; often the means of all calibration "
        "data are 0 but for rounding, as behind a normalization of every sample."
    )
    return [note]


def _listed(names: list[str]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
