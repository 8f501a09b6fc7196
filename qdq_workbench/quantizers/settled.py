"""Pairs in a function that is traced for known switches: without conditions, and with the grids of all pairs batched.

The caller reads the switches before every call of the function, and traces another function if they have changed; see
`qdq_workbench.conversion.engine.settled_functions`. Ranges are read each time the function runs.

The results equal those of pairs elsewhere, bit for bit. A pair after a ReLU reads the ReLU's input and applies the
ReLU by its bounds, so that TensorFlow prunes a ReLU without other readers:

    round(max(x, 0) / s) = max(round(x / s), 0)              so the lower bound becomes 0
    round(min(x, 6) / s) = min(round(x / s), round(6 / s))   so the upper bound of a ReLU6 becomes round(6 / s)
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from qdq_workbench.quantizers._xla import traced_for_xla
from qdq_workbench.quantizers.all_values import AllValuesQuantizer
from qdq_workbench.quantizers.fake_quantize import above, below, grid_tensors, on_grid, within
from qdq_workbench.quantizers.fixed import FixedQuantizer
from qdq_workbench.quantizers.gradients import custom_gradient
from qdq_workbench.quantizers.last_value import LastValueQuantizer
from qdq_workbench.quantizers.lsq import LSQQuantizer
from qdq_workbench.quantizers.moving_average import MovingAverageQuantizer
from qdq_workbench.quantizers.numerics import SMALLEST_WIDTH
from qdq_workbench.quantizers.quantizer import Quantizer
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_OWN = {AllValuesQuantizer, FixedQuantizer, LastValueQuantizer, LSQQuantizer, MovingAverageQuantizer}
_ABOVE_ZERO, _BELOW_SIX = above(0.0), below(6.0)  # exclude 0 and 6, where the gradient of a ReLU is 0


@dataclasses.dataclass(frozen=True)
class Switches:
    """The state of a pair that a function is traced for.

    Args:
        active: Whether it is enabled and has a range, or gets one from the batch.
        learns: Whether training changes its range; a learned step changes by its gradient.
        from_zero: Whether its range starts at 0 or above.
        to_six: Whether its range is within [-6, 6] and does not count as zero.
    """

    active: bool
    learns: bool
    from_zero: bool = False
    to_six: bool = False


def known_ends(lows: Any, highs: Any) -> tuple[Any, Any]:
    """Return `from_zero` and `to_six` of `Switches` for one range, or elementwise for arrays of ranges."""
    widths = np.maximum(-lows, highs)
    # A range that counts as zero has the scale 2^-10, and 16 bits of it reach beyond 6.
    return lows >= 0.0, (widths >= SMALLEST_WIDTH) & (widths <= 6.0)


def can_be_settled(quantizer: Quantizer) -> bool:
    """Return whether this module supports a quantizer: a per-tensor one of the library."""
    return type(quantizer) in _OWN and quantizer.spec.axis is None


class Grid:
    """The numbers of a grid; vectors of numbers, for many grids at once, if `low` and `high` are vectors."""

    def __init__(self, spec: QuantizerSpec, low: Any, high: Any) -> None:
        self.scale, self.code_low, self.code_high = grid_tensors(low, high, spec)

    @property
    def code_of_six(self) -> Any:
        """The code of the value 6, at most the highest code, minus the zero point."""
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
    """The grids of all pairs with equal quantizers in one graph, each number computed for all pairs as one vector.

    Args:
        quantizer: The quantizer of one of the pairs; all have the same spec.
        columns: The variables created by `build`, stacked over the pairs to vectors.
    """

    def __init__(self, quantizer: Quantizer, columns: Mapping[str, Any]) -> None:
        # Without a batch, `update` only reads the variables.
        self._grid = Grid(quantizer.spec, *quantizer.update(None, None, columns))
        self._numbers: dict[str, Any] = {}

    def number(self, index: int, name: str) -> Any:
        """Return the number `name` (a property of `Grid`) of the pair at `index`."""
        if name not in self._numbers:
            value = getattr(self._grid, name)
            self._numbers[name] = value if isinstance(value, float) else tf.unstack(value)
        held = self._numbers[name]
        return held if isinstance(held, float) else held[index]


def quantize_settled(
    x: Any, quantizer: Quantizer, switches: Switches, number: Numbers, variables: Mapping[str, Any], *, training: bool
) -> Any:
    """Return a tensor of a graph as quantized by a pair with known switches.

    The quantizer is one that `can_be_settled` supports, and its `build` created the variables. `number` returns the
    numbers of the pair's grid by name, which are recomputed here if training updates the range.
    """
    x = tf.convert_to_tensor(x)  # a layer may hand on a variable, which has no operation
    if not switches.active:
        return x
    known = _known_codes(quantizer.spec, switches)
    if training and isinstance(quantizer, LSQQuantizer):
        step = variables["step_var"]
        return _on_learned_grid(x, quantizer, step, _with(known, number), learns=switches.learns)
    if training and switches.learns:
        low, high = (tf.convert_to_tensor(variables[key]) for key in ("min_var", "max_var"))
        low, high = quantizer.merged(low, high, *quantizer.observe(tf.stop_gradient(x)))
        variables["min_var"].assign(low)
        variables["max_var"].assign(high)
        # Without a range after this batch, because it holds NaN or infinities, every value becomes NaN.
        ends = (tf.where(low <= high, end, float("nan")) for end in quantizer.grid_range(low, high))
        number = functools.partial(getattr, Grid(quantizer.spec, *ends))
    return _on_grid(x, _with(known, number))


def _with(known: Mapping[str, float], number: Numbers) -> Numbers:
    """Return the numbers of a grid, those that are known without an operation."""
    return lambda name: known[name] if name in known else number(name)


def _known_codes(spec: QuantizerSpec, switches: Switches) -> dict[str, float]:
    """Return the codes of a pair that its switches determine, by their names in `Grid`."""
    known = {}
    if spec.symmetric:
        known["code_high"] = float(2 ** (spec.num_bits - 1) - 1)
    # The zero point of a range without negative values is the lowest code.
    elif switches.from_zero:
        known |= {"code_low": 0.0, "code_high": float(spec.qmax - spec.qmin)}
    if known and switches.to_six:  # the highest code of a range within 6 stands for at most 6
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


def _on_learned_grid(x: Any, quantizer: LSQQuantizer, step: Any, number: Numbers, *, learns: bool) -> Any:
    """Return the nearest values of a grid, with the gradients of a learned step."""
    before, kind = _before_relu(x)
    relu = kind == "Relu"  # not ReLU6: behind it a value of 6 may have a gradient for the step, but none of its own
    grid = number("scale"), number("code_low"), number("code_high")
    moves = operator.mul if learns else None
    return quantizer.on_learned_grid(before if relu else x, step, grid, moves, batched=True, relu=relu)


def _before_relu(x: Any) -> tuple[Any, str]:
    """Return the input and the type of the ReLU that computed a tensor; else the tensor itself and ""."""
    operation = x.op
    # float64 has normal numbers between 0 and `_ABOVE_ZERO`, whose gradient would be lost.
    leaves_out = operation.type in ("Relu", "Relu6") and x.dtype != tf.float64
    return (operation.inputs[0], operation.type) if leaves_out else (x, "")
