"""The fixes of causes: each fix makes a new quantized model, the given one is only read."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import keras
import numpy as np

from qdq_workbench.analysis.levels import FLOAT, add_changes, raise_layers
from qdq_workbench.analysis.switches import Switch
from qdq_workbench.calibration import calibrate
from qdq_workbench.calibration.result import method_settings
from qdq_workbench.conversion.engine.quantize_model import quantize_model
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.retarget import replan as replan_model
from qdq_workbench.conversion.engine.strip import strip
from qdq_workbench.errors import SpecError
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.placement.settings import EVERY_WEIGHT
from qdq_workbench.planning import plan_placement
from qdq_workbench.post_training.norm_statistics import estimate_statistics
from qdq_workbench.post_training.scale_equalization import equalize_scales
from qdq_workbench.spec.quantization_spec import QuantizationSpec

AUTHOR = "diagnosis"
Change = Callable[[QuantizedModel, Any], QuantizedModel]


@dataclasses.dataclass(frozen=True)
class Fix:
    """One way to remove a cause.

    Args:
        text: The fix in imperative form.
        run: Makes the fixed model from a quantized model and samples to calibrate on.
        replan: The same as a change of the plan; None if it changes ranges or weights instead.
        is_about_data: Whether the calibration data may be the cause, so that others may be needed.
    """

    text: str
    run: Change
    replan: Callable[[PlacementPlan], PlacementPlan] | None = None
    is_about_data: bool = False

    def entries(self, spec: QuantizationSpec | None, plan: PlacementPlan) -> QuantizationSpec:
        """Return a copy of `spec`, with which `plan` was made, with an entry per layer that the fix changes.

        Raises:
            SpecError: If the fix does not change the plan.
        """
        if self.replan is None:
            raise SpecError(f"No specification says this: apply the diagnosis instead. Received: {self.text!r}")
        # All of a decision: an entry that repeats what a default says keeps that against cases.
        return add_changes(spec, self.replan(plan), plan.decisions, content=Decision.to_dict)


def planned(text: str, replan: Callable[[PlacementPlan], PlacementPlan]) -> Fix:
    """Return a fix that changes the plan; the model is calibrated again if a tensor has no recorded range."""

    def run(q_model: QuantizedModel, data: Any) -> QuantizedModel:
        other = replan_model(q_model, replan(q_model.plan))
        if other.uncalibrated_tensors():
            _calibrate(other, data, None)
        return other

    return Fix(text, run, replan)


def calibrate_anew(
    text: str, method: str | None = None, pairs: Collection[str] = (), *, is_about_data: bool = False
) -> Fix:
    """Return a fix that calibrates again, by the method of the last calibration if `method` is None.

    Only `pairs`, Q/DQ pairs by name, get a new range; empty for all.
    """

    def run(q_model: QuantizedModel, data: Any) -> QuantizedModel:
        other = replan_model(q_model, q_model.plan)
        _calibrate(other, data, method)
        if pairs:
            # The calibration set all ranges; a copy with the old ones takes over those of `pairs`.
            found = other.activation_ranges()
            other = replan_model(q_model, q_model.plan)
            for layer in other.activation_quantizers:
                ends = [found[pair] for pair in other.pairs_of(layer) if pair in pairs]
                if ends and layer.quantizer.updates_range:
                    layer.set_range(min(low for low, _ in ends), max(high for _, high in ends))
        return other

    return Fix(text, run, is_about_data=is_about_data)


def keep_in_float(switches: Collection[Switch], text: str = "") -> Fix:
    """Return a fix that removes the pairs of these sites; a layer with quantized weights stays in float as a whole.

    An empty text becomes one that names the layers.
    """
    names = ", ".join(sorted({layer for layer, _ in switches}))

    def replan(plan: PlacementPlan) -> PlacementPlan:
        for layer, site in sorted(switches):
            plan = _with_decisions(plan, layer, functools.partial(_without, site=site))
        return plan

    return planned(text or f"leave {names} in float", replan)


def scales_per_channel(layer: str) -> Fix:
    """Return a fix that gives every output channel of a layer's weights its own scale."""

    def change(decision: Decision) -> Decision:
        settings = dict(decision.settings or {})
        own: Mapping[str, Any] = settings.get("weights") or {EVERY_WEIGHT: {}}
        settings["weights"] = {name: {**site, "per_axis": True} for name, site in own.items()}
        return dataclasses.replace(decision, settings=settings)

    text = f"give every channel of the weights of {layer} its own scale (per_axis=True)"
    return planned(text, lambda plan: _with_decisions(plan, layer, change))


