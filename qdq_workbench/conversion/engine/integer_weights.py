"""`integer_weights`: the weights of a quantized model as integers.

A weight with scale s and zero point z has codes q = saturate(round(w / s) + z) and the value (q - z) * s. Biases
of layers whose input and kernel are quantized are int32 with scale s_x * s_w (Jacob et al. 2018, equation 11).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.errors import ExportError
from qdq_workbench.graph.kinds import HOLDING_ONE
from qdq_workbench.graph_builder import layer_weights
from qdq_workbench.quantizers import numerics
from qdq_workbench.quantizers.bias_room import bias_codes, bias_scale, make_room_for_bias
from qdq_workbench.quantizers.blocks import spread
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_LOST = 0.01  # of the sum of a weight's magnitudes


@dataclasses.dataclass(frozen=True)
class IntegerTensor:
    """A tensor as integers.

    Args:
        codes: The integers, in the Keras layout.
        scale: float32; rank 0, one value per slice along `axis`, or one per block.
        zero_point: int32, of the scale's shape.
        num_bits: Width of the grid.
        axis: The axis of the scales, or None.
        signed: Whether the grid is signed.
        block_size: How many values along `axis` share a scale; the scales then have the shape of the codes, with
            `ceil(C / block_size)` in place of that axis's size. None for no blocks.
    """

    codes: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    num_bits: int
    axis: int | None
    signed: bool = True
    block_size: int | None = None

    def dequantize(self) -> np.ndarray:
        """Return the float32 values of the codes."""
        spec = QuantizerSpec(axis=self.axis, block_size=self.block_size)
        zero_point, scale = (spread(part, self.codes.shape, spec) for part in (self.zero_point, self.scale))
        return (self.codes.astype(np.int64) - zero_point).astype(np.float32) * scale


def integer_weights(q_model: QuantizedModel) -> dict[str, IntegerTensor | np.ndarray]:
    """Return every weight of a quantized model: integers where it is quantized, float arrays elsewhere.

    Args:
        q_model: A model made by `quantize_model`. A bias is converted to integers only if the range of the layer's
            input is known, so calibrate first.

    Returns:
        By name `<layer>/<weight>`: an `IntegerTensor`, or the float array of a weight without a grid. `dequantize()`
        of a quantized weight equals its fake-quantized value bit for bit, except in channels whose bias would
        overflow: as in exported files, these are requantized with the smallest scale with which the bias fits. (A file
        in which a batch normalization is folded has another bias, and makes room for that one.) The bias of a shared
        layer has its own scale at every call: `conv/bias` belongs to the first, `conv#1/bias` to the second.

    Raises:
        NotQuantizedError: If the model was not made by `quantize_model`.

    Example:
        >>> from qdq_workbench import quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(1, name="head", kernel_initializer="ones")(image))
        >>> integer_weights(quantize_model(model))["head/kernel"].codes.tolist()
        [[127], [127]]
    """
    check_quantized(q_model)
    found = quantized_weights(q_model)
    _quantize_biases(q_model, q_model.weight_qparams(), found)
    return found


def quantized_weights(q_model: QuantizedModel) -> dict[str, IntegerTensor | np.ndarray]:
    """Return every weight as `integer_weights` does, before a scale is raised for a bias: biases are floats."""
    qparams = q_model.weight_qparams()
    found: dict[str, IntegerTensor | np.ndarray] = {}
    for call in float_view(q_model).calls:
        if not isinstance(call.operation, keras.layers.Layer):
            continue
        for name, variable in layer_weights(call.operation):
            key = f"{call.node.layer}/{name}"
            values = keras.ops.convert_to_numpy(variable)
            found.setdefault(key, _integers(values, qparams[key]) if key in qparams else values)
    return found


def _integers(values: np.ndarray, qparams: numerics.QParams) -> IntegerTensor:
    spec = qparams.spec
    codes = numerics.quantize(values, qparams)
    return IntegerTensor(
        codes, qparams.scale, qparams.zero_point, spec.num_bits, spec.axis, spec.signed, spec.block_size
    )


def _quantize_biases(q_model: QuantizedModel, qparams: Mapping[str, numerics.QParams], found: dict[str, Any]) -> None:
    """Replace the biases of layers with one quantized kernel and a calibrated input by int32 codes.

    Every call of a shared layer reads another tensor, so the bias has another scale there. Kernel channels whose bias
    would overflow are requantized with a larger scale, as in exported files.
    """
    # Both before the loop, which replaces entries of `found`: the next call of a shared layer needs the float bias.
    floats = {name: values for name, values in found.items() if isinstance(values, np.ndarray)}
    calls = list(_calls_with_bias(q_model, found))
    scales: dict[str, list[np.ndarray]] = {}
    for _, kernel, _, input_scale in calls:
        scales.setdefault(kernel, []).append(input_scale)
    layers = {placement.tensor: placement.layer for placement in q_model.plan.placements}
    for name, kernel, bias, input_scale in calls:
        weight, values = found[kernel], floats[bias]
        # An int32 bias is added to sums with one scale per output; blocks, or scales along the inputs, have none.
        if weight.block_size is not None or weight.scale.shape not in ((), values.shape):
            continue
        spec = qparams[kernel].spec
        given = (weight.codes, weight.scale, weight.zero_point, spec, values)
        codes, scale = make_room_for_bias(*given, scales[kernel])
        found[kernel] = dataclasses.replace(weight, codes=codes, scale=scale)
        if len(scales[kernel]) > 1:
            wanted, least = make_room_for_bias(*given, [max(scales[kernel])])
            check_kept(
                layers[kernel],
                numerics.dequantize(wanted, numerics.QParams(least, weight.zero_point, spec)),
                numerics.dequantize(codes, numerics.QParams(scale, weight.zero_point, spec)),
                scales[kernel],
            )
        step = bias_scale(input_scale, scale)
        integers = bias_codes(values, step)
        if integers is not None:
            zero_point, axis = np.zeros(step.shape, np.int32), 0 if step.ndim else None
            found[name] = IntegerTensor(integers, step, zero_point, 32, axis)


def check_kept(layer: str, wanted: np.ndarray, found: np.ndarray, input_scales: Sequence[np.ndarray]) -> None:
    """Raise ExportError if a weight lost values for the bias of one call that the call with the largest inputs needs.

    At the call with the smallest inputs they are negligible beside the bias; at the others they are not.
    """
    if np.abs(found - wanted).sum() <= _LOST * np.abs(wanted).sum():
        return
    raise ExportError(
        f"The layer {layer!r} is called with inputs of very different sizes, and at the smallest its bias fits int32 "
        "only with a weight scale at which weights are lost for the other calls. Leave it in float, "
        f"spec.add({layer!r}, quantize_input=False, quantize_weight=False), or use one layer per call. Received: input "
        f"scales from {float(min(input_scales)):.3g} to {float(max(input_scales)):.3g}"
    )


def _calls_with_bias(q_model: QuantizedModel, found: dict[str, Any]) -> Iterator[tuple[str, str, str, np.ndarray]]:
    """Yield the calls whose bias can be quantized: the bias's name at this call, kernel, bias, scale of the input."""
    ranges = q_model.activation_ranges()
    for node in q_model.plan.graph.nodes:
        inside = "layer/" if node.is_a(*HOLDING_ONE) else ""
        kernel, bias = f"{node.layer}/{inside}kernel", f"{node.layer}/{inside}bias"
        has_both = isinstance(found.get(kernel), IntegerTensor) and isinstance(found.get(bias), np.ndarray)
        if not has_both or len(node.inputs) != 1:
            continue
        placement = q_model.plan.input_placement(node.name, 0)
        pair = None if placement is None else q_model.plan.pair_of(placement)
        if pair is None or pair.name not in ranges:
            continue
        scale = numerics.qparams_from_range(*ranges[pair.name], pair.quantizer).scale
        yield f"{node.name}/{inside}bias", kernel, bias, scale
