"""Matching of layer names by regular expressions, without exponential run time.

Python's `re` tries the ways through an expression one after the other. `(a+)+$` has 2^n ways through n letters, so one
entry of a specification could block a program. If an expression has too many ways for a name, all of them are followed
at once: from a position in the name, each part of the expression leads to a set of positions where its match may end,
and every such set is computed once. That takes at most the length of the expression times the square of the length of
the name, with the same result as `re`. The match of a backreference or an atomic group depends on the way that was
taken; such an expression is refused if it has too many ways.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from qdq_workbench.errors import SpecError

if sys.version_info >= (3, 11):
    from re import _compiler, _parser  # type: ignore[attr-defined]
else:
    import sre_compile as _compiler
    import sre_parse as _parser

_MOST_WAYS = 1_000_000
_USUAL_LENGTH = 64  # of a name: some expressions are refused before there is one
_MOST_ROUNDS = 8  # of a repetition whose ways are multiplied out; a longer one counts as open
_SINGLE = frozenset({"LITERAL", "NOT_LITERAL", "IN", "ANY", "AT", "FAILURE"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT"})
_LOOKS = frozenset({"ASSERT", "ASSERT_NOT"})
_FOLLOWED = _SINGLE | _REPEATS | _LOOKS | {"SUBPATTERN", "BRANCH"}


@functools.lru_cache(maxsize=64)
def name_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests whether a regular expression matches a whole name; raise SpecError for a bad one.

    That is one that cannot be parsed, or has too many ways and a part whose ways cannot be followed at once.
    """
    try:
        tree = _parser.parse(pattern)
        compiled: re.Pattern[str] = _compiler.compile(tree)
        choices, repeats = _ways(tree)
        is_followed = {operation for operation, _ in _parts(tree)} <= _FOLLOWED
    except (re.error, OverflowError, RecursionError) as error:
        raise SpecError(
            f'The regular expression cannot be parsed: {error}. Use match="glob" for patterns such as '
            f"'block*_conv'. Received: name={pattern[:200]!r}"
        ) from error
    if not is_followed:
        if choices * _USUAL_LENGTH**repeats > _MOST_WAYS:
            raise SpecError(
                "The regular expression may take for ever: it repeats what is repeated in it, or has too many choices, "
                "beside a backreference or an atomic group. Write it without the latter, or use "
                f'match="glob". Received: name={pattern[:200]!r}'
            )
        return lambda name: compiled.fullmatch(name) is not None
    compiled_parts: dict[int, re.Pattern[str]] = {}

    def matches(name: str) -> bool:
        if choices * max(len(name), 1) ** repeats <= _MOST_WAYS:
            return compiled.fullmatch(name) is not None
        return len(name) in _Follower(name, tree.state, compiled_parts).ends(tree, (0, 0), {0})

    return matches


class _Follower:
    """Follows all ways through an expression at once, over one name."""

    def __init__(self, name: str, state: Any, compiled: dict[int, re.Pattern[str]]) -> None:
        self._name = name
        self._state = state
        self._compiled = compiled  # by the id of a part, which the tree keeps
        self._known: dict[tuple[int, int], frozenset[int]] = {}

    def ends(self, items: Any, flags: tuple[int, int], starts: Iterable[int]) -> frozenset[int]:
        """Return the positions where a sequence may end that begins at one of the given positions."""
        places = frozenset(starts)
        for item in items.data:
            if str(item[0]) in _REPEATS and _is_single(item[1][2]):
                places = self._repeated(item[1], flags, places)  # for all positions at once, which is much faster
            else:
                places = frozenset().union(*(self._ends(item, flags, place) for place in places))
        return places

    def _ends(self, item: Any, flags: tuple[int, int], start: int) -> frozenset[int]:
        key = (id(item), start)
        if key not in self._known:
            self._known[key] = self._followed(item, flags, start)
        return self._known[key]

    def _followed(self, item: Any, flags: tuple[int, int], start: int) -> frozenset[int]:
        operation, argument = str(item[0]), item[1]
        if operation == "SUBPATTERN":
            _, added, removed, items = argument
            return self.ends(items, ((flags[0] | added) & ~removed, (flags[1] | removed) & ~added), {start})
        if operation == "BRANCH":
            return frozenset().union(*(self.ends(items, flags, {start}) for items in argument[1]))
        if operation in _REPEATS:
            return self._repeated(argument, flags, frozenset({start}))
        if operation in _LOOKS:
            direction, items = argument
            # `re` refuses lookbehinds of varying width, so there is one position where this one may begin.
            begin = start if direction > 0 else start - items.getwidth()[0]
            found = self.ends(items, flags, {begin} if begin >= 0 else ())
            holds = bool(found) if direction > 0 else start in found
            return frozenset({start}) if holds == (operation == "ASSERT") else frozenset()
        match = self._part(item, flags).match(self._name, start)
        return frozenset() if match is None else frozenset({match.end()})

    def _repeated(self, argument: Any, flags: tuple[int, int], places: frozenset[int]) -> frozenset[int]:
        low, high, items = argument
        for _ in range(low):
            before, places = places, self.ends(items, flags, places)
            if places in (before, frozenset()):
                break  # further rounds change nothing
        found, new, rounds = places, places, int(high) - low
        while new and rounds > 0:
            new, rounds = self.ends(items, flags, new) - found, rounds - 1
            found |= new
        return found

    def _part(self, item: Any, flags: tuple[int, int]) -> re.Pattern[str]:
        """Return the expression of a part that matches at most one character: only `re` handles its sets and flags."""
        if id(item) not in self._compiled:
            inner = _parser.SubPattern(self._state, [item])
            group = (_parser.SUBPATTERN, (None, *flags, inner))
            self._compiled[id(item)] = _compiler.compile(_parser.SubPattern(self._state, [group]))
        return self._compiled[id(item)]


def _is_single(items: Any) -> bool:
    return len(items.data) == 1 and str(items.data[0][0]) in _SINGLE


def _ways(items: Any) -> tuple[float, int]:
    """Return c and r, where `re` has at most c * n^r ways through n characters."""
    choices, repeats = 1.0, 0
    for item in items.data:
        operation, argument = str(item[0]), item[1]
        count, power = 1.0, 0
        # Possessive repetitions, too, although only `re` can follow them.
        if operation.endswith("_REPEAT"):
            count, power = _ways_of_repeat(int(argument[0]), int(argument[1]), *_ways(argument[2]))
        else:
            inner = [_ways(part) for part in _inside(item)]
            if inner:
                count, power = sum(count for count, _ in inner), max(power for _, power in inner)
        choices, repeats = choices * count, repeats + power
    return choices, repeats


def _ways_of_repeat(low: int, high: int, choices: float, repeats: int) -> tuple[float, int]:
    is_fixed = (choices, repeats) == (1.0, 0)
    if high <= _MOST_ROUNDS:
        return (high - low + 1) * choices**high, repeats * high
    if is_fixed:
        return 1.0, int(low != high)
    # Several ways in each of any number of rounds: exponentially many.
    return math.inf, 0


def _inside(item: Any) -> list[Any]:
    """Return the sequences inside of a part."""
    argument = item[1]
    if isinstance(argument, _parser.SubPattern):
        return [argument]  # an atomic group
    if not isinstance(argument, tuple):
        return []
    nested = [part if isinstance(part, list) else [part] for part in argument]  # a choice has a list of sequences
    return [part for parts in nested for part in parts if isinstance(part, _parser.SubPattern)]


def _parts(items: Any) -> Iterator[tuple[str, Any]]:
    for item in items.data:
        yield str(item[0]), item
        for part in _inside(item):
            yield from _parts(part)
