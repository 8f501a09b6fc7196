"""Batched matrix products that arrive as Einsum become Transpose and MatMul.

Inference runtimes have integer kernels for MatMul and none for Einsum. For `abc,adc->abd`-like equations, with
the letters of both operands sorted into

    batch       in both operands and in the result
    contracted  in both operands only (exactly one here)
    left, right in one operand and in the result (at most one each here)

the result is a Transpose of `MatMul(A[batch, left, contracted], B[batch, contracted, right])`. tf2onnx's own
rewriting flattens all batch axes with shapes computed at run time and names tensors after memory addresses.

Where B is a weight without batch axes (the projections of attention: `abc,cde->abde`, `abcd,cde->abe`), there may be
several letters of each kind: B is reshaped to a matrix, A's contracted axes are joined, and the result's right axes
are split again. The reshapes have constant sizes, so that the weight's reshape can be applied to its integers.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.graph.contractions import product_terms
from qdq_workbench.onnx_graph.graph import Graph, Node, Shape


def restore_batched_matmul(graph: Graph) -> None:
    """Rewrite the Einsum nodes that are batched matrix products; leave the others."""
    for node in graph.sorted_nodes():
        if node.op == "Einsum" and len(node.inputs) == 2:
            _name_leading_axes(graph, node)
            letters = _sorted_letters(node)
            if letters is not None:
                _rewrite(graph, node, *letters)
            else:
                _rewrite_projection(graph, node)
    graph.prune()


def _name_leading_axes(graph: Graph, node: Node) -> None:
    """Write letters for the `...` of an equation such as `...x,xy->...y`, where the first operand's rank is known."""
    equation = node.get("equation").decode().replace(" ", "")
    left, right, result = product_terms(equation)
    rank = graph.rank(node.inputs[0])
    if "..." not in left or "..." in right or "..." not in result or rank is None:
        return
    free = [letter for letter in string.ascii_letters if letter not in equation]
    names = "".join(free[: rank - len(left.replace("...", ""))])
    node.set("equation", equation.replace("...", names))


def _terms(node: Node) -> tuple[str, str, str] | None:
    equation = node.get("equation").decode()
    left, right, result = product_terms(equation)
    # A letter that is repeated within one operand takes its diagonal.
    if "->" not in equation or "." in equation or any(len(set(term)) != len(term) for term in (left, right, result)):
        return None
    return left, right, result


def _sorted_letters(node: Node) -> tuple[str, str, str, str] | None:
    """Return the letters (batch, left, contracted, right), or None if the equation is not a batched product."""
    terms = _terms(node)
    if terms is None:
        return None
    left, right, result = terms
    batch = "".join(letter for letter in result if letter in left and letter in right)
    contracted = "".join(letter for letter in left if letter in right and letter not in result)
    free_left = "".join(letter for letter in left if letter not in right)
    free_right = "".join(letter for letter in right if letter not in left)
    if len(contracted) != 1 or len(free_left) != 1 or len(free_right) != 1 or len(result) != len(batch) + 2:
        return None
    return batch, free_left, contracted, free_right


def _rewrite(graph: Graph, node: Node, batch: str, left: str, contracted: str, right: str) -> None:
    terms = _terms(node)
    if terms is None:
        return
    first = _transposed(graph, node.inputs[0], terms[0], batch + left + contracted, f"{node.name}/left")
    second = _transposed(graph, node.inputs[1], terms[1], batch + contracted + right, f"{node.name}/right")
    written, name = node.output, node.name
    graph.remove(node)
    product = batch + left + right
    if product == terms[2]:
        graph.add("MatMul", [first, second], name, output=written)
        return
    matmul = graph.add("MatMul", [first, second], name)
    shape = graph.shape(written)
    if shape is not None:
        graph.shapes[matmul.output] = tuple(shape[terms[2].index(letter)] for letter in product)
    perm = [product.index(letter) for letter in terms[2]]
    graph.add("Transpose", [matmul.output], f"{name}/Transpose", output=written, perm=perm)


def _rewrite_projection(graph: Graph, node: Node) -> None:
    """Write the product of a tensor with a weight of several axes as a product with a matrix."""
    terms, sizes = _terms(node), graph.shape(node.inputs[1])
    if terms is None or sizes is None or any(size is None for size in sizes):
        return
    have_left, have_right, result = terms
    left = "".join(letter for letter in have_left if letter not in have_right)
    right = "".join(letter for letter in have_right if letter not in have_left)
    contracted = "".join(letter for letter in have_right if letter in have_left)
    # A letter of one operand alone that is not in the result is summed up, which no product does.
    if not (left and right and contracted) or set(result) != {*left, *right}:
        return
    size = dict(zip(have_right, [int(known or 0) for known in sizes], strict=True))
    written, name = node.output, node.name
    data = _transposed(graph, node.inputs[0], have_left, left + contracted, f"{name}/left")
    weight = _transposed(graph, node.inputs[1], have_right, contracted + right, f"{name}/right")
    matrix = [int(np.prod([size[letter] for letter in group])) for group in (contracted, right)]
    known = graph.shape(data)
    rows = (None,) * len(left) if known is None else known[: len(left)]
    if len(contracted) > 1:  # a size of 0 keeps that of the input
        data = _reshaped(graph, data, [*[0] * len(left), -1], f"{name}/joined")
        graph.shapes[data] = (*rows, matrix[0])
    weight = _reshaped(graph, weight, matrix, f"{name}/matrix")
    graph.shapes[weight] = tuple(matrix)
    graph.remove(node)
    # Operator, inputs, attributes, and the shape of its result.
    steps: list[tuple[str, list[str], dict[str, Any], Shape]] = [("MatMul", [data, weight], {}, (*rows, matrix[1]))]
    columns = [size[letter] for letter in right]
    if len(right) > 1:
        split = graph.add_constant(f"{name}/sizes", np.array([*[0] * len(left), *columns], np.int64))
        steps.append(("Reshape", [split], {}, (*rows, *columns)))
    if left + right != result:
        perm = [(left + right).index(letter) for letter in result]
        steps.append(("Transpose", [], {"perm": perm}, tuple([*rows, *columns][axis] for axis in perm)))
    before: list[str] = []
    for op, inputs, attributes, shape in steps:
        last = op == steps[-1][0]
        step_name = name if op == "MatMul" else f"{name}/{op}"
        before = [graph.add(op, [*before, *inputs], step_name, output=written if last else None, **attributes).output]
        graph.shapes.setdefault(before[0], shape)


def _reshaped(graph: Graph, tensor: str, sizes: list[int], name: str) -> str:
    shape = graph.add_constant(f"{name}/sizes", np.array(sizes, np.int64))
    return graph.add("Reshape", [tensor, shape], name).output


def _transposed(graph: Graph, tensor: str, have: str, want: str, name: str) -> str:
    if have == want:
        return tensor
    node = graph.add("Transpose", [tensor], name, perm=[have.index(letter) for letter in want])
    shape = graph.shape(tensor)
    if shape is not None:
        graph.shapes[node.output] = tuple(shape[have.index(letter)] for letter in want)
    return node.output


def _products(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        if node.op == "Einsum" and len(node.inputs) == 2 and _sorted_letters(node) is not None:
            yield node


PASS = GraphPass(
    restore_batched_matmul,
    needs="Weights still as graph inputs, so that their reshapes are carried out on the integers later.",
    holds="No Einsum is left whose operands contract one letter and have at most one further letter each.",
    refuses="Other equations, and projections whose sizes are open.",
    denied_by=_products,
)
