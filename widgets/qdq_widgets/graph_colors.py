"""The colours of the graph as data for the page: by the plan, by status on the target, by rules, or by a metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qdq_workbench import ModelGraph, SpecError

NO_COLORS: dict[str, Any] = {"mode": "plan"}
STATUSES = ("int8", "float", "partial", "int4", "int16", "unknown", "vanishes")


def graph_colors(
    graph: ModelGraph, mode: str, values: Mapping[str, Any], legend: Mapping[str, Any] | str | None = None
) -> dict[str, Any]:
    """Return the colours of a graph; the arguments are those of `GraphView.set_colors`.

    Raises:
        SpecError: If a name is not of the model, or a status is unknown.
    """
    if mode == "plan":
        return dict(NO_COLORS)
    if mode == "rules":
        return {"mode": mode, **_encode_rules(graph, values)}
    encode = _encode_statuses if mode == "precision" else _encode_metric
    title: dict[str, Any] = {"title": legend} if isinstance(legend, str) else dict(legend or {})
    return {"mode": mode, "legend": title, **encode([node.name for node in graph.nodes], _by_node(graph, values))}


def _by_node(graph: ModelGraph, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by node: a layer's value is that of all its calls, unless a call has its own."""
    by_node = {}
    for name, value in values.items():
        for call in graph.calls(name):
            by_node[call.name] = value
    # Again for the calls: a layer that is listed behind its call has replaced the call's own value.
    return by_node | {name: value for name, value in values.items() if name in by_node}


def _encode_statuses(names: list[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of statuses and one of reasons, with their positions by node."""
    reasons: dict[str, int] = {"": 0}
    statuses, why = [], []
    for name in names:
        value = values.get(name)
        status = value.get("status") if isinstance(value, Mapping) else value
        if status is None:
            statuses.append(-1)
        elif status in STATUSES:
            statuses.append(STATUSES.index(status))
        else:
            raise SpecError(f"A status is one of {', '.join(STATUSES)}. Received: status={status!r} for {name!r}")
        reason = str(value.get("reason") or "") if isinstance(value, Mapping) else ""
        why.append(reasons.setdefault(reason, len(reasons)))
    # The legend names what vanishes where the table does: only models with such layers need the words.
    unused = {"vanishes"} if STATUSES.index("vanishes") not in statuses else set()
    table = [status for status in STATUSES if status not in unused]
    return {"statuses": table, "status_of": statuses, "reasons": list(reasons), "why": why}


def _encode_rules(graph: ModelGraph, values: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the colour of every node, and the pairs (colour, meaning) in the order of their first use."""
    found = _by_node(graph, values)
    colored = [found.get(node.name) for node in graph.nodes]
    meanings = dict.fromkeys(one for one in values.values())
    return {"fills": [one and one[0] for one in colored], "rules": [list(one) for one in meanings]}


def _encode_metric(names: list[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers by node, rounded to 6 digits; None for nodes without a finite value."""
    numbers: list[float | None] = []
    unit = ""
    for name in names:
        value = values.get(name)
        if isinstance(value, Mapping):
            unit = str(value.get("unit") or unit)
            value = value.get("value")
        # JSON has no infinity and no NaN: both mean "no figure" to a colour scale.
        finite = value is not None and float(value) - float(value) == 0
        numbers.append(float(f"{float(value):.6g}") if finite and value is not None else None)
    return {"values": numbers, "unit": unit}
