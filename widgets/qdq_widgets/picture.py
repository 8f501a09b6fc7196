"""A static SVG picture of a plan, for saved notebooks without a kernel and for documents.

Small models are drawn as a graph of cards, one per kernel, which lists the layers that are folded or fused into it.
Large ones are a strip of cells in computing order. Layer names are untrusted, so all text is escaped.
"""

from __future__ import annotations

import dataclasses
import html
import pathlib
from collections.abc import Iterator, Sequence

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.graph_page import explained, summary_lines

_MOST_CARDS = 40
_CARD, _HIGH, _ACROSS, _DOWN, _LANE = 168, 30, 192, 46, 14
_CELL, _CELL_HIGH, _PER_ROW = 11, 20, 64
_HEAD, _LINE, _MARGIN = 30, 17, 12
_COLORS = {"int8": "#007a5a", "partial": "#e69f00", "float": "#6b727d", "input": "#4a6fa5"}
_WORDS = {"int8": "INT8", "partial": "partly INT8", "float": "float"}
# Endings of the library's rules for layers without a kernel of their own.
_JOINS = ("-FUSED", "-VANISHES")
_FONT = "font-family='system-ui, -apple-system, Segoe UI, sans-serif'"


@dataclasses.dataclass
class _Card:
    """One kernel: a layer, and the layers that are folded or fused into it."""

    name: str
    class_name: str
    status: str
    bits: str
    with_it: list[str] = dataclasses.field(default_factory=list)
    rank: int = 0
    x: float = 0.0


@dataclasses.dataclass(frozen=True)
class _Edge:
    source: str
    target: str
    paired: bool


def write_graph_picture(plan: qdq.PlacementPlan, path: str | pathlib.Path) -> pathlib.Path:
    """Write a picture of a plan as an SVG file.

    It shows which layers the target will execute in INT8, which are fused into one kernel, and where the Q/DQ pairs
    are. Models of more than 40 kernels are drawn as a strip of cells in computing order.

    Args:
        plan: The plan.
        path: The file, whose name ends in .svg, in an existing folder; an existing file is replaced.

    Returns:
        The path.

    Raises:
        SpecError: If `plan` is not a plan.
        BenchError: If the file's name does not end in .svg.
        OutputPathError: If the file cannot be written.

    Example:
        >>> import keras, qdq_workbench as qdq
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image), name="small")
        >>> write_graph_picture(qdq.plan_placement(model), "graph.svg").name
        'graph.svg'
    """
    path = pathlib.Path(path)
    if path.suffix.lower() != ".svg":
        raise BenchError(f"The picture is an SVG file; give a name that ends in .svg. Received: path={str(path)!r}")
    picture = graph_picture(plan, explained(plan))
    return qdq.write_atomically(path, lambda file: file.write_text(picture, encoding="utf-8"))


def graph_picture(plan: qdq.PlacementPlan, explanation: qdq.Explanation | None, lines: Sequence[str] = ()) -> str:
    """Return a picture of a plan as the text of an SVG image, with `lines`, such as scores, above the graph.

    None as `explanation` colours the layers by what the plan quantizes instead of their status on the target.
    """
    cards, edges = _cards(plan, explanation)
    head = [*summary_lines(plan, explanation), *lines]
    top = _HEAD + _LINE * len(head) + _MARGIN
    drawn, width, height = _graph(cards, edges) if len(cards) <= _MOST_CARDS else _strip(cards)
    texts = [_text(_MARGIN, 22, plan.graph.name, size=15, weight=600)]
    texts += [_text(_MARGIN, _HEAD + _LINE * place + 12, line, color="#5f5f5f") for place, line in enumerate(head)]
    # About 7 px per letter: the font of the reader is not known.
    width = max(width + 2 * _MARGIN, 7 * max(map(len, head)))
    total = top + height + 2 * _MARGIN + _LINE
    has_edges = len(cards) <= _MOST_CARDS
    legend = _legend(_MARGIN, total - _MARGIN - 10, {card.status for card in cards}, pairs=has_edges)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' height='{total:.0f}' "
        f"viewBox='0 0 {width:.0f} {total:.0f}' {_FONT} font-size='12' role='img' "
        f"aria-label='{_escaped(plan.graph.name)}: {_escaped(head[0])}'>"
        f"<rect width='100%' height='100%' rx='6' fill='#fff'/>{''.join(texts)}"
        f"<g transform='translate({_MARGIN} {top})'>{''.join(drawn)}</g>{legend}</svg>"
    )


