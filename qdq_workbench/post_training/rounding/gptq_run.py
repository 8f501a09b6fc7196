"""Rounding all matrix products of a quantized model by GPTQ, one after the other."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from qdq_workbench._progress import ProgressFunction
from qdq_workbench.calibration.padding import counted
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import DataError
from qdq_workbench.graph.kinds import HOLDING_ONE, MATRIX_PRODUCTS, MULTI_HEAD_ATTENTION
from qdq_workbench.graph_builder import Call, bind_graph, layer_weights
from qdq_workbench.post_training.rounding.compute import compute
from qdq_workbench.post_training.rounding.gptq import Product, RowGrids, product_of, rounded_by_gptq, squared_error
from qdq_workbench.post_training.rounding.reconstruct import Evaluation, mask_name
from qdq_workbench.post_training.rounding.report import RoundedUnit
from qdq_workbench.post_training.rounding.units import Unit, find_units
from qdq_workbench.post_training.rounding.values import Values, copy_of
from qdq_workbench.quantizers.numerics import QParams

Array = npt.NDArray[Any]
_PIECE = 4096  # rows of a layer's input that are multiplied at once


@dataclasses.dataclass(frozen=True)
class _Matrix:
    """A layer with a quantized kernel that GPTQ rounds."""

    path: str
    variable: Any
    qparams: QParams
    product: Product
    own_range: bool


class GPTQRun:
    """The matrix products of a quantized model, and the samples that choose their rounding.

    Args:
        q_model: A calibrated model.
        inputs: All samples, one array per input of the model.
        held_back: How many of the last samples are held out, to evaluate the result.
        damping: Value added to the diagonal of a Hessian, as a share of its mean.
        activation_order: Whether inputs with the largest sum of squares come first.
    """

    def __init__(
        self,
        q_model: QuantizedModel,
        inputs: Sequence[Array],
        held_back: int,
        *,
        damping: float,
        activation_order: bool,
    ) -> None:
        self._damping, self._activation_order, self._held_back = damping, activation_order, held_back
        self._bound = bind_graph(q_model)
        self._matrices, self.left_out = _find_matrices(q_model)
        self._units = find_units(self._bound, lambda call: call.node.layer in self._matrices, "layer")
        self._values = Values(dict(zip(self._bound.input_tensors, inputs, strict=True)))
        self.told: list[RoundedUnit] = []

    def round(self, show: ProgressFunction, stopped: Callable[[], bool]) -> bool:
        """Round all kernels and return whether all were rounded; on an error or an interrupt restore every weight.

        `show` gets the number of layers done, their total and the path of the layer; `stopped` is called before every
        layer, and True ends the run.
        """
        before: list[tuple[Any, Array]] = []
        total = len(self._matrices)
        try:
            for index, unit in enumerate(self._units):
                if unit.learned:
                    show(len(self.told), total, self._matrices[unit.learned[0].node.layer].path)
                    if stopped():
                        return False
                self._take(index, unit, before)
            show(total, total, "")
        except BaseException:
            for variable, values in before:
                variable.assign(values)
            raise
        return True

    def _take(self, index: int, unit: Unit, before: list[tuple[Any, Array]]) -> None:
        """Round the kernels of a unit and compute its outputs on all samples."""
        read = self._values.read(unit.inputs)
        for key in dict.fromkeys(call.node.layer for call in unit.learned):
            began, matrix = time.monotonic(), self._matrices[key]
            calls = [call for call in unit.learned if call.node.layer == key]
            before.append((matrix.variable, copy_of(matrix.variable)))
            # The inputs are computed per layer, because an earlier layer of the unit may have been rounded meanwhile.
            self.told.append(self._rounded(matrix, self._hessians(unit, calls, matrix, read), began))
        later = {name for each in self._units[index + 1 :] for name in each.inputs}
        wanted = [name for name in unit.outputs if name in later]
        if wanted:
            self._values.add(Evaluation(lambda values: compute(unit.calls, values), wanted)(read))
        self._values.keep(later)

    def _hessians(
        self, unit: Unit, calls: Sequence[Call], matrix: _Matrix, read: dict[str, Array]
    ) -> tuple[Array, Array, int]:
        """Return the Hessian of a layer's inputs on the samples used for rounding, and on the held-out ones.

        The last value is the number of rows of the held-out ones. Without held-out samples both are over all samples.
        Padded positions do not count if the layer supports masking.
        """
        tensors = [call.node.inputs[0] for call in calls]
        made = [name for name in tensors if name not in read]
        position = max(unit.calls.index(call) for call in calls)
        heeds = all(call.operation.supports_masking for call in calls)
        found = {name: read[name] for name in tensors if name in read}
        if made:
            found |= Evaluation(lambda values: compute(unit.calls[: position + 1], values), made)(read)
        parts: list[tuple[Array, int]] = []
        count = len(next(iter(read.values())))
        kept = count - self._held_back
        for piece in (slice(0, kept), slice(kept, count)) if self._held_back else (slice(0, count),):
            masks = [found[mask_name(name)][piece] if mask_name(name) in found and heeds else None for name in tensors]
            rows = [
                _rows(matrix.product, np.asarray(found[name][piece], np.float32), mask)
                for name, mask in zip(tensors, masks, strict=True)
            ]
            _check_finite(tensors, rows)
            # All calls of a shared layer multiply with the same kernel, so their Hessians add up.
            parts.append((np.sum([_outer(part) for part in rows], axis=0), sum(len(part) for part in rows)))
        return parts[0][0], parts[-1][0], parts[-1][1]

    def _rounded(self, matrix: _Matrix, hessians: tuple[Array, Array, int], began: float) -> RoundedUnit:
        """Give one kernel the better of the two roundings."""
        choosing, judging, rows = hessians
        values = copy_of(matrix.variable)
        grids = RowGrids(values.astype(np.float32), matrix.qparams, matrix.product, own_range=matrix.own_range)
        plain = grids.all_nearest()
        try:
            rounded = rounded_by_gptq(grids, choosing, damping=self._damping, activation_order=self._activation_order)
        except np.linalg.LinAlgError as error:
            raise DataError(
                "The inputs of a layer vary in too few directions for so little damping: their Hessian has no inverse. "
                f"Give a larger damping, such as 0.01, or more samples. Received: damping={self._damping!r}, layer "
                f"{matrix.path!r} with {len(choosing)} inputs"
            ) from error
        size = max(1, rows * plain.shape[1])
        nearest, chosen = (squared_error(each - grids.values, judging) / size for each in (plain, rounded))
        better = chosen < nearest
        if better:
            matrix.variable.assign(matrix.product.kernel(grids.with_ends(rounded), values.shape))
        changed = int((grids.codes(rounded) != grids.codes(plain)).sum())
        return RoundedUnit(
            layers=(matrix.path,),
            nearest_error=nearest,
            learned_error=chosen,
            kept=better,
            changed=changed if better else 0,
            values=plain.size,
            seconds=time.monotonic() - began,
        )


def _find_matrices(q_model: QuantizedModel) -> tuple[dict[str, _Matrix], dict[str, str]]:
    """Return the layers whose kernels GPTQ rounds by the names of their wrappers, and why others are left out."""
    qparams, wrappers = q_model.weight_qparams(), q_model.wrappers_by_path()
    found: dict[str, _Matrix] = {}
    left_out: dict[str, str] = {}
    for placement in q_model.plan.placements:
        if placement.weight is None:
            continue
        wrapper, node = wrappers[placement.layer], q_model.plan.graph.calls(placement.layer)[0]
        product = product_of(node, placement.weight) if _reads_rows(node) else None
        variable = dict(layer_weights(wrapper.layer))[placement.weight]
        if product is None:
            left_out[placement.tensor] = _why_left_out(node)
        elif placement.tensor not in qparams:
            left_out[placement.tensor] = "its quantizer is a function of the user's own, without a grid"
        elif wrapper.bypassed or not bool(keras.ops.convert_to_numpy(wrapper.enabled)):
            left_out[placement.tensor] = "the quantization of its layer is switched off"
        elif str(variable.dtype) != "float32":
            left_out[placement.tensor] = f"it is kept as {variable.dtype}, which cannot hold the values of its grid"
        else:
            own_range = not wrapper.keeps_range(placement.weight)
            grid = qparams[placement.tensor]
            found[wrapper.name] = _Matrix(placement.layer, variable, grid, product, own_range)
    return found, left_out


def _reads_rows(node: Any) -> bool:
    """Return whether a layer multiplies its only input with its kernel directly."""
    return not node.is_operation and node.is_a(*MATRIX_PRODUCTS, *HOLDING_ONE) and len(node.inputs) == 1


def _why_left_out(node: Any) -> str:
    if node.is_a(*MULTI_HEAD_ATTENTION):
        return "the inputs of its projections are not visible; quantize split_attention(model) to make them so"
    return "GPTQ rounds the kernels of Dense and EinsumDense, which multiply one input with one matrix"


def _rows(product: Product, x: Array, mask: Array | None) -> Array:
    """Return the rows that a matrix is multiplied with, except those of padding alone."""
    rows = product.rows(x)
    return rows if mask is None else rows[product.rows(counted(x.shape, mask)).any(axis=1)]


def _outer(rows: Array) -> Array:
    """Return the sum of the outer products of rows with themselves, in the rows' precision and summed in float64."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), _PIECE):
        piece = rows[start : start + _PIECE]
        total += piece.T @ piece
    return total


def _check_finite(tensors: Sequence[str], rows: Sequence[Array]) -> None:
    for name, values in zip(tensors, rows, strict=True):
        if not np.isfinite(values).all():
            raise DataError(
                "The quantized model computes NaN or infinity on these data, so there is no error to keep small; drop "
                f"such samples, or look for the layer that makes it. Received: tensor {name!r}"
            )
