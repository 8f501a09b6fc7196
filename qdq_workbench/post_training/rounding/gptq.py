"""GPTQ's update: the rows of a matrix are rounded one after the other, and later rows compensate for each error.

Frantar et al. 2022, arXiv:2210.17323. For a product x W with W of shape (K, N) and samples x, with H = sum x^T x over
them and U the upper Cholesky factor of the inverse of H + damping * mean(diag(H)) * I, row by row:

    q_k = nearest on the grid of row k                                        the grids are fixed beforehand
    e   = (w_k - q_k) / U_kk
    w_j = w_j - U_kj * e                  for all j > k                       equations 2, 3 and step 3 of section 3.3

128 rows are rounded at a time, after which the rest of the matrix is updated by one product. With activation order,
rows with the largest H_kk come first. The mean squared error of a rounded matrix Q is tr((Q - W)^T H (Q - W)) /
(samples * N).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.graph.block_axes import block_axes
from qdq_workbench.graph.contractions import product_terms
from qdq_workbench.graph.model_graph import Node, Part
from qdq_workbench.post_training.rounding.weights import range_ends
from qdq_workbench.quantizers.blocks import spread
from qdq_workbench.quantizers.numerics import QParams

Array = npt.NDArray[Any]
_ROWS = 128  # rows that are rounded before the rest is updated


@dataclasses.dataclass(frozen=True)
class Product:
    """A kernel as the matrix that its layer multiplies with.

    Args:
        contracted: The axes of the kernel that are summed up over, in their order.
        inputs: The axes of the layer's input that are contracted with them, in the same order; those behind open axes
            are counted from the end, since a shared layer may read inputs of several ranks.
    """

    contracted: tuple[int, ...]
    inputs: tuple[int, ...]

    def matrix(self, kernel: Array) -> Array:
        """Return an array of the kernel's shape as (K, N)."""
        rows = int(np.prod([kernel.shape[axis] for axis in self.contracted]))
        return kernel.transpose(self._order(kernel.ndim)).reshape(rows, -1)

    def kernel(self, matrix: Array, shape: tuple[int, ...]) -> Array:
        """Return a matrix (K, N) as an array of the kernel's shape."""
        order = self._order(len(shape))
        turned = matrix.reshape([shape[axis] for axis in order])
        return turned.transpose(np.argsort(order))

    def rows(self, x: Array) -> Array:
        """Return the layer's input as (samples, K)."""
        inputs = [axis % x.ndim for axis in self.inputs]
        others = [axis for axis in range(x.ndim) if axis not in inputs]
        count = int(np.prod([x.shape[axis] for axis in inputs]))
        return x.transpose(*others, *inputs).reshape(-1, count)

    def _order(self, rank: int) -> tuple[int, ...]:
        return (*self.contracted, *(axis for axis in range(rank) if axis not in self.contracted))


def product_of(node: Node, weight: str) -> Product | None:
    """Return how a layer multiplies with a kernel; None if it is not a product of one input with one matrix."""
    path, _, name = weight.rpartition("/")
    owner: Node | Part | None = node if not path else next((part for part in node.parts if part.name == path), None)
    axes = block_axes(node, weight)
    if owner is None or not axes or name != "kernel":
        return None
    equation = str(owner.settings.get("equation", ""))
    if not equation:
        return Product(axes, (-1,))
    data, letters, result = product_terms(equation)
    if any((letter in data) == (letter in result) for letter in letters):
        return None  # a matrix per sample or per head, or a sum over the kernel alone
    before, _, behind = data.partition("...")
    places = {letter: index for index, letter in enumerate(before)}
    places |= {letter: index - len(behind) for index, letter in enumerate(behind)}
    return Product(axes, tuple(places[letters[axis]] for axis in axes))


