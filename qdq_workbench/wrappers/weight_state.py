"""Quantizers of weights with a state: moving ranges, fixed ranges, learned steps.

Most weights need none: their range is computed from their values at every call. A quantizer with a state has variables
in the wrapper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench.quantizers import numerics
from qdq_workbench.quantizers.last_value import LastValueQuantizer
from qdq_workbench.quantizers.make import make_quantizer
from qdq_workbench.quantizers.quantizer import Quantizer
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


class WeightState:
    """A quantizer of one weight, with its variables.

    Args:
        spec: The grid.
        method: The method that finds the range.
    """

    def __init__(self, spec: QuantizerSpec, method: QuantizerMethod) -> None:
        self.quantizer: Quantizer = make_quantizer(spec, method, "last_value")
        self.variables: dict[str, Any] = {}

    def build(self, name: str, variable: Any, owner: Any) -> None:
        """Create the variables on the wrapper, `owner`, and initialize them from the weight's current values."""
        self.variables = self.quantizer.build(tuple(variable.shape), name.replace("/", "_"), owner)
        self.start_from(variable)

    def start_from(self, variable: Any) -> None:
        """Set the range to that of the weight's current values, if it has values."""
        if getattr(variable, "_value", None) is None:  # Keras creates some variables later than their layer
            return
        values = np.asarray(keras.ops.convert_to_numpy(variable), np.float32)
        if values.size and np.isfinite(values).all():
            self.quantizer.start_from(self.variables, values)

    def copy_from(self, other: WeightState) -> None:
        """Copy the state of a quantizer of the same weight: all of it, or only its range if the grids differ."""
        if self.quantizer == other.quantizer and set(self.variables) == set(other.variables):
            for key, variable in other.variables.items():
                self.variables[key].assign(variable)
            return
        # Another grid keeps the range, as after a change of target; a fixed or kept range is a setting of its own.
        ends = other.quantizer.read_range(other.variables)
        own = next(iter(self.variables.values()), None)
        if ends is not None and own is not None and ends[0].shape == tuple(own.shape) and self.quantizer.updates_range:
            self.quantizer.write_range(self.variables, *ends)

    def quantize(self, weight: Any, learns: Any, enabled: Any) -> Any:
        """Fake-quantize the weight if `enabled`, a scalar bool tensor; `learns` is whether to update the range."""
        if self.quantizer.has_grid:
            return self.quantizer(weight, learns, self.variables, enabled=enabled)
        # A user's function may return another dtype, which `tf.where` refuses.
        quantized = tf.cast(self.quantizer(weight, learns, self.variables), weight.dtype)
        return tf.where(enabled, quantized, weight)

    def range(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The range of the grid; None if there is none yet, or if the quantizer has no grid."""
        return self.quantizer.read_range(self.variables) if self.quantizer.has_grid else None


def tfmot_view(
    variables: Mapping[str, Any], specs: Mapping[str, QuantizerSpec], states: Mapping[str, WeightState]
) -> list[tuple[Any, Quantizer, dict[str, Any]]]:
    """Return every quantized weight with its quantizer and range, in the form of TensorFlow Model Optimization.

    On a symmetric grid the range is symmetric, so that `quantized / max_var * (2 ** (num_bits - 1) - 1)` gives the
    integers. Variables and grids are by the weight's name, and `states` has the quantizers with a state.
    """
    found = []
    for name, spec in specs.items():
        state = states.get(name)
        quantizer = LastValueQuantizer.from_spec(spec) if state is None else state.quantizer
        held = {} if state is None else dict(state.variables)
        # No state, or one of another form, such as the step of LSQ.
        if "min_var" not in held:
            low, high = weight_range(variables[name], spec, state)
            end = np.maximum(-low, high)
            ends = (-end, end) if spec.symmetric else (np.minimum(low, 0.0), np.maximum(high, 0.0))
            held.update(min_var=tf.constant(ends[0]), max_var=tf.constant(ends[1]))
        found.append((variables[name], quantizer, held))
    return found


def weight_range(variable: Any, spec: QuantizerSpec, state: WeightState | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the range of a weight's grid: the one that its quantizer stores, or that of its values.

    Args:
        variable: The weight.
        spec: The grid.
        state: Its quantizer, if that has a state.
    """
    kept = None if state is None else state.range()
    return kept if kept is not None else numerics.weight_range(keras.ops.convert_to_numpy(variable), spec)
