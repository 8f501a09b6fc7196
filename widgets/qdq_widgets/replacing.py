"""Replacing the widgets in a box: removed ones are closed, since they would stay in the kernel and in the page.

JupyterLab (4.6) keeps the connections of closed widgets, so what a click changes has `Rows`, which are never closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import ipywidgets as widgets


def replace_children(box: Any, children: Iterable[Any]) -> None:
    """Set the children of a box, and close the former ones with all widgets in them, except those that stay."""
    former, box.children = box.children, tuple(children)
    kept = {id(one) for child in box.children for one in _parts(child)}
    for child in former:
        close_all(child, kept)


def close_all(widget: Any, kept: Iterable[int] = ()) -> None:
    """Close a widget with its children, layouts and styles, each of which is a model in the page.

    `kept` holds the `id` of widgets that stay open.
    """
    for one in list(_parts(widget)):
        if id(one) not in kept:
            one.close()


def _parts(widget: Any) -> Iterator[Any]:
    yield widget
    for value in widget.trait_values(sync=True).values():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, widgets.Widget):
                yield from _parts(part)


class Rows:
    """Rows that stay in their box and change their content: JupyterLab keeps the views of widgets that leave a box.

    Args:
        box: The box.
        make: Makes a row; called with its number.
        fill: Called with a row and the item to show in it.
    """

    def __init__(self, box: Any, make: Callable[[int], Any], fill: Callable[[Any, Any], None]) -> None:
        self._box, self._make, self._fill = box, make, fill
        self.items: Sequence[Any] = ()

    @property
    def shown(self) -> tuple[Any, ...]:
        """The rows that are shown."""
        return tuple(self._box.children[: len(self.items)])

    def show(self, items: Sequence[Any]) -> None:
        """Show one item per row; rows that are not needed are hidden."""
        self.items, there = tuple(items), len(self._box.children)
        if len(items) > there:
            self._box.children = (*self._box.children, *map(self._make, range(there, len(items))))
        for row, item in zip(self.shown, items, strict=True):
            self._fill(row, item)
        for number, row in enumerate(self._box.children):
            row.layout.display = "" if number < len(items) else "none"
