"""Colours of the graph by rules of the user, each a query and a colour; the first matching rule decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.layer_query import find_layers

NAMES = {
    "black": "#000000",
    "blue": "#0072b2",
    "gray": "#6b727d",
    "green": "#007a5a",
    "orange": "#e69f00",
    "pink": "#cc79a7",
    "purple": "#7b4fa3",
    "red": "#c62828",
    "sky": "#56b4e9",
    "vermillion": "#c25400",
    "yellow": "#f0e442",
}
"""Colours by name: Okabe and Ito's, as far as there are."""

_HEX = re.compile(r"#[0-9a-f]{6}")


def checked_rules(rules: Any) -> dict[str, str]:
    """Return rules, a mapping from queries to colours, with their colours as `#rrggbb`.

    Raises:
        BenchError: If they are not a mapping, a query is empty, or a colour is unknown.
    """
    if not isinstance(rules, Mapping):
        raise BenchError(
            "Rules are a mapping from queries to colours: {'class:conv2d': 'blue', 'w=4': '#ff8800'}. "
            f"Received: {type(rules).__name__}"
        )
    checked = {}
    for query, color in rules.items():
        if not isinstance(query, str) or not query.split():
            raise BenchError(f"A rule needs a query, such as 'conv not int8'. Received: {query!r}")
        found = NAMES.get(str(color).lower(), str(color).lower())
        if not _HEX.fullmatch(found):
            raise BenchError(f"A colour is '#rrggbb', or one of {', '.join(NAMES)}. Received: {color!r} for {query!r}")
        checked[query.strip()] = found
    return checked


def rules_from_text(text: str) -> dict[str, str]:
    """Return the rules in a line such as `class:conv2d = blue; w=4 = orange`.

    The text after the last `=` of a rule is its colour.

    Example:
        >>> rules_from_text("conv* = blue; w=4 = #ff8800")
        {'conv*': 'blue', 'w=4': '#ff8800'}
    """
    rules = {}
    for part in filter(str.strip, text.split(";")):
        query, found, color = part.rpartition("=")
        if not found or not query.strip():
            raise BenchError(f"A rule is a query, = and a colour: conv* = blue. Received: {part.strip()!r}")
        rules[query.strip()] = color.strip()
    return rules


def rules_text(rules: Mapping[str, str]) -> str:
    """Return rules as a line that `rules_from_text` reads."""
    return "; ".join(f"{query} = {color}" for query, color in rules.items())


def rule_values(
    plan: qdq.PlacementPlan, possible: qdq.PlacementPlan, rules: Mapping[str, str], statuses: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return colour and query of the first matching rule, by node; the other arguments are those of `find_layers`."""
    values: dict[str, tuple[str, str]] = {}
    for query, color in rules.items():
        for name in find_layers(plan, possible, query, statuses):
            values.setdefault(name, (color, query))
    return values
