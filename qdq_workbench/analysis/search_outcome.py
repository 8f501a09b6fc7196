"""The confirmation of a search's result on held-out samples, and the sentence about the outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from qdq_workbench.analysis.levels import FLOAT
from qdq_workbench.analysis.search_goal import Goal
from qdq_workbench.analysis.search_judge import Judge
from qdq_workbench.analysis.search_known import key_of
from qdq_workbench.analysis.search_result import SearchStep
from qdq_workbench.analysis.search_trials import Measured, Trials

# A refusal may be chance of few samples, so that many placements are asked for by cost before accuracy decides.
_REFUSED_BY_COST = 16
_REFUSED_AT_MOST = 24


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """What confirms a placement.

    Args:
        judge: The metric on the samples that confirm, or the user's `confirm`.
        samples: How many samples confirm; 0 with a function of the user's.
        reused: How many of them also chose the placement, because the user gave them twice.
        by: Name of the user's function; empty for samples.
    """

    judge: Judge
    samples: int = 0
    reused: int = 0
    by: str = ""


@dataclasses.dataclass(frozen=True)
class Held:
    """The metrics on the held-out samples.

    Args:
        accuracy: The metric of the placement.
        float_accuracy: The metric of the float model.
        quantized_accuracy: The metric of the given plan.
        refused: How many placements met the floor on the samples of the search but not on these.
        source: What measured them.
    """

    accuracy: float
    float_accuracy: float
    quantized_accuracy: float
    refused: int
    source: Confirmation

    @property
    def samples(self) -> int:
        """How many samples confirm the placement; 0 if some of them chose it, or a function confirms it."""
        return 0 if self.source.reused else self.source.samples

    def is_enough(self, goal: Goal) -> bool:
        """Return whether the placement is accurate enough on these samples."""
        return goal.is_accurate(self.accuracy, self.float_accuracy)


def met_of(best: SearchStep, held: Held | None, goal: Goal) -> bool | None:
    """Return whether the constraints are met; None if only samples that chose the placement say so of its accuracy."""
    if not best.meets or (held is not None and not held.is_enough(goal)):
        return False
    return None if goal.has_floor and not _is_independent(held) else True


def _is_independent(held: Held | None) -> bool:
    return held is not None and not held.source.reused


def confirm_best(
    measured: Measured, by_start: Mapping[str, Trials], source: Confirmation | None
) -> tuple[SearchStep, Held | None]:
    """Return the best placement that is confirmed by its built model, a second timing and the held-out samples.

    It is the best of the search if none is confirmed. With it come its metrics on the held-out samples; None without
    a `source`.
    """
    judge = None if source is None else source.judge
    refused: set[str] = set()
    chosen = None
    while chosen is None and (step := _next(measured, refused)) is not None:
        trials = by_start[step.case]
        if trials.time_again(step) is not step or trials.built(step) is not step:
            continue  # its new measurement replaced it, so another one may be the best now
        if judge is None or _is_confirmed(measured, trials.confirmed(step.levels, judge), judge):
            chosen = step
        else:
            refused.add(key_of(step.levels, step.case))
    chosen = chosen or _best_built(measured, by_start)
    if source is None or judge is None:
        return chosen, None
    accuracy = by_start[chosen.case].confirmed(chosen.levels, judge)
    quantized = by_start[""].confirmed({}, judge)
    return chosen, Held(accuracy, measured.float_confirmed(judge), quantized, len(refused), source)


def _is_confirmed(measured: Measured, accuracy: float, judge: Judge) -> bool:
    needs_float = measured.goal.max_loss is not None
    return measured.goal.is_accurate(accuracy, measured.float_confirmed(judge) if needs_float else None)


def _next(measured: Measured, refused: set[str]) -> SearchStep | None:
    """Return the best placement not refused yet: after 16 refusals the most accurate one, after 24 None."""
    meeting = [step for step in measured.steps if step.meets and key_of(step.levels, step.case) not in refused]
    if not meeting or len(refused) >= _REFUSED_AT_MOST:
        return None
    if len(refused) < _REFUSED_BY_COST:
        return min(meeting, key=measured.goal.key)
    return min(meeting, key=lambda step: (-step.accuracy, measured.goal.key(step)))


def _best_built(measured: Measured, by_start: Mapping[str, Trials]) -> SearchStep:
    """Return the best step once all better ones have the accuracy of their built models."""
    while (step := measured.goal.best(measured.steps)) is not by_start[step.case].built(step):
        pass
    return step


def reason_of(
    best: SearchStep, held: Held | None, float_accuracy: float, goal: Goal, *, complete: bool, exact: bool
) -> str:
    """Return a sentence about what was found, and another one if its accuracy is not confirmed."""
    found = _found(best, held, float_accuracy, goal, complete=complete, exact=exact)
    if not best.meets or _is_independent(held):
        return found
    if held is None:
        return (
            f"{found} Its accuracy is not confirmed: give confirm=, a function like evaluate, on samples that evaluate "
            "does not use."
        )
    return (
        f"{found} Its accuracy is not confirmed: {held.source.reused} of the {held.source.samples} confirmation "
        "samples also chose the placement. Give other confirmation data, or none, to hold out half of the data."
    )


def _changes(best: SearchStep) -> str:
    """Return how many layers a placement raises, and in how many it moves pairs."""
    moved = sum(isinstance(level, str) and level != FLOAT for level in best.levels.values())
    count = len(best.levels) - moved
    raised = f"{count or 'no'} layer{'s' * (count != 1)} raised"
    pairs = f"the pairs of {moved} layer{'s' * (moved != 1)} moved"
    if not moved:
        return raised
    return f"{raised} and {pairs}" if count else pairs


def _found(
    best: SearchStep, held: Held | None, float_accuracy: float, goal: Goal, *, complete: bool, exact: bool
) -> str:
    if best.meets and held is not None and not held.is_enough(goal):
        source = held.source
        others = f"by {source.by}" if source.by else f"on the {source.samples} held-out ones"
        return (
            f"The floor is met on the samples that chose the placement ({best.accuracy:.4f}), not {others} "
            f"({held.accuracy:.4f})."
        )
    if best.meets:
        end = "" if complete else "; the search was stopped, so a better placement may exist"
        what = "The best that was measured has"
        if goal.has_floor:
            # "met" is said only of samples that did not choose the placement.
            what = "The floor is met" if _is_independent(held) else "The floor is reached on the samples of the search"
        raised = _changes(best)
        found = f" with {raised}" if goal.has_floor else f" {raised}"
        case = f" from {best.case}" if best.case else ""
        better = "measured better" if goal.is_timed else "is better"
        all_tried = f"; no other placement {better}" if exact and complete else ""
        return f"{what}{found}{case}{_confirmed(held)}{all_tried}{end}."
    if not complete:
        return "The search was stopped before a placement met the constraints."
    if not goal.is_accurate(float_accuracy):
        return "The floor cannot be met: the float model itself does not reach it."
    if goal.has_floor and goal.max_bytes is None and goal.max_ms is None:
        return "The floor is not met by any placement that was tried."
    return "No placement that was tried meets the constraints together; the returned one misses them least."


def _confirmed(held: Held | None) -> str:
    """Return what confirms a placement, as a part of a sentence; empty if nothing does."""
    if held is None or held.source.reused:
        return ""
    refused = f"; {held.refused} others were not" if held.refused else ""
    return f", confirmed {f'by {held.source.by}' if held.source.by else f'on {held.samples} held-out samples'}{refused}"