def asymmetric_grid(switches: Collection[Switch], tensor: str) -> Fix:
    """Return a fix that gives the pair of a tensor, at these sites, an asymmetric grid."""
    keys = {"input": "activation", "output": "output"}

    def replan(plan: PlacementPlan) -> PlacementPlan:
        for layer, site in sorted(switches):
            if site in keys:
                plan = _with_decisions(plan, layer, functools.partial(_asymmetric, key=keys[site]))
        return plan

    return planned(f"give {tensor} an asymmetric grid (symmetric=False)", replan)


def eight_bits(layer: str) -> Fix:
    """Return a fix that raises a layer to 8 bits."""
    return planned(f"raise {layer} to 8 bits", lambda plan: raise_layers(plan, {layer: 8}))


def layer_in_float(layer: str) -> Fix:
    """Return a fix that leaves a layer in float."""
    return planned(f"leave {layer} in float", lambda plan: raise_layers(plan, {layer: FLOAT}))


def corrected(text: str, correct: Callable[[keras.Model, Any], keras.Model]) -> Fix:
    """Return a fix that corrects the float model, quantizes it as before and calibrates it."""

    def run(q_model: QuantizedModel, data: Any) -> QuantizedModel:
        before = q_model.plan
        model = correct(strip(q_model), data)
        other = quantize_model(model, plan=plan_as_before(model, before))
        calibrate(other, data, **_settings(q_model), verbose=False)
        return other

    return Fix(text, run)


def plan_as_before(model: keras.Model, before: PlacementPlan) -> PlacementPlan:
    """Return a plan of a float model with the decisions of an earlier plan for the layers that both have."""
    fresh = plan_placement(model, quantization_mode=before.mode, target=before.target_object)
    kept = {name: before.decisions.get(name, decision) for name, decision in fresh.decisions.items()}
    return make_plan(fresh.graph, kept, before.mode, before.target_object)


def equalized() -> Fix:
    """Return a fix that equalizes the scales of channels between layers."""
    text = "equalize the scales of the channels (correction.equalize_scales)"
    return corrected(text, lambda model, _: equalize_scales(model))


def weights_to_zero(layer: str, weight: str, channels: Collection[int], axis: int) -> Fix:
    """Return a fix that zeroes the weights of input channels that are always 0, since they only widen the range."""

    def run(q_model: QuantizedModel, data: Any) -> QuantizedModel:
        del data
        other = replan_model(q_model, q_model.plan)
        wrapper = other.wrappers_by_path()[layer]
        variable = getattr(wrapper.layer, weight)
        values = np.array(variable)
        np.moveaxis(values, axis, 0)[list(channels)] = 0.0
        variable.assign(values)
        return other

    return Fix(f"set the weights of {layer} that read those channels to 0", run)


def statistics_taken(text: str) -> Fix:
    """Return a fix that recomputes the moving statistics of batch normalizations from data and calibrates again."""

    def run(q_model: QuantizedModel, data: Any) -> QuantizedModel:
        other = replan_model(q_model, q_model.plan)
        estimate_statistics(other, data, verbose=False)
        _calibrate(other, data, None)
        return other

    return Fix(text, run)


def _calibrate(q_model: QuantizedModel, data: Any, method: str | None) -> None:
    settings = _settings(q_model) if method is None else {"method": method}
    calibrate(q_model, data, **settings, verbose=False)


def _settings(q_model: QuantizedModel) -> dict[str, Any]:
    """Return the settings that the model was calibrated with, as arguments of `calibrate`."""
    described = q_model.calibration
    settings = described.get("settings", {})
    rounding = {"power_of_two": settings["power_of_two"]} if "power_of_two" in settings else {}
    return {"method": described.get("method", "minmax"), **method_settings(settings), **rounding}


def _with_decisions(plan: PlacementPlan, layer: str, change: Callable[[Decision], Decision]) -> PlacementPlan:
    calls = {call.name for call in plan.graph.calls(layer)}
    decisions = {
        name: _by_diagnosis(decision, change(decision)) if name in calls else decision
        for name, decision in plan.decisions.items()
    }
    return make_plan(plan.graph, decisions, plan.mode, plan.target_object)


def _asymmetric(decision: Decision, key: str) -> Decision:
    settings = dict(decision.settings or {})
    settings[key] = {**(settings.get(key) or {}), "symmetric": False}
    return dataclasses.replace(decision, settings=settings)


def _without(decision: Decision, site: str) -> Decision:
    # An integer kernel needs quantized inputs and weights: one of both alone would only cost accuracy.
    if site == "weight" or (site == "input" and decision.quantize_weight):
        return dataclasses.replace(decision, input_indices=(), quantize_weight=False)
    if site == "input":
        return dataclasses.replace(decision, input_indices=())
    return dataclasses.replace(decision, quantize_output=False)


def _by_diagnosis(before: Decision, after: Decision) -> Decision:
    replaced = before.replaced if before.author == AUTHOR else (*before.replaced, before.author)
    return dataclasses.replace(after, author=AUTHOR, reason="changed for the sake of accuracy", replaced=replaced)
