"""The values that a file must hold, as they follow from the model alone: independently of the exporters."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import keras
import numpy as np

from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.folding import batch_norm_gain, folded_weight, spread_gain
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, Range
from qdq_workbench.graph.kinds import ACTIVATION_LAYERS
from qdq_workbench.graph_builder import layer_weights
from qdq_workbench.placement.plan import Placement, PlacementPlan
from qdq_workbench.quantizers import numerics
from qdq_workbench.quantizers.bias_room import least_weight_scale

# A value is the product of a scale, a gain and an integer, in another order in the file.
ROUNDING = 6 * float(np.finfo(np.float32).eps)
_NOTHING = 2.0**-90  # the exporters write smaller biases as 0
_ADDED = {"hard_sigmoid": 3.0, "log1p": 1.0}  # a hard sigmoid is the cut of `x + 3` to 0 and 6, divided by 6
_ZERO = 256 * float(np.finfo(np.float32).tiny)  # the exporters write channels of scales below `tiny` as zeros


@dataclasses.dataclass(frozen=True)
class PlannedValues:
    """A weight of the plan on its grid, with the gain of a folded batch normalization.

    Args:
        placement: Its placement.
        values: The fake-quantized values, in the layout of Keras.
        scales: All scales that occur in it.
        bias: The layer's bias with the shift of a folded normalization; one 0 if it has none.
        raised: The largest scale that the int32 bias of the layer may need.
        begins_with: The result of `activation_begins_with` for the layer.
    """

    placement: Placement
    values: np.ndarray
    scales: np.ndarray
    bias: np.ndarray
    raised: float
    begins_with: tuple[float, ...] | None = (0.0,)

    @functools.cached_property
    def ascending(self) -> np.ndarray:
        """The values in ascending order."""
        return np.sort(self.values.astype(np.float32), axis=None)


def planned_weights(q_model: QuantizedModel, held: Collection[str] | None = None) -> Iterator[PlannedValues]:
    """Yield the planned integer weights of a model; with `held`, those of these tensors alone.

    The model is planned for the file's target.
    """
    qparams, ranges = q_model.weight_qparams(), q_model.activation_ranges()
    layers = {call.node.layer: call.operation for call in float_view(q_model).calls}
    folds = {fold.layer.layer: fold for fold in q_model.plan.lowering.folds}
    for placement in q_model.plan.placements:
        if placement.weight is None or (held is not None and placement.tensor not in held):
            continue
        own, fold = qparams[placement.tensor], folds.get(placement.layer)
        floats = dict(layer_weights(layers[placement.layer]))
        values = np.asarray(numerics.fake_quantize(_array(floats[placement.weight]), own))
        scales = np.asarray(own.scale, np.float64)
        bias = floats.get(placement.weight.removesuffix("kernel") + "bias")
        added = np.zeros(1) if bias is None else _array(bias)
        if fold is not None and folded_weight(fold.layer.class_name, placement.weight):
            gain, shift = batch_norm_gain(layers[fold.batch_norm.layer])
            values = values * spread_gain(fold.layer.class_name, gain, values.shape)
            scales = np.multiply.outer(scales, np.abs(gain))  # more than there are: a channel has one of each
            added = added * gain + shift
        raised = [
            least_weight_scale(added, step).max() for step in _input_scales(q_model.plan, placement.layer, ranges)
        ]
        most, begins_with = float(max(raised, default=0.0)), activation_begins_with(layers[placement.layer])
        yield PlannedValues(placement, values, scales, added, most, begins_with)


def activation_begins_with(layer: Any) -> tuple[float, ...] | None:
    """Return what the bias of a layer in a file may hold beside the model's, because the activation inside adds it.

    TensorFlow adds up constants in a row, within a layer, too. None stands for a function of the user, or a layer that
    is no activation, which may begin with any arithmetic.
    """
    inside: Any = getattr(layer, "activation", None)
    while hasattr(inside, "activation"):  # a layer given as an activation
        inside = inside.activation
    if inside is not None and not str(getattr(inside, "__module__", "")).startswith("keras."):
        return None
    if isinstance(inside, keras.layers.Layer):
        return (0.0,) if type(inside).__name__ in ACTIVATION_LAYERS else None
    added = _ADDED.get(getattr(inside, "__name__", ""))
    return (0.0,) if added is None else (0.0, added)


def difference(planned: PlannedValues, held: np.ndarray, steps: np.ndarray, raised: float = 0.0) -> str:
    """Return how the values of a weight in a file differ from the planned ones; "" for not.

    `held` are the file's values in ascending order, which does not depend on their layout, and `steps` all their
    scales; `raised` is a scale that the file's own bias needs, with the constants that it absorbed.
    """
    wanted = planned.values if planned.values.size != held.size else planned.ascending
    if wanted.size != held.size:
        return f"it holds {held.size} values, and the model's {wanted.size}"
    apart, allowed = np.abs(wanted - held), ROUNDING * np.abs(wanted) + np.float32(_ZERO)
    if (apart <= allowed).all():
        return ""
    # Scales are raised where an int32 bias would overflow, and the weights rounded again.
    most = max(raised, planned.raised) * (1 + ROUNDING)
    scale = steps[(steps > planned.scales.min(initial=np.inf)) & (steps <= most)].max(initial=0.0)
    if (apart <= allowed + 0.5 * scale * (1 + ROUNDING)).all():
        return ""
    return f"{int((apart > allowed).sum())} of {held.size} values are not the model's, by up to {apart.max():.3g}"


def bias_difference(
    wanted: np.ndarray, magnitude: np.ndarray, begins_with: tuple[float, ...], held: tuple[np.ndarray, np.ndarray]
) -> str:
    """Return how the bias of a kernel differs from the model's with any one of the constants behind it; "" for not.

    `magnitude` is the sum of the magnitudes of the terms of the model's bias, `begins_with` the result of
    `activation_begins_with`, `held` the file's values and the steps of its integers, 0 for floats.
    """
    told = [_bias_difference(wanted + added, magnitude + added, *held) for added in begins_with]
    return told[0] if all(told) else ""


def _bias_difference(wanted: np.ndarray, magnitude: np.ndarray, values: np.ndarray, steps: np.ndarray) -> str:
    # An int32 bias is within half a step.
    try:
        apart = np.abs(np.broadcast_to(wanted, np.broadcast_shapes(values.shape, wanted.shape)) - values)
    except ValueError:
        return f"it has {values.size} values, and the model's {wanted.size}"
    wrong = apart > 0.5 * steps * (1 + ROUNDING) + ROUNDING * magnitude + _NOTHING
    if not wrong.any():
        return ""
    return f"{int(wrong.sum())} of {wrong.size} values are not the model's, by up to {apart.max():.3g}"


def _input_scales(plan: PlacementPlan, layer: str, ranges: Mapping[str, Range]) -> list[np.ndarray]:
    """Return the scale of a layer's input at every call whose input is quantized."""
    scales = []
    for call in plan.graph.calls(layer):
        placement = plan.input_placement(call.name, 0)
        if placement is not None:
            pair = plan.pair_of(placement)
            scales.append(numerics.qparams_from_range(*ranges[pair.name], pair.quantizer).scale)
    return scales


def _array(variable: keras.Variable) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(variable))
