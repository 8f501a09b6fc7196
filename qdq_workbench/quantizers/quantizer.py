"""The base class of the quantizers: a grid, a range in variables of a layer, and a rule that updates it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench._numbers import whole
from qdq_workbench.errors import QuantizerError
from qdq_workbench.quantizers import numerics, replicas
from qdq_workbench.quantizers.block_tensors import reduced
from qdq_workbench.quantizers.blocks import other_axes, scale_shape
from qdq_workbench.quantizers.custom import remember
from qdq_workbench.quantizers.fake_quantize import fake_quantize_tensor
from qdq_workbench.quantizers.shared_functions import fake_quantize_if, update_if
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_OURS = f"{__package__}."


def _shares(x: Any) -> bool:
    """Return whether the shared functions can be used: in a graph, for a known rank, on a single replica."""
    return not tf.executing_eagerly() and x.shape.rank is not None and replicas.count() == 1


class Quantizer:
    """Base class of the quantizers: subclasses define in `merge` how a batch changes the range.

    The range is in two float32 variables of the layer that uses the quantizer, `min_var` and `max_var`. It is stored
    as observed; the grid extends it to contain 0. Before the first batch it is empty (min > max), which means
    "uncalibrated": values pass through unchanged.

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

    Example:
        >>> class HalfAverage(Quantizer):
        ...     def merge(self, low, high, batch_low, batch_high):
        ...         return (low + batch_low) / 2, (high + batch_high) / 2
        >>> HalfAverage(num_bits=4).spec.num_bits
        4
    """

    #: Whether training changes the range.
    updates_range = True
    #: Whether the optimizer changes it, through gradients.
    is_learned = False
    #: The method name of exactly this class in settings; a subclass without its own is serialized as "custom".
    method_name = ""
    # Defaults for subclasses whose constructor does not call this class's, which TFMOT allows.
    spec = QuantizerSpec()
    _axis = -1

    def __init__(
        self,
        num_bits: int = 8,
        per_axis: bool = False,
        symmetric: bool = True,
        narrow_range: bool = False,
        *,
        signed: bool = True,
        axis: int = -1,
        block_size: int | None = None,
    ) -> None:
        self.spec = QuantizerSpec(
            num_bits=num_bits,
            signed=bool(signed),
            symmetric=bool(symmetric),
            narrow_range=bool(narrow_range),
            axis=axis if per_axis else None,
            block_size=block_size,
        )
        self._axis = whole(axis)

    @classmethod
    def from_spec(cls, spec: QuantizerSpec, **settings: Any) -> Quantizer:
        """Return a quantizer of this class for a grid.

        Args:
            spec: The grid.
            **settings: Further arguments of the constructor of the class.

        Example:
            >>> from qdq_workbench.quantizers import LastValueQuantizer
            >>> LastValueQuantizer.from_spec(QuantizerSpec(num_bits=4, axis=-1)).spec.num_bits
            4
        """
        fields = spec.to_dict()
        axis = fields.pop("axis")
        return cls(**settings, **fields, per_axis=axis is not None, axis=-1 if axis is None else axis)

    def build(self, tensor_shape: Any, name: str, layer: Any) -> dict[str, Any]:
        """Create the variables of the range on a layer.

        Args:
            tensor_shape: Shape of the tensor to quantize; only the size of the axis of `per_axis` must be known.
            name: Prefix of the variables' names: `<name>_min`, `<name>_max`.
            layer: The Keras layer that owns the variables.

        Returns:
            `{"min_var": ..., "max_var": ...}`, float32, shape `()`, `(C,)` or one per block, not trainable.

        Raises:
            QuantizerError: If the size of the axis is unknown or there is no such axis.
        """
        low, high = self.initial_range()
        range_shape = self._range_shape(tensor_shape)
        return {
            f"{end}_var": layer.add_weight(
                name=f"{name}_{end}",
                shape=range_shape,
                initializer=keras.initializers.Constant(value),
                dtype="float32",
                trainable=False,
                # Else a mixed-precision policy would read the range in half precision.
                autocast=False,
                aggregation="only_first_replica",  # `_updated` returns the same range on all replicas
            )
            for end, value in (("min", low), ("max", high))
        }

    def __call__(
        self,
        inputs: Any,
        training: Any = None,
        weights: Mapping[str, Any] | None = None,
        enabled: Any = True,
        **kwargs: Any,  # noqa: ARG002 - what other quantizers of the same interface take
    ) -> Any:
        """Fake-quantize a tensor, after updating the range if `training` is true.

        Args:
            inputs: Floating-point tensor.
            training: Whether to update the range from `inputs` first; a bool or a scalar bool tensor.
            weights: The variables created by `build`.
            enabled: Whether to quantize at all; a bool or a scalar bool tensor.
            **kwargs: Not used.

        Returns:
            The fake-quantized tensor; `inputs` unchanged if the quantizer is disabled or has no range yet.
        """
        variables = dict(weights or {})
        low, high = self.update(inputs, training, variables)
        active = tf.logical_and(enabled, tf.reduce_all(low <= high))
        # The shared function has the arithmetic of this class, not that of a subclass.
        if type(self).fake_quantize is Quantizer.fake_quantize and _shares(inputs):
            return fake_quantize_if(active, inputs, low, high, self.spec)
        return self._fake_quantize_if(active, inputs, low, high, variables)

    def _fake_quantize_if(self, active: Any, x: Any, low: Any, high: Any, variables: Mapping[str, Any]) -> Any:
        """Fake-quantize a tensor if `active`, a scalar bool tensor; else return its values unchanged."""
        return tf.cond(active, lambda: self.fake_quantize(x, low, high, variables), lambda: tf.identity(x))

    def fake_quantize(self, inputs: Any, low: Any, high: Any, weights: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """Fake-quantize a tensor with a range.

        Args:
            inputs: Floating-point tensor.
            low: Lowest value of the range.
            high: Highest value of the range.
            weights: The variables created by `build`.
        """
        return fake_quantize_tensor(inputs, low, high, self.spec)

    def update(self, x: Any, when: Any, variables: Mapping[str, Any]) -> tuple[Any, Any]:
        """Update the range from a tensor, if `when` is true.

        The variables are assigned outside the condition, because distribution strategies do not allow it inside.

        Args:
            x: Floating-point tensor.
            when: A bool or a scalar bool tensor.
            variables: The variables created by `build`.

        Returns:
            The range of the grid after the update: lowest and highest values.
        """
        low, high = (tf.convert_to_tensor(variables[key]) for key in ("min_var", "max_var"))
        if when is not None and when is not False and self.updates_range:
            low, high = self._updated(tf.stop_gradient(x), tf.cast(when, tf.bool), low, high)
            variables["min_var"].assign(low)
            variables["max_var"].assign(high)
        return self.grid_range(low, high)

    def grid_range(self, low: Any, high: Any) -> tuple[Any, Any]:
        """Return the range of the grid; a subclass may store a different one in its variables.

        Args:
            low: The variable `min_var`.
            high: The variable `max_var`.
        """
        return low, high

    def read_range(self, weights: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the range of the grid as arrays; None if it is not set.

        Args:
            weights: The variables created by `build`.
        """
        # A subclass with a `build` of its own may have other variables.
        if "min_var" not in weights:
            return None
        low, high = (keras.ops.convert_to_numpy(weights[key]) for key in ("min_var", "max_var"))
        return tuple(np.asarray(end, np.float32) for end in self.grid_range(low, high)) if (low <= high).all() else None  # type: ignore[return-value]

    def write_range(self, weights: Mapping[str, Any], low: np.ndarray, high: np.ndarray) -> None:
        """Set the range.

        Args:
            weights: The variables created by `build`.
            low: Lowest value, in the shape of the range.
            high: Highest value.
        """
        if "min_var" in weights:
            weights["min_var"].assign(low)
            weights["max_var"].assign(high)

    def forget_range(self, weights: Mapping[str, Any]) -> None:
        """Reset the range to `initial_range`.

        Args:
            weights: The variables created by `build`.
        """
        if "min_var" in weights:
            for key, value in zip(("min_var", "max_var"), self.initial_range(), strict=True):
                weights[key].assign(np.full(weights[key].shape, value, np.float32))

    def start_from(self, weights: Mapping[str, Any], values: np.ndarray) -> None:
        """Set the initial range of a weight, that of its values, unless the range is fixed.

        Args:
            weights: The variables created by `build`.
            values: The weight.
        """
        if "min_var" in weights and self.updates_range:
            self.write_range(weights, *numerics.weight_range(values, self.spec))

    @property
    def has_grid(self) -> bool:
        """Whether the quantizer rounds to a grid that a file can hold; False if a subclass overrides `__call__`."""
        return type(self).__call__ is Quantizer.__call__

    def settings(self) -> dict[str, Any]:
        """Return the settings for planning: the grid, and the method that determines the range.

        Signedness is omitted, since the target chooses it: signed and unsigned grids describe the same values.
        """
        spec = self.spec
        found: dict[str, Any] = {
            "num_bits": spec.num_bits,
            "symmetric": spec.symmetric,
            "narrow_range": spec.narrow_range,
            "per_axis": spec.axis is not None,
        }
        if spec.axis is not None:
            found["axis"] = spec.axis
        if spec.block_size is not None:
            found["block_size"] = spec.block_size
        if vars(type(self)).get("method_name"):
            return {**found, "quantizer": self.method_name, **self.method_settings()}
        return {**found, "quantizer": remember(self)}

    def method_settings(self) -> dict[str, Any]:
        """Return the settings of the class's method, without those of the grid."""
        return {}

    def merge(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:
        """Return the new range from the current one and that of a batch.

        Args:
            low: Lowest value so far; +infinity before the first batch.
            high: Highest value so far; -infinity before the first batch.
            batch_low: Lowest value of the batch.
            batch_high: Highest value of the batch.
        """
        raise NotImplementedError(f"{type(self).__name__} must say in `merge` how a batch changes the range.")

    def initial_range(self) -> tuple[float, float]:
        """Return the range before the first batch: empty, unless a subclass overrides it."""
        return float("inf"), float("-inf")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "num_bits": self.spec.num_bits,
            "per_axis": self.spec.axis is not None,
            "symmetric": self.spec.symmetric,
            "narrow_range": self.spec.narrow_range,
            "signed": self.spec.signed,
            "axis": self._axis,
            **({} if self.spec.block_size is None else {"block_size": self.spec.block_size}),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Quantizer:
        """Rebuild a quantizer from `get_config`.

        Args:
            config: The dictionary of `get_config`.
        """
        return cls(**config)

    def __eq__(self, other: object) -> bool:
        """Whether `other` is a quantizer of the same class with the same settings."""
        if not isinstance(other, Quantizer) or type(self) is not type(other):
            return False
        return self.get_config() == other.get_config()

    def __hash__(self) -> int:
        """Hash of the class and its settings."""
        return hash((type(self).__name__, *sorted(self.get_config().items())))

    def __repr__(self) -> str:
        """The constructor call that creates this quantizer."""
        settings = ", ".join(f"{key}={value!r}" for key, value in self.get_config().items())
        return f"{type(self).__name__}({settings})"

    def _updated(self, x: Any, when: Any, low: Any, high: Any) -> tuple[Any, Any]:
        """Return the range after a batch if `when`, from the batches of all replicas; else the current range."""
        if replicas.count() == 1:
            # Equal settings share a function, but a user's `merge` may depend on more than its settings.
            if type(self).__module__.startswith(_OURS) and _shares(x):
                return update_if(when, x, low, high, self)
            return tf.cond(when, lambda: self.merged(low, high, *self.observe(x)), lambda: (low, high))
        empty = tf.fill(tf.shape(low), np.inf)
        batch_low, batch_high = tf.cond(when, lambda: self.observe(x), lambda: (empty, -empty))
        return self.merged(low, high, *replicas.extremes(batch_low, batch_high))  # no all-reduce inside a `cond`

    def merged(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:
        """Return the range after a batch; an empty range of the batch does not change it.

        Args:
            low: Lowest value so far.
            high: Highest value so far.
            batch_low: Lowest value of the batch.
            batch_high: Highest value of the batch.
        """
        new_low, new_high = self.merge(low, high, batch_low, batch_high)
        usable = batch_low <= batch_high
        return tf.where(usable, new_low, low), tf.where(usable, new_high, high)

    def observe(self, x: Any) -> tuple[Any, Any]:
        """Return the range of a batch; an empty range (inf, -inf) if the batch is empty or holds NaN or infinity.

        Args:
            x: Floating-point tensor.
        """
        batch_low = tf.cast(reduced(tf.reduce_min, x, self.spec), tf.float32)
        batch_high = tf.cast(reduced(tf.reduce_max, x, self.spec), tf.float32)
        usable = tf.logical_and(tf.math.is_finite(batch_low), tf.math.is_finite(batch_high))
        return tf.where(usable, batch_low, np.inf), tf.where(usable, batch_high, -np.inf)

    def _range_shape(self, shape: Any) -> tuple[int, ...]:
        """Return the shape of the range of a tensor of `shape`."""
        if self.spec.axis is None:
            return ()
        other_axes(len(shape), self.spec.axis)  # raises an error if there is no such axis
        size = shape[self.spec.axis]
        if size is None:
            raise QuantizerError(
                f"A range per slice needs an axis of known size; use per_axis=False or another axis. "
                f"Received: shape={tuple(shape)}, axis={self.spec.axis}"
            )
        return scale_shape(shape, self.spec)
