"""The state of the bench as immutable values, and the plans that follow from them.

A `BenchState` holds the user's decisions; a `Planner` holds the model's graph, built once, and turns a state into a
plan. The cases of the library need the graph only, so that planning after a click does not need the Keras model.
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
    """The user's decisions, from which a plan follows.

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
        """Return a state with some fields changed."""
        return dataclasses.replace(self, **changes)

    def without_entry(self, position: int) -> BenchState:
        """Return a state without the entry of the specification at an index."""
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
        """Return the plan of a state; the last few are cached, since clicks go back and forth.

        Raises:
            QDQError: If the state does not fit the model; see `qdq_workbench.plan_placement`.
        """
        if not isinstance(state.target, str):
            raise BenchError(
                "A Workbench takes the name of a target, among which its menu switches; pass an altered one to "
                f"qdq_workbench.quantize_model(model, target=...). Received: a {type(state.target).__name__}"
            )
        # Not cached: a case of the user's may read the weights, or answer otherwise the next time.
        if not is_all_there_is(state):
            return self._planned(self.model, state)
        # Of a copy: measuring plans in another thread, and a deque that grows cannot be iterated.
        for known, plan in list(self._recent):
            if known == state:
                return plan
        plan = self._planned(self.graph, state)
        self._recent.appendleft((state, plan))
        return plan

    def _planned(self, source: Any, state: BenchState) -> Any:
        plan = qdq.plan_placement(source, state.mode, state.spec, state.cases, target=state.target)
        if plan.graph is self.graph or plan.graph != self.graph:
            return plan
        return dataclasses.replace(plan, graph=self.graph)  # one graph for all plans of a history

    def possible(self, target: str) -> Any:
        """Return the plan for a target that quantizes every site that can be quantized."""
        if target not in self._possible:
            everything = qdq.QuantizationSpec()
            everything.add("*", match="glob", quantize_output=True)
            self._possible[target] = self.plan(BenchState(everything, target=target))
        return self._possible[target]

    def usual_inputs(self, node: Any, target: str) -> tuple[int, ...]:
        """Return the inputs of a node that are quantized without an index: masks and initial states are not."""
        decision = self.possible(target).decisions.get(node.name)
        return tuple(range(len(node.inputs))) if decision is None else tuple(decision.input_indices)


def is_all_there_is(state: BenchState) -> bool:
    """Return whether a plan follows from its state alone; a user's case or `QuantizeConfig` may read other things."""
    own_cases = all(map(_needs_graph_only, state.cases))
    return own_cases and not any(_asks_the_layer(entry.quantize_config) for entry in state.spec.layers)


def spec_of(entries: Any) -> Any:
    """Return a specification with the given entries; states share them, so that they must not be changed."""
    spec = qdq.QuantizationSpec()
    spec.layers = list(entries)
    return spec


def sharing(plan: Any, other: Any) -> Any:
    """Return an equal plan that shares equal parts with another plan of the model, and has no cached values."""
    fields: dict[str, Any] = {}
    for name in ("placements", "unquantized"):
        known = {item: item for item in getattr(other, name)}
        fields[name] = tuple(known.get(item, item) for item in getattr(plan, name))
    before = other.decisions
    fields["decisions"] = {k: before[k] if before.get(k) == v else v for k, v in plan.decisions.items()}
    return dataclasses.replace(plan, **fields)


class _PlacedKey:
    """Target and placements of a plan, as a key that is hashed once: a tuple of hundreds is hashed at every use."""

    __slots__ = ("_content", "_hash")

    def __init__(self, plan: Any) -> None:
        self._content = (plan.target, tuple((p.key, p.pair_key, p.scale_group) for p in plan.placements))
        self._hash = hash(self._content)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _PlacedKey):
            return NotImplemented
        return self is other or (self._hash == other._hash and self._content == other._content)


def plan_key(plan: Any) -> PlanKey:
    """Return a key of a plan: plans with equal keys give equal quantized models."""
    # Cached: it is needed some ten times per click, and plans do not change.
    known: PlanKey | None = plan.__dict__.get("_bench_key")
    if known is None:
        known = plan.__dict__["_bench_key"] = _PlacedKey(plan)
    return known


def decided(plan: Any) -> list[str]:
    """Return the layers that spec, cases and defaults quantize, without those where only the target adds a pair."""
    chosen = {plan.graph.node(name).layer for name, decision in plan.decisions.items() if not decision.is_float}
    placed = {placement.layer for placement in plan.placements}
    return [layer for layer in plan.graph.layers if layer in chosen and layer in placed]


def diff_rows(diff: Any) -> list[tuple[str, str, str, str, str]]:
    """Return one row per changed placement of a `PlanDiff`: sign, layer, site, grid, reason."""
    rows = [("+", *_row(placement)) for placement in diff.added]
    rows += [("-", *_row(placement)) for placement in diff.removed]
    rows += [("±", *_row(after)) for _, after in diff.changed]
    return rows


def site_text(placement: Any) -> str:
    """Return the site of a placement in its layer, such as `input 0`, `kernel` or `output`."""
    if placement.site == "input":
        return f"input {placement.input_index}"
    return placement.weight or "output"


def case_names(cases: Sequence[Any]) -> list[str]:
    """Return the names of insertion cases, as they are in plans."""
    return [case.name for case in cases]


def _row(placement: Any) -> tuple[str, str, str, str]:
    method = f", {placement.method.label}" if placement.method is not None else ""
    why = f"{placement.author}: {placement.reason}"
    return placement.layer, site_text(placement), placement.quantizer.label + method, why


def _needs_graph_only(case: Any) -> bool:
    """Return whether a case is one of the library's; a user's case, also a derived one, may read the Keras model."""
    return type(case).__module__.partition(".")[0] == "qdq_workbench" and hasattr(case, "case_for_graph")


def _asks_the_layer(config: Any) -> bool:
    """Return whether a config is a `QuantizeConfig` of the user's own, which gets the Keras layer."""
    return config is not None and not isinstance(config, qdq.LayerQuantizeConfig)
