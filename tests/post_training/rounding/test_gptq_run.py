"""The pieces of a GPTQ run that need no model: rows that count, sums of outer products, and reasons."""

import numpy as np
import pytest

from qdq_workbench.errors import DataError
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.post_training.rounding import gptq_run
from qdq_workbench.post_training.rounding.gptq import Product
from qdq_workbench.post_training.rounding.gptq_run import _check_finite, _outer, _reads_rows, _rows, _why_left_out

LAST = Product((0,), (-1,))


def test_rows_of_padding_alone_do_not_count():
    x = np.arange(12.0).reshape(2, 3, 2)
    mask = np.array([[True, True, False], [True, False, False]])

    np.testing.assert_array_equal(_rows(LAST, x, mask), [[0, 1], [2, 3], [6, 7]])
    np.testing.assert_array_equal(_rows(LAST, x, None), x.reshape(6, 2))
    assert _rows(LAST, x, np.zeros((2, 3), bool)).shape == (0, 2)


def test_a_row_that_is_padded_in_part_counts():
    """A product that sums over steps: a sample has one row, of all its steps."""
    x = np.arange(12.0).reshape(2, 3, 2)
    rows = _rows(Product((0, 1), (1, 2)), x, np.array([[True, False, False], [False, False, False]]))

    np.testing.assert_array_equal(rows, x.reshape(2, 6)[:1])


@pytest.mark.parametrize("count", [0, 1, 7, 8])
def test_outer_products_are_summed_piece_by_piece(monkeypatch, count):
    monkeypatch.setattr(gptq_run, "_PIECE", 4)
    rows = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)

    found = _outer(rows)

    np.testing.assert_allclose(found, rows.astype(np.float64).T @ rows, rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float64


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_tensor_that_is_not_finite_is_named(bad):
    _check_finite(["a", "b"], [np.ones(2), np.zeros((0, 2))])
    with pytest.raises(DataError, match=r"computes NaN or infinity.* Received: tensor 'b'"):
        _check_finite(["a", "b"], [np.ones(2), np.array([1.0, bad])])


@pytest.mark.parametrize(
    ("node", "reads"),
    [
        (Node("d", "d", "Dense", inputs=("x",)), True),
        (Node("e", "e", "EinsumDense", inputs=("x",)), True),
        (Node("t", "t", "TimeDistributed", inputs=("x",)), True),
        (Node("d", "d", "Dense", inputs=("x", "mask")), False),
        (Node("m", "m", "Dense", inputs=("x",), is_operation=True), False),
        (Node("c", "c", "Conv2D", inputs=("x",)), False),
        (Node("own", "own", "Own", bases=("Dense",), inputs=("x",)), True),
    ],
)
def test_layers_that_multiply_their_only_input(node, reads):
    assert _reads_rows(node) is reads


def test_the_reason_for_an_attention_names_the_remedy():
    assert "split_attention(model)" in _why_left_out(Node("a", "a", "MultiHeadAttention"))
    assert _why_left_out(Node("c", "c", "Conv2D")).startswith("GPTQ rounds the kernels of Dense and EinsumDense")
