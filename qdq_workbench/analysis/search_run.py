"""The phases of a search: every start is measured, the most promising ones are refined, the best are timed again."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from qdq_workbench.analysis.levels import FLOAT
from qdq_workbench.analysis.metrics import METRICS
from qdq_workbench.analysis.samples import Samples
from qdq_workbench.analysis.search_moves import Decisions, Moves
from qdq_workbench.analysis.search_starts import Start
from qdq_workbench.analysis.search_strategies import (
    MOST_EXACT,
    climb,
    follow_times,
    move_pairs,
    solve,
    solve_times,
    time_again,
    try_all,
)
from qdq_workbench.analysis.search_trials import Measured, Trials
from qdq_workbench.analysis.sensitivity import sensitivity
from qdq_workbench.analysis.sensitivity_report import SensitivityReport
from qdq_workbench.analysis.switches import SITES
from qdq_workbench.conversion.engine.retarget import replan

_REFINED = 3  # the given plan, and the two most promising cases
# Placements to time are all tried if they are few, or up to `MOST_EXACT` if it takes no longer than this.
_FEW = 64
MOST_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class SearchContext:
    """The state and the parameters of a search.

    Args:
        measured: The measurements of all starts.
        by_start: The trials by the name of their start; the given plan comes first.
        rank: Returns a sensitivity report of the layers that a start quantizes.
        decisions: The choices that the search has.
        stop: Called before every placement; True ends the search.
    """

    measured: Measured
    by_start: Mapping[str, Trials]
    rank: Callable[[Start], SensitivityReport]
    decisions: Decisions
    stop: Callable[[], bool] | None

    def stopped(self) -> bool:
        """Return whether the caller wants the search to end."""
        return self.stop is not None and self.stop()

    def moves(self, trials: Trials) -> Moves:
        """Return the moves of a start."""
        return Moves(trials, self.rank(trials.start), self.decisions, self.stop)


def run(context: SearchContext) -> tuple[bool, bool]:
    """Run the phases of a search.

    Returns:
        Whether it completed, without a stop, and whether every placement that may be better was tried.
    """
    measured, goal = context.measured, context.measured.goal
    given, *others = context.by_start.values()
    measured.prefetch((trials, {}) for trials in context.by_start.values())
    given.of({})
    for number, trials in enumerate(others):
        if context.stopped():
            return False, False
        measured.prefetch((later, {}) for later in others[number:])
        trials.of({})
    if _needs_nothing(context):
        return True, not goal.is_timed
    every = _all_moves(context)
    if every is not None and _is_affordable(every):
        complete = (not goal.has_floor or all(climb(moves) for moves in every)) and try_all(every, whole=True)
        return complete, complete
    promising = sorted(others, key=lambda trials: goal.promise(trials.of({})))
    for trials in (given, *promising[: _REFINED - 1]):
        if context.stopped() or not _refine(context.moves(trials)):
            return False, False
        trials.forget_switches()
    return not goal.is_timed or time_again(measured, context.by_start, context.stopped), False


def _needs_nothing(context: SearchContext) -> bool:
    """Return whether the cheapest start is the optimum already: more bits and float only add size and operations."""
    goal = context.measured.goal
    cheapest = min((trials.of({}) for trials in context.by_start.values()), key=goal.key)
    # Moved pairs may bring operations onto integers, unlike raises; weights keep their bytes.
    if goal.objective == "macs" and context.decisions.pairs and cheapest.float_macs:
        return False
    return cheapest.meets and goal.objective in ("bytes", "macs")


def _all_moves(context: SearchContext) -> list[Moves] | None:
    """Return the moves of every start; None where there are too many placements to try them all."""
    found: list[Moves] = []
    for trials in context.by_start.values():
        found.append(context.moves(trials))
        # After every start, since the moves of the next one may need a sweep.
        if sum(moves.whole_count for moves in found) > MOST_EXACT:
            return None
    return found


def _is_affordable(every: list[Moves]) -> bool:
    """Return whether all placements can be tried; with times it depends on how long it takes to time one."""
    given, count = every[0], sum(moves.whole_count for moves in every)
    if not given.trials.goal.is_timed or count <= _FEW:
        return True
    return count * given.trials.seconds(dict.fromkeys(given.ladders, FLOAT)) <= MOST_SECONDS


def _refine(moves: Moves) -> bool:
    """Change the levels of layers of one start; return whether it completed without a stop."""
    goal = moves.trials.goal
    if goal.has_floor and not climb(moves):
        return False
    untimed = solve if moves.count > MOST_EXACT else lambda moves: try_all([moves], whole=False)
    complete = _refine_times(moves) if goal.is_timed else untimed(moves)
    return complete and (not moves.places or move_pairs(moves))


def _refine_times(moves: Moves) -> bool:
    """Follow the times from the best placement so far, then from what the solver proposes, if that is better."""
    trials = moves.trials
    if not follow_times(moves):
        return False
    best = trials.goal.best(trials.steps)
    complete = solve_times(moves)
    if not complete or trials.goal.best(trials.steps) is best:
        return complete
    return follow_times(moves)


class Ranker:
    """Ranks the layers of every start: layers that the ranking lacks are measured in the model of the start.

    Args:
        q_model: The calibrated model of the given plan.
        samples: The samples of the search.
        ranking: A sensitivity report of that plan.
        checkpoint: The checkpoint of the search, beside which further reports are written; None for none.
        **how: Further arguments of `sensitivity`.
    """

    def __init__(
        self,
        q_model: Any,
        samples: Samples,
        ranking: SensitivityReport,
        checkpoint: str | pathlib.Path | None,
        **how: Any,
    ) -> None:
        self._q_model, self._samples, self._ranking = q_model, samples, ranking
        self._checkpoint, self._how = checkpoint, how
        self._of_start: dict[str, SensitivityReport] = {}

    def __call__(self, start: Start) -> SensitivityReport:
        """Return the report of a start."""
        known = {entry.layer for entry in self._ranking.entries}
        quantized = dict.fromkeys(p.layer for p in start.plan.placements if p.author != "target")
        new = [layer for layer in quantized if layer not in known]
        stop = self._how.get("stop")
        if not new or (stop is not None and stop()):
            return self._ranking
        if start.key not in self._of_start:
            self._of_start[start.key] = self._with(start, new)
        return self._of_start[start.key]

    def _with(self, start: Start, layers: list[str]) -> SensitivityReport:
        """Return the ranking with the entries of further layers."""
        ranking, how = self._ranking, self._how
        # A metric of the caller's own is known by name alone.
        metric = None if ranking.own_metric else METRICS.get(ranking.metric)
        if metric is not None and not (metric.needs_labels and self._samples.labels is None):
            how = {**how, "metric": metric, "mode": ranking.mode}
        swept = {p.layer for p in start.plan.placements if p.site in ranking.sites and p.author != "target"}
        q_model = replan(self._q_model, start.plan)
        entries = list(ranking.entries)
        for has_sites, sites in ((True, ranking.sites), (False, SITES)):
            part = [layer for layer in layers if (layer in swept) is has_sites]
            if not part:
                continue
            beside = self._beside(start, "" if has_sites else ".other")
            found = sensitivity(q_model, self._samples, layers=part, sites=sites, checkpoint=beside, **how).entries
            if not has_sites or "metric" not in how:
                # Values of two metrics, or of other sites, cannot be compared: these layers count as the least
                # sensitive ones.
                least = ranking.ranked()[-1].value
                found = tuple(dataclasses.replace(entry, value=least) for entry in found)
            entries += found
        return dataclasses.replace(ranking, entries=tuple(entries))

    def _beside(self, start: Start, ending: str) -> pathlib.Path | None:
        """Return the checkpoint of a sweep for a start, beside the search's; None without one."""
        if self._checkpoint is None:
            return None
        # The digest alone: the name of a case may contain characters that no file name can have.
        name = start.key.split()[-1] if start.key else "missing"
        return pathlib.Path(self._checkpoint).with_suffix(f".sensitivity.{name}{ending}.json")
