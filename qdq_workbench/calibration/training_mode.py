"""The ranges of tensors in training, where batch normalizations use the statistics of the batch.

In a model with initial weights, or one trained on other data, the moving statistics are far from those of a batch.
Ranges calibrated at inference then do not fit training: they clip values, with a gradient of zero, or leave most of
the grid unused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench._pages import page
from qdq_workbench._warned_line import warn_caller
from qdq_workbench.calibration.failures import failures_named
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, Range
from qdq_workbench.errors import UnsettledStatisticsWarning
from qdq_workbench.graph_builder import BoundGraph, Call, TensorRef, takes_training

# The statistics of fewer samples are too noisy; more samples take too long.
_LEAST, _MOST = 16, 32
# Trained models stay far from these bounds on data of any kind (excess up to 0.3, share from 0.3 on), models at their
# initial statistics are far beyond them (excess from 4 on).
_EXCESS = 1.0  # the part of the training range outside the calibrated range, in widths of the latter; it is clipped
_SHARE = 1 / 8  # if training uses less than this share of a range, three bits of the grid are unused
_NAMED = 3


class FirstSamples:
    """The first samples of the data, on which the float model is run again at inference and in training mode.

    It runs eagerly, because one pass of few samples is faster than tracing; no variable of the model changes.

    Args:
        q_model: A model made by `quantize_model`.
    """

    def __init__(self, q_model: QuantizedModel) -> None:
        self._view = float_view(q_model)
        self._tensors = _behind_normalizations(q_model, self._view)
        self._batches: list[list[np.ndarray]] = []
        self._count = 0

    def add(self, inputs: Sequence[Any]) -> None:
        """Keep up to 32 samples of a batch, given as the model's inputs, until there are at least 16 in all."""
        if self._tensors and self._count < _LEAST:
            self._batches.append([np.array(x[:_MOST]) for x in inputs])
            self._count += len(self._batches[-1][0])

    def unsettled(self) -> dict[str, tuple[Range, Range]]:
        """Return the quantized tensors whose range at inference does not fit training, with both ranges."""
        shapes = {tuple(x.shape[1:] for x in batch) for batch in self._batches}
        if self._count < _LEAST or len(shapes) > 1:
            return {}
        parts = zip(self._view.input_tensors.values(), zip(*self._batches, strict=True), strict=True)
        inputs = [tf.cast(np.concatenate(arrays), tensor.dtype) for tensor, arrays in parts]
        with failures_named(inputs):
            found = self._ends(inputs, training=False)
            with keras.StatelessScope(initialize_variables=False):  # discards updates of the moving statistics
                training = self._ends(inputs, training=True)
        return {name: (ends, training[name]) for name, ends in found.items() if _is_far(ends, training[name])}

    def _ends(self, inputs: Sequence[Any], *, training: bool) -> dict[str, Range]:
        values = _computed(self._view, inputs, training=training)
        return {name: (float(np.min(x)), float(np.max(x))) for name, x in values if name in self._tensors}


def warn_of_unsettled(tensors: Mapping[str, tuple[Range, Range]], *, begins_anew: bool) -> None:
    """Warn that ranges, given as (at inference, in training), do not fit training, with the reason and advice.

    With `begins_anew`, training determines the ranges again.
    """
    shown = "; ".join(
        f"{name!r} {found[0]:.3g} .. {found[1]:.3g}, in training {training[0]:.3g} .. {training[1]:.3g}"
        for name, (found, training) in list(tensors.items())[:_NAMED]
    )
    more = f"; {len(tensors) - _NAMED} more" if len(tensors) > _NAMED else ""
    meanwhile = (
        "`fit` will determine these ranges again, from its first batch on; a training loop of your own will not."
        if begins_anew
        else "freeze=True keeps them for training too, which will clip or lose most of these values."
    )
    warn_caller(
        UnsettledStatisticsWarning(
            "These data are preprocessed differently from the training data, or the float model is not fully trained: "
            "the moving statistics of its batch normalizations do not match them. The ranges hold for "
            f"inference, but in training the tensors have other ranges. {meanwhile} Check the preprocessing; if it is "
            f"right, train the float model longer before quantizing it; more on {page('howto/accuracy.md')}. "
            f"Received: {len(tensors)} tensors with other ranges in training: {shown}{more}",
        )
    )


def _is_far(found: Range, training: Range) -> bool:
    """Return whether a range does not fit training: too much is clipped, or too little of the grid is used."""
    if not np.isfinite([*found, *training]).all():
        return False
    # Extended to 0, as the grid of a range is.
    (low, high), (least, most) = ((min(ends[0], 0.0), max(ends[1], 0.0)) for ends in (found, training))
    excess = max(low - least, 0.0) + max(most - high, 0.0)
    return excess > _EXCESS * (high - low) or most - least < _SHARE * (high - low)


def _behind_normalizations(q_model: QuantizedModel, view: BoundGraph) -> frozenset[str]:
    """Return the quantized tensors after a batch normalization that uses batch statistics in training."""
    layers = [layer for layer in q_model.activation_quantizers if layer.quantizer.updates_range]
    behind: set[str] = set()
    # One pass is enough, because the calls are in computing order.
    for call in view.calls:
        if _normalizes_batches(call) or not behind.isdisjoint(call.node.inputs):
            behind.update(call.node.outputs)
    return frozenset(tensor for layer in layers for tensor in q_model.tensors_of(layer) if tensor in behind)


def _normalizes_batches(call: Call) -> bool:
    layer = call.operation
    # Keras computes a frozen normalization with its moving statistics, also in training.
    learns = isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    return learns and call.kwargs.get("training") is not False


def _computed(view: BoundGraph, inputs: Sequence[Any], *, training: bool) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of the float model by name; only batch normalizations run in training mode, not dropout."""
    values = dict(zip(view.input_tensors, inputs, strict=True))
    awaited = Counter(name for call in view.calls for name in _read_by(call))
    for call in view.calls:
        args, kwargs = keras.tree.map_structure(
            lambda leaf: values[leaf.name] if isinstance(leaf, TensorRef) else leaf, (call.args, call.kwargs)
        )
        if takes_training(call.operation):
            # A `training` that the call itself passes comes last and takes precedence, as in Keras.
            kwargs = {"training": training and _normalizes_batches(call), **kwargs}
        outputs = keras.tree.flatten(call.operation(*args, **kwargs))
        produced = dict(zip(call.node.outputs, outputs, strict=True))
        yield from produced.items()
        values.update({name: value for name, value in produced.items() if awaited[name]})
        for name in _read_by(call):
            awaited[name] -= 1
            if not awaited[name]:
                del values[name]  # keeping all tensors would need more memory than training


def _read_by(call: Call) -> list[str]:
    return [leaf.name for leaf in keras.tree.flatten((call.args, call.kwargs)) if isinstance(leaf, TensorRef)]
