"""The float model as one compiled function that returns the statistics of every activation tensor for the observers.

Tensors are reduced inside the function: it returns the lowest and highest value of each, and for methods that use
histograms the counts of its bins. The bins are those of `Histogram` for this batch alone: for B requested bins of
width w = 2^e, the largest power of two with w <= (highest - lowest) / B,

    index of a value x in the counts = floor(x / w) - floor(lowest / w)

which is exact in float32 while 2^-120 < w < 2^120 (values that underflow count as 0), so the sum over the batches is
exactly the histogram of all values. For other widths, and for a tensor with NaN or infinity, nothing is counted.

The function is traced without quantizers, once per model; it reads the current weights in every call. It is traced
again if the configuration of a layer was changed since. A small number of batches is computed eagerly instead.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from qdq_workbench.calibration.failures import failures_named
from qdq_workbench.calibration.observers.histogram import LEAST_EXPONENT
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.few_calls import runs_untraced
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.traced import traced
from qdq_workbench.wrappers import BaseQuantizeWrapper, QuantizeDequantize
from qdq_workbench.wrappers.float_only import float_only

LARGEST_EXPONENT = 120
_NOTHING = np.zeros(0, np.int32)


@dataclasses.dataclass(frozen=True)
class TensorReading:
    """The statistics of one tensor in one batch.

    Args:
        low: Lowest value; NaN if any value is NaN.
        high: Highest value; NaN if any value is NaN.
        first: The number of the lowest value's bin.
        counts: Counts of the bins from that one on; empty without histograms.
    """

    low: float
    high: float
    first: float
    counts: npt.NDArray[np.int32]

    @property
    def is_counted(self) -> bool:
        """Whether the values were counted; then the first bin holds at least the lowest value."""
        return bool(self.counts.size) and self.counts[0] > 0


class Reader:
    """Reads tensors of the float model that a quantized model holds.

    Args:
        q_model: A model made by `quantize_model`.
        tensors: Names of the tensors.
        bins: Minimum number of bins over the range of a batch; 0 for no histograms.

    Attributes:
        few_calls: Whether there will be too few calls for tracing to pay off.
    """

    def __init__(self, q_model: QuantizedModel, tensors: Sequence[str], bins: int = 0) -> None:
        view = float_view(q_model).tensors
        seen = [view[name] for name in tensors] or q_model.outputs  # a model of integers has no float tensor
        function = functional_model(q_model.inputs, seen, name="calibration_reader")
        self.tensors = tuple(tensors)
        self.few_calls = False
        self._q_model: Any = weakref.proxy(q_model)  # the model keeps this reader: a reference would be a cycle
        self._dtypes = [tensor.dtype for tensor in q_model.inputs]

        def values(inputs: list[Any]) -> list[Any]:
            found = keras.tree.flatten(function(inputs, training=False))[: len(tensors)]
            return [tf.cast(value, tf.float32) for value in found]

        def summaries(inputs: list[Any]) -> tuple[Any, list[Any]]:
            found = values(inputs)
            if bins:
                counted = [_counting_function(bins)(tf.reshape(value, [-1])) for value in found]
                # One tensor with the ends of all: a single copy to the host, not one per activation.
                return tf.stack([ends for ends, _ in counted]), [counts for _, counts in counted]
            return tf.stack([(tf.reduce_min(value), tf.reduce_max(value), 0.0) for value in found]), []

        self._untraced = {"values": values, "summaries": summaries}
        self._traced = {name: traced(function, q_model.inputs) for name, function in self._untraced.items()}

    def read(self, inputs: Sequence[Any]) -> list[TensorReading]:
        """Run one batch and return the statistics of all tensors."""
        if not self.tensors:
            return []
        with float_only(), failures_named(inputs):
            ends, counts = self._function("summaries", inputs)(self._tensors(inputs))
        rows = ends.numpy().tolist()
        found = [part.numpy() for part in counts] or [_NOTHING] * len(rows)
        return [TensorReading(low, high, first, part) for (low, high, first), part in zip(rows, found, strict=True)]

    def values(self, inputs: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
        """Run one batch and return the values of all tensors."""
        with float_only(), failures_named(inputs):
            return [value.numpy() for value in self._function("values", inputs)(self._tensors(inputs))]

    def _function(self, name: str, inputs: Sequence[Any]) -> Any:
        untraced = self.few_calls and runs_untraced(self._q_model, inputs)
        return (self._untraced if untraced else self._traced)[name]

    def _tensors(self, inputs: Sequence[Any]) -> list[Any]:
        return [tf.cast(tf.convert_to_tensor(x), dtype) for x, dtype in zip(inputs, self._dtypes, strict=True)]


def reader_for(q_model: QuantizedModel, tensors: Sequence[str], bins: int = 0) -> Reader:
    """Return the model's cached reader for these arguments (see `Reader`), so that it is traced only once."""
    key = (Reader, tuple(tensors), bins, _configurations(q_model))
    reader: Reader = q_model.kept(key, lambda: Reader(q_model, tensors, bins))
    return reader


