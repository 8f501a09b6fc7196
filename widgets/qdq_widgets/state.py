"""The state of the bench as values that are never changed, and the plans that follow from them.

A `BenchState` holds what the user decided; a `Planner` holds the model's graph, built once, and turns a state into
a plan. Library cases look at the graph only, so that re-planning after a click needs no Keras at all.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError

PlanKey = Hashable

RECENT_PLANS = 12


@dataclasses.dataclass(frozen=True)
class BenchState:
    """What the user decided: everything that a plan follows from.

    Args:
        spec: The specification; it is replaced, never changed.
        cases: The insertion cases, in the order in which they were applied.
        mode: "full" or "partial".
        target: Name of the target.
    """

    spec: Any
    cases: tuple[Any, ...] = ()
    mode: str = "full"
    target: str = "tensorrt"

    def replace(self, **changes: Any) -> BenchState:
        """Return a state with some fields changed.

        Args:
            **changes: Fields with their new values.
        """
        return dataclasses.replace(self, **changes)

    def without_entry(self, position: int) -> BenchState:
        """Return a state without one entry of the specification.

        Args:
            position: Its place in the list, from 0.
        """
        return self.replace(spec=spec_of(e for index, e in enumerate(self.spec.layers) if index != position))


class Planner:
    """Plans states of one model; the graph is read once.

    Args:
        model: A built Keras model.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.graph = qdq.build_graph(model)
        self._possible: dict[str, Any] = {}
        self._recent: collections.deque[tuple[BenchState, Any]] = collections.deque(maxlen=RECENT_PLANS)

    def plan(self, state: BenchState) -> Any:
        """Return the plan of a state; the last few are remembered, since clicks go back and forth.

        Args:
            state: The state.

        Raises:
            QDQError: If the state does not fit the model; see `qdq_workbench.plan_placement`.
        """
        if not isinstance(state.target, str):
            raise BenchError(
                "A Workbench takes the name of a target, among which its menu switches; pass an altered one to "
                f"qdq_workbench.quantize_model(model, target=...). Received: a {type(state.target).__name__}"
            )
        if not is_all_there_is(state):
            return self._planned(self.model, state)
        for known, plan in self._recent:
            if known == state:
                return plan
        plan = self._planned(self.graph, state)
        self._recent.appendleft((state, plan))
        return plan

    def _planned(self, source: Any, state: BenchState) -> Any:
        plan = qdq.plan_placement(source, state.mode, state.spec, state.cases, target=state.target)
        if plan.graph is self.graph or plan.graph != self.graph:
            return plan
        return dataclasses.replace(plan, graph=self.graph)  # a history would hold as many graphs as plans

    def possible(self, target: str) -> Any:
        """Return the plan that quantizes everything that can be quantized, for telling what a switch can do.

        Args:
            target: Name of the target.
        """
        if target not in self._possible:
            everything = qdq.QuantizationSpec()
            everything.add("*", match="glob", quantize_output=True)
            self._possible[target] = self.plan(BenchState(everything, target=target))
        return self._possible[target]


def is_all_there_is(state: BenchState) -> bool:
    """Return whether a plan follows from its state alone; what a user's case or `QuantizeConfig` asks, nobody knows.

    Args:
        state: The state.
    """
    own_cases = all(map(_needs_graph_only, state.cases))
    return own_cases and not any(_asks_the_layer(entry.quantize_config) for entry in state.spec.layers)


def spec_of(entries: Any) -> Any:
    """Return a specification that holds these entries, which the states of a bench share.

    Args:
        entries: `LayerConfig` objects that nobody changes.
    """
    spec = qdq.QuantizationSpec()
    spec.layers = list(entries)
    return spec


def sharing(plan: Any, other: Any) -> Any:
    """Return an equal plan that takes what it has in common with another one from there, and holds nothing derived.

    Args:
        plan: A `PlacementPlan`.
        other: Another one of the same model.
    """
    fields: dict[str, Any] = {}
    for name in ("placements", "unquantized"):
        known = {item: item for item in getattr(other, name)}
        fields[name] = tuple(known.get(item, item) for item in getattr(plan, name))
    before = other.decisions
    fields["decisions"] = {k: before[k] if before.get(k) == v else v for k, v in plan.decisions.items()}
    return dataclasses.replace(plan, **fields)


def plan_key(plan: Any) -> PlanKey:
    """Return what decides the model that a plan gives: equal keys, equal quantized models.

    Args:
        plan: A `PlacementPlan`.
    """
    # Asked some ten times per click, and plans do not change.
    known: PlanKey | None = plan.__dict__.get("_bench_key")
    if known is None:
        known = (plan.target, tuple((p.key, p.pair_key, p.scale_group) for p in plan.placements))
        plan.__dict__["_bench_key"] = known
    return known


def decided(plan: Any) -> list[str]:
    """Return the layers that spec, cases and defaults quantize, without those where only the target asks for a pair.

    Args:
        plan: A `PlacementPlan`.
    """
    chosen = {plan.graph.node(name).layer for name, decision in plan.decisions.items() if not decision.is_float}
    placed = {placement.layer for placement in plan.placements}
    return [layer for layer in plan.graph.layers if layer in chosen and layer in placed]


def diff_rows(diff: Any) -> list[tuple[str, str, str, str, str]]:
    """Return one row per changed placement: sign, layer, site, grid, reason.

    Args:
        diff: A `PlanDiff`.
    """
    rows = [("+", *_row(placement)) for placement in diff.added]
    rows += [("-", *_row(placement)) for placement in diff.removed]
    rows += [("±", *_row(after)) for _, after in diff.changed]
    return rows


def site_text(placement: Any) -> str:
    """Return the place of a placement inside its layer: `input 0`, `kernel` or `output`.

    Args:
        placement: A `Placement`.
    """
    if placement.site == "input":
        return f"input {placement.input_index}"
    return placement.weight or "output"


def case_names(cases: Sequence[Any]) -> list[str]:
    """Return the names by which plans call some cases.

    Args:
        cases: Insertion cases.
    """
    return [case.name for case in cases]


def _row(placement: Any) -> tuple[str, str, str, str]:
    method = f", {placement.method.label}" if placement.method is not None else ""
    why = f"{placement.author}: {placement.reason}"
    return placement.layer, site_text(placement), placement.quantizer.label + method, why


def _needs_graph_only(case: Any) -> bool:
    """The library's own cases do; a user's case, also one derived from them, may look at the Keras model."""
    return type(case).__module__.partition(".")[0] == "qdq_workbench" and hasattr(case, "case_for_graph")


def _asks_the_layer(config: Any) -> bool:
    """Plain settings need the graph only; a `QuantizeConfig` of the user's own is asked about the Keras layer."""
    return config is not None and not isinstance(config, qdq.LayerQuantizeConfig)
