"""The moves of a search from one start: the levels of every layer, and their estimated error."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator

from qdq_workbench.analysis.levels import FLOAT, Level, ladder_of
from qdq_workbench.analysis.patterns import group_equal
from qdq_workbench.analysis.places import by_traffic, can_move_pairs, every_pair_level, pair_levels
from qdq_workbench.analysis.search_trials import Trials
from qdq_workbench.analysis.sensitivity_report import SensitivityReport
from qdq_workbench.placement.plan import PlacementPlan

Levels = dict[str, Level]
_LEAST_SQNR = -60.0  # dB


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The choices that a search has.

    Args:
        bits: The numbers of bits that layers with fewer are raised to.
        pairs: Whether to move the pairs of layers that merge, pool or activate.
        together: Whether equal layers share one level.
    """

    bits: tuple[int, ...] = (8,)
    pairs: bool = False
    together: bool = False


class Moves:
    """The levels that every layer can take, and their estimated error.

    Layers that are decided together form a group; its most sensitive layer, the first, represents it.

    Args:
        trials: Builds and measures placements of one start.
        ranking: A sensitivity report of the start.
        decisions: The choices that the search has.
        stop: Called before every placement; True ends the search.
    """

    def __init__(
        self, trials: Trials, ranking: SensitivityReport, decisions: Decisions, stop: Callable[[], bool] | None
    ) -> None:
        plan = trials.base
        self.trials = trials
        self._stop = stop
        quantized = {placement.layer for placement in plan.placements}
        self._entries = {entry.layer: entry for entry in ranking.ranked() if entry.layer in quantized}
        # Only the SQNR of a layer alone is the power of its noise; other values give no more than an order.
        self._in_decibels = ranking.metric == "sqnr" and not ranking.own_metric and ranking.mode == "one_on"
        groups = _groups(plan, list(self._entries), decisions)
        # The trials extend the level of a first layer to its group.
        trials.groups = groups
        self._first = {member: first for first, members in groups.items() for member in members}
        self.ladders = {layer: ladder_of(plan, layer, decisions.bits) for layer in self._entries if layer in groups}
        self.pairs = decisions.pairs
        self.places = _places(plan, groups) if decisions.pairs else {}
        # Every layer is raised once before any is raised twice: more bits are cheaper than float.
        most = max((len(ladder) for ladder in self.ladders.values()), default=1)
        by_step = [
            [(layer, ladder[s]) for layer, ladder in self.ladders.items() if s < len(ladder) - 1]
            for s in range(1, most)
        ]
        raises = [pair for pairs in by_step for pair in pairs]
        self.order = [*raises, *((layer, ladder[-1]) for layer, ladder in self.ladders.items())]
        # `climb` doubles the number of raises, then bisects: about log2 of all raises each.
        trials.expect(2 * len(self.order).bit_length())

    @property
    def count(self) -> int:
        """How many placements `choices` yields."""
        return math.prod(len(levels) for levels in self._choices(self.places).values())

    @property
    def whole_count(self) -> int:
        """How many placements `choices` yields with `whole`."""
        return math.prod(len(levels) for levels in self._choices(self._whole_places()).values())

    def choices(self, *, whole: bool) -> Iterator[Levels]:
        """Yield all placements; `whole` includes levels that change no pair unless another layer changes, too."""
        choices = self._choices(self._whole_places() if whole else self.places)
        for chosen in itertools.product(*choices.values()):
            yield {layer: level for layer, level in zip(choices, chosen, strict=True) if level is not None}

    def stopped(self) -> bool:
        """Return whether the caller wants the search to end."""
        return self._stop is not None and self._stop()

    def prefetch(self, likely: Iterable[Levels]) -> None:
        """Let workers measure the accuracies that are likely to be needed, the next one first."""
        self.trials.measured.prefetch((self.trials, levels) for levels in likely)

    def below(self, layer: str, level: Level) -> Level:
        """Return the next lower level of a layer."""
        ladder = self.ladders[layer]
        return ladder[ladder.index(level) - 1]

    def firsts(self, layers: Iterable[str]) -> tuple[str, ...]:
        """Return the first layers of the groups that the given layers belong to, if their levels can change."""
        found = dict.fromkeys(self._first[layer] for layer in layers if layer in self._first)
        return tuple(layer for layer in found if layer in self.ladders)

    def noise(self) -> dict[tuple[str, Level], float]:
        """Return the estimated error of every layer at every level: each further bit quarters it, float has none."""
        found: dict[tuple[str, Level], float] = {}
        plan = self.trials.base
        for place, (layer, entry) in enumerate(self._entries.items()):
            # Without an SQNR, a guess that falls with the rank.
            own = _relative_noise(entry.value) if self._in_decibels else 0.7**place
            bits = [p.quantizer.num_bits for p in plan.placements if p.layer == layer]
            first = self._first[layer]
            for level in self.ladders.get(first, ()):
                more = level - min(bits) if isinstance(level, int) else 0
                added = 0.0 if level == FLOAT else own * 4.0**-more
                found[first, level] = found.get((first, level), 0.0) + added
        return found

    def _whole_places(self) -> dict[str, list[Level]]:
        """Return all pair levels of each group that can move its pairs."""
        plan, groups = self.trials.base, self.trials.groups
        if not self.pairs or groups is None:
            return {}
        return {
            first: every_pair_level(plan, members) for first, members in groups.items() if can_move_pairs(plan, first)
        }

    def _choices(self, places: dict[str, list[Level]]) -> dict[str, list[Level]]:
        """Return all levels of the first layer of every group."""
        choices: dict[str, list[Level]] = {layer: list(ladder) for layer, ladder in self.ladders.items()}
        for layer, levels in places.items():
            known = choices.setdefault(layer, [None])
            known += [level for level in levels if level not in known]
        return choices


def _relative_noise(sqnr: float) -> float:
    """Return the noise relative to the signal, 10^(-SQNR / 10), finite as the solver needs it."""
    return float(10.0 ** (-(_LEAST_SQNR if math.isnan(sqnr) else max(sqnr, _LEAST_SQNR)) / 10.0))


def _groups(plan: PlacementPlan, ranked: list[str], decisions: Decisions) -> dict[str, tuple[str, ...]]:
    """Return the layers that are decided together, by the first of each group: its most sensitive layer."""
    movable = [layer for layer in plan.graph.layers if can_move_pairs(plan, layer)] if decisions.pairs else []
    layers = list(dict.fromkeys([*ranked, *movable]))
    if decisions.together:
        return group_equal(plan, layers)
    # Pairs move in all equal layers at once, so these layers are decided together in any case.
    return {**{layer: (layer,) for layer in ranked if layer not in set(movable)}, **group_equal(plan, movable)}


def _places(plan: PlacementPlan, groups: dict[str, tuple[str, ...]]) -> dict[str, list[Level]]:
    """Return the other pair levels of each group that can move its pairs, most traffic first."""
    movable = {first: members for first, members in groups.items() if can_move_pairs(plan, first)}
    found = {first: pair_levels(plan, movable[first]) for first in by_traffic(plan, movable)}
    return {first: levels for first, levels in found.items() if levels}
