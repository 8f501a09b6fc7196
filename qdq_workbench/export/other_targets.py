"""Export for another target than the model was quantized for: the model with its new plan, and notes on it."""

from __future__ import annotations

import keras
import numpy as np

from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.random_inputs import random_inputs
from qdq_workbench.conversion.engine.retarget import retarget
from qdq_workbench.placement.planner import meant_target
from qdq_workbench.placement.targets import Target

_SAMPLES = 16


def planned_for(q_model: QuantizedModel, target: str | Target | None) -> tuple[QuantizedModel, list[str]]:
    """Return the model planned for a target as `meant_target` decides, and notes if it differs from its own."""
    meant = meant_target(q_model.plan, target)
    if meant == q_model.plan.target_object:
        return q_model, []
    other = retarget(q_model, meant)
    return other, _notes(q_model, other)


def _notes(source: QuantizedModel, other: QuantizedModel) -> list[str]:
    """Return a note that the model was planned anew, and for a trained model how far its outputs differ."""
    there, here = other.plan.target_label, source.plan.target_label
    note = f"Planned anew for {there} from the recorded ranges; the model was quantized for {here}."
    optimizer = getattr(source, "optimizer", None)
    # A model that was only compiled has an optimizer as well.
    if optimizer is None or int(optimizer.iterations.numpy()) == 0:
        return [note]
    # By its name `retarget` finds a target that is neither altered nor called like the model's own.
    by_name = other.plan.altered_target is None and other.target != source.target
    meant = repr(other.target) if by_name else "target"
    advice = (
        f"The model was trained on the grid of {here}. On the grid of {there} its outputs differ by "
        f"{100 * _relative_difference(source, other):.2f} % of their mean size ({_SAMPLES} random inputs within the "
        f"calibrated range); evaluate qdq_workbench.retarget(q_model, {meant}) on your data."
    )
    return [note, advice]


def _relative_difference(source: QuantizedModel, other: QuantizedModel) -> float:
    """Return the mean difference of two models' outputs on random inputs, relative to the mean absolute output."""
    inputs = random_inputs(source, _SAMPLES)
    ours, theirs = ([np.asarray(y, np.float64) for y in keras.tree.flatten(m(inputs))] for m in (source, other))
    size = sum(np.abs(y).sum() for y in ours)
    apart = sum(np.abs(x - y).sum() for x, y in zip(ours, theirs, strict=True))
    return float(apart / size) if size else 0.0
