"""Letting the settings of one value reach the placements that left them open, so that it is quantized once.

A reader without settings of its own takes those of the tensor's output. An output pair that a target asked for takes
those of its readers, where they agree, or of the tensors that it shares its scale with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.placement import Placement
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_How = tuple[QuantizerSpec, QuantizerMethod | None]


def share_settings(placements: Sequence[Placement], decisions: Mapping[str, Decision]) -> list[Placement]:
    """Return the placements, those without settings of their own adapted to those that have some.

    Args:
        placements: All placements, those of the target included.
        decisions: The decisions about the nodes, which hold the settings.
    """
    if all(decision.settings is None for decision in decisions.values()):
        return list(placements)
    by_value: dict[str, list[Placement]] = {}
    for placement in placements:
        if placement.site != "weight":
            by_value.setdefault(placement.tensor, []).append(placement)
            if placement.scale_group:
                by_value.setdefault(f"group {placement.scale_group}", []).append(placement)
    return [_adapted(placement, by_value, decisions) for placement in placements]


def _adapted(
    placement: Placement, by_value: Mapping[str, list[Placement]], decisions: Mapping[str, Decision]
) -> Placement:
    if placement.site == "weight" or _is_explicit(placement, decisions):
        return placement
    others = by_value[placement.tensor]
    found = _only(p for p in others if p.site == "output" and _is_explicit(p, decisions))
    if found is None and placement.author == "target":
        found = _only(p for p in others if p.author != "target")
        group = by_value.get(f"group {placement.scale_group}", ())
        found = found or _only(p for p in group if p.author != "target")
    if found is None:
        return placement
    return dataclasses.replace(placement, quantizer=found[0], method=found[1])


def _is_explicit(placement: Placement, decisions: Mapping[str, Decision]) -> bool:
    decision = decisions.get(placement.node)
    if decision is None or decision.settings is None:
        return False
    return ("activation" if placement.site == "input" else "output") in decision.settings


def _only(placements: Iterable[Placement]) -> _How | None:
    """Return how these placements quantize, where all of them agree."""
    found = {(placement.quantizer, placement.method) for placement in placements}
    return found.pop() if len(found) == 1 else None
