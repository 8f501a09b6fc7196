"""GPTQ's update of one matrix: the rows of the paper, the ends of ranges that stay, and kernels as matrices."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.graph.model_graph import Node, Part, Weight
from qdq_workbench.post_training.rounding import gptq
from qdq_workbench.post_training.rounding.gptq import Product, RowGrids, product_of, rounded_by_gptq, squared_error
from qdq_workbench.quantizers import numerics
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


def grids_of(weight, *, own_range, **fields):
    spec = QuantizerSpec(**{"num_bits": 3, "axis": 1, **fields})
    params = numerics.qparams_from_range(*numerics.weight_range(weight, spec), spec)
    return RowGrids(weight, params, Product((0,), (1,)), own_range=own_range)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_the_update_is_that_of_the_paper():
    """Row by row with a fresh inverse of what is left, as optimal brain quantization has it (section 3.1)."""
    generator = np.random.default_rng(3)
    weight = generator.normal(size=(24, 4)).astype(np.float32)
    x = generator.normal(size=(200, 8)) @ generator.normal(size=(8, 24)) + 0.1 * generator.normal(size=(200, 24))
    spec = QuantizerSpec(num_bits=3, narrow_range=True, axis=0, block_size=8)
    params = numerics.qparams_from_range(*numerics.weight_range(weight, spec), spec)
    grids = RowGrids(weight, params, Product((0,), (1,)), own_range=False)
    hessian = x.T @ x
    damped = hessian + 0.01 * np.diag(hessian).mean() * np.eye(24)
    left, expected = weight.astype(np.float64).copy(), np.empty_like(weight)
    for row in range(24):
        inverse = np.linalg.inv(damped[row:, row:])
        expected[row] = grids.nearest(row, left[row])
        left[row:] -= np.outer(inverse[:, 0], (left[row] - expected[row]) / inverse[0, 0])
    found = rounded_by_gptq(grids, hessian, damping=0.01, activation_order=False)
    np.testing.assert_array_equal(found, expected)
    errors = [squared_error(each - weight, hessian) for each in (found, grids.all_nearest())]
    assert errors[0] == pytest.approx(float(np.sum((x @ (found - weight)) ** 2)))
    assert errors[0] < 0.5 * errors[1]
    ordered = rounded_by_gptq(grids, hessian, damping=0.01, activation_order=True)
    assert not np.array_equal(ordered, found)
    assert squared_error(ordered - weight, hessian) < 0.5 * errors[1]


def test_rows_that_meet_only_zeros_keep_nearest_rounding():
    weight = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    spec = QuantizerSpec(num_bits=3, axis=1)
    params = numerics.qparams_from_range(*numerics.weight_range(weight, spec), spec)
    grids = RowGrids(weight, params, Product((0,), (1,)), own_range=True)
    hessian = np.diag([1.0, 0.0, 2.0, 0.0, 0.0, 3.0])
    found = rounded_by_gptq(grids, hessian, damping=0.01, activation_order=False)
    np.testing.assert_array_equal(found, grids.all_nearest())
    found = rounded_by_gptq(grids, hessian, damping=0.0, activation_order=True)
    np.testing.assert_array_equal(found, grids.all_nearest())


@pytest.mark.parametrize(
    ("equation", "shape", "output", "product"),
    [
        ("abc,cde->abde", (2, 3, 4), (3, 2, 5), Product((0,), (2,))),
        ("abde,dec->abc", (2, 3, 4, 5), (3, 6), Product((0, 1), (2, 3))),
        ("...d,ed->...e", (2, 3, 4), (6,), Product((1,), (-1,))),
        ("abc,bcd->abd", (2, 3, 4), (3, 5), None),
    ],
)
def test_an_einsum_is_a_product_of_rows_with_a_matrix(equation, shape, output, product):
    source = keras.Input(shape[1:])
    node = qdq.build_graph(keras.Model(source, layers.EinsumDense(equation, output_shape=output)(source))).nodes[-1]
    found = product_of(node, "kernel")
    assert found == product
    if found is not None:
        generator = np.random.default_rng(0)
        x, w = generator.normal(size=shape), generator.normal(size=node.weights[0].shape)
        matrix = found.matrix(w)
        np.testing.assert_array_equal(found.kernel(matrix, w.shape), w)
        np.testing.assert_allclose(
            np.sort((found.rows(x) @ matrix).ravel()), np.sort(np.einsum(equation, x, w).ravel())
        )


@pytest.mark.parametrize(
    ("contracted", "inputs", "shape", "x"),
    [((1,), (-1,), (2, 3, 4), (5, 6, 3)), ((2, 0), (1, -1), (2, 3, 4), (5, 4, 2)), ((0,), (0,), (3, 2), (3, 4))],
)
def test_rows_of_the_input_times_the_matrix_are_the_sum_over_the_contracted_axes(contracted, inputs, shape, x):
    kernel, values, product = normal(*shape), normal(*x, seed=1), Product(contracted, inputs)

    matrix = product.matrix(kernel)

    expected = np.tensordot(values, kernel, (inputs, contracted))
    np.testing.assert_allclose((product.rows(values) @ matrix).ravel(), expected.ravel(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(product.kernel(matrix, shape), kernel)


KERNEL = (Weight("kernel", (3, 4, 5)),)


def einsum(equation, **fields):
    return Node("e", "e", "EinsumDense", weights=KERNEL, settings={"equation": equation}, **fields)


@pytest.mark.parametrize(
    ("equation", "inputs"),
    [
        ("ab...cd,cde->ab...e", (-2, -1)),
        ("dc...ab,cde->ab...e", (1, 0)),
        ("d...c,cde->...e", (-1, 0)),
        ("bdc,cde->be", (2, 1)),
        ("bcd,cde->ce", None),  # a matrix per sample in front
        ("be,cde->bd", None),  # a sum over the kernel alone
    ],
)
def test_axes_in_front_of_open_ones_count_from_the_beginning(equation, inputs):
    product = product_of(einsum(equation), "kernel")

    assert (product and product.inputs) == inputs


@pytest.mark.parametrize(
    ("node", "weight"),
    [
        (Node("d", "d", "Dense", weights=(Weight("kernel", (3, 4)), Weight("bias", (4,)))), "bias"),
        (Node("c", "c", "Conv2D", weights=(Weight("kernel", (3, 3, 4, 4)),)), "kernel"),
        (Node("t", "t", "Embedding", weights=(Weight("embeddings", (3, 4)),)), "embeddings"),
        (Node("w", "w", "TimeDistributed", weights=(Weight("layer/kernel", (3, 4)),)), "layer/kernel"),
    ],
)
def test_what_is_no_product_with_a_matrix(node, weight):
    assert product_of(node, weight) is None


def test_a_kernel_of_a_layer_inside_is_a_product_of_that_layer():
    part = Part("layer", "Dense")
    node = Node("w", "w", "TimeDistributed", weights=(Weight("layer/kernel", (3, 4)),), parts=(part,))

    assert product_of(node, "layer/kernel") == Product((0,), (-1,))


@pytest.mark.parametrize("symmetric", [True, False])
def test_ends_of_a_range_that_sets_the_grid_stay(symmetric):
    weight = normal(12, 3)
    grids = grids_of(weight, own_range=True, symmetric=symmetric, signed=symmetric, narrow_range=symmetric)

    moved = np.stack([grids.nearest(row, weight[row] + 100.0) for row in range(12)])
    kept = grids.with_ends(moved)

    ends = np.abs(weight) == np.abs(weight).max(axis=0) if symmetric else weight == weight.max(axis=0)
    np.testing.assert_array_equal(kept[ends], weight[ends])
    np.testing.assert_array_equal(moved[ends], grids.all_nearest()[ends])
    low, high = (end.ravel() for end in numerics.weight_range(kept, grids._spec))
    was_low, was_high = (end.ravel() for end in numerics.weight_range(weight, grids._spec))
    np.testing.assert_array_equal(np.maximum(-low, high), np.maximum(-was_low, was_high))


def test_a_kept_range_pins_nothing_and_saturates():
    weight = normal(6, 2)
    grids = grids_of(weight, own_range=False)
    codes = grids.codes(grids.with_ends(np.stack([grids.nearest(row, np.full(2, -99.0)) for row in range(6)])))

    assert set(codes.ravel()) == {-4.0}
    assert set(grids.codes(np.full((6, 2), 99.0)).ravel()) == {3.0}
    np.testing.assert_array_equal(grids.with_ends(weight + 1.0), weight + 1.0)


def test_values_and_codes_of_a_grid_with_a_zero_point_belong_together():
    weight = np.abs(normal(7, 2)) + 0.5
    grids = grids_of(weight, own_range=False, symmetric=False, signed=False, axis=None)
    rounded = grids.all_nearest()

    assert grids.codes(rounded).min() > 0
    assert np.abs(rounded - weight).max() <= 0.5 * weight.max() / 7 * (1 + 1e-5)


@pytest.mark.parametrize("ordered", [True, False])
def test_pieces_of_rows_change_nothing(monkeypatch, ordered):
    weight, x = normal(21, 3), normal(80, 21, seed=1) @ normal(21, 21, seed=2)
    grids, hessian = grids_of(weight, own_range=True), (x.T @ x).astype(np.float64)
    whole = rounded_by_gptq(grids, hessian, damping=0.01, activation_order=ordered)

    monkeypatch.setattr(gptq, "_ROWS", 8)
    np.testing.assert_array_equal(rounded_by_gptq(grids, hessian, damping=0.01, activation_order=ordered), whole)
    assert not np.array_equal(whole, grids.all_nearest())


def test_with_activation_order_the_largest_inputs_come_first():
    weight, x = normal(9, 3), normal(60, 9, seed=1) @ normal(9, 9, seed=2)
    hessian = (x.T @ x).astype(np.float64)
    order = np.argsort(-np.diag(hessian))
    first = rounded_by_gptq(grids_of(weight, own_range=True), hessian, damping=0.01, activation_order=True)

    sorted_hessian = hessian[np.ix_(order, order)]
    expected = rounded_by_gptq(
        grids_of(weight[order], own_range=True), sorted_hessian, damping=0.01, activation_order=False
    )
    np.testing.assert_array_equal(first[order], expected)


def test_without_damping_a_hessian_of_few_directions_has_no_factor():
    grids = grids_of(normal(4, 2), own_range=True)

    with pytest.raises(np.linalg.LinAlgError):
        rounded_by_gptq(grids, np.ones((4, 4)), damping=0.0, activation_order=False)
    assert rounded_by_gptq(grids, np.ones((4, 4)), damping=0.1, activation_order=False).shape == (4, 2)


def test_the_squared_error_is_that_of_the_products():
    difference, x = normal(4, 3), normal(50, 4, seed=1).astype(np.float64)

    found = squared_error(difference, x.T @ x)
    assert found == pytest.approx(float(np.sum((x @ difference) ** 2)))
    assert squared_error(np.zeros((4, 3)), x.T @ x) == 0.0
