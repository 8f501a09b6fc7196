"""Fixes of an explanation as changes of the specification: the library decides about them, the bench adds entries."""

from __future__ import annotations

import dataclasses
from typing import Any

import qdq_workbench as qdq
from qdq_widgets import toggles
from qdq_widgets.state import BenchState, Planner


def fixed(planner: Planner, state: BenchState, explanation: qdq.results.Explanation) -> tuple[BenchState, Any]:
    """Return the state and the plan with the fixes of an explanation of its plan.

    Only layers that the fixes change get entries: cases and other entries keep deciding about the others.
    """
    after = _entries(explanation)
    # An explanation without layers has no fixes, so that these are the decisions of the plan.
    before = _entries(dataclasses.replace(explanation, layers=()))
    nodes = {name: planner.graph.calls(name)[0] for name in after}
    # All calls of a layer, because the name of its first call stands for all of them.
    changed = {nodes[name].layer for name, entry in after.items() if entry != before.get(name)}
    nodes = {name: node for name, node in nodes.items() if node.layer in changed}
    configs = toggles.configs_of(state, explanation.plan, nodes)
    wishes = {}
    for name, node in nodes.items():
        entry, known = after[name], before.get(name) or before.get(node.layer)
        wishes[name] = toggles.LayerWish(
            tuple(entry.quantization_index or ()), entry.quantize_weight, entry.quantize_output
        )
        # Settings that the fixes leave as they are stay what the user wrote, such as a `QuantizeConfig`.
        if known is None or known.quantize_config != entry.quantize_config:
            configs[name] = entry.quantize_config
    return toggles.with_wishes(planner, state, explanation.plan, wishes, configs)


def _entries(explanation: qdq.results.Explanation) -> dict[str, qdq.LayerConfig]:
    return {entry.name: entry for entry in explanation.apply_fixes().layers}
