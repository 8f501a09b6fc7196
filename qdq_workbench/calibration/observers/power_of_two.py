"""Ranges whose threshold or scale is a power of two, so that rescaling becomes a shift.

With t = 2^ceil(log2(max(-low, high))) the range is

    "threshold"    [-t, t], or [0, t] if no value is negative
    "scale"        the range whose grid has a power of two as its scale, s = t / 2^(n-1), or t / 2^n on an asymmetric
                   grid without negative values. It ends at t - s, as in Sony's MCT, and at its lower end at 0,
                   -t (asymmetric grid), or -(t - s) (symmetric grid, whose lowest code only saturation reaches)

Source: Habi et al. 2021, "HPTQ: Hardware-friendly post training quantization", arXiv:2109.09113, section 2.
"""

from __future__ import annotations

import math
from typing import Any

from qdq_workbench.calibration.observers.minmax import MinMaxObserver
from qdq_workbench.calibration.observers.observer import register_observer
from qdq_workbench.errors import DataError
from qdq_workbench.quantizers.numerics import LARGEST_END, SMALLEST_WIDTH
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

KINDS = ("threshold", "scale")


@register_observer("power_of_two")
class PowerOfTwoObserver(MinMaxObserver):
    """Range of all values with its threshold rounded up to a power of two; see the top of the file.

    Takes the argument of `Observer`.

    Example:
        >>> observer = PowerOfTwoObserver("relu1")
        >>> observer.update([[0.5, 3.0]])
        >>> observer.range()
        (0.0, 4.0)
    """

    def result(self) -> tuple[float, float]:
        """Return the rounded range."""
        return rounded_up(super().result(), self.spec)


def kind_of_rounding(power_of_two: Any) -> str | None:
    """Return the kind of rounding that a value of `power_of_two` selects, or None; raise DataError for other values."""
    if power_of_two is None or power_of_two is False:
        return None
    kind = "threshold" if power_of_two is True else power_of_two
    if kind not in KINDS:
        raise DataError(
            'power_of_two must be True or False, "threshold" (the same as True) or "scale". '
            f"Received: power_of_two={power_of_two!r}"
        )
    return str(kind)


def rounded_up(ends: tuple[float, float], spec: QuantizerSpec, kind: str = "threshold") -> tuple[float, float]:
    """Return a range with its threshold rounded up to a power of two; the grid is used for the kind "scale" only.

    Example:
        >>> rounded_up((-0.3, 0.9), QuantizerSpec()), rounded_up((0.0, 6.0), QuantizerSpec())
        ((-1.0, 1.0), (0.0, 8.0))
        >>> rounded_up((0.0, 6.0), QuantizerSpec(signed=False, symmetric=False), "scale")
        (0.0, 7.96875)
    """
    low, high = ends
    largest = max(-low, high)
    # Such a range counts as zero, and its scale, `ZERO_SCALE`, is a power of two.
    if largest < SMALLEST_WIDTH:
        return low, high
    # frexp is exact; the rounding of log2 would lose a value just above a power of two.
    fraction, exponent = math.frexp(largest)
    threshold = min(math.ldexp(1.0, exponent - 1 if fraction == 0.5 else exponent), LARGEST_END)
    if kind == "threshold":
        return (-threshold if low < 0 else 0.0), threshold
    if spec.symmetric:
        end = threshold - threshold / 2 ** (spec.num_bits - 1)
        return (-end if low < 0 else 0.0), end
    if low >= 0:
        steps = spec.qmax - spec.qmin
        return 0.0, threshold / 2**spec.num_bits * steps
    step = threshold / 2 ** (spec.num_bits - 1)
    return -threshold, step * (spec.qmax - spec.qmin) - threshold
