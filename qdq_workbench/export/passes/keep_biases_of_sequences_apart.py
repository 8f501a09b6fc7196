"""MatMul(x, w) + c, x of rank 3 or more, x and w dequantized -> the same with c of shape (1, N)."""

from __future__ import annotations

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.patterns import additions_where, biased_products
from qdq_workbench.onnx_graph.graph import Graph, Node


def keep_biases_of_sequences_apart(graph: Graph) -> None:
    """Add a second axis to the bias of an integer product of rank 3 or more.

    If all sizes are fixed, ONNX Runtime (1.31) rewrites a MatMul and the addition of a bias with one axis as Reshape,
    Gemm, Reshape, and computes that Gemm in float unless its result is quantized at once. A separate MatMul and Add
    run on integers with fixed and with open sizes.
    """
    for add, operand, product in biased_products(graph):
        if not _becomes_gemm(graph, add, operand, product):
            continue
        bias, inputs = graph.constants[add.inputs[operand]], list(add.inputs)
        inputs[operand] = graph.add_constant(f"{product.name}/bias", bias.reshape(1, -1))
        graph.set_inputs(add, inputs)
    graph.prune()


def _becomes_gemm(graph: Graph, add: Node, operand: int, product: Node) -> bool:
    """Return whether ONNX Runtime would rewrite an integer product of rank 3 or more as a float Gemm."""
    rank, makers = graph.rank(product.inputs[0]), [graph.producer(tensor) for tensor in product.inputs]
    if graph.constants[add.inputs[operand]].ndim != 1 or rank is None or rank < 3:
        return False
    return all(maker is not None and maker.op == "DequantizeLinear" for maker in makers)


PASS = GraphPass(
    keep_biases_of_sequences_apart,
    needs="Pairs joined, weights as integers.",
    holds="The bias of an integer product on three or more axes has two axes.",
    refuses="Products in float, which ONNX Runtime may compute as it likes.",
    denied_by=additions_where(_becomes_gemm),
)