def _configurations(q_model: QuantizedModel) -> tuple[Any, ...]:
    """Return every layer with its configuration, without the quantizers, to detect a changed or replaced layer."""
    layers = (layer.layer if isinstance(layer, BaseQuantizeWrapper) else layer for layer in q_model.layers)
    found = []
    for layer in layers:
        if isinstance(layer, QuantizeDequantize):
            continue
        try:
            found.append((_Itself(layer), repr(layer.get_config())))
        except Exception:  # noqa: BLE001 - a layer of the user's own without a configuration
            found.append((_Itself(layer), ""))
    return tuple(found)


class _Itself:
    """A key that equals only keys of the same object; it keeps the object, because a freed object's id may recur."""

    def __init__(self, what: Any) -> None:
        self._what = what

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other._what is self._what

    def __hash__(self) -> int:
        return id(self._what)


@functools.lru_cache(maxsize=8)
def _counting_function(bins: int) -> Any:
    """Return `_counted` as one function for tensors of any size.

    Tracing it for every tensor, or letting TensorFlow inline it for every tensor, makes the first batch several times
    slower.
    """
    return tf.function(
        functools.partial(_counted, bins=bins),
        input_signature=[tf.TensorSpec([None], tf.float32)],
        autograph=False,
        experimental_attributes={"_noinline": True},
    )


def _counted(values: Any, bins: int) -> tuple[Any, Any]:
    """Return [lowest value, highest value, number of the lowest value's bin], and the counts of the bins."""
    low, high = tf.reduce_min(values), tf.reduce_max(values)
    # In float64, as in `Histogram._exponent_for`: both must choose the same width for a batch.
    part = (tf.cast(high, tf.float64) - tf.cast(low, tf.float64)) / bins
    # The exponent bits of a positive float64 are floor(log2(part)), exactly.
    exponent = tf.cast(tf.bitwise.right_shift(tf.bitcast(part, tf.int64), 52), tf.int32) - 1023
    exponent = tf.maximum(exponent, LEAST_EXPONENT)
    finite = tf.logical_and(tf.math.is_finite(low), tf.math.is_finite(high))
    exponent = tf.where(low == high, 0, exponent)  # one value is in one bin of any width
    countable = tf.logical_and(finite, tf.abs(exponent) < LARGEST_EXPONENT)
    # 2^-exponent, assembled from its exponent bits and therefore exact.
    per_unit = tf.bitcast(tf.bitwise.left_shift(127 - tf.where(countable, exponent, 0), 23), tf.float32)
    first = tf.floor(low * per_unit)
    # A size that is known when tracing; a range needs at most 2 * bins + 1 bins (see `histogram`).
    size = 2 * bins + 2

    def count() -> Any:
        places = tf.cast(tf.floor(values * per_unit) - first, tf.int32)
        # Empty weights mean that every value counts 1.
        return tf.raw_ops.Bincount(arr=places, size=size, weights=tf.zeros([0], tf.int32))

    return tf.stack([low, high, first]), tf.cond(countable, count, lambda: tf.zeros([size], tf.int32))
