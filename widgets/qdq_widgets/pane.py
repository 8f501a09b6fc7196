"""The base class of the bench's panes, and the small building blocks that they share."""

from __future__ import annotations

import copy
import functools
import html
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import ErrorBox
from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.replacing import close_all

if TYPE_CHECKING:
    from qdq_widgets.workbench import Workbench

SHORT_CELL = 12  # letters that are not worth breaking into lines


class Pane:
    """A part of the bench: widgets that show a part of the `Workbench` and call its methods.

    Subclasses return their widgets from `build`, and update them in `refresh`. A pane is built when it is first shown,
    because a page needs some milliseconds for every widget; a hidden pane is refreshed when it is shown. A row in
    `qdq_widgets.panes` registers a pane; the page "Extending QDQ Workbench" has an example.

    Args:
        bench: The `Workbench`.

    Attributes:
        title: Title of its tab.
        events: The events after which it is refreshed; see `Workbench.subscribe`.
        remembers: Names and default values of settings that are saved and restored with the bench; see `remember`.
        is_built: Whether `build` has succeeded. Others are not refreshed: that would hide the error of `build`.
    """

    title = ""
    events: tuple[str, ...] = ("plan",)
    remembers: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self.widget = widgets.VBox()
        self.widget.add_class("qdq-pane")
        self._built = False
        self.is_built = False

    @functools.cached_property
    def errors(self) -> ErrorBox:
        """Where errors of this pane are shown."""
        return ErrorBox()

    def ensure_built(self) -> None:
        """Build the widgets, unless that was done or has failed."""
        if self._built:
            return
        self._built = True
        self.widget.children = (self.errors.widget,)  # shows an error of `build` itself
        children = list(self.build())
        if self.errors.widget not in children:
            children.append(self.errors.widget)
        self.widget.children = children
        self.is_built = True

    def build(self) -> Sequence[Any]:
        """Return the widgets of the pane; called once, when it is first shown.

        Errors are shown at the place of `self.errors.widget` among them, else at the end: a pane with figures puts it
        below its buttons.
        """
        raise NotImplementedError(f"{type(self).__name__} must return its widgets from `build`.")

    def refresh(self) -> None:
        """Show the present state of the bench."""

    def close(self) -> None:
        """Close the widgets of the pane; one that keeps some outside of `self.widget` closes these as well."""
        close_all(self.widget)

    @property
    def remembered(self) -> dict[str, Any]:
        """The remembered value of every name in `remembers`, or its default."""
        values = self.bench.pane_states.of(type(self).__name__)
        return copy.deepcopy({name: values.get(name, first) for name, first in self.remembers.items()})

    def remember(self, **values: Any) -> None:
        """Store values with the bench; `refresh` follows if they are new.

        Args:
            **values: New values of some names in `remembers`, of kinds that JSON has.

        Raises:
            BenchError: If a name is unknown, or JSON has no such value.
        """
        unknown = sorted(values.keys() - self.remembers.keys())
        if unknown:
            raise BenchError(f"{type(self).__name__} remembers {sorted(self.remembers)}. Received: {unknown}")
        self.bench.pane_states.remember(type(self).__name__, **values)

    def start(self, work: Callable[[], Any]) -> None:
        """Run a long task in the background; its errors are shown in this pane.

        Args:
            work: A function that calls a method of the bench.
        """
        self.errors.clear()
        self.bench.jobs.start(work, self._show_failure)

    def _show_failure(self, error: BaseException) -> None:
        if not isinstance(error, BenchStoppedError):  # a stop is no error: the status line shows it
            self.errors.show(error)


def button(text: str, on_click: Callable[[], Any], *, icon: str = "", style: str = "", tooltip: str = "") -> Any:
    """Return a button, which calls `on_click` without arguments.

    Args:
        text: Its label.
        on_click: The function.
        icon: Name of a FontAwesome icon.
        style: "", or a style of ipywidgets such as "primary" and "danger".
        tooltip: Its tooltip; empty for the label.
    """
    made = widgets.Button(description=text, icon=icon, button_style=style, tooltip=tooltip or text)
    made.layout.width = "auto"
    made.on_click(lambda _: on_click())
    return made


