"""The changes of a step, for the graph: a summary, and a row per changed pair, input and status of a layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qdq_widgets.graph_tables import layer_places, node_places
from qdq_workbench import PlacementPlan

MOST_ROWS = 60
STATUS_SIGNS = {"int8": "8", "partial": "½", "float": "F"}
STATUS_WORDS = {"int8": "in INT8", "partial": "partly in INT8", "float": "in float"}

Row = tuple[int, str, str]


def plan_difference(
    before: PlacementPlan, after: PlacementPlan, verdicts: tuple[Mapping[str, str], Mapping[str, str]] | None = None
) -> dict[str, Any] | None:
    """Return the difference of two plans of one model; None if they are equal or for different targets.

    `verdicts` are the statuses on the target before and after: "int8", "partial" or "float" by layer. `Difference` in
    `widgets/src/traits.ts` describes the JSON-compatible result.
    """
    if before.target != after.target:
        return None  # nearly every grid changes, and all statuses are those of another runtime
    pairs = list(_pairs(before, after))
    readers = list(_readers(before, after))
    layers = list(_verdicts(after, *verdicts)) if verdicts is not None else []
    rows = [*pairs, *readers, *layers]
    if not rows:
        return None
    parts = [*_counted_pairs(pairs), _inputs(readers), *(_now(layers, status) for status in STATUS_SIGNS)]
    return {
        "summary": ", ".join(part for part in parts if part),
        "rows": [list(row) for row in rows[:MOST_ROWS]],
        "hidden": max(0, len(rows) - MOST_ROWS),
    }


def _pairs(before: PlacementPlan, after: PlacementPlan) -> Iterator[Row]:
    """Yield the pairs, of activations and weights, that are added, removed, or get another grid."""
    old, new = ({item.name: item for item in plan.tensors} for plan in (before, after))
    graph = after.graph
    # Of both plans: a removed weight is in the first one alone.
    weights = {one.tensor: one.node for plan in (before, after) for one in plan.placements if one.site == "weight"}

    def row(item: Any, sign: str, text: str = "") -> Row:
        places = graph.once(node_places)
        if item.kind == "weight":
            return places[weights[item.tensor]], sign, f"weights {item.tensor}{text}"
        node = graph.producer(item.tensor).name
        return places[node], sign, f"pair behind {node}{text}"

    yield from (row(item, "-") for name, item in old.items() if name not in new)
    yield from (row(item, "+", f", {_grid(item)}") for name, item in new.items() if name not in old)
    for name, item in new.items():
        # A new pair, which has its row already, is compared with itself.
        was = old.get(name, item)
        # Texts are made for few: hundreds of pairs stay as they are.
        other = was.quantizer != item.quantizer or was.method != item.method
        if other and _grid(was) != _grid(item):
            yield row(item, "~", f": {_grid(was)} to {_grid(item)}")


def _grid(item: Any) -> str:
    method = f", {item.method.label}" if item.method is not None else ""
    return f"{item.quantizer.label}{method}"


def _readers(before: PlacementPlan, after: PlacementPlan) -> Iterator[Row]:
    """Yield the inputs that start or stop to read a pair which stays for other readers."""
    kept = {item.tensor for item in before.tensors} & {item.tensor for item in after.tensors}
    places = after.graph.once(node_places)
    diff = before.diff(after)
    for sign, placements, how in (("-", diff.removed, "no longer takes"), ("+", diff.added, "takes")):
        for one in placements:
            if one.site == "input" and one.tensor in kept:
                yield places[one.node], sign, f"input {one.input_index} of {one.node} {how} the pair on {one.tensor}"


def _verdicts(plan: PlacementPlan, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Row]:
    """Yield the layers whose status on the target changes."""
    places = plan.graph.once(layer_places)
    for layer, status in after.items():
        was = before.get(layer, status)
        if was != status and layer in places and status in STATUS_SIGNS and was in STATUS_SIGNS:
            yield places[layer], STATUS_SIGNS[status], f"{layer} {STATUS_WORDS[status]}, was {STATUS_WORDS[was]}"


def _counted_pairs(rows: list[Row]) -> Iterator[str]:
    for sign, one, several in (("+", "pair", "pairs"), ("-", "pair", "pairs"), ("~", "other grid", "other grids")):
        count = sum(1 for row in rows if row[1] == sign)
        if count:
            yield f"{sign if sign != '~' else ''}{count} {one if count == 1 else several}"


def _inputs(rows: list[Row]) -> str:
    return f"{len(rows)} input{'s' * (len(rows) > 1)} changed" if rows else ""


def _now(rows: list[Row], status: str) -> str:
    count = sum(1 for row in rows if row[1] == STATUS_SIGNS[status])
    return f"{count} layer{'s' * (count > 1)} now {STATUS_WORDS[status]}" if count else ""
