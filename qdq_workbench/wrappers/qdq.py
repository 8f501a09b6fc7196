"""The Q/DQ pair of an activation tensor, as a layer of the model."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from qdq_workbench.errors import DataError, QuantizerError
from qdq_workbench.quantizers.custom import recall
from qdq_workbench.quantizers.quantizer import Quantizer
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.wrappers.float_only import computes_float
from qdq_workbench.wrappers.model_state import ModelState
from qdq_workbench.wrappers.settled_scope import settled_scope


@keras.saving.register_keras_serializable(package="qdq_workbench")
class QuantizeDequantize(keras.layers.Layer):
    """Fake-quantizes the tensor that it receives; one layer per quantized tensor, shared by its readers.

    Input and output have the same shape, dtype and mask, under every dtype policy. In training the quantizer
    updates its range, unless the layer is frozen or `trainable` is False. A layer that is disabled, or has no
    range yet, returns its input exactly. The switches are variables, so that a change takes effect at
    the next batch, also of a running training: `layer.enabled.assign(False)`, `layer.frozen.assign(True)`.

    Args:
        tensor: Name of the Q/DQ pair in the plan, usually that of its tensor; in a scale group, of the pair whose
            range all share.
        quantizer: The grid and the method that finds its range.
        model_state: The state of a quantized model, stored in its first quantizing layer.
        **kwargs: Those of `keras.layers.Layer`.

    Raises:
        QuantizerError: If `tensor` is not a string or `quantizer` is not a `Quantizer`.

    Example:
        >>> from qdq_workbench.quantizers import MovingAverageQuantizer
        >>> layer = QuantizeDequantize("relu1", MovingAverageQuantizer())
        >>> layer(keras.ops.convert_to_tensor([-127.0, 0.6, 127.0]), training=True).numpy()
        array([-127.,    1.,  127.], dtype=float32)
        >>> layer.range
        (-127.0, 127.0)
    """

    def __init__(
        self, tensor: str, quantizer: Quantizer, *, model_state: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        # Values keep their dtype; the readers of the tensor cast it by their own policies.
        super().__init__(autocast=False, **kwargs)
        if not (isinstance(tensor, str) and isinstance(quantizer, Quantizer)):
            raise QuantizerError(
                "QuantizeDequantize needs the name of a tensor and a quantizer, such as "
                f"MovingAverageQuantizer(). Received: tensor={tensor!r}, quantizer={quantizer!r}"
            )
        self.tensor = tensor
        self.quantizer = quantizer
        self.supports_masking = True
        # Read at tracing, unlike the variables below: the graph then has no quantizer at all.
        self.bypassed = False
        self.model_state = ModelState(model_state)
        self._range_variables: dict[str, Any] = {}
        self.enabled = self._switch("enabled", on=True)
        self.frozen = self._switch("frozen", on=False)

    def build(self, input_shape: Any) -> None:
        """Create the variables of the range.

        Args:
            input_shape: Shape of the tensor.
        """
        self._range_variables = self.quantizer.build(input_shape, "range", self)
        self.built = True

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Return the fake-quantized tensor.

        Args:
            inputs: Floating-point tensor.
            training: Whether this call may update the range.
        """
        inputs = _as_declared(inputs)
        if self.bypassed or computes_float():
            return inputs
        scope = settled_scope()
        # A settled function is traced for one mode; a tensor `training` decides only when the function runs.
        if scope is not None and scope.knows(self) and isinstance(training, (bool, type(None))):
            return scope.quantize(self, inputs, self._range_variables, training=bool(training))
        learns: Any = False
        # Decided at tracing where possible: an inference graph then has no operations that update the range.
        if self.trainable and training is not None and training is not False:
            learns = tf.logical_and(self.enabled, tf.logical_not(self.frozen))
            learns = tf.logical_and(learns, tf.cast(training, tf.bool))
        enabled = tf.convert_to_tensor(self.enabled)
        # Read by learned steps alone: a frozen one has no gradient, and the factor counts the values of one sample.
        state = {**self._range_variables, "frozen": tf.convert_to_tensor(self.frozen), "batched": True}
        if self.quantizer.has_grid:
            return self.quantizer(inputs, learns, state, enabled=enabled)
        quantized = self.quantizer(inputs, learns, self._range_variables)  # a user's function has no `enabled`
        return tf.where(enabled, quantized, inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the shape of the input.

        Args:
            input_shape: Shape of the tensor.
        """
        return input_shape

    def compute_output_spec(self, inputs: Any, training: Any = None) -> keras.KerasTensor:  # noqa: ARG002 (as `call`)
        """Return a symbolic tensor of the shape and dtype of the input.

        Args:
            inputs: Symbolic tensor.
            training: Without effect.
        """
        return keras.KerasTensor(inputs.shape, dtype=inputs.dtype)

    @property
    def spec(self) -> QuantizerSpec:
        """The grid."""
        return self.quantizer.spec

    @property
    def range_variables(self) -> dict[str, Any]:
        """The variables created by the quantizer's `build`; empty before the layer is built."""
        return self._range_variables

    @property
    def is_calibrated(self) -> bool:
        """Whether the quantizer has a range."""
        return self.range is not None

    @property
    def range(self) -> tuple[Any, Any] | None:
        """The range (lowest, highest): two floats, two arrays per axis, or None if there is none yet."""
        ends = self.quantizer.read_range(self._range_variables) if self._range_variables else None
        if ends is None:
            return None
        low, high = ends
        return (float(low), float(high)) if low.ndim == 0 else (low, high)

    def set_range(self, minimum: npt.ArrayLike, maximum: npt.ArrayLike) -> None:
        """Set the range; without effect for a user's own function, which has none.

        Args:
            minimum: Lowest value: a number, or shape `(C,)` for a quantizer per axis.
            maximum: Highest value, of the same shape.

        Raises:
            QuantizerError: If the layer is not built yet.
            DataError: If the range is not finite with `minimum <= maximum`, or has the wrong shape.
        """
        if not self.quantizer.has_grid:
            return  # a user's own function has no range that could be set
        if not self._range_variables:
            raise QuantizerError(
                f"The layer of tensor {self.tensor!r} is not built yet; call it before `set_range`. "
                f"Received: minimum={minimum!r}, maximum={maximum!r}"
            )
        low, high = np.asarray(minimum, np.float32), np.asarray(maximum, np.float32)
        shape = tuple(next(iter(self._range_variables.values())).shape)
        if low.shape not in ((), shape) or high.shape not in ((), shape):
            raise DataError(
                f"The range of tensor {self.tensor!r} must have shape {shape}. "
                f"Received: shapes {low.shape} and {high.shape}"
            )
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
            raise DataError(
                f"The range of tensor {self.tensor!r} must be finite with minimum <= maximum. "
                f"Received: minimum={minimum!r}, maximum={maximum!r}"
            )
        self.quantizer.write_range(self._range_variables, np.broadcast_to(low, shape), np.broadcast_to(high, shape))

    def forget_range(self) -> None:
        """Reset the range to the state before the first batch."""
        if self.quantizer.has_grid and self._range_variables:
            self.quantizer.forget_range(self._range_variables)

    def copy_state(self, other: QuantizeDequantize) -> None:
        """Copy the variables of another layer's quantizer, if both quantizers are equal.

        Args:
            other: A built layer.
        """
        if self.quantizer == other.quantizer:
            for key, variable in self._range_variables.items():
                variable.assign(other._range_variables[key])

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "tensor": self.tensor,
            "quantizer": keras.saving.serialize_keras_object(self.quantizer),
            "grid": self.quantizer.spec.to_dict(),  # a user's own quantizer need not store all of it
            **self.model_state.config(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> QuantizeDequantize:
        """Rebuild a layer from `get_config`.

        Args:
            config: The result of `get_config`.
        """
        config = dict(config)
        if callable(config["tensor"]):  # Keras reads a string in HDF5 as the function of that name: `keras.layers.add`
            config["tensor"] = config["tensor"].__name__
        quantizer = recall(config.pop("quantizer"))
        quantizer.spec = QuantizerSpec.from_dict(config.pop("grid"))
        return cls(quantizer=quantizer, **config)

    def _switch(self, name: str, *, on: bool) -> Any:
        """Create a scalar bool variable."""
        return self.add_weight(
            name=name, shape=(), dtype="bool", initializer="ones" if on else "zeros", trainable=False
        )


def _as_declared(inputs: Any) -> Any:
    """Cast integers to float32: some Keras layers, such as `RepeatVector`, declare floats and return integers."""
    return inputs if "float" in keras.backend.standardize_dtype(inputs.dtype) else keras.ops.cast(inputs, "float32")
