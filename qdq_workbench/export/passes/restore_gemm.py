"""MatMul(x, w) + c -> Gemm(x, w, c), x of rank 2."""

from __future__ import annotations

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.patterns import additions_where, biased_products
from qdq_workbench.onnx_graph.graph import Graph, Node


def restore_gemm(graph: Graph) -> None:
    """Join a rank-2 MatMul and the addition of a constant bias into Gemm."""
    for add, operand, product in biased_products(graph):
        if not _is_gemm(graph, add, operand, product):
            continue
        bias = graph.constants[add.inputs[operand]]
        tensor = graph.add_constant(f"{product.name}/bias", bias.reshape(-1))
        inputs, name, written = [*product.inputs, tensor], product.name, add.output
        graph.remove(add)
        graph.remove(product)
        graph.add("Gemm", inputs, name, output=written)
    graph.prune()


def _is_gemm(graph: Graph, add: Node, operand: int, product: Node) -> bool:
    bias, kernel = graph.constants[add.inputs[operand]], graph.shape(product.inputs[1])
    if graph.rank(product.inputs[0]) != 2 or kernel is None or len(kernel) != 2:
        return False
    # A constant of one value per row has as many values where the matrix is square.
    if bias.ndim > 2 or bias.shape[-1:] != (bias.size,):
        return False
    return kernel[1] == bias.size and bias.dtype == np.float32 and graph.may_join(add, product)


PASS = GraphPass(
    restore_gemm,
    needs="Biases still float.",
    holds="No constant of one value per column is added to a float32 MatMul of rank 2 that nothing else reads.",
    refuses="Other types, constants that broadcast, and those that the plan keeps.",
    denied_by=additions_where(_is_gemm),
)