def _cards(plan: qdq.PlacementPlan, explanation: qdq.Explanation | None) -> tuple[list[_Card], list[_Edge]]:
    """Return one card per kernel in computing order, and one edge per pair of connected cards."""
    verdicts = {} if explanation is None else {entry.layer: entry for entry in explanation.layers}
    quantized = {placement.layer for placement in plan.placements}
    bits: dict[str, str] = {}
    for placement in plan.placements:
        if placement.site == "weight":
            bits.setdefault(placement.layer, f"W{placement.quantizer.num_bits}")
    paired = {p.tensor for p in plan.placements if p.site == "output"}
    read_through = {(p.node, p.input_index) for p in plan.placements if p.site == "input"}
    home: dict[str, _Card] = {}
    cards: list[_Card] = []
    edges: dict[tuple[str, str], _Edge] = {}
    for node in plan.graph.nodes:
        entry = verdicts.get(node.layer)
        sources = [home[plan.graph.producer(tensor).name] for tensor in node.inputs]
        before = sources[0] if sources else None
        joins = entry is not None and entry.rule.endswith(_JOINS)
        # Nothing is fused into an input of the model. By `id`, since mutable dataclasses have no hash.
        if joins and before is not None and before.status != "input" and len(set(map(id, sources))) == 1:
            before.with_it.append(node.class_name)
            home[node.name] = before
            continue
        status = "int8" if node.layer in quantized else "float"
        status = "input" if not node.inputs else status if entry is None else entry.status
        card = _Card(node.name, node.class_name, status, bits.get(node.layer, ""))
        for index, (tensor, source) in enumerate(zip(node.inputs, sources, strict=True)):
            pair = tensor in paired or (node.name, index) in read_through
            key = (source.name, card.name)
            edges[key] = _Edge(*key, pair or (key in edges and edges[key].paired))
            card.rank = max(card.rank, source.rank + 1)
        home[node.name] = card
        cards.append(card)
    return cards, list(edges.values())


def _graph(cards: Sequence[_Card], edges: Sequence[_Edge]) -> tuple[list[str], float, float]:
    """Draw a row of cards per rank, each card near the mean column of its producers; long edges run in side lanes."""
    by_name = {card.name: card for card in cards}
    sources: dict[str, list[_Card]] = {}
    for edge in edges:
        sources.setdefault(edge.target, []).append(by_name[edge.source])
    taken: dict[int, set[int]] = {}
    for card in cards:
        above = [source.x for source in sources.get(card.name, ())]
        column = round(sum(above) / len(above) / _ACROSS) if above else 0
        while column in taken.setdefault(card.rank, set()):
            column += 1
        taken[card.rank].add(column)
        card.x = column * _ACROSS
    right = max(card.x for card in cards) + _CARD
    lanes: list[int] = []  # by lane: the rank at which its last edge ends
    drawn = []
    for edge in edges:
        source, target = by_name[edge.source], by_name[edge.target]
        lane = None
        if target.rank - source.rank > 1:
            # The first lane that is free again, or a new one, which the slice then appends.
            lane = next((place for place, end in enumerate(lanes) if end <= source.rank), len(lanes))
            lanes[lane : lane + 1] = [target.rank]
        drawn.append(_edge(source, target, None if lane is None else right + _LANE * (lane + 1), paired=edge.paired))
    drawn += [_drawn_card(card) for card in cards]
    ranks = max(card.rank for card in cards) + 1
    return drawn, right + _LANE * (len(lanes) + 1), ranks * _DOWN - (_DOWN - _HIGH)


