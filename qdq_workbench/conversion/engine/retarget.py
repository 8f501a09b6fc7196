"""`retarget`: the same trained model on the grid of another inference runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras

from qdq_workbench._interrupts import interrupts_held
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.named_types import OTHER_FLOATS, named_types
from qdq_workbench.conversion.engine.quantize_model import build_quantized
from qdq_workbench.conversion.engine.quantized_model import BEGINS_ANEW, QuantizedModel, Range, check_quantized
from qdq_workbench.errors import UncalibratedError
from qdq_workbench.graph_builder import BoundGraph, inner_layers
from qdq_workbench.placement.plan import Placement, PlacementPlan, PlannedTensor
from qdq_workbench.placement.targets import Target
from qdq_workbench.planning import retarget_plan
from qdq_workbench.quantizers.fixed import FixedQuantizer


def retarget(q_model: QuantizedModel, target: str | Target) -> QuantizedModel:
    """Return the quantized model planned for another target, with the ranges that it already has.

    The user's settings, the weights and the ranges stay; the grids change, and the pairs that only a target requires.
    `AutoQDQCase` decides again, for the other target; other cases keep what they decided. No data are needed, because
    `calibrate` records the range of every activation tensor.

    Args:
        q_model: A calibrated model made by `quantize_model`; it is only read.
        target: The other target, one of `target_names()` or a `Target`. The name of the model's own target means the
            model's own, also if it is an altered one; `get_target(name)` is always the registered one.

    Returns:
        A new model for that target, not compiled. A tensor that was not quantized before has the range that the last
        calibration recorded, even if the model was trained since.

    Raises:
        TargetError: If there is no such target.
        NotQuantizedError: If the model was not made by `quantize_model`.
        UncalibratedError: If a tensor that the new target quantizes has no recorded range.

    Example:
        >>> import keras, numpy as np
        >>> from qdq_workbench import calibrate, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> q_model = quantize_model(keras.Model(image, keras.layers.Dense(1, name="head")(image)))
        >>> calibrate(q_model, np.ones((1, 2)), verbose=False).batches
        1
        >>> retarget(q_model, "onnxruntime").activation_quantizers[0].spec.label
        'uint8'
    """
    check_quantized(q_model)
    plan = retarget_plan(q_model.plan, target)
    ranges = ranges_under(q_model, plan)
    planned = [tensor.name for tensor in plan.tensors if tensor.kind == "activation"]
    missing = [name for name in planned if name not in ranges]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise UncalibratedError(
            f"Target {plan.target_label!r} quantizes tensors whose range is unknown: {shown}. Run calibrate(q_model, "
            "data) once; it records the range of every tensor, so that any target can follow. "
            f"Received: {len(missing)} of {len(planned)} tensors without a range"
        )
    return _rebuilt(q_model, plan, ranges, own_class=True)


def ranges_under(q_model: QuantizedModel, plan: PlacementPlan) -> dict[str, Range]:
    """Return the initial ranges of the Q/DQ pairs of another plan of the same graph, by the pairs' names.

    In this order of precedence: the range of the model's pair with the same settings on the same tensor (that of the
    same reader, if there are several), the fixed range of the pair's method, the range recorded by `calibrate`, the
    range of any pair on the tensor.
    """
    present, recorded = q_model.activation_ranges(), q_model.recorded_ranges
    by_place: dict[tuple[Any, ...], Range] = {}
    by_settings: dict[tuple[Any, ...], Range] = {}
    by_tensor: dict[str, Range] = {}
    for placement in q_model.plan.placements:
        name = q_model.plan.pair_of(placement).name
        if placement.site != "weight" and name in present:
            # Readers of one tensor may have pairs of their own with other ranges, so the reader decides first.
            by_place[placement.key, _settings(placement)] = present[name]
            by_settings.setdefault(_settings(placement), present[name])
            by_tensor.setdefault(placement.tensor, present[name])
    found: dict[str, Range] = {}
    for placement in plan.placements:
        if placement.site != "weight":
            ends = by_place.get((placement.key, _settings(placement)))
            if ends is not None:
                found.setdefault(plan.pair_of(placement).name, ends)
    for pair in plan.tensors:
        if pair.kind == "activation" and pair.name not in found:
            ends = by_settings.get(_settings(pair)) or _fixed_range(pair)
            ends = ends or recorded.get(pair.tensor) or by_tensor.get(pair.tensor)
            if ends is not None:
                found[pair.name] = ends
    return found


def _settings(placed: Placement | PlannedTensor) -> tuple[Any, ...]:
    """Return the settings that two pairs must have in common to share a range; the target determines the others."""
    return placed.tensor, placed.quantizer.num_bits, placed.method


def _fixed_range(pair: PlannedTensor) -> Range | None:
    """Return the range that a pair's method fixes, or None."""
    if pair.method is None or pair.method.name != FixedQuantizer.method_name:
        return None
    arguments = pair.method.arguments
    return float(arguments["init_min"]), float(arguments["init_max"])


