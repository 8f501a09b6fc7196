"""`integer_weights`: the integers behind a quantized model's weights.

A weight with scale s and zero point z has codes q = saturate(round(w / s) + z) and the value (q - z) * s. Biases
of layers whose input and kernel are quantized are int32 with scale s_x * s_w (Jacob et al. 2018, equation 11).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np

from qdq_workbench.conversion.float_view import float_view
from qdq_workbench.conversion.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.graph_builder import layer_weights
from qdq_workbench.quantizers import numerics

_INT32_MAX = 2**31 - 1
_TRANSPARENT_HOLDERS = ("SpectralNormalization", "TimeDistributed")  # they compute what their one layer computes


@dataclasses.dataclass(frozen=True)
class IntegerTensor:
    """A tensor as integers.

    Args:
        codes: The integers, in the Keras layout.
        scale: float32; rank 0, or one value per slice along `axis`.
        zero_point: int32, of the scale's shape.
        num_bits: Width of the grid.
        axis: The axis of the scales, or None.
        signed: Whether the grid is signed.
    """

    codes: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    num_bits: int
    axis: int | None
    signed: bool = True

    def dequantize(self) -> np.ndarray:
        """Return the float32 values that the codes stand for."""
        shape = [1] * self.codes.ndim
        if self.axis is not None:
            shape[self.axis] = -1
        zero_point, scale = (
            part.reshape(shape) if self.axis is not None else part for part in (self.zero_point, self.scale)
        )
        return (self.codes.astype(np.int64) - zero_point).astype(np.float32) * scale


def integer_weights(q_model: QuantizedModel) -> dict[str, IntegerTensor | np.ndarray]:
    """Return every weight of a quantized model: integers where it is quantized, float arrays elsewhere.

    Args:
        q_model: A model made by `quantize_model`. Biases come as integers where the range of the layer's input is
            known, so calibrate first.

    Returns:
        By name `<layer>/<weight>`: an `IntegerTensor`, or the float array of a weight without a grid.
        `dequantize()` of a quantized weight equals its fake-quantized value bit for bit. The bias of a shared layer
        has a scale of its own at every call: `conv/bias` is that of the first, `conv#1/bias` that of the second.

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
    qparams = q_model.weight_qparams()
    found: dict[str, IntegerTensor | np.ndarray] = {}
    for call in float_view(q_model).calls:
        if not isinstance(call.operation, keras.layers.Layer):
            continue
        for name, variable in layer_weights(call.operation):
            key = f"{call.node.layer}/{name}"
            values = keras.ops.convert_to_numpy(variable)
            found.setdefault(key, _integers(values, qparams[key]) if key in qparams else values)
    _quantize_biases(q_model, found)
    return found


def _integers(values: np.ndarray, qparams: numerics.QParams) -> IntegerTensor:
    spec = qparams.spec
    codes = numerics.quantize(values, qparams)
    return IntegerTensor(codes, qparams.scale, qparams.zero_point, spec.num_bits, spec.axis, spec.signed)


def _quantize_biases(q_model: QuantizedModel, found: dict[str, Any]) -> None:
    """Replace the biases of layers with one quantized kernel and a calibrated input by int32 codes.

    A further call of a shared layer reads another tensor, so the bias has another scale there.
    """
    ranges = q_model.activation_ranges()
    graph = q_model.plan.graph
    floats = {name: values for name, values in found.items() if isinstance(values, np.ndarray)}
    for node in graph.nodes:
        inside = "layer/" if node.is_a(*_TRANSPARENT_HOLDERS) else ""
        kernel, bias = found.get(f"{node.layer}/{inside}kernel"), floats.get(f"{node.layer}/{inside}bias")
        if not isinstance(kernel, IntegerTensor) or bias is None or len(node.inputs) != 1:
            continue
        placement = q_model.plan.input_placement(node.name, 0)
        pair = None if placement is None else q_model.plan.pair_of(placement)
        if pair is None or pair.name not in ranges:
            continue
        scale = numerics.qparams_from_range(*ranges[pair.name], pair.quantizer).scale
        codes = _bias_codes(bias, np.asarray(scale * kernel.scale, np.float32))
        if codes is not None:
            found[f"{node.name}/{inside}bias"] = codes


def _bias_codes(bias: np.ndarray, scale: np.ndarray) -> IntegerTensor | None:
    codes = np.rint(bias.astype(np.float64) / scale) if scale.shape in ((), bias.shape) else None
    if codes is None or np.abs(codes).max(initial=0.0) > _INT32_MAX:
        return None
    axis = 0 if scale.ndim else None
    return IntegerTensor(codes.astype(np.int32), scale, np.zeros(scale.shape, np.int32), 32, axis)