def _edge(source: _Card, target: _Card, lane: float | None, *, paired: bool) -> str:
    top, bottom = float(source.rank * _DOWN + _HIGH), float(target.rank * _DOWN)
    if lane is None:
        start, end = source.x + _CARD / 2, target.x + _CARD / 2
        middle = (top + bottom) / 2
        path = f"M{start} {top}C{start} {middle} {end} {middle} {end} {bottom}"
        mark = (end, bottom - 5)
    else:
        top, bottom = top - _HIGH / 2, bottom + _HIGH / 2
        path = f"M{source.x + _CARD} {top}H{lane - 5}Q{lane} {top} {lane} {top + 5}V{bottom - 5}"
        path += f"Q{lane} {bottom} {lane - 5} {bottom}H{target.x + _CARD}"
        mark = (target.x + _CARD + 5, bottom)
    if not paired:
        return f"<path d='{path}' fill='none' stroke='#9aa0a8' stroke-width='1.4'/>"
    line = f"<path d='{path}' fill='none' stroke='{_COLORS['int8']}' stroke-width='1.4'/>"
    return f"{line}<circle cx='{mark[0]}' cy='{mark[1]}' r='3.5' fill='{_COLORS['int8']}'/>"


def _drawn_card(card: _Card) -> str:
    y, color = card.rank * _DOWN, _COLORS[card.status]
    title = _escaped(f"{card.name} ({card.class_name}): {_WORDS.get(card.status, 'input')}")
    under = " + ".join([card.class_name, *card.with_it])
    badge = _text(card.x + _CARD - 6, y + 12, card.bits, size=9, color=color, weight=600, anchor="end")
    return (
        f"<g><title>{title}</title><rect x='{card.x}' y='{y}' width='{_CARD}' height='{_HIGH}' rx='4' fill='#f7f8fa' "
        f"stroke='#c9cdd4'/><rect x='{card.x}' y='{y}' width='5' height='{_HIGH}' rx='2' fill='{color}'/>"
        f"{_text(card.x + 11, y + 12, _cut(card.name, 22), size=11)}"
        f"{_text(card.x + 11, y + 24, _cut(under, 28), size=9, color='#5f6570')}{badge}</g>"
    )


def _strip(cards: Sequence[_Card]) -> tuple[list[str], float, float]:
    """Draw one cell per kernel in computing order, row by row; each row is labelled with its first kernel."""
    drawn = []
    label = 150
    for start in range(0, len(cards), _PER_ROW):
        y = (start // _PER_ROW) * (_CELL_HIGH + 10)
        drawn.append(_text(label - 10, y + 14, _cut(cards[start].name, 22), size=10, color="#5f6570", anchor="end"))
        for place, card in enumerate(cards[start : start + _PER_ROW]):
            title = _escaped(f"{card.name} ({card.class_name}): {_WORDS.get(card.status, 'input')}")
            drawn.append(
                f"<rect x='{label + place * _CELL}' y='{y}' width='{_CELL - 1.5}' height='{_CELL_HIGH}' rx='1.5' "
                f"fill='{_COLORS[card.status]}'><title>{title}</title></rect>"
            )
    rows = -(-len(cards) // _PER_ROW)
    return drawn, label + _CELL * min(_PER_ROW, len(cards)), rows * (_CELL_HIGH + 10) - 10


def _legend(x: float, y: float, statuses: set[str], *, pairs: bool) -> str:
    parts = []
    for status, words in _WORDS.items():
        if status in statuses:
            parts.append(f"<rect x='{x}' y='{y - 9}' width='10' height='10' rx='2' fill='{_COLORS[status]}'/>")
            parts.append(_text(x + 15, y, words, size=11))
            x += 30 + 7 * len(words)
    if pairs:
        parts += [f"<circle cx='{x + 5}' cy='{y - 4}' r='3.5' fill='#007a5a'/>", _text(x + 15, y, "Q/DQ pair", size=11)]
    return "".join(parts)


def _text(
    x: float, y: float, text: str, *, size: int = 12, color: str = "#1f1f1f", weight: int = 400, anchor: str = "start"
) -> str:
    if not text:
        return ""
    style = f"font-size='{size}' font-weight='{weight}' fill='{color}' text-anchor='{anchor}'"
    return f"<text x='{x}' y='{y}' {style}>{_escaped(text)}</text>"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most - most // 2 - 1) :]}"


def _escaped(text: str) -> str:
    """Return text escaped for XML, with control characters replaced, which XML forbids."""
    return html.escape("".join(_printable(text)), quote=True)


def _printable(text: str) -> Iterator[str]:
    for sign in text:
        yield sign if sign.isprintable() else "\ufffd"
