"""How a search moves: up a ranking, through every cheaper placement, by a solver on estimates, along measured times."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from qdq_workbench.analysis.levels import FLOAT, Level, ladder_of, raise_layers
from qdq_workbench.analysis.search_result import SearchStep, cost_of
from qdq_workbench.analysis.search_trials import Trials
from qdq_workbench.analysis.sensitivity_report import SensitivityReport

Levels = dict[str, Level]
#: Up to so many placements all are considered: twelve layers that are quantized or in float.
MOST_EXACT = 2**12
_SOLVED = 8
_NEIGHBOURS = 12
_FASTER = 0.99
_TIMED_AGAIN = 4


class Moves:
    """The levels that every layer can take, and what they are estimated to do.

    Args:
        trials: Builds and measures placements.
        ranking: A sensitivity report of the model.
        bits: The numbers of bits that layers with fewer are raised to.
        stop: Asked before every placement.
    """

    def __init__(
        self, trials: Trials, ranking: SensitivityReport, bits: Sequence[int], stop: Callable[[], bool] | None
    ) -> None:
        plan = trials.q_model.plan
        self.trials = trials
        self._stop = stop
        self.ranking = ranking
        self.ladders = {entry.layer: ladder_of(plan, entry.layer, bits) for entry in ranking.ranked()}
        # Every layer takes its first step before any takes its second: more bits are cheaper than float.
        most = max((len(ladder) for ladder in self.ladders.values()), default=1)
        by_step = [
            [(layer, ladder[s]) for layer, ladder in self.ladders.items() if s < len(ladder) - 1]
            for s in range(1, most)
        ]
        raises = [pair for pairs in by_step for pair in pairs]
        self.order = [*raises, *((layer, ladder[-1]) for layer, ladder in self.ladders.items())]
        trials.expected = 2 + 2 * len(self.order).bit_length()

    @property
    def count(self) -> int:
        """How many placements there are."""
        return math.prod(len(ladder) for ladder in self.ladders.values())

    def stopped(self) -> bool:
        """Return whether the caller wants the search to end."""
        return self._stop is not None and self._stop()

    def below(self, layer: str, level: Level) -> Level:
        """Return the next lower level of a layer."""
        ladder = self.ladders[layer]
        return ladder[ladder.index(level) - 1]

    def noise(self) -> dict[tuple[str, Level], float]:
        """Return an estimate of the error that every layer adds at every level: a quarter per bit, none in float."""
        found: dict[tuple[str, Level], float] = {}
        plan = self.trials.q_model.plan
        for place, entry in enumerate(self.ranking.ranked()):
            in_decibels = self.ranking.metric == "sqnr" and self.ranking.mode == "one_on"
            own = 10.0 ** (-entry.value / 10.0) if in_decibels else 0.7**place
            bits = [p.quantizer.num_bits for p in plan.placements if p.layer == entry.layer]
            for level in self.ladders[entry.layer]:
                more = level - min(bits) if isinstance(level, int) else 0
                found[entry.layer, level] = 0.0 if level == FLOAT else own * 4.0**-more
        return found


def climb(moves: Moves) -> bool:
    """Raise layers in the order of the ranking until the constraints are met, then lower what is not needed.

    Returns:
        Whether it came to its end.
    """
    count = _needed(moves)
    if count is None:
        return not moves.stopped()
    return lower(moves, dict(moves.order[:count])) if count else True


def _needed(moves: Moves) -> int | None:
    """Return how many raises meet the constraints; None where all do not, or the search was stopped."""
    failed, count = -1, 0
    while not moves.trials.of(dict(moves.order[:count])).meets:
        if count >= len(moves.order) or moves.stopped():
            return None
        failed, count = count, min(max(1, 2 * count), len(moves.order))
    while count - failed > 1:
        if moves.stopped():
            return None
        middle = (failed + count) // 2
        if moves.trials.of(dict(moves.order[:middle])).meets:
            count = middle
        else:
            failed = middle
    return count


def lower(moves: Moves, levels: Levels) -> bool:
    """Lower raised layers step by step, the dearest first, as long as the constraints are met.

    Returns:
        Whether it came to its end.
    """
    trials = moves.trials
    trials.expected = len(trials.steps) + len(levels)

    def saved(layer: str) -> tuple[int, int]:
        return cost_of(raise_layers(trials.q_model.plan, {**levels, layer: moves.below(layer, levels[layer])}))

    for layer in sorted(levels, key=saved):
        while levels[layer] is not None:
            if moves.stopped():
                return False
            lowered = {**levels, layer: moves.below(layer, levels[layer])}
            if not trials.of(lowered).meets:
                break
            levels = lowered
    return True


def try_all(moves: Moves) -> bool:
    """Measure every placement that may be better than the best so far, the cheapest first.

    Size and operations follow from the plan, so the first placement in their order that meets the constraints is the
    best there is; so is the first that is as accurate as the float model, where accuracy is asked for.

    Returns:
        Whether it came to its end, so that the best is the best of all.
    """
    trials, goal = moves.trials, moves.trials.goal
    candidates = []
    for chosen in itertools.product(*moves.ladders.values()):
        levels = {layer: level for layer, level in zip(moves.ladders, chosen, strict=True) if level is not None}
        weight_bytes, float_macs = cost_of(trials.plan(levels))
        if goal.is_small(weight_bytes):
            # Of an unknown accuracy the best is assumed: what is not better even then need not be tried.
            step = SearchStep(levels, float("inf"), weight_bytes, float_macs, meets=True)
            candidates.append((goal.key(step), levels))
    candidates.sort(key=lambda each: each[0])
    trials.expected = len(trials.steps) + len(candidates)
    for key, levels in candidates:
        best = goal.best(trials.steps)
        width = 3 if goal.objective == "accuracy" else 2  # behind them is the accuracy, which breaks ties
        if best.meets and goal.key(best)[:width] <= key[:width]:
            return True
        if moves.stopped():
            return False
        trials.of(levels)
    return True


def solve(moves: Moves) -> bool:
    """Let a solver choose placements on additive estimates, with more or less room for error, and measure them.

    Returns:
        Whether it came to its end.
    """
    trials, goal = moves.trials, moves.trials.goal
    noise, cost, size = moves.noise(), _costs(moves, goal.objective), _costs(moves, "bytes")
    total = sum(noise[layer, None] for layer in moves.ladders)
    room = None if goal.max_bytes is None else goal.max_bytes - cost_of(trials.q_model.plan)[0]
    if goal.objective == "accuracy":
        chosen = _chosen(moves, noise, size, None, None, room)
        if chosen is None:
            return True
        trials.of(chosen)
        return _improve(moves, chosen, noise)
    lowest, highest = math.log10(max(total, 1e-300)) - 6.0, math.log10(max(total, 1e-300))
    for _ in range(_SOLVED):
        if moves.stopped():
            return False
        middle = (lowest + highest) / 2.0
        chosen = _chosen(moves, cost, size, noise, 10.0**middle, room)
        if chosen is not None and trials.of(chosen).meets:
            lowest = middle
        else:
            highest = middle
    best = goal.best(trials.steps)
    return lower(moves, dict(best.levels)) if best.meets else True


def follow_times(moves: Moves) -> bool:
    """Leave layers in float whose kernels gain least by INT8, as the profile says, and keep what is measured to help.

    Returns:
        Whether it came to its end.
    """
    trials, goal = moves.trials, moves.trials.goal
    everything: Levels = {layer: ladder[-1] for layer, ladder in moves.ladders.items()}
    trials.of(everything)
    best = goal.best(trials.steps)
    groups = [[layer for layer in group if layer in moves.ladders] for group in trials.least_gaining(everything)]
    tried = [group for group in groups if group][:_NEIGHBOURS]
    trials.expected = len(trials.steps) + len(tried)
    for group in tried:
        if moves.stopped():
            return False
        levels = dict(best.levels)
        for layer in group:
            levels[layer] = None if levels.get(layer) == FLOAT else FLOAT
        step = trials.of(levels)
        better = step.meets and (not best.meets or goal.key(step) < goal.key(best))
        if better and (goal.objective != "ms" or (step.ms or 0.0) < _FASTER * (best.ms or math.inf)):
            best = step
    # The fastest of many measurements is partly the luckiest: those that may be chosen are timed once more.
    for step in sorted((step for step in trials.steps if step.meets), key=goal.key)[:_TIMED_AGAIN]:
        if moves.stopped():
            return False
        trials.time_again(step)
    return True


def _improve(moves: Moves, levels: Levels, noise: dict[tuple[str, Level], float]) -> bool:
    """Change single layers of a placement, where the budget allows it, as long as that is measured to help."""
    trials, goal = moves.trials, moves.trials.goal
    best = goal.best(trials.steps)
    order = sorted(moves.ladders, key=lambda layer: -noise[layer, levels.get(layer)])
    for layer in order[:_NEIGHBOURS]:
        for level in moves.ladders[layer]:
            changed = {**best.levels, layer: level}
            if level == best.levels.get(layer) or not goal.is_small(cost_of(trials.plan(changed))[0]):
                continue
            if moves.stopped():
                return False
            trials.of(changed)
            best = goal.best(trials.steps)
    return True


def _costs(moves: Moves, objective: str) -> dict[tuple[str, Level], float]:
    """Return what every level of every layer adds to the cost of the plan."""
    plan = moves.trials.q_model.plan
    base = cost_of(plan)
    found: dict[tuple[str, Level], float] = {}
    for layer, ladder in moves.ladders.items():
        for level in ladder:
            now = base if level is None else cost_of(raise_layers(plan, {layer: level}))
            more_bytes, more_macs = now[0] - base[0], now[1] - base[1]
            # The other cost breaks ties, and what changes nothing is not raised.
            found[layer, level] = 1e-3 * ladder.index(level)
            found[layer, level] += (
                more_macs + 1e-6 * more_bytes if objective == "macs" else more_bytes + 1e-6 * more_macs
            )
    return found


def _chosen(
    moves: Moves,
    cost: dict[tuple[str, Level], float],
    size: dict[tuple[str, Level], float],
    noise: dict[tuple[str, Level], float] | None,
    noise_limit: float | None,
    size_limit: float | None,
) -> Levels | None:
    """Return the levels of least cost within limits, by HiGHS; None where there are none."""
    pairs = [(layer, level) for layer, ladder in moves.ladders.items() for level in ladder]
    rows = np.array([[float(layer == name) for layer, _ in pairs] for name in moves.ladders])
    constraints = [LinearConstraint(rows, 1.0, 1.0)]
    if noise is not None and noise_limit is not None:
        scaled = np.array([noise[pair] for pair in pairs]) / noise_limit  # the solver's tolerances are absolute
        constraints.append(LinearConstraint(scaled[None, :], -np.inf, 1.0))
    if size_limit is not None:
        constraints.append(LinearConstraint(np.array([[size[pair] for pair in pairs]]), -np.inf, size_limit))
    values = np.array([cost[pair] for pair in pairs])
    largest = float(np.abs(values).max()) or 1.0
    found = milp(values / largest, constraints=constraints, integrality=np.ones(len(pairs)), bounds=Bounds(0.0, 1.0))
    if found.x is None:
        return None
    taken = [pair for pair, value in zip(pairs, found.x, strict=True) if value > 0.5]
    return {layer: level for layer, level in taken if level is not None}