class RowGrids:
    """The grids of a weight's values as a matrix, and the ends of ranges, which must not change if they set the grids.

    Args:
        values: The weight, float32, in the shape of the kernel.
        qparams: Its grid.
        product: Its layout as a matrix.
        own_range: Whether the grid is computed from the weight's present values.
    """

    def __init__(self, values: Array, qparams: QParams, product: Product, *, own_range: bool) -> None:
        spec, shape = qparams.spec, values.shape

        def matrix(part: Array) -> Array:
            return product.matrix(np.broadcast_to(spread(part, shape, spec), shape))

        self._spec, self.values = spec, product.matrix(values)
        self._scale, self._zero = matrix(qparams.scale), matrix(qparams.zero_point).astype(np.float32)
        self._low, self._high = (matrix(end) for end in range_ends(values, qparams, own_range=own_range))
        ends = (self.values == self._low) | (self.values == self._high)
        self._pinned = ends if own_range else np.zeros(self.values.shape, bool)
        self._ends = (self.codes(self.values) - self._zero) * self._scale

    def nearest(self, row: int, values: Array) -> Array:
        """Return values, shape (N,), rounded to the grid of a row; pinned ends of ranges keep their own rounding."""
        scale, zero = self._scale[row], self._zero[row]
        # If the grid is computed from the weight, a value beyond the ends of its range would change the scale.
        held = np.clip(values.astype(np.float32), self._low[row], self._high[row])
        codes = np.clip(np.rint(held / scale) + zero, self._spec.qmin, self._spec.qmax)
        rounded = np.clip((codes - zero) * scale, self._low[row], self._high[row])
        return np.where(self._pinned[row], self._ends[row], rounded).astype(np.float32)

    def all_nearest(self) -> Array:
        """Return the weight with nearest rounding."""
        return np.stack([self.nearest(row, self.values[row]) for row in range(len(self.values))])

    def with_ends(self, rounded: Array) -> Array:
        """Return the rounded values with the unrounded ends of ranges, so that the grids do not change."""
        return np.where(self._pinned, self.values, rounded).astype(np.float32)

    def codes(self, values: Array) -> Array:
        """Return the integers of values of the grid."""
        return np.asarray(np.clip(np.rint(values / self._scale) + self._zero, self._spec.qmin, self._spec.qmax))


def rounded_by_gptq(grids: RowGrids, hessian: Array, *, damping: float, activation_order: bool) -> Array:
    """Return a weight's matrix rounded by GPTQ; raise `LinAlgError` if the damped Hessian is not positive definite.

    `hessian` is the sum of the outer products of the layer's inputs, (K, K), float64; `damping` is added to its
    diagonal, as a share of that diagonal's mean. With `activation_order`, inputs with the largest sum of squares come
    first.
    """
    count = len(hessian)
    order = np.argsort(-np.diag(hessian), kind="stable") if activation_order else np.arange(count)
    factor = _factor(hessian[np.ix_(order, order)], damping)
    left = grids.values[order].astype(np.float64)
    result = np.empty_like(grids.values)
    for start in range(0, count, _ROWS):
        stop = min(start + _ROWS, count)
        errors = np.zeros((stop - start, left.shape[1]))
        for row in range(start, stop):
            chosen = grids.nearest(int(order[row]), left[row])
            result[order[row]] = chosen
            error = (left[row] - chosen) / factor[row, row]
            left[row + 1 : stop] -= np.outer(factor[row, row + 1 : stop], error)
            errors[row - start] = error
        left[stop:] -= factor[start:stop, stop:].T @ errors
    return result


def squared_error(difference: Array, hessian: Array) -> float:
    """Return the sum of the squared errors of a product with a rounded matrix.

    `difference` is the rounded matrix minus the float one, (K, N), and `hessian` the sum of the outer products of the
    inputs, (K, K).
    """
    wide = difference.astype(np.float64)
    # The trace of D^T H D, without computing that matrix (N, N).
    return float(np.sum(wide * (hessian @ wide)))


def _factor(hessian: Array, damping: float) -> Array:
    """Return the upper Cholesky factor of the inverse of a damped Hessian; inputs that are always 0 get diagonal 1."""
    damped = np.array(hessian, np.float64)
    diagonal = np.diag(damped).copy()
    diagonal[diagonal == 0.0] = 1.0
    np.fill_diagonal(damped, diagonal + damping * diagonal.mean())
    inverse = np.linalg.inv(damped)
    # The computed inverse is symmetric up to rounding errors only.
    return np.asarray(np.linalg.cholesky((inverse + inverse.T) / 2).T)
