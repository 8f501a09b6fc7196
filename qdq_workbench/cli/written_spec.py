"""Spec files that `search` and `sensitivity` write, and the options with which they lead to the plan again."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from qdq_workbench.cli.widths import target_of
from qdq_workbench.errors import SpecError

if TYPE_CHECKING:
    from qdq_workbench.placement.plan import PlacementPlan
    from qdq_workbench.spec.quantization_spec import QuantizationSpec


def write_spec(path: str, spec: QuantizationSpec, plan: PlacementPlan) -> str:
    """Write a specification, and return how it is used: the options that it needs for its plan.

    Args:
        path: The file.
        spec: A specification that leads to the plan without cases.
        plan: The plan.
    """
    spec.save(path)
    mode = [] if plan.mode == "full" else ["--mode", plan.mode]
    options = ["--target", plan.target, *mode, *_widths(plan), "--spec", path]
    use = f"Use {path} with: {shlex.join(options)}"
    if not _is_told(plan):
        use += (
            f"\nThe model's target differs from {plan.target} in more than bits, so in Python: "
            "plan_placement(model, quantization_spec=spec, target=q_model.plan.target_object)"
        )
    if any(decision.overrides for decision in plan.decisions.values()):
        use += "\nSettings of single tensors, as the workbench makes them, are in no spec: use the model or its plan."
    return use


def _widths(plan: PlacementPlan) -> list[str]:
    """Return the options for the bit widths of a plan's target."""
    if plan.altered_target is None:
        return []
    weight, activation = plan.altered_target.weight.num_bits, plan.altered_target.activation.num_bits
    return [
        *(["--weight-bits", str(weight)] if weight != _USUAL else []),
        *(["--activation-bits", str(activation)] if activation != _USUAL else []),
    ]


def _is_told(plan: PlacementPlan) -> bool:
    """Return whether the options of `_widths` lead to the target of a plan."""
    if plan.altered_target is None:
        return True
    target = plan.altered_target
    widths = {
        f"{site}_bits": None if grid.num_bits == _USUAL else grid.num_bits
        for site, grid in (("weight", target.weight), ("activation", target.activation))
    }
    try:
        return target_of(argparse.Namespace(target=target.name, weights_alone=None, **widths)) == target
    except SpecError:  # a width that the options refuse
        return False


_USUAL = 8  # bits, which all registered targets have
