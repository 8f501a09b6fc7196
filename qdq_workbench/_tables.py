"""Tables of texts: plain text of limited width for terminals, and HTML for notebooks."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

WIDTH = 120
_NARROWEST_LAST = 40
_GAP = "  "


def wrapped(line: str, indent: str = "    ") -> str:
    """Return a line of text wrapped to `WIDTH` columns.

    Args:
        line: The line; its own indentation is kept.
        indent: The indentation of the lines after the first.
    """
    return "\n".join(_pieces(line, WIDTH, indent)) if len(line) > WIDTH else line


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that is at most `WIDTH` characters wide; texts longer than their column are wrapped.

    Args:
        head: The titles of the columns; the last column, for sentences, keeps at least 40 characters.
        rows: The cells; line breaks in them are kept.
    """
    lines = [tuple(head), *map(tuple, rows)]
    widths = _widths([max(map(len, "\n".join(cells).split("\n"))) for cells in zip(*lines, strict=True)])
    text = [printed for line in lines for printed in _printed(line, widths)]
    text.insert(len(list(_printed(lines[0], widths))), _GAP.join("-" * width for width in widths))
    return "\n".join(text)


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as an HTML fragment; all cells are escaped, because names come from the user."""
    header = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def _widths(longest: list[int]) -> list[int]:
    """Return the widths of columns: those of their longest cells, with the widest columns reduced to fit `WIDTH`."""
    *names, last = longest
    room = WIDTH - len(_GAP) * len(names) - min(last, _NARROWEST_LAST)
    while sum(names) > room and max(names) > 1:
        names[names.index(max(names))] -= 1
    return [*names, max(1, min(last, WIDTH - len(_GAP) * len(names) - sum(names)))]


def _printed(line: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a row."""
    cells = [
        [piece for part in cell.split("\n") for piece in _pieces(part, width)]
        for cell, width in zip(line, widths, strict=True)
    ]
    for number in range(max(map(len, cells))):
        found = (cell[number] if number < len(cell) else "" for cell in cells)
        yield _GAP.join(piece.ljust(width) for piece, width in zip(found, widths, strict=True)).rstrip()


def _pieces(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False) or [""]


def shares_text(counts: Mapping[str, Sequence[int]]) -> str:
    """Return how many of all there are by name, in the order of the names.

    Example:
        >>> shares_text({"MatMul": (0, 1), "Conv": (3, 4)})
        'Conv 3/4, MatMul 0/1'
    """
    return ", ".join(f"{name} {some}/{total}" for name, (some, total) in sorted(counts.items()))