def row(*children: Any, gap: str = "8px") -> Any:
    """Return widgets side by side, wrapped to the width; `gap` is a CSS length."""
    return widgets.HBox(list(children), layout={"flex_flow": "row wrap", "align_items": "center", "grid_gap": gap})


def text_html(text: str, css_class: str = "") -> str:
    """Return plain text as HTML, escaped since names in it are untrusted, with a class of the bench's style sheet."""
    return f'<div class="{css_class}">{html.escape(text)}</div>'


def table_html(
    head: Iterable[str], rows: Iterable[Sequence[Any]], *, empty: str = "", least: Collection[str] = ()
) -> str:
    """Return a table as HTML, escaped; `empty` is shown if there are no rows.

    A narrow pane leaves out the columns with the headings in `least`.
    """
    head = list(head)
    looks = ["qdq-least" if cell in least else "" for cell in head]
    body = "".join(f"<tr>{''.join(map(_cell, cells, looks))}</tr>" for cells in rows)
    if not body:
        return text_html(empty, "qdq-muted")
    # A long name such as that of a metric may go on below an underscore.
    named = (html.escape(cell).replace("_", "_<wbr>") for cell in head)
    header = "".join(_tag("th", cell, look) if cell else "<td></td>" for cell, look in zip(named, looks, strict=True))
    table = f'<table class="qdq-table"><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="qdq-scroll" tabindex="0" role="group" aria-label="Table">{table}</div>'


def filled_columns(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[Any]]]:
    """Return headings and cells of a table without the columns whose cells are all empty or None.

    Example:
        >>> filled_columns(("site", "group"), [("input 0", ""), ("output", "")])
        (['site'], [['input 0'], ['output']])
    """
    shown = [column for column in range(len(head)) if any(row[column] not in ("", None) for row in rows)]
    return [head[column] for column in shown], [[row[column] for column in shown] for row in rows]


def _cell(value: Any, look: str) -> str:
    text = html.escape(str(value))
    return _tag("td", text, f"{look} qdq-short".strip() if len(text) <= SHORT_CELL else look)


def _tag(name: str, content: str, css_class: str) -> str:
    return f'<{name} class="{css_class}">{content}</{name}>' if css_class else f"<{name}>{content}</{name}>"


def set_options(picker: Any, options: Sequence[Any], value: Any = None) -> None:
    """Set the options of a dropdown, values or pairs (text, value), and keep its value if that is still an option.

    `value` replaces the former one unless it is None; a value that is no option becomes the first option.
    """
    values = [option[1] if isinstance(option, tuple) else option for option in options]
    wanted = picker.value if value is None else value
    # ipywidgets selects the first option whenever options are set, and observers take that for the user's choice.
    if list(picker.options) != list(options):
        picker.options = list(options)
    if values:
        picker.value = wanted if wanted in values else values[0]


def file_name(text: str) -> str:
    """Return a model's name in a form that is valid in file names on every system.

    Example:
        >>> file_name("my net/v1.0")
        'my_net_v1.0'
    """
    return re.sub(r"[^\w.-]+", "_", text).strip("._")[:60] or "model"


def percent(share: float) -> str:
    """Return a share, from 0 to 1, in percent.

    Example:
        >>> percent(0.9872)
        '98.7 %'
    """
    return f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours.

    Example:
        >>> duration(8), duration(100), duration(5400)
        ('8 s', '2 min', '1.5 h')
    """
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def kibibytes(size: int) -> str:
    """Return a size in bytes as KiB or MiB.

    Example:
        >>> kibibytes(2048), kibibytes(3 * 1024 * 1024)
        ('2.0 KiB', '3.0 MiB')
    """
    return f"{size / 1024:.1f} KiB" if size < 1024 * 1024 else f"{size / 1024 / 1024:.1f} MiB"
