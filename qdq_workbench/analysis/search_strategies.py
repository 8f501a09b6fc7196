"""The strategies of a search: raise by a ranking, try every cheaper placement, solve on estimates, follow times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from qdq_workbench.analysis.levels import FLOAT, Level
from qdq_workbench.analysis.places import pairs_of
from qdq_workbench.analysis.search_goal import Goal
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
# Of `max_ms`: gains are not quite additive, so that the solver is asked for less time, too.
_SHARES_OF_TIME = (1.0, 0.9, 0.8)


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


def try_all(every: Sequence[Moves], *, whole: bool) -> bool:
    """Measure every placement that may be better than the best so far, the cheapest first; return whether it completed.

    Size and operations follow from the plan, so the first placement in their order that meets the constraints is the
    optimum; with the objective "accuracy", so is the first that is as accurate as the float model. A time does not
    follow from the plan: with the objective "ms" all are tried, and with `max_ms` the optimum is timed twice.
    """
    by_start = {moves.trials.start.name: moves.trials for moves in every}
    measured = every[0].trials.measured
    goal = measured.goal
    candidates = _candidates(every, goal, whole=whole)
    measured.expected = len(measured.steps) + len(candidates)
    best = goal.best(measured.steps)
    for place, (key, moves, levels) in enumerate(candidates):
        width = 3 if goal.objective == "accuracy" else 2  # behind them is the accuracy, which breaks ties
        while best.meets and goal.key(best)[:width] <= key[:width]:
            if by_start[best.case].time_again(best) is best:
                return True
            best = goal.best(measured.steps)
        if moves.stopped():
            return False
        measured.prefetch((later.trials, chosen) for _, later, chosen in candidates[place:])
        step = moves.trials.of(levels)
        if step.meets and (not best.meets or goal.key(step) < goal.key(best)):
            best = step
    return True


def _candidates(every: Sequence[Moves], goal: Goal, *, whole: bool) -> list[tuple[tuple[float, ...], Moves, Levels]]:
    """Return all placements that are small enough, each once, with their moves and sort keys, the cheapest first."""
    found: list[tuple[tuple[float, ...], Moves, Levels, Any]] = []
    for moves in every:
        for levels in moves.choices(whole=whole):
            plan = moves.trials.plan(levels)
            weight_bytes, float_macs = cost_of(plan)
            if goal.is_small(weight_bytes):
                # An unknown accuracy or time counts as the best: a placement that is not better even then need not be
                # tried.
                step = SearchStep(levels, float("inf"), weight_bytes, float_macs, meets=True, ms=0.0)
                found.append((goal.key(step), moves, levels, pairs_of(plan) if moves.pairs else len(found)))
    found.sort(key=lambda each: each[0])
    # Of several ways to the same pairs, that with the fewest levels comes first, and stays.
    once: dict[Any, tuple[tuple[float, ...], Moves, Levels]] = {}
    for key, moves, levels, pairs in found:
        once.setdefault(pairs, (key, moves, levels))
    return list(once.values())


def solve(moves: Moves) -> bool:
    """Let a solver choose placements on additive estimates under a bisected limit of the error, and measure them.

    Returns:
        Whether it completed, without a stop.
    """
    trials, goal = moves.trials, moves.trials.goal
    noise, cost, size = moves.noise(), _costs(moves, goal.objective), _costs(moves, "bytes")
    room = None if goal.max_bytes is None else goal.max_bytes - cost_of(trials.base)[0]
    limits = [] if room is None else [(size, float(room))]
    if goal.objective == "accuracy":
        chosen = _chosen(moves, noise, limits)
        if chosen is None:
            return True
        trials.of(chosen)
        return _improve(moves, chosen, noise)
    if not _bisect(moves, cost, limits):
        return False
    best = goal.best(trials.steps)
    return lower(moves, dict(best.levels)) if best.meets else True


def solve_times(moves: Moves) -> bool:
    """Let the solver choose placements on the gains of a profile, taken as additive, and measure them.

    Returns:
        Whether it completed, without a stop.
    """
    trials, goal = moves.trials, moves.trials.goal
    everything: Levels = dict.fromkeys(moves.ladders, FLOAT)
    added, size = _added_ms(moves, everything), _costs(moves, "bytes")
    limits = [] if goal.max_bytes is None else [(size, float(goal.max_bytes - cost_of(trials.base)[0]))]
    in_float = trials.of(everything).ms
    if goal.max_ms is None or in_float is None:
        rooms = [limits]
    else:
        # The profile says how much longer a run with all layers in float is than one of the plan.
        planned = in_float - sum(added[layer, FLOAT] for layer in moves.ladders)
        rooms = [[*limits, (added, share * goal.max_ms - planned)] for share in _SHARES_OF_TIME]
    for room in rooms:
        if goal.objective == "accuracy":
            chosen = _chosen(moves, moves.noise(), room)
            if chosen is not None and trials.of(chosen).meets:
                return True
        elif not _bisect(moves, added if goal.objective == "ms" else _costs(moves, goal.objective), room):
            return False
        if moves.stopped():
            return False
    return True


def _bisect(
    moves: Moves, cost: dict[tuple[str, Level], float], limits: Sequence[tuple[dict[tuple[str, Level], float], float]]
) -> bool:
    """Measure placements of least cost under a limit of the estimated error, bisected; return False after a stop."""
    noise = moves.noise()
    total = sum(noise[layer, None] for layer in moves.ladders)
    # 1e-300 instead of 0, which has no logarithm.
    lowest, highest = math.log10(max(total, 1e-300)) - 6.0, math.log10(max(total, 1e-300))

    def solved(limit: float) -> Levels | None:
        # The solver's tolerances are absolute.
        scaled = {pair: value / 10.0**limit for pair, value in noise.items()}
        return _chosen(moves, cost, [*limits, (scaled, 1.0)])

    for _ in range(_SOLVED):
        if moves.stopped():
            return False
        middle = (lowest + highest) / 2.0
        likely = (solved(limit) for limit in (middle, (lowest + middle) / 2.0, (middle + highest) / 2.0))
        moves.prefetch(levels for levels in likely if levels is not None)
        chosen = solved(middle)
        if chosen is not None and moves.trials.of(chosen).meets:
            lowest = middle
        else:
            highest = middle
    return True


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
    groups = [moves.firsts(group) for group, _ in trials.least_gaining(everything)]
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


def _added_ms(moves: Moves, everything: Levels) -> dict[tuple[str, Level], float]:
    """Return the milliseconds that every level of every layer adds to a run of the plan; layers of a group share."""
    added = {(layer, level): 0.0 for layer, ladder in moves.ladders.items() for level in ladder}
    for group, gain in moves.trials.least_gaining(everything):
        layers = moves.firsts(group)
        for layer in layers:
            added[layer, FLOAT] += gain / len(layers)
    return added


def _chosen(
    moves: Moves,
    cost: dict[tuple[str, Level], float],
    limits: Sequence[tuple[dict[tuple[str, Level], float], float]],
) -> Levels | None:
    """Return the levels of least cost whose sums are within limits, by HiGHS; None if no levels fit."""
    # A multiple-choice knapsack: one 0/1 variable per layer and level, exactly one level per layer.
    pairs = [(layer, level) for layer, ladder in moves.ladders.items() for level in ladder]
    rows = np.array([[float(layer == name) for layer, _ in pairs] for name in moves.ladders])
    constraints = [LinearConstraint(rows, 1.0, 1.0)]
    for values, limit in limits:
        constraints.append(LinearConstraint(np.array([[values[pair] for pair in pairs]]), -np.inf, limit))
    costs = np.array([cost[pair] for pair in pairs])
    largest = float(np.abs(costs).max()) or 1.0
    found = milp(costs / largest, constraints=constraints, integrality=np.ones(len(pairs)), bounds=Bounds(0.0, 1.0))
    if found.x is None:
        return None
    # The solver returns its integers as floats, within a tolerance.
    taken = [pair for pair, value in zip(pairs, found.x, strict=True) if value > 0.5]
    return {layer: level for layer, level in taken if level is not None}
