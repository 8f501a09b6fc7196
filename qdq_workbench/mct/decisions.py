"""Application of a `QuantizationConfig` to the decisions of a plan, so that it applies to every target."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from qdq_workbench import PlacementPlan, QuantizationMethod
from qdq_workbench.mct.inserted import is_shifted_next
from qdq_workbench.mct.quantization_config import QuantizationConfig
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.placement.settings import EVERY_WEIGHT
from qdq_workbench.post_training.shift_negative import Inserted

_USUAL_BITS = 8


def adapted_plan(
    plan: PlacementPlan,
    config: QuantizationConfig,
    *,
    baked: bool,
    inserted: Mapping[str, Inserted] = MappingProxyType({}),
) -> PlacementPlan:
    """Return the plan with the bit widths, grids and enabled parts (weights, activations) of a configuration.

    Args:
        plan: A plan made with a `FrameworkInfo`.
        config: The configuration.
        baked: Whether the weights hold k-means levels; these are not on an integer grid, so they stay in float.
        inserted: The operations that `shift_negative` has inserted.
    """
    decisions = {
        node.name: _adapted(
            plan.decisions[node.name],
            config,
            baked=baked,
            shifted_next=any(is_shifted_next(plan.graph, tensor, inserted) for tensor in node.outputs[:1]),
        )
        for node in plan.graph.nodes
        if node.name in plan.decisions
    }
    return make_plan(plan.graph, decisions, plan.mode, plan.target_object)


def _adapted(decision: Decision, config: QuantizationConfig, *, baked: bool, shifted_next: bool) -> Decision:
    settings = {**(decision.settings or {})}
    weight = decision.quantize_weight and config.enable_weights_quantization and not baked
    output = decision.quantize_output and config.enable_activation_quantization and not shifted_next
    indices = decision.input_indices if config.enable_activation_quantization else ()
    if weight:
        settings = _with_weights(settings, config)
    else:
        settings.pop("weights", None)
    if config.activation_n_bits != _USUAL_BITS:
        for site, used in (("activation", bool(indices)), ("output", output)):
            if used:
                settings[site] = {**settings.get(site, {}), "num_bits": config.activation_n_bits}
    if not output:
        settings.pop("output", None)
    reason = decision.reason
    if decision.quantize_weight and baked:
        reason += "; the weights hold k-means levels, which are float values"
    return dataclasses.replace(
        decision,
        input_indices=indices,
        quantize_weight=weight,
        quantize_output=output,
        reason=reason,
        settings=settings or None,
    )


def _with_weights(settings: dict[str, Any], config: QuantizationConfig) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if not config.uses_codebook and config.weights_n_bits != _USUAL_BITS:  # the levels of a LUT are on the 8-bit grid
        changes["num_bits"] = config.weights_n_bits
    if config.weights_quantization_method is QuantizationMethod.UNIFORM:
        changes |= {"symmetric": False, "narrow_range": False}
    if not config.weights_per_channel_threshold:
        changes["per_axis"] = False
    if not changes:
        return settings
    known = settings.get("weights") or {EVERY_WEIGHT: {}}
    return {**settings, "weights": {name: {**site, **changes} for name, site in known.items()}}
