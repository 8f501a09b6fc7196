"""Products of einsums, against loops over all axes."""

import itertools

import pytest

from qdq_workbench.graph.contractions import count_products


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("abde,dec->abc", [(None, 10, 4, 8), (4, 8, 32)], 10 * 4 * 8 * 32),
        ("abc,cde->abde", [(None, 5, 6), (6, 2, 3)], 5 * 6 * 2 * 3),
        ("...x,xy->...y", [(None, 5, 7, 6), (6, 3)], 5 * 7 * 6 * 3),
        ("b...x,xy->b...y", [(None, 5, 7, 6), (6, 3)], 5 * 7 * 6 * 3),
        ("bij,bjk->bik", [(8, 4, 5), (8, 5, 6)], 4 * 5 * 6),  # one sample of eight
        ("bij , bjk", [(None, 4, 5), (None, 5, 6)], 4 * 5 * 6),  # the result is left out
        ("bqhd,bkhd->bhqk", [(None, 7, 2, 3), (None, 9, 2, 3)], 7 * 9 * 2 * 3),
        ("bi,bj->bij", [(None, 4), (None, 5)], 20),
        ("bij,bkl->bkl", [(None, 4, 5), (None, 6, 7)], 6 * 7),  # i and j are summed up before
        ("bi,ij,jk->bk", [(None, 4), (4, 5), (5, 6)], 4 * 5 + 5 * 6),  # from the left
        ("bij->bi", [(None, 4, 5)], 0),
        ("bi,ij->bj", [(None, None), (None, 5)], 5),
    ],
)
def test_products(equation, shapes, expected):
    assert count_products(equation, shapes) == expected


def test_the_samples_may_belong_to_a_later_operand():
    assert count_products("ij,bjk->bik", [(4, 5), (8, 5, 6)], batched=1) == 4 * 5 * 6


def test_a_loop_over_all_axes_counts_the_same():
    sizes = {"b": 1, "q": 3, "h": 2, "d": 4, "k": 5}
    products = sum(1 for _ in itertools.product(*(range(size) for size in sizes.values())))
    shapes = [tuple(sizes[letter] for letter in term) for term in ("bqhd", "bkhd")]
    assert count_products("bqhd,bkhd->bhqk", shapes) == products
