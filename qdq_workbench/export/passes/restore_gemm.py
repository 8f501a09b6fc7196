"""MatMul(x, w) + c -> Gemm(x, w, c), x of rank 2; Gemm(x, w, b) + c -> Gemm(x, w, b + c)."""

from __future__ import annotations

import itertools

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.patterns import (
    additions_where,
    begins_hard_sigmoid,
    biased_products,
    channel_values,
    write_instead,
)
from qdq_workbench.onnx_graph.graph import Graph, Node


def restore_gemm(graph: Graph) -> None:
    """Join a rank-2 MatMul and the additions of constant biases into Gemm."""
    for add, operand, product in biased_products(graph):
        if not _is_gemm(graph, add, operand, product):
            continue
        bias = graph.constants[add.inputs[operand]]
        tensor = graph.add_constant(f"{product.name}/bias", bias.reshape(-1))
        inputs, name, written = [*product.inputs, tensor], product.name, add.output
        graph.remove(add)
        graph.remove(product)
        graph.add("Gemm", inputs, name, output=written)
    # In computing order: a constant may follow another one that is absorbed already.
    for add, operand, gemm in biased_products(graph, "Gemm"):
        if _is_bias(graph, add, operand, gemm):
            bias = graph.constants[gemm.inputs[2]] + graph.constants[add.inputs[operand]].reshape(-1)
            graph.set_inputs(gemm, [*gemm.inputs[:2], graph.add_constant(f"{gemm.name}/bias", bias)])
            write_instead(graph, gemm, add)
    graph.prune()


def _is_gemm(graph: Graph, add: Node, operand: int, product: Node) -> bool:
    kernel = graph.shape(product.inputs[1])
    if graph.rank(product.inputs[0]) != 2 or kernel is None or len(kernel) != 2:
        return False
    return _is_per_column(graph.constants[add.inputs[operand]], kernel[1]) and _may_join(graph, add, product)


def _is_per_column(constant: np.ndarray, columns: int | None) -> bool:
    """Return whether a constant is one value per column of a product of float32."""
    values = channel_values(constant, 2)
    return values is not None and values.size == columns


def _is_bias(graph: Graph, add: Node, operand: int, gemm: Node) -> bool:
    """Return whether a constant is one value per column of a Gemm whose own bias is a constant."""
    own = graph.constant(gemm.inputs[2]) if len(gemm.inputs) > 2 else None
    if own is None or own.ndim != 1 or not _is_per_column(graph.constants[add.inputs[operand]], own.size):
        return False
    return _may_join(graph, add, gemm)


def _may_join(graph: Graph, add: Node, product: Node) -> bool:
    # Within a layer the plan tells nothing of a hard sigmoid.
    return graph.may_join(add, product) and not begins_hard_sigmoid(graph, add)


_DENIED = (additions_where(_is_gemm), additions_where(_is_bias, "Gemm"))


PASS = GraphPass(
    restore_gemm,
    needs="Biases still float.",
    holds="No constant per column, but that of a hard sigmoid, is added to a float32 MatMul or Gemm of rank 2 alone.",
    refuses="Other types, constants that broadcast, biases that are computed, and those that the plan keeps.",
    denied_by=lambda graph: itertools.chain.from_iterable(denied(graph) for denied in _DENIED),
)
