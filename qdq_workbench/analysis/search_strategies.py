"""The strategies of a search: raise by a ranking, try every cheaper placement, solve on estimates, follow times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from qdq_workbench.analysis.levels import FLOAT, Level
from qdq_workbench.analysis.search_moves import Levels, Moves
from qdq_workbench.analysis.search_result import SearchStep, cost_of
from qdq_workbench.analysis.search_trials import Measured, Trials

#: The largest number of placements that is searched exhaustively: twelve layers that are quantized or in float.
MOST_EXACT = 2**12
# Halvings of a range of 60 dB of noise: to a quarter of a dB.
_SOLVED = 8
# Limits of what is measured by trial; the most promising changes come first.
_NEIGHBOURS = 12
_PAIRS_TRIED = 24
_FASTER = 0.99
_TIMED_AGAIN = 4


def climb(moves: Moves) -> bool:
    """Raise layers in the order of the ranking until the constraints are met, then lower the superfluous ones.

    Returns:
        Whether it completed, without a stop.
    """
    count = _needed(moves)
    if count is None:
        return not moves.stopped()
    # In a dictionary, a later raise of a layer replaces its earlier one.
    return lower(moves, dict(moves.order[:count])) if count else True


def _needed(moves: Moves) -> int | None:
    """Return how many raises meet the constraints, by bisection; None if all together do not, or after a stop."""
    failed, count, most = -1, 0, len(moves.order)

    def meets(*counts: int) -> bool:
        """Return whether the first count meets the constraints; the others are measured ahead."""
        moves.prefetch(dict(moves.order[:each]) for each in counts)
        return moves.trials.of(dict(moves.order[: counts[0]])).meets

    # Bisection relies on further raises only helping. Where one does harm, more layers than necessary are raised.
    while not meets(count, *_doubled(count, most)):
        if count >= most or moves.stopped():
            return None
        failed, count = count, next(_doubled(count, most))
    while count - failed > 1:
        if moves.stopped():
            return None
        middle = (failed + count) // 2
        if meets(middle, (failed + middle) // 2, (middle + count) // 2):
            count = middle
        else:
            failed = middle
    return count


def _doubled(count: int, most: int) -> Iterator[int]:
    """Yield the numbers of raises to try after `count`, each twice the one before, up to `most`."""
    while count < most:
        count = min(max(1, 2 * count), most)
        yield count


def lower(moves: Moves, levels: Levels) -> bool:
    """Lower raised layers level by level, the most expensive first, as long as the constraints are met.

    Returns:
        Whether it completed, without a stop.
    """
    trials = moves.trials
    # A step names all members of a group; only its first one has a ladder.
    levels = {layer: level for layer, level in levels.items() if layer in moves.ladders and level is not None}
    trials.expect(len(levels))

    def saved(layer: str) -> tuple[int, int]:
        return cost_of(trials.plan({**levels, layer: moves.below(layer, levels[layer])}))

    # `saved` is the cost of what remains, so that the most expensive raise comes first.
    order = sorted(levels, key=saved)
    for place, layer in enumerate(order):
        while levels[layer] is not None:
            if moves.stopped():
                return False
            moves.prefetch(
                {**levels, later: moves.below(later, levels[later])}
                for later in order[place:]
                if levels[later] is not None
            )
            lowered = {**levels, layer: moves.below(layer, levels[layer])}
            if not trials.of(lowered).meets:
                break
            levels = lowered
    return True


def try_all(every: Sequence[Moves]) -> bool:
    """Measure every placement that may be better than the best so far, the cheapest first; return whether it completed.

    Size and operations follow from the plan, so the first placement in their order that meets the constraints is the
    optimum; with the objective "accuracy", so is the first that is as accurate as the float model.
    """
    measured = every[0].trials.measured
    goal = measured.goal
    candidates = []
    for moves in every:
        for levels in moves.every_choice():
            weight_bytes, float_macs = cost_of(moves.trials.plan(levels))
            if goal.is_small(weight_bytes):
                # An unknown accuracy counts as the best: a placement that is not better even then need not be tried.
                step = SearchStep(levels, float("inf"), weight_bytes, float_macs, meets=True)
                candidates.append((goal.key(step), moves, levels))
    candidates.sort(key=lambda each: each[0])
    measured.expected = len(measured.steps) + len(candidates)
    for place, (key, moves, levels) in enumerate(candidates):
        best = goal.best(measured.steps)
        width = 3 if goal.objective == "accuracy" else 2  # behind them is the accuracy, which breaks ties
        if best.meets and goal.key(best)[:width] <= key[:width]:
            return True
        if moves.stopped():
            return False
        measured.prefetch((later.trials, chosen) for _, later, chosen in candidates[place:])
        moves.trials.of(levels)
    return True


def solve(moves: Moves) -> bool:
    """Let a solver choose placements on additive estimates under a bisected limit of the error, and measure them.

    Returns:
        Whether it completed, without a stop.
    """
    trials, goal = moves.trials, moves.trials.goal
    noise, cost, size = moves.noise(), _costs(moves, goal.objective), _costs(moves, "bytes")
    total = sum(noise[layer, None] for layer in moves.ladders)
    room = None if goal.max_bytes is None else goal.max_bytes - cost_of(trials.base)[0]
    if goal.objective == "accuracy":
        chosen = _chosen(moves, noise, size, None, None, room)
        if chosen is None:
            return True
        trials.of(chosen)
        return _improve(moves, chosen, noise)
    # 1e-300 instead of 0, which has no logarithm.
    lowest, highest = math.log10(max(total, 1e-300)) - 6.0, math.log10(max(total, 1e-300))

    def solved(limit: float) -> Levels | None:
        return _chosen(moves, cost, size, noise, 10.0**limit, room)

    for _ in range(_SOLVED):
        if moves.stopped():
            return False
        middle = (lowest + highest) / 2.0
        likely = (solved(limit) for limit in (middle, (lowest + middle) / 2.0, (middle + highest) / 2.0))
        moves.prefetch(levels for levels in likely if levels is not None)
        chosen = solved(middle)
        if chosen is not None and trials.of(chosen).meets:
            lowest = middle
        else:
            highest = middle
    best = goal.best(trials.steps)
    return lower(moves, dict(best.levels)) if best.meets else True


def follow_times(moves: Moves) -> bool:
    """Try layers in float whose kernels gain least from INT8 in a profile, and keep each change that measures better.

    Returns:
        Whether it completed, without a stop.
    """
    trials, goal = moves.trials, moves.trials.goal
    everything: Levels = dict.fromkeys(moves.ladders, FLOAT)
    if not trials.start.name:
        trials.of(everything)  # the file is the same for every start
    best = goal.best(trials.steps)
    groups = [moves.firsts(group) for group in trials.least_gaining(everything)]
    tried = list(dict.fromkeys(group for group in groups if group))[:_NEIGHBOURS]
    trials.expect(len(tried))

    def switched(group: tuple[str, ...]) -> Levels:
        other: Levels = {layer: None if best.levels.get(layer) == FLOAT else FLOAT for layer in group}
        return {**best.levels, **other}

    for place, group in enumerate(tried):
        if moves.stopped():
            return False
        moves.prefetch(switched(later) for later in tried[place:])
        best = _better(moves, trials.of(switched(group)), best)
    return True


def move_pairs(moves: Moves) -> bool:
    """Try other places for the pairs of equal layers, most traffic first, and keep each change that measures better.

    Returns:
        Whether it completed, without a stop.
    """
    trials = moves.trials
    best = trials.goal.best(trials.steps)
    tried = [(first, level) for first, levels in moves.places.items() for level in levels][:_PAIRS_TRIED]
    trials.expect(len(tried))
    for place, (first, level) in enumerate(tried):
        if moves.stopped():
            return False
        moves.prefetch({**best.levels, later: elsewhere} for later, elsewhere in tried[place:])
        best = _better(moves, trials.of({**best.levels, first: level}), best)
    return True


def time_again(measured: Measured, by_start: Mapping[str, Trials], stopped: Callable[[], bool]) -> bool:
    """Time the best placements once more, since the fastest of many measurements is partly chance.

    Returns:
        Whether it completed, without a stop.
    """
    meeting = sorted((step for step in measured.steps if step.meets), key=measured.goal.key)
    for step in meeting[:_TIMED_AGAIN]:
        if stopped():
            return False
        by_start[step.case].time_again(step)
    return True


def _better(moves: Moves, step: SearchStep, best: SearchStep) -> SearchStep:
    """Return the better one of two steps; a time must be at least 1 % shorter to count as better."""
    goal = moves.trials.goal
    better = goal.promise(step) < goal.promise(best)
    if better and best.meets and goal.objective == "ms":
        better = (step.ms or 0.0) < _FASTER * (best.ms or math.inf)
    return step if better else best


def _improve(moves: Moves, levels: Levels, noise: dict[tuple[str, Level], float]) -> bool:
    """Try other levels of the noisiest layers, one at a time within the size budget; return False after a stop."""
    trials, goal = moves.trials, moves.trials.goal
    best = goal.best(trials.steps)
    order = sorted(moves.ladders, key=lambda layer: -noise[layer, levels.get(layer)])[:_NEIGHBOURS]
    changes = [(layer, level) for layer in order for level in moves.ladders[layer]]

    def changed(layer: str, level: Level) -> Levels | None:
        placement = {**best.levels, layer: level}
        same = level == best.levels.get(layer)
        return None if same or not goal.is_small(cost_of(trials.plan(placement))[0]) else placement

    for place, change in enumerate(changes):
        placement = changed(*change)
        if placement is None:
            continue
        if moves.stopped():
            return False
        moves.prefetch(later for one in changes[place:] if (later := changed(*one)) is not None)
        trials.of(placement)
        best = goal.best(trials.steps)
    return True


def _costs(moves: Moves, objective: str) -> dict[tuple[str, Level], float]:
    """Return the cost that every level of every layer adds to the plan: bytes, or float operations for "macs"."""
    trials = moves.trials
    base = cost_of(trials.base)
    found: dict[tuple[str, Level], float] = {}
    for layer, ladder in moves.ladders.items():
        for level in ladder:
            now = base if level is None else cost_of(trials.plan({layer: level}))
            more_bytes, more_macs = now[0] - base[0], now[1] - base[1]
            # The other cost breaks ties; the index keeps a layer at its lowest level if raising it costs nothing.
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
    """Return the levels of least cost within limits, by HiGHS; None if no levels fit."""
    # A multiple-choice knapsack: one 0/1 variable per layer and level, exactly one level per layer.
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
    # The solver returns its integers as floats, within a tolerance.
    taken = [pair for pair, value in zip(pairs, found.x, strict=True) if value > 0.5]
    return {layer: level for layer, level in taken if level is not None}
