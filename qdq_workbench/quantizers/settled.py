"""Pairs of a function that is traced for known switches: no conditions, and the grids of all pairs in one go.

Who traces a function for known switches reads them before every call of it and traces another one where they changed;
see `qdq_workbench.conversion.engine.settled_functions`. Ranges are read whenever the function runs.

What they compute is what pairs compute elsewhere, bit for bit. Where a pair reads a ReLU, the ReLU is left out, which
nobody else then computes either:

    round(max(x, 0) / s) = max(round(x / s), 0)              so the lower bound becomes 0, and likewise
    round(min(x, 6) / s) = min(round(x / s), round(6 / s))   the upper bound of a ReLU6
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from qdq_workbench.quantizers._xla import traced_for_xla
from qdq_workbench.quantizers.all_values import AllValuesQuantizer
from qdq_workbench.quantizers.fake_quantize import grid_tensors, on_grid, within
from qdq_workbench.quantizers.fixed import FixedQuantizer
from qdq_workbench.quantizers.gradients import custom_gradient
from qdq_workbench.quantizers.last_value import LastValueQuantizer
from qdq_workbench.quantizers.moving_average import MovingAverageQuantizer
from qdq_workbench.quantizers.numerics import SMALLEST_WIDTH
from qdq_workbench.quantizers.quantizer import Quantizer
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_OWN = {AllValuesQuantizer, FixedQuantizer, LastValueQuantizer, MovingAverageQuantizer}
_ABOVE_ZERO, _BELOW_SIX = 1.1754944e-38, 5.9999995  # the gradient of a ReLU is 0 at its corners


@dataclasses.dataclass(frozen=True)
class Switches:
    """What is known of a pair.

    Args:
        active: Whether it is enabled and has a range, or gets one from the batch.
        learns: Whether training changes its range.
        from_zero: Whether no value of its range lies below 0.
        to_six: Whether none lies further from 0 than 6; it is no range that counts as zero.
    """

    active: bool
    learns: bool
    from_zero: bool = False
    to_six: bool = False


def known_ends(lows: Any, highs: Any) -> tuple[Any, Any]:
    """Return `from_zero` and `to_six` of `Switches` for ranges.

    Args:
        lows: Lowest values: a number or an array.
        highs: Highest values.
    """
    widths = np.maximum(-lows, highs)
    return lows >= 0.0, (widths >= SMALLEST_WIDTH) & (widths <= 6.0)


def can_be_settled(quantizer: Quantizer) -> bool:
    """Return whether the functions below know how a quantizer computes: one of the library's own, with one range.

    Learned steps keep their conditions: they may have to find their start, and their gradients outweigh the conditions.

    Args:
        quantizer: The quantizer of a pair.
    """
    return type(quantizer) in _OWN and quantizer.spec.axis is None


class Grid:
    """The numbers of a grid, each computed when it is asked for; of many grids at once, where the range is a vector.

    Args:
        spec: The grid.
        low: Lowest value of the range.
        high: Highest value of the range.
    """

    def __init__(self, spec: QuantizerSpec, low: Any, high: Any) -> None:
        self.scale, self.code_low, self.code_high = grid_tensors(low, high, spec)

    @property
    def code_of_six(self) -> Any:
        """The highest code that a ReLU6 leaves, minus the zero point."""
        return tf.minimum(self.code_high, tf.math.rint(6.0 / self.scale))

    @property
    def low(self) -> Any:
        """The lowest value."""
        return self.code_low * self.scale

    @property
    def high(self) -> Any:
        """The highest value."""
        return self.code_high * self.scale


Numbers = Callable[[str], Any]  # the numbers of one grid by their names in `Grid`


class Grids:
    """The grids of all pairs of one kind in one graph: one operation for each of their numbers, on vectors.

    Args:
        quantizer: The quantizer of one of them, whose grid all of them have.
        columns: What its `build` returned, for all pairs: vectors instead of single numbers.
    """

    def __init__(self, quantizer: Quantizer, columns: Mapping[str, Any]) -> None:
        self._grid = Grid(quantizer.spec, *quantizer.update(None, None, columns))
        self._numbers: dict[str, Any] = {}

    def number(self, index: int, name: str) -> Any:
        """Return one number of one pair's grid.

        Args:
            index: The pair's place.
            name: The number's name.
        """
        if name not in self._numbers:
            value = getattr(self._grid, name)
            self._numbers[name] = value if isinstance(value, float) else tf.unstack(value)
        held = self._numbers[name]
        return held if isinstance(held, float) else held[index]


def quantize_settled(
    x: Any, quantizer: Quantizer, switches: Switches, number: Numbers, variables: Mapping[str, Any], *, training: bool
) -> Any:
    """Do what a pair does with a tensor of a graph, for switches that are known.

    Args:
        x: Floating-point tensor.
        quantizer: The pair's quantizer, one that `can_be_settled`.
        switches: What is known of the pair.
        number: The numbers of the pair's grid; those after this batch are computed here, where training moves them.
        variables: What the quantizer's `build` returned.
        training: Whether this call is one of training.
    """
    if not switches.active:
        return x
    known = _known_codes(quantizer.spec, switches)
    if training and switches.learns:
        low, high = (tf.convert_to_tensor(variables[key]) for key in ("min_var", "max_var"))
        low, high = quantizer.merged(low, high, *quantizer.observe(tf.stop_gradient(x)))
        variables["min_var"].assign(low)
        variables["max_var"].assign(high)
        # Where not even this batch has a range, because it holds NaN or infinities, every value becomes NaN.
        ends = (tf.where(low <= high, end, float("nan")) for end in quantizer.grid_range(low, high))
        number = functools.partial(getattr, Grid(quantizer.spec, *ends))
    return _on_grid(x, lambda name: known[name] if name in known else number(name))


def _known_codes(spec: QuantizerSpec, switches: Switches) -> dict[str, float]:
    """Return what is known of the codes of a pair, by their names in `Grid`."""
    known = {}
    if spec.symmetric:
        known["code_high"] = float(2 ** (spec.num_bits - 1) - 1)
    elif switches.from_zero:
        known |= {"code_low": 0.0, "code_high": float(spec.qmax - spec.qmin)}
    if known and switches.to_six:  # a range within 6 has its last code there or below
        known["code_of_six"] = known["code_high"]
    return known


def _on_grid(x: Any, number: Numbers) -> Any:
    """Return the nearest values of a grid, with the straight-through gradient."""
    values, relu = _before_relu(x)
    scale, code_low = number("scale"), 0.0 if relu else number("code_low")
    code_high = number("code_of_six" if relu == "Relu6" else "code_high")

    @custom_gradient
    def straight_through(values: Any) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(upstream: Any) -> Any:
            high = tf.minimum(number("high"), _BELOW_SIX) if relu == "Relu6" else number("high")
            return within(upstream, values, _ABOVE_ZERO if relu else number("low"), high, xla=traced_for_xla())

        return on_grid(values, scale, code_low, code_high), gradient

    return straight_through(values)


def _before_relu(x: Any) -> tuple[Any, str]:
    """Return what a ReLU of the graph got and its kind; a tensor itself and "" where no ReLU computed it."""
    operation = x.op
    leaves_out = operation.type in ("Relu", "Relu6") and x.dtype != tf.float64
    return (operation.inputs[0], operation.type) if leaves_out else (x, "")
