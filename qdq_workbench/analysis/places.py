"""Other places for the pairs of a layer than the plan's: all operands, one operand, the output, or none."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from qdq_workbench.analysis.levels import FLOAT, Level, pairs_level, raise_layers
from qdq_workbench.graph.kinds import MERGES, POOLINGS
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.placement.plan import PlacementPlan

_MOST_SINGLE = 4  # a merge of more tensors has pairs on all of its inputs or on none


def can_move_pairs(plan: PlacementPlan, layer: str) -> bool:
    """Return whether a search may move the pairs of a layer: all its calls merge, pool or activate."""
    return all(_is_movable(call) and call.name in plan.decisions for call in plan.graph.calls(layer))


def pair_levels(plan: PlacementPlan, members: Sequence[str]) -> list[Level]:
    """Return the levels that move the pairs of equal layers, without levels that lead to the same pairs."""
    seen = {pairs_of(plan)}
    found: list[Level] = []
    for level in every_pair_level(plan, members):
        places = pairs_of(raise_layers(plan, dict.fromkeys(members, level)))
        if places not in seen:
            seen.add(places)
            found.append(level)
    return found


def every_pair_level(plan: PlacementPlan, members: Sequence[str]) -> list[Level]:
    """Return the levels that move the pairs of equal layers; some may lead to the same pairs beside other layers."""
    decision = plan.decisions[plan.graph.calls(members[0])[0].name]
    return _levels(plan, members[0], tuple(decision.input_indices), output=decision.quantize_output)


def pairs_of(plan: PlacementPlan) -> frozenset[Any]:
    """Return the pair of every operand, model output and weight of a plan: equal sets mean equal files."""
    found: set[Any] = {(p.layer, p.weight, p.pair_key) for p in plan.placements if p.site == "weight"}
    owners = plan.range_owners
    for node in plan.graph.nodes:
        for index in range(len(node.inputs)):
            placement = plan.input_placement(node.name, index)
            if placement is not None:
                # With the owner of the range: in another scale group the same pair has another scale.
                found.add((node.name, index, placement.pair_key, owners.get(plan.pair_of(placement).name)))
    for tensor in plan.graph.outputs:
        placement = plan.output_placement(tensor)
        if placement is not None:
            found.add((tensor, placement.pair_key, owners.get(plan.pair_of(placement).name)))
    return frozenset(found)


def by_traffic(plan: PlacementPlan, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the keys of `groups`, sorted by the number of values that a group reads and writes, largest first."""

    def traffic(first: str) -> int:
        calls = [call for layer in groups[first] for call in plan.graph.calls(layer)]
        shapes = [plan.graph.tensors[name].shape[1:] for call in calls for name in (*call.inputs, *call.outputs)]
        return sum(math.prod(size or 1 for size in shape) for shape in shapes)

    return sorted(groups, key=lambda first: -traffic(first))


def _is_movable(node: Node) -> bool:
    return node.is_a(*MERGES, *POOLINGS) or node.is_activation


def _levels(plan: PlacementPlan, layer: str, own: tuple[int, ...], *, output: bool) -> list[Level]:
    """Return every level of pairs but the plan's own, and float; fewer pairs come first."""
    count = min(len(call.inputs) for call in plan.graph.calls(layer))
    everything = tuple(range(count))
    some = [(index,) for index in everything] if 1 < count <= _MOST_SINGLE else []
    levels: list[Level] = []
    for inputs, with_output in itertools.product(((), *some, everything), (False, True)):
        if not inputs and not with_output:
            # The level that the ladders call float, so that the placement is measured once. It differs from a plan that
            # asks for no pairs where the target completes that one.
            levels.append(FLOAT)
        elif (inputs, with_output) != (own, output):
            levels.append(pairs_level(inputs, output=with_output))
    return levels
