"""Sharing of quantizer settings between the placements on one tensor, so that it has one pair.

A reader without settings of its own takes those of the tensor's output. An output pair without settings takes those
of its readers, if they agree, or of the tensors that it shares its scale with. An output pair that no reader would
read, because all of them have other settings, is dropped if a target added it, and an error if the user asked for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.placement import Placement
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_How = tuple[QuantizerSpec, QuantizerMethod | None]


def share_settings(
    graph: ModelGraph, placements: Sequence[Placement], decisions: Mapping[str, Decision]
) -> list[Placement]:
    """Return the placements; those without settings take over the settings of others, as described above."""
    # Without settings all pairs of a tensor have the target's grid already.
    if all(decision.settings is None and not decision.overrides for decision in decisions.values()):
        return list(placements)
    by_value: dict[str, list[Placement]] = {}
    for placement in placements:
        if placement.site != "weight":
            by_value.setdefault(placement.tensor, []).append(placement)
            if placement.scale_group:
                by_value.setdefault(f"group {placement.scale_group}", []).append(placement)
    # An override holds for every pair on its tensor, so it does not yield to settings of readers.
    overridden = {tensor for decision in decisions.values() for tensor in decision.overrides}
    adapted = [p if p.tensor in overridden else _adapted(p, by_value, decisions) for p in placements]
    inputs = {(p.node, p.input_index): p for p in adapted if p.site == "input"}
    return [placement for placement in adapted if placement.site != "output" or _is_read(graph, placement, inputs)]


def _is_read(graph: ModelGraph, output: Placement, inputs: Mapping[tuple[str, int | None], Placement]) -> bool:
    """Return whether a reader of an output reads the output's pair, not one of its own."""
    own = [inputs.get((node.name, index)) for node, index in graph.readers(output.tensor)]
    if output.tensor in graph.outputs or any(p is None or p.pair_key == output.pair_key for p in own):
        return True
    if output.author != "target":
        raise SpecError(
            f"{output.author} quantizes the output of {output.layer!r}, but every reader of it has quantizer settings "
            "of its own, so nobody would read that pair. Drop quantize_output or the readers' settings. "
            f"Received: {output.quantizer.label} for the output, "
            f"{sorted({p.quantizer.label for p in own if p is not None})} for its readers"
        )
    return False


def _adapted(
    placement: Placement, by_value: Mapping[str, list[Placement]], decisions: Mapping[str, Decision]
) -> Placement:
    if placement.site == "weight" or _is_explicit(placement, decisions):
        return placement
    others = by_value[placement.tensor]
    found = _only(p for p in others if p.site == "output" and _is_explicit(p, decisions))
    if found is None and placement.site == "output":
        found = _only(p for p in others if p.site == "input")
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
    """Return the grid and method that these placements have in common; None if they differ."""
    found = {(placement.quantizer, placement.method) for placement in placements}
    return found.pop() if len(found) == 1 else None
