"""Other widgets in a box: those that leave it are closed, else they live on in the kernel and in the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import ipywidgets as widgets


def replace_children(box: Any, children: Iterable[Any]) -> None:
    """Put other widgets into a box and close the former ones, with all that they hold.

    Args:
        box: A widget with children.
        children: The widgets that it gets; those that it has already stay open.
    """
    former, box.children = box.children, tuple(children)
    kept = {id(one) for child in box.children for one in _parts(child)}
    for child in former:
        close_all(child, kept)


def close_all(widget: Any, kept: Iterable[int] = ()) -> None:
    """Close a widget with its children, layouts and styles: each is a model of its own in the page.

    Args:
        widget: The widget.
        kept: The `id` of widgets that stay open.
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
