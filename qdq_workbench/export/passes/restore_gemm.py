"""MatMul(x, w) + c -> Gemm(x, w, c), x of rank 2; Gemm(x, w, b) + c -> Gemm(x, w, b + c)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.patterns import additions_where, biased_products, constant_operand, write_instead
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
    for add in graph.sorted_nodes():
        found = _biased(graph, add)
        if found is not None:
            gemm, bias = found
            graph.set_inputs(gemm, [*gemm.inputs[:2], graph.add_constant(f"{gemm.name}/bias", bias)])
            write_instead(graph, gemm, add)
    graph.prune()


def _is_gemm(graph: Graph, add: Node, operand: int, product: Node) -> bool:
    kernel = graph.shape(product.inputs[1])
    if graph.rank(product.inputs[0]) != 2 or kernel is None or len(kernel) != 2:
        return False
    return _is_per_column(graph.constants[add.inputs[operand]], kernel[1]) and graph.may_join(add, product)


def _is_per_column(constant: np.ndarray, columns: int | None) -> bool:
    """Return whether a constant is one value per column of a product of float32."""
    # A constant of one value per row has as many values where the matrix is square.
    shape = constant.shape or (1,)
    return len(shape) <= 2 and shape[-1:] == (constant.size,) == (columns,) and constant.dtype == np.float32


def _biased(graph: Graph, add: Node) -> tuple[Node, np.ndarray] | None:
    """Return the Gemm to which a node adds one constant per column, and its bias with that constant in it."""
    operand = constant_operand(graph, add) if add.op == "Add" else None
    gemm = None if operand is None else graph.producer(add.inputs[1 - operand])
    if operand is None or gemm is None or gemm.op != "Gemm" or len(gemm.inputs) < 3:
        return None
    own, constant = graph.constant(gemm.inputs[2]), graph.constants[add.inputs[operand]]
    if own is None or own.ndim != 1 or not _is_per_column(constant, own.size):
        return None
    if not graph.has_one_reader(gemm.output) or not graph.may_join(add, gemm):
        return None
    return gemm, own + constant.reshape(-1)


_products_that_are_gemms = additions_where(_is_gemm)


def _denied(graph: Graph) -> Iterator[Node]:
    yield from _products_that_are_gemms(graph)
    yield from (node for node in graph.nodes if _biased(graph, node) is not None)


PASS = GraphPass(
    restore_gemm,
    needs="Biases still float.",
    holds="No constant of one value per column is added to a float32 MatMul or Gemm of rank 2 that nothing else reads.",
    refuses="Other types, constants that broadcast, biases that are computed, and those that the plan keeps.",
    denied_by=_denied,
)