def in_float32(q_model: QuantizedModel) -> QuantizedModel:
    """Return the model itself if it computes in float32, else a copy that does.

    ONNX Runtime's integer kernels and QuantizeLinear are combined with float32; half precision is for training.
    """
    check_quantized(q_model)
    layers = [layer for layer in inner_layers(q_model) if not isinstance(layer, keras.layers.InputLayer)]
    # The policy of an InputLayer is the global one; its tensor may have another dtype.
    used = {layer.compute_dtype for layer in layers} | {tensor.dtype for tensor in q_model.inputs}
    if not used & OTHER_FLOATS and not named_types(float_view(q_model), q_model.plan):
        return q_model
    return _rebuilt(q_model, q_model.plan, q_model.activation_ranges(), float32=True)


def replan(q_model: QuantizedModel, plan: PlacementPlan) -> QuantizedModel:
    """Return a copy of a calibrated model with the Q/DQ pairs of another plan; unknown ranges stay uncalibrated."""
    check_quantized(q_model)
    return _rebuilt(q_model, plan, ranges_under(q_model, plan))


@interrupts_held()
def _rebuilt(
    q_model: QuantizedModel,
    plan: PlacementPlan,
    ranges: Mapping[str, Range],
    *,
    float32: bool = False,
    own_class: bool = False,
) -> QuantizedModel:
    """Return a copy of a quantized model under a plan of the same graph; pairs without a range stay uncalibrated."""
    view = _in_planned_order(float_view(q_model))
    if own_class:
        view = dataclasses.replace(view, model=q_model)
    wrappers = q_model.wrappers_by_path()
    configs = {path: wrapper.kept_quantize_config for path, wrapper in wrappers.items()}
    other = build_quantized(
        view, plan, q_model.name, q_model.source_output_names, float32=float32, configs=configs, wrappers=wrappers
    )
    same = {layer.tensor: layer for layer in q_model.activation_quantizers}
    frozen = {name: bool(layer.frozen.numpy()) for name, layer in same.items()}
    begins_anew = bool(q_model.calibration.get(BEGINS_ANEW))
    for layer in other.activation_quantizers:
        ends = [ranges[pair] for pair in other.pairs_of(layer) if pair in ranges]
        # The pairs of a scale group share this layer, whose range must contain theirs.
        if ends:
            layer.set_range(min(low for low, _ in ends), max(high for _, high in ends))
        if layer.tensor in same and layer.quantizer.is_learned:
            layer.copy_state(same[layer.tensor])  # a learned scale is more precise than one computed from the range
        # A new pair is frozen, as after `calibrate`, unless its step is learned or training begins anew.
        layer.frozen.assign(frozen.get(layer.tensor, not (layer.quantizer.is_learned or begins_anew)))
    other.record({**q_model.recorded_ranges}, q_model.calibration)
    return other


def _in_planned_order(view: BoundGraph) -> BoundGraph:
    """Order the calls as the plan does: their order identifies the calls of a shared layer.

    Pairs change the depths by which Keras orders the calls of a quantized model.
    """
    order = {node.name: position for position, node in enumerate(view.graph.nodes)}
    return dataclasses.replace(view, calls=tuple(sorted(view.calls, key=lambda call: order[call.node.name])))
