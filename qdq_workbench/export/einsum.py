"""Writing the batched matrix products that arrive as Einsum as Transpose and MatMul.

Inference runtimes have integer kernels for MatMul and none for Einsum. For `abc,adc->abd`-like equations, with
the letters of both operands sorted into

    batch       in both operands and in the result
    contracted  in both operands only (exactly one here)
    left, right in one operand and in the result (at most one each here)

the result is a Transpose of `MatMul(A[batch, left, contracted], B[batch, contracted, right])`. tf2onnx's own
rewriting flattens all batch axes with shapes computed at run time and names tensors after memory addresses.
"""

from __future__ import annotations

from qdq_workbench.export.graph import Graph, Node


def restore_batched_matmul(graph: Graph) -> None:
    """Rewrite the Einsum nodes that are batched matrix products; leave the others.

    Args:
        graph: The float graph to change.
    """
    for node in graph.sorted_nodes():
        if node.op == "Einsum" and len(node.inputs) == 2:
            letters = _sorted_letters(node)
            if letters is not None:
                _rewrite(graph, node, *letters)
    graph.prune()


def _terms(node: Node) -> tuple[str, str, str] | None:
    equation = node.get("equation").decode().replace(" ", "")
    operands, arrow, result = equation.partition("->")
    left, _, right = operands.partition(",")
    if not arrow or "." in equation or any(len(set(term)) != len(term) for term in (left, right, result)):
        return None
    return left, right, result


def _sorted_letters(node: Node) -> tuple[str, str, str, str] | None:
    """Return the letters (batch, left, contracted, right), or None where the equation is no batched product."""
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
    perm = [product.index(letter) for letter in terms[2]]
    graph.add("Transpose", [matmul.output], f"{name}/Transpose", output=written, perm=perm)


def _transposed(graph: Graph, tensor: str, have: str, want: str, name: str) -> str:
    if have == want:
        return tensor
    node = graph.add("Transpose", [tensor], name, perm=[have.index(letter) for letter in want])
    shape = graph.shape(tensor)
    if shape is not None:
        graph.shapes[node.output] = tuple(shape[have.index(letter)] for letter in want)
    return node.output
