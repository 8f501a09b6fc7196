"""Which equations become matrix products, and that these compute what the equations say."""

import numpy as np
import pytest
from pass_graphs import assert_same, model_of, opened, operators

from qdq_workbench.export.passes.restore_batched_matmul import PASS, restore_batched_matmul
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.snapshot import snapshot

SIZES = dict(zip("abcdefghij", (2, 3, 4, 5, 6, 7, 1, 2, 3, 4), strict=True))


def einsum(equation, shapes=None, named=None):
    """A model of one equation, with the sizes of its letters."""
    terms = equation.replace(" ", "").replace("...", "ab").partition("->")[0].split(",")
    shapes = shapes or [tuple(SIZES[letter] for letter in term) for term in terms]
    inputs = dict(zip("xvu", shapes, strict=False))
    return model_of([("Einsum", ",".join(inputs), "y", {"equation": named or equation})], inputs, "y")


def rewritten(model):
    graph = Graph(model)
    restore_batched_matmul(graph)
    assert_same(model, graph, atol=1e-5)
    assert list(PASS.denied_by(graph)) == []
    after = snapshot(graph)
    restore_batched_matmul(graph)
    assert snapshot(graph) == after
    return graph


@pytest.mark.parametrize(
    ("equation", "expected"),
    [
        ("ab,bc->ac", ["MatMul"]),
        ("abc,acd->abd", ["MatMul"]),
        ("abc,adc->abd", ["Transpose", "MatMul"]),
        ("acb,acd->abd", ["Transpose", "MatMul"]),
        ("abc,acd->adb", ["MatMul", "Transpose"]),
        ("abcd,aecd->acbe", ["Transpose", "Transpose", "MatMul"]),
        ("bahd,bchd->bhac", ["Transpose", "Transpose", "MatMul"]),
        ("bhac,bchd->bahd", ["Transpose", "MatMul", "Transpose"]),
        ("abc , acd -> abd", ["MatMul"]),
    ],
)
def test_a_batched_product_with_one_letter_of_each_kind(equation, expected):
    graph = rewritten(einsum(equation))
    assert operators(graph) == expected
    assert {node.name for node in graph.nodes if node.op == "MatMul"} == {"y"}


@pytest.mark.parametrize(
    ("equation", "expected"),
    [
        ("abc,cde->abde", ["Reshape", "MatMul", "Reshape"]),
        ("abcd,cde->abe", ["Reshape", "Reshape", "MatMul"]),
        ("abcd,cdef->abef", ["Reshape", "Reshape", "MatMul", "Reshape"]),
        ("abc,cd->abd", ["Reshape", "MatMul"]),
        ("abc,dce->abde", ["Transpose", "Reshape", "MatMul", "Reshape"]),
        ("acb,cde->abde", ["Transpose", "Reshape", "MatMul", "Reshape"]),
        ("abdc,cde->abe", ["Transpose", "Reshape", "Reshape", "MatMul"]),
        ("abc,cde->adbe", ["Reshape", "MatMul", "Reshape", "Transpose"]),
        ("abc,cd->dab", ["Reshape", "MatMul", "Transpose"]),
    ],
)
def test_a_projection_is_a_product_with_a_matrix(equation, expected):
    graph = rewritten(einsum(equation))
    assert sorted(operators(graph)) == sorted(expected)
    (product,) = [node for node in graph.nodes if node.op == "MatMul"]
    assert product.name == "y"
    assert graph.rank(product.inputs[1]) == 2
    assert None not in graph.shape("y")


@pytest.mark.parametrize("equation", ["...c,cd->...d", "... c , c d -> ... d", "...c,cde->...de"])
def test_leading_axes_without_names_get_letters_that_the_equation_has_not(equation):
    graph = rewritten(einsum(equation))
    assert "Einsum" not in operators(graph)


def test_letters_of_the_equation_are_not_given_to_leading_axes():
    graph = rewritten(einsum("...a,ab->...b", [(2, 3, 4), (4, 5)]))
    assert "Einsum" not in operators(graph)


def test_no_leading_axes_are_none():
    model = einsum("...bc,cd->...bd", [(3, 4), (4, 5)])
    assert operators(rewritten(model)) == ["MatMul"]


@pytest.mark.parametrize(
    "equation",
    [
        "abc,cd",  # without a result
        "aab,bc->ac",
        "ab,bcc->ac",
        "ab,bc->a",  # a letter of one operand alone is summed up
        "abc,cd->ad",
        "abc,abc->abc",
        "ab,cd->abcd",
        "ab,bc,cd->ad",
        "ab->ba",
        "...b,...bc->...c",
        "ab,...->a",
    ],
)
def test_other_equations_stay(equation):
    graph = Graph(einsum(equation))
    node = graph.producer("y")
    restore_batched_matmul(graph)
    assert graph.nodes == [node]
    assert node.get("equation").decode() == equation


def test_leading_axes_of_an_unknown_number_stay():
    rows = [("Einsum", "x,v", "y", {"equation": "...c,cd->...d"})]
    graph = opened(rows, {"x": None, "v": (4, 5)}, "y")
    restore_batched_matmul(graph)
    assert operators(graph) == ["Einsum"]


@pytest.mark.parametrize("shape", [None, ("n", 4, 5)])
def test_a_projection_of_open_sizes_stays(shape):
    graph = opened([("Einsum", "x,v", "y", {"equation": "abc,cde->abde"})], {"x": (2, 3, 4), "v": shape}, "y")
    restore_batched_matmul(graph)
    assert operators(graph) == ["Einsum"]


def test_sizes_of_the_data_may_be_open():
    graph = opened(
        [("Einsum", "x,v", "y", {"equation": "abcd,cdef->aebf"})], {"x": ("n", 3, 4, 5), "v": (4, 5, 6, 7)}, "y"
    )
    restore_batched_matmul(graph)
    (product,) = [node for node in graph.nodes if node.op == "MatMul"]
    assert graph.shape(product.inputs[0]) == (None, 3, 20)
    assert graph.shape(product.output) == (None, 3, 42)
    assert graph.shape("y") == (None, 6, 3, 7)
    graph = opened([("Einsum", "x,v", "y", {"equation": "abc,cde->abde"})], {"x": None, "v": (4, 5, 6)}, "y")
    restore_batched_matmul(graph)
    (product,) = [node for node in graph.nodes if node.op == "MatMul"]
    assert graph.shape(product.output) == (None, None, 30)


def test_movements_of_a_weight_have_constant_sizes():
    """They are carried out on its integers later."""
    graph = rewritten(einsum("abc,dce->abde"))
    node = graph.producer(next(node for node in graph.nodes if node.op == "MatMul").inputs[1])
    assert node.op == "Reshape"
    np.testing.assert_array_equal(graph.constant(node.inputs[1]), [4, 30])
