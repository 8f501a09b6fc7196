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

_USUAL = 8  # bits, which all registered targets have


def write_spec(path: str, spec: QuantizationSpec, plan: PlacementPlan) -> str:
    """Write a specification that leads to the plan without cases, and return how it is used: with which options."""
    spec.save(path)
    mode = [] if plan.mode == "full" else ["--mode", plan.mode]
    widths = {f"--{name.replace('_', '-')}": bits for name, bits in _widths(plan).items()}
    given = [text for option, bits in widths.items() if bits is not None for text in (option, str(bits))]
    options = ["--target", plan.target, *mode, *given, "--spec", path]
    use = f"Use {path} with: {shlex.join(options)}"
    if not _is_told(plan):
        use += (
            f"\nThe model's target differs from {plan.target} in more than bits, so in Python: "
            "plan_placement(model, quantization_spec=spec, target=q_model.plan.target_object)"
        )
    if any(decision.overrides for decision in plan.decisions.values()):
        use += "\nSettings of single tensors, as the workbench makes them, are in no spec: use the model or its plan."
    return use


def _widths(plan: PlacementPlan) -> dict[str, int | None]:
    """Return the bit widths of a plan's target as the options of that name take them; None for the usual one."""
    target = plan.target_object
    widths = {"weight_bits": target.weight.num_bits, "activation_bits": target.activation.num_bits}
    return {name: None if bits == _USUAL else bits for name, bits in widths.items()}


def _is_told(plan: PlacementPlan) -> bool:
    """Return whether the options of `_widths` lead to the target of a plan."""
    if plan.altered_target is None:
        return True
    try:
        told = target_of(argparse.Namespace(target=plan.target, weights_alone=None, **_widths(plan)))
    except SpecError:  # a width that the options refuse
        return False
    return told == plan.altered_target
