"""The encodings of a quantized model: the scale, zero point and integers of every pair and weight.

A weight is rounded on the grid that training used; only then is a batch normalization folded into it, so that the
integers are those of the quantized model: s' = s * |g|, q' = sign(g) * q (see `conversion.folding`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.folding import batch_norm_gain, folded_weight
from qdq_workbench.conversion.engine.integer_weights import IntegerTensor, check_kept, quantized_weights
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import ExportError, UncalibratedError
from qdq_workbench.export.encodings import Encoding, make_room_for_bias
from qdq_workbench.graph.folds import Fold
from qdq_workbench.graph.kinds import DEPTHWISE, TRANSPOSED
from qdq_workbench.placement.plan import Placement
from qdq_workbench.quantizers import numerics
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


def encode_activations(
    q_model: QuantizedModel, stored: Callable[[QuantizerSpec], QuantizerSpec] = lambda grid: grid
) -> dict[str, Encoding]:
    """Return the encoding of every quantized activation tensor; raise UncalibratedError if some have no range.

    `stored` returns the grid on which the file holds a tensor that the plan has on another one.
    """
    # First: calibration sets no range of a quantizer without a grid, so the advice below would not help.
    own = [layer for layer in q_model.activation_quantizers if not layer.quantizer.has_grid]
    if own:
        raise ExportError(
            f"The tensor {own[0].tensor!r} is quantized by a function of the user's own, not on an integer grid, so no "
            "file can hold it. For what shall be exported use one of the quantizers of qdq_workbench, or a subclass "
            f"that leaves __call__ alone. Received: quantizer {type(own[0].quantizer).__name__}"
        )
    missing = q_model.uncalibrated_tensors()
    if missing:
        shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        raise UncalibratedError(
            "Activation quantizers have no range yet, so the file would have no scales. Run "
            "qdq_workbench.calibrate(q_model, data), or train the model for a step, and export again. "
            f"Received: {len(missing)} tensors without a range: {shown}"
        )
    ranges = q_model.activation_ranges()
    encodings = {}
    for tensor in q_model.plan.tensors:
        if tensor.kind == "activation":
            grid = stored(tensor.quantizer)
            qparams = numerics.qparams_from_range(*ranges[tensor.name], grid)
            encodings[tensor.name] = Encoding(qparams.scale, qparams.zero_point, grid)
    return encodings


def encode_weights(
    q_model: QuantizedModel, folds: Sequence[Fold], biases: Mapping[str, Any], activations: Mapping[str, Encoding]
) -> dict[str, Encoding]:
    """Return the encoding of every quantized weight, batch normalizations folded in.

    `biases` has the float bias of the layer by weight name, with the batch normalization folded in. Weight scales are
    raised as far as this int32 bias needs it, once, since weights are rounded again each time; and for every target: a
    runtime may quantize float biases itself, and ONNX Runtime then lets them overflow.
    """
    integers = quantized_weights(q_model)
    folded = {fold.layer.layer: fold for fold in folds}
    gains = _gains(q_model, folds)
    encodings = {}
    for placement in q_model.plan.placements:
        if placement.weight is None:
            continue
        encoding = _encoding(integers[placement.tensor], placement)
        fold = folded.get(placement.layer)
        if fold is not None and folded_weight(fold.layer.class_name, placement.weight):
            encoding = _with_gain(encoding, fold.layer.class_name, gains[placement.layer])
        if placement.tensor in biases:
            bias = np.asarray(biases[placement.tensor])
            encoding = _make_room_for_bias(q_model, placement, encoding, bias, activations)
        encodings[placement.tensor] = encoding
    return encodings


def _encoding(integers: object, placement: Placement) -> Encoding:
    if not isinstance(integers, IntegerTensor):
        method = "" if placement.method is None else placement.method.label
        raise ExportError(
            f"The weight {placement.tensor!r} is quantized by a function of the user's own, not on an integer grid, so "
            "no file can hold it. For what shall be exported use one of the quantizers of qdq_workbench, or a subclass "
            f"that leaves __call__ alone. Received: quantizer {method!r}"
        )
    return Encoding(integers.scale, integers.zero_point, placement.quantizer, integers.codes)


def _gains(q_model: QuantizedModel, folds: Sequence[Fold]) -> dict[str, np.ndarray]:
    layers = {call.node.layer: call.operation for call in float_view(q_model).calls}
    return {fold.layer.layer: batch_norm_gain(layers[fold.batch_norm.layer])[0] for fold in folds}


def _with_gain(encoding: Encoding, class_name: str, gain: np.ndarray) -> Encoding:
    """Multiply the values of an encoding by a gain per output channel: codes stay as they are, or are mirrored.

    For a negative gain (q, z) becomes (qmin + qmax - q, qmin + qmax - z), which is on the grid and has the negated
    value. A symmetric grid keeps its zero point: its codes change sign. Channels whose scale underflows become 0.
    """
    # int64: the mirror image of a code may lie outside of the codes' own type.
    codes = np.asarray(encoding.codes, np.int64)
    spec = encoding.spec
    # Not where the gain has several values: with one filter, or one channel, it has one.
    axis = codes.ndim - (2 if class_name in (*TRANSPOSED, *DEPTHWISE) else 1)
    zero_point = np.broadcast_to(encoding.zero_point, gain.shape).astype(np.int64)
    pivot = 2 * zero_point if spec.symmetric else np.full(gain.shape, spec.qmin + spec.qmax)
    lowest = codes.min(axis=tuple(i for i in range(codes.ndim) if i != axis), initial=spec.qmax)
    fits = pivot - lowest <= spec.qmax  # the lowest code of a wide symmetric grid has no mirror image around zero
    pivot = np.where(fits, pivot, spec.qmin + spec.qmax)
    negative = gain < 0
    along = [-1 if index == axis else 1 for index in range(codes.ndim)]
    mirrored = np.where(negative.reshape(along), pivot.reshape(along) - codes, codes)
    scale = np.asarray(encoding.scale * np.abs(gain), np.float64)
    # A subnormal scale may be flushed to zero by a runtime, and zero is no scale.
    dead = scale < np.finfo(np.float32).tiny
    zero_point = np.where(negative, pivot - zero_point, zero_point)
    return dataclasses.replace(
        encoding,
        scale=np.where(dead, numerics.ZERO_SCALE, scale).astype(np.float32),
        zero_point=zero_point.astype(np.int32),
        spec=spec.replace(axis=axis),
        codes=np.where(dead.reshape(along), zero_point.reshape(along), mirrored).astype(encoding.dtype),
    )


def _make_room_for_bias(
    q_model: QuantizedModel,
    placement: Placement,
    encoding: Encoding,
    bias: np.ndarray,
    activations: Mapping[str, Encoding],
) -> Encoding:
    """Set the scales of all-zero channels, and raise those whose int32 bias would overflow at a call of the layer."""
    calls = q_model.plan.graph.calls(placement.layer)
    if calls[0].is_a(*DEPTHWISE) and encoding.spec.axis == np.asarray(encoding.codes).ndim - 2:
        bias = np.abs(bias).reshape(encoding.scale.size, -1).max(axis=1)  # the outputs of a channel share its scale
    # Scales along another axis, or in blocks: the bias has no scale s_x * s_w per output, so it stays float.
    if encoding.scale.ndim and encoding.scale.shape != bias.shape:
        return encoding
    # The calls of a shared layer have one weight and one bias, but inputs of different scales.
    sources = (q_model.plan.input_placement(call.name, 0) for call in calls)
    steps = [activations[q_model.plan.pair_of(source).name].scale for source in sources if source is not None]
    found = make_room_for_bias(encoding, bias, steps)
    if len(steps) > 1:
        wanted = make_room_for_bias(encoding, bias, [max(steps)])
        check_kept(placement.layer, wanted.dequantized(), found.dequantized(), steps)
    return found
