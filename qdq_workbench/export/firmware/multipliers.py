"""Real factors as int32 multipliers and shifts, as gemmlowp, TensorFlow Lite and CMSIS-NN define them.

    M = m * 2^(shift - 31),   2^30 <= m < 2^31

m is rounded half away from zero. After a right shift of more than 31 bits nothing remains, so such factors become 0.
Sources: `QuantizeMultiplier` of TensorFlow Lite (kernels/internal/quantization_util.cc) and
`QuantizeMultiplierSmallerThanOne` of gemmlowp, whose right shift is `-shift` here; Jacob et al. 2018,
arXiv:1712.05877, equation 6. `arm_nn_requantize` of CMSIS-NN and `MultiplyByQuantizedMultiplier` apply them.
"""

from __future__ import annotations

import numpy as np

from qdq_workbench.errors import ExportError

#: The left shift, in bits, of both 8-bit operands of an addition before they are rescaled.
ADDITION_SHIFT = 20
_LARGEST_SHIFT = 30


def quantize_multiplier(factor: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Return the int32 multipliers and shifts of positive float64 factors; raise ExportError if one is 2^30 or more.

    Example:
        >>> [int(part) for part in quantize_multiplier(0.75)]
        [1610612736, 0]
    """
    mantissa, shift = np.frexp(np.asarray(factor, np.float64))
    fixed = np.floor(mantissa * 2.0**31 + 0.5).astype(np.int64)
    # Rounding may carry a mantissa of almost 1 to 2^31, which no int32 holds.
    carried = fixed == 2**31
    fixed, shift = np.where(carried, fixed // 2, fixed), shift + carried
    if np.any(shift > _LARGEST_SHIFT):
        raise ExportError(
            "A factor between two scales is too large for a shift of 30 bits. Calibrate with data of the size that "
            f"the model meets. Received: factor={factor!r}"
        )
    nothing = shift < -31
    return np.where(nothing, 0, fixed).astype(np.int32), np.where(nothing, 0, shift).astype(np.int32)


def divided(multiplier: int, shift: int, count: int) -> tuple[int, int]:
    """Return multiplier and shift of a factor divided by the number of values of a mean, as TensorFlow Lite does.

    Example:
        >>> divided(2**30, 1, 16)
        (1073741824, -3)
    """
    # Shifted left before the division, so that the multiplier keeps its bits; limits as in TensorFlow Lite's mean.
    moved = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << moved) // count, shift - moved


def addition(scales: tuple[float, float], result: float) -> dict[str, list[int] | int]:
    """Return the multipliers and shifts of the two operands and of the result of an addition.

    Both operands are rescaled to twice the larger scale, with `ADDITION_SHIFT` fractional bits.
    """
    # Twice, so that the sum of both operands fits in the range of one.
    common = 2.0 * max(scales)
    factors = np.array([scales[0] / common, scales[1] / common, common / (2.0**ADDITION_SHIFT * result)])
    multiplier, shift = quantize_multiplier(factors)
    return {"left_shift": ADDITION_SHIFT, "multiplier": multiplier.tolist(), "shift": shift.tolist()}
