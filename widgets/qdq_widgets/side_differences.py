"""The differences of two sides of a comparison: differing layers, pairs of one side only, and a row per difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qdq_widgets.graph_difference import STATUS_SIGNS, STATUS_WORDS, Row
from qdq_widgets.graph_tables import tensor_numbers
from qdq_widgets.sides import Side

MOST_ROWS = 400


def compare_sides(left: Side, right: Side) -> dict[str, Any]:
    """Return the differences of two sides of one model.

    Returns:
        A JSON-compatible dictionary; `SideDifference` in `widgets/src/traits.ts` describes it.
    """
    finder = _Finder(left, right)
    differing = [*finder.pairs(), *finder.weights(), *finder.inputs(), *finder.statuses(), *finder.remarks("!")]
    differing.sort(key=lambda row: row[0])  # in the order of the nodes: stepping through them passes the graph once
    rows = [*differing, *sorted([*finder.remarks("⇄"), *finder.merged()], key=lambda row: row[0])]
    return {
        "summary": _summary(rows),
        "rows": [list(row) for row in rows[:MOST_ROWS]],
        "hidden": max(0, len(rows) - MOST_ROWS),
        "differs": sorted({row[0] for row in differing}),
        "only": _pairs_alone(left, right),
    }


def _pairs_alone(left: Side, right: Side) -> list[list[int]]:
    """Return the numbers of the tensors with a pair on the left side only, and of those on the right side only."""
    if left.pairs is None or right.pairs is None:
        return [[], []]
    numbers = left.graph.once(tensor_numbers)
    both = (left.pairs.keys() - right.pairs.keys(), right.pairs.keys() - left.pairs.keys())
    return [sorted(numbers[name] for name in names) for names in both]


class _Finder:
    def __init__(self, left: Side, right: Side) -> None:
        self._left, self._right = left, right
        graph = left.graph
        self._places = {node.name: place for place, node in enumerate(graph.nodes)}
        self._producers = {name: node.name for node in graph.nodes for name in node.outputs}
        # Reversed: of several calls the first one stays.
        self._layers = {node.layer: place for place, node in reversed(list(enumerate(graph.nodes)))}

    def pairs(self) -> Iterator[Row]:
        """Yield the pairs that only one side has, or whose grids differ."""
        for tensor, sign, text in self._compared(self._left.pairs, self._right.pairs):
            node = self._producers[tensor]
            yield self._places[node], sign, f"pair behind {node}{text}"

    def weights(self) -> Iterator[Row]:
        """Yield the weights that are integers on one side only, or whose grids differ."""
        for (layer, name), sign, text in self._compared(self._left.weights, self._right.weights):
            yield self._layers[layer], sign, f"weights {name}{text}"

    def inputs(self) -> Iterator[Row]:
        """Yield the inputs that read a pair on one side only, of pairs that both sides have."""
        if self._left.inputs is None or self._right.inputs is None:
            return
        shared = (self._left.pairs or {}).keys() & (self._right.pairs or {}).keys()
        for sign, places, how in (
            ("-", self._left.inputs - self._right.inputs, "does not take"),
            ("+", self._right.inputs - self._left.inputs, "takes"),
        ):
            for node, index in sorted(places, key=lambda place: self._places[place[0]]):
                tensor = self._left.graph.node(node).inputs[index]
                if tensor in shared:
                    yield self._places[node], sign, f"input {index} of {node} {how} the pair on {tensor}"

    def statuses(self) -> Iterator[Row]:
        """Yield the layers whose statuses differ."""
        if self._left.statuses is None or self._right.statuses is None:
            return
        for layer, status in self._right.statuses.items():
            was = self._left.statuses.get(layer, status)
            if was != status and layer in self._layers:
                text = f"{layer} {STATUS_WORDS[status]}, on the left {STATUS_WORDS[was]}"
                yield self._layers[layer], STATUS_SIGNS[status], text

    def remarks(self, wanted: str) -> Iterator[Row]:
        """Yield the remarks of both sides with the wanted sign."""
        for side in (self._left, self._right):
            for node, sign, text in side.remarks:
                if sign == wanted:
                    yield self._places[node], sign, text

    def merged(self) -> Iterator[Row]:
        """Yield the nodes that have an operator or kernel of their own on one side only."""
        for side, other in ((self._right, self._left), (self._left, self._right)):
            for node, text in side.merged.items():
                if node not in other.merged:
                    yield self._places[node], "→", f"{node}: {text}"

    def _compared(
        self, left: Mapping[Any, str] | None, right: Mapping[Any, str] | None
    ) -> Iterator[tuple[Any, str, str]]:
        if left is None or right is None:
            return
        yield from ((key, "-", "") for key in left if key not in right)
        yield from ((key, "+", f", {grid}") for key, grid in right.items() if key not in left)
        # Texts of two kinds cannot be compared: a plan's name the grid, a file's the type.
        if self._left.grids == self._right.grids:
            for key, grid in right.items():
                if key in left and left[key] != grid:
                    yield key, "~", f": {left[key]} to {grid}"


def _summary(rows: list[Row]) -> str:
    """Return the number of differences of each kind; empty if there are none."""
    signs = [row[1] for row in rows]
    otherwise = sum(signs.count(sign) for sign in STATUS_SIGNS.values())
    parts = [
        _counted(signs.count("-"), "quantizer only on the left", "quantizers only on the left"),
        _counted(signs.count("+"), "quantizer only on the right", "quantizers only on the right"),
        _counted(signs.count("~"), "other grid", "other grids"),
        _counted(otherwise, "layer runs otherwise", "layers run otherwise"),
        _counted(signs.count("!"), "fault of the file", "faults of the file"),
        _counted(signs.count("⇄"), "conversion between kernels", "conversions between kernels"),
        _counted(signs.count("→"), "layer merged", "layers merged"),
    ]
    return ", ".join(part for part in parts if part)


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}" if count else ""
