"""A step size that is learned by gradient descent.

Learned step size quantization (Esser et al. 2020, arXiv:1902.08153). With step s, code bounds -Qn..Qp and N values
that share the step:

    y = clamp(round(x / s), -Qn, Qp) * s
    dy/dx = 1 where -Qn < x/s < Qp, else 0                                                   (equation 5)
    dy/ds = -x/s + round(x/s) where -Qn < x/s < Qp;  -Qn where x/s <= -Qn;  Qp where x/s >= Qp    (equation 3)
    the gradient of s is multiplied by g = 1 / sqrt(N * Qp)                                  (section 2.2)
    s starts as 2 * mean(|x|) / sqrt(Qp)                                                     (section 2.1)

N is the number of weights, or of features of an activation (without the batch axis). With a step per slice along an
axis, N counts one slice; with a step per block, one block. An asymmetric grid keeps the zero point of its initial
data: Qn = z - qmin, Qp = qmax - z, and the larger of the two is used as Qp in g and in the initial step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench.quantizers import numerics, replicas
from qdq_workbench.quantizers._xla import chosen, traced_for_xla
from qdq_workbench.quantizers.block_tensors import reduced
from qdq_workbench.quantizers.fake_quantize import above, along_axis, below, grid_tensors, nearest_codes, within
from qdq_workbench.quantizers.gradients import custom_gradient
from qdq_workbench.quantizers.quantizer import Quantizer

_SMALLEST_STEP = 2.0**-60


class _PositiveStep(keras.constraints.Constraint):
    """Replaces a step that an update has made negative by its absolute value; 0 stays and means "not initialized"."""

    def __call__(self, w: Any) -> Any:
        size = tf.abs(w)
        return tf.where(w == 0.0, w, tf.maximum(size, _SMALLEST_STEP))


@keras.saving.register_keras_serializable(package="qdq_workbench")
class LSQQuantizer(Quantizer):
    """Quantizer with a step (scale) that the optimizer learns together with the weights.

    The step is initialized from the weights, by calibration, or from the first batch of training. It is a trainable
    variable of the layer that uses the quantizer, so the step of a frozen layer does not change.

    Args:
        num_bits: Width of the integers, 2 to 16.
        per_axis: One range per slice along `axis` rather than one per tensor.
        symmetric: Zero point in the middle of the grid.
        narrow_range: Exclude the lowest integer.
        signed: Signed integers rather than unsigned ones.
        axis: The axis of `per_axis`.
        block_size: Number of values along `axis` that share a range, at least 2; positions on other axes do not share
            one. Needs `per_axis`. None for no blocks.

    Raises:
        QuantizerError: If the settings give no valid grid.

    Source:
        Esser et al. 2020, Learned step size quantization, arXiv:1902.08153.

    Example:
        >>> LSQQuantizer(num_bits=4, signed=False, symmetric=False).spec.qmax
        15
    """

    method_name = "lsq"
    is_learned = True

    def build(self, tensor_shape: Any, name: str, layer: Any) -> dict[str, Any]:
        """Create the step, and the zero point of an asymmetric grid.

        Args:
            tensor_shape: Shape of the tensor to quantize; only the size of the axis of `per_axis` must be known.
            name: Prefix of the variables' names: `<name>_step`, `<name>_zero_point`.
            layer: The Keras layer that owns the variables.

        Returns:
            `{"step_var": ..., "zero_point_var": ...}`, float32, shape `()`, `(C,)` or one per
            block; the step is trainable.

        Raises:
            QuantizerError: If the size of the axis is unknown or there is no such axis.
        """
        shared = {"shape": self._range_shape(tensor_shape), "dtype": "float32", "autocast": False}
        return {
            "step_var": layer.add_weight(
                name=f"{name}_step", initializer="zeros", constraint=_PositiveStep(), aggregation="mean", **shared
            ),
            "zero_point_var": layer.add_weight(
                name=f"{name}_zero_point",
                initializer="zeros",
                trainable=False,
                aggregation="only_first_replica",  # `_started` returns the same value on all replicas
                **shared,
            ),
        }

    def update(self, x: Any, when: Any, variables: Mapping[str, Any]) -> tuple[Any, Any]:
        """Initialize the step from a tensor, if it is not initialized and `when` is true.

        Args:
            x: Floating-point tensor.
            when: A bool or a scalar bool tensor.
            variables: The variables created by `build`.

        Returns:
            The range of the grid, its lowest and highest values; empty (low > high) without a step.
        """
        step, zero_point = (tf.convert_to_tensor(variables[key]) for key in ("step_var", "zero_point_var"))
        if when is not None and when is not False:
            begins = tf.logical_and(tf.cast(when, tf.bool), tf.reduce_all(step == 0.0))
            step, zero_point = self._started(tf.stop_gradient(x), begins, step, zero_point)
            variables["step_var"].assign(step)
            variables["zero_point_var"].assign(zero_point)
        return self._range(step, zero_point)

    def _fake_quantize_if(self, active: Any, x: Any, low: Any, high: Any, variables: Mapping[str, Any]) -> Any:
        """Fake-quantize a tensor if `active`; where XLA compiles without a condition, as `chosen` does."""
        if type(self) is not LSQQuantizer or not traced_for_xla():
            return super()._fake_quantize_if(active, x, low, high, variables)
        # The grid of an empty range has no numbers, and gradients of 0 times NaN are NaN.
        low, high = tf.where(active, low, 0.0), tf.where(active, high, 1.0)
        return tf.where(active, self.fake_quantize(x, low, high, {**variables, "active": active}), x)

    def fake_quantize(self, inputs: Any, low: Any, high: Any, weights: Mapping[str, Any]) -> Any:
        """Fake-quantize a tensor, with the gradients of the paper for the tensor and the step.

        Args:
            inputs: Floating-point tensor.
            low: Lowest value of the range.
            high: Highest value of the range.
            weights: The variables created by `build`. An entry "frozen" that is true stops the gradient of the step;
                an entry "batched" tells whether the first axis of the tensor is the batch; an entry "active" that is
                false makes the gradient of the step 0 also for NaN.
        """
        # `grid_tensors` stops gradients; the step gets its own.
        grid = grid_tensors(low, high, self.spec)
        frozen = tf.cast(weights.get("frozen", False), tf.float32)

        def moves(factor: Any, total: Any) -> Any:
            total = total * (factor * (1.0 - frozen))
            return tf.where(weights["active"], total, 0.0) if "active" in weights else total

        batched = bool(weights.get("batched", False))
        return self.on_learned_grid(tf.convert_to_tensor(inputs), weights["step_var"], grid, moves, batched=batched)

    def on_learned_grid(
        self,
        x: Any,
        step: Any,
        grid: tuple[Any, Any, Any],
        moves: Callable[[Any, Any], Any] | None,
        *,
        batched: bool,
        relu: bool = False,
    ) -> Any:
        """Return the nearest values of a grid, with the gradients of the paper for the tensor and the step.

        Args:
            x: Floating-point tensor.
            step: The variable of the step.
            grid: Scale, and lowest and highest code minus the zero point, in the shape of the step.
            moves: Returns the gradient of the step from the paper's factor g and the sum over the values; None for no
                gradient.
            batched: Whether the first axis of the tensor is the batch.
            relu: Whether to apply a ReLU to the tensor first.
        """
        scale, code_low, code_high = (along_axis(part, x, self.spec) for part in grid)
        code_low = 0.0 if relu else code_low

        @custom_gradient
        def learned(values: Any, step: Any) -> tuple[Any, Callable[[Any], tuple[Any, Any]]]:
            place = tf.cast(values, tf.float32) / scale
            codes = nearest_codes(place, code_low, code_high)

            def gradients(upstream: Any) -> tuple[Any, Any]:
                wide = tf.cast(upstream, tf.float32)
                inside = within(wide, place, above(code_low), below(code_high), xla=traced_for_xla())
                of_values = tf.cast(inside, upstream.dtype)
                if moves is None:
                    return of_values, tf.zeros_like(step)
                # Equation 3 with few passes over the data; infinity times a gradient of 0 is 0.
                of_step = self._total(wide * codes - tf.math.multiply_no_nan(place, inside))
                return of_values, moves(self._gradient_factor(values, *grid[1:], batched=batched), of_step)

            return tf.cast(codes * scale, values.dtype), gradients

        return learned(x, tf.convert_to_tensor(step))

    def read_range(self, weights: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the range of the grid; None if the step is not initialized.

        Args:
            weights: The variables created by `build`.
        """
        step = keras.ops.convert_to_numpy(weights["step_var"])
        if not (step > 0.0).all():
            return None
        ends = self._range(tf.constant(step), tf.convert_to_tensor(weights["zero_point_var"]))
        return ends[0].numpy(), ends[1].numpy()

    def write_range(self, weights: Mapping[str, Any], low: np.ndarray, high: np.ndarray) -> None:
        """Set the step, and the zero point, to those of a range.

        Args:
            weights: The variables created by `build`.
            low: Lowest value, in the shape of the step.
            high: Highest value.
        """
        qparams = numerics.qparams_from_range(low, high, self.spec)
        weights["step_var"].assign(qparams.scale)
        weights["zero_point_var"].assign(qparams.zero_point.astype(np.float32))

    def forget_range(self, weights: Mapping[str, Any]) -> None:
        """Reset the step, so that the next batch of training initializes it.

        Args:
            weights: The variables created by `build`.
        """
        for variable in weights.values():
            variable.assign(np.zeros(variable.shape, np.float32))

    def start_from(self, weights: Mapping[str, Any], values: np.ndarray) -> None:
        """Initialize the step from a weight.

        Args:
            weights: The variables created by `build`.
            values: The weight.
        """
        step, zero_point = self._start(*self._statistics(tf.constant(values)), tf.zeros([]), tf.zeros([]))
        weights["step_var"].assign(step)
        weights["zero_point_var"].assign(zero_point)

    def _range(self, step: Any, zero_point: Any) -> tuple[Any, Any]:
        """Return the range of the grid; an empty range (inf, -inf) where the step is not initialized."""
        if self.spec.symmetric:
            high = step * float(2 ** (self.spec.num_bits - 1) - 1)
            low = -high
        else:
            low, high = (float(self.spec.qmin) - zero_point) * step, (float(self.spec.qmax) - zero_point) * step
        known = step > 0.0
        return tf.where(known, low, np.inf), tf.where(known, high, -np.inf)

    def _started(self, x: Any, begins: Any, step: Any, zero_point: Any) -> tuple[Any, Any]:
        """Return the initial step and zero point if `begins`, from all replicas' batches; else the current ones."""
        if replicas.count() == 1:
            return chosen(
                begins,
                lambda: self._start(*self._statistics(x), step, zero_point),
                lambda: (step, zero_point),
                xla=traced_for_xla(),
            )
        infinite = tf.fill(tf.shape(step), np.inf)
        low, high, size = tf.cond(
            begins, lambda: self._statistics(x), lambda: (infinite, -infinite, tf.zeros_like(infinite))
        )
        return self._start(*replicas.extremes(low, high), replicas.mean(size), step, zero_point)

    def _statistics(self, x: Any) -> tuple[Any, Any, Any]:
        """Return the lowest and highest value of a tensor and the mean of its absolute values."""
        values = tf.cast(x, tf.float32)
        low, high = (reduced(reduce, values, self.spec) for reduce in (tf.reduce_min, tf.reduce_max))
        if self.spec.block_size is None:
            return low, high, reduced(tf.reduce_mean, tf.abs(values), self.spec)
        # A mean would count the zeros that pad a shorter last block.
        return low, high, reduced(tf.reduce_sum, tf.abs(values), self.spec) / self._sizes_of_blocks(values)

    def _sizes_of_blocks(self, values: Any) -> Any:
        """Return the number of values in every block; the last one along the axis may be shorter."""
        return reduced(tf.reduce_sum, tf.ones_like(values, tf.float32), self.spec)

    def _start(self, low: Any, high: Any, size: Any, step: Any, zero_point: Any) -> tuple[Any, Any]:
        """Return the initial step and zero point; the current ones where the statistics are not finite."""
        _, code_low, code_high = grid_tensors(low, high, self.spec)
        usable = tf.math.is_finite(low) & tf.math.is_finite(high) & tf.math.is_finite(size)
        found = 2.0 * size / tf.sqrt(self._largest_code(code_low, code_high))
        # A tensor of zeros gets the scale of a range that counts as zero; a step of 0 would mean "not initialized".
        found = tf.where(size >= _SMALLEST_STEP, found, numerics.ZERO_SCALE)
        new_zero_point = tf.broadcast_to(float(self.spec.qmin) - code_low, tf.shape(found))
        return tf.where(usable, found, step), tf.where(usable, new_zero_point, zero_point)

    def _largest_code(self, code_low: Any, code_high: Any) -> Any:
        """Return Qp."""
        return tf.convert_to_tensor(code_high) if self.spec.symmetric else tf.maximum(code_high, -code_low)

    def _gradient_factor(self, values: Any, code_low: Any, code_high: Any, *, batched: bool) -> Any:
        """Return g = 1 / sqrt(N * Qp), in the shape of the step."""
        largest = self._largest_code(code_low, code_high)
        known = values.shape[1:] if batched else values.shape
        if self.spec.axis is None and known.is_fully_defined():
            return 1.0 / tf.sqrt(known.num_elements() * largest)
        size = tf.cast(tf.size(values), tf.float32)
        count = size / tf.cast(tf.maximum(tf.shape(values)[0], 1), tf.float32) if batched else size
        if self.spec.block_size is not None:
            count = self._sizes_of_blocks(values)
        elif self.spec.axis is not None:
            count = count / tf.cast(tf.shape(values)[self.spec.axis], tf.float32)
        return 1.0 / tf.sqrt(count * largest)

    def _total(self, gradient: Any) -> Any:
        """Add up a gradient over the values that share a step."""
        return reduced(tf.reduce_sum, gradient, self.spec)
