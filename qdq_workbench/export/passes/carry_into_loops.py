"""Dequantized tensors that are moved and then read by the body of a loop become loop-carried values.

ONNX Runtime 1.31 moves a Q/DQ pair over Transpose, Reshape and the like to the readers of the result, and aborts the
process if a reader is in the body of a loop and the tensor is outside of it. Operators between them that change
nothing, such as the addition of 0, it removes before. A body may read such a tensor as a loop-carried value, which it
returns unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.onnx_graph.graph import Graph, Node, outer_reads, rename_reads
from qdq_workbench.onnx_graph.moved_pairs import moved_over


def carry_into_loops(graph: Graph) -> None:
    """Pass moved dequantized tensors to loop bodies as carried values."""
    for node in graph.sorted_nodes():
        if node.op != "Loop" or node.domain:
            continue
        body = onnx.GraphProto()
        body.CopyFrom(node.get("body"))
        moved = _moved_reads(graph, body)
        for tensor in moved:
            _add_carried_value(graph, node, body, tensor)
        if moved:
            node.set("body", body)
            graph.set_inputs(node, [*node.inputs, *moved])


def _is_moved_dequantized(graph: Graph, tensor: str) -> bool:
    producer, before = graph.producer(tensor), _moved_over(graph, graph.producer(tensor))
    if before is None:
        return False
    while before is not None:
        producer = graph.producer(before)
        before = _moved_over(graph, producer)
    return producer is not None and producer.op == "DequantizeLinear"


def _moved_over(graph: Graph, node: Node | None) -> str | None:
    return None if node is None else moved_over(node.op, node.inputs, node.outputs, graph.constant)


def _add_carried_value(graph: Graph, node: Node, body: onnx.GraphProto, tensor: str) -> None:
    """Add a carried value after the existing ones to a body and to the loop's outputs."""
    carried = len(body.input) - 2  # the first two inputs are the iteration number and the condition
    inside, handed_on = f"{tensor}/carried", f"{tensor}/handed_on"
    rename_reads(body, tensor, inside)
    body.input.append(helper.make_tensor_value_info(inside, onnx.TensorProto.FLOAT, None))
    body.node.append(helper.make_node("Identity", [inside], [handed_on], name=handed_on))
    outputs = list(body.output)
    # Carried values come before the scan outputs; the body's first output is the condition, which the loop lacks.
    outputs.insert(1 + carried, helper.make_tensor_value_info(handed_on, onnx.TensorProto.FLOAT, None))
    del body.output[:]
    body.output.extend(outputs)
    graph.insert_output(node, carried, graph.fresh(f"{tensor}/last"))


def _moved_reads(graph: Graph, body: onnx.GraphProto) -> list[str]:
    """Return the moved dequantized tensors that a loop's body reads from the graph around it."""
    return [tensor for tensor in dict.fromkeys(outer_reads(body)) if _is_moved_dequantized(graph, tensor)]


def _reading(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        if node.op == "Loop" and not node.domain and _moved_reads(graph, node.get("body")):
            yield node


PASS = GraphPass(
    carry_into_loops,
    needs="Pairs joined.",
    holds="No body of a Loop reads, from around it, a dequantized tensor that was moved.",
    refuses="Nothing.",
    denied_by=_reading,
)
