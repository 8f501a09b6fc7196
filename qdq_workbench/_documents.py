"""Reading of untrusted JSON and YAML files, within limits and with errors that tell the user what to do.

Aliases can expand ten lines of YAML to a thousand million values, so the values that aliases repeat are counted during
parsing and limited. The nesting depth is limited as well, independently of Python's recursion limit, which a program
may have raised beyond the size of the process's stack.
"""

from __future__ import annotations

import functools
import json
import math
import pathlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from qdq_workbench._files import read_text, write_text
from qdq_workbench.errors import DataError, QDQError, first_line

if TYPE_CHECKING:
    from typing_extensions import Self

Built = TypeVar("Built")

_MOST_REPEATED = 100_000
_DEEPEST = 100
_DEEPEST_JSON = 500  # networks within networks take some five levels each
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', re.DOTALL)


def read_document(
    path: str | pathlib.Path,
    build: Callable[[Any], Built],
    *,
    what: str,
    made_by: str,
    error: type[QDQError],
    syntax: Literal["JSON", "YAML"] = "JSON",
) -> Built:
    """Rebuild an object from a JSON or YAML file; YAML is read with the safe loader, which runs no code.

    Args:
        path: The file.
        build: Function that builds the object from the parsed document.
        what: Name of the object for messages, such as "placement plan".
        made_by: The function or command that writes such files, for messages.
        error: The class of the error to raise.
        syntax: The syntax of the file.

    Raises:
        FileAccessError: If the file cannot be read.
        QDQError: `error`, if the file is not of that syntax, exceeds the limits, or `build` fails.
    """
    text = read_text(path)
    try:
        return build(_document_of_json(text) if syntax == "JSON" else _parsed_yaml(text))
    except QDQError:
        raise  # its message is more specific than the ones below
    except (DeeplyNestedError, RecursionError) as cause:
        raise error(
            f"The file is nested too deeply for a {what}; {made_by} writes one. Received: path={str(path)!r}"
        ) from cause
    except _UnparsedError as cause:
        raise error(f"A {what} is a {cause}. {made_by} writes one. Received: path={str(path)!r}") from cause
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as cause:
        raise error(
            f"The file holds no {what}, or a damaged one: a part of it is missing or of the wrong kind "
            f"({type(cause).__name__}: {first_line(cause)}). Make it anew: {made_by} writes one. "
            f"Received: path={str(path)!r}"
        ) from cause


class SavedReport:
    """A report that can be written to a JSON file; subclasses define its contents in `to_dict`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dictionary."""
        raise NotImplementedError(f"{type(self).__name__} must say in `to_dict` what its file holds.")

    def save(self, path: str | pathlib.Path) -> None:
        """Write the report to a JSON file, atomically.

        Args:
            path: The file to write.

        Raises:
            OutputPathError: If the file cannot be written.
        """
        write_text(path, json.dumps(self.to_dict(), indent=2) + "\n")


class LoadedReport(SavedReport):
    """A report that can also be read from its file; subclasses rebuild it in `from_dict`."""

    #: Name of the report in error messages, such as "latency report".
    _what: ClassVar[str]

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Rebuild a report from `to_dict`."""
        raise NotImplementedError(f"{cls.__name__} must say in `from_dict` how it is rebuilt.")

    @classmethod
    def load(cls, path: str | pathlib.Path) -> Self:
        """Read a report from a JSON file.

        Args:
            path: A file that `save` wrote.

        Raises:
            DataError: If the file does not hold a report.
            FileAccessError: If it cannot be read.
        """
        made_by = f"{cls.__name__}.save"
        return read_document(path, cls.from_dict, what=cls._what, made_by=made_by, error=DataError)


def json_number(value: Any) -> Any:
    """Return infinite floats and NaN as strings, which JSON can hold; other values unchanged."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class DeeplyNestedError(ValueError):
    """A text that exceeds the limit of the nesting depth."""


class _UnparsedError(ValueError):
    """A text that does not have the expected syntax."""


def parse_json(text: str | bytes) -> Any:
    """Parse untrusted JSON, with a limit on the nesting depth.

    Args:
        text: The text; bytes are UTF-8.

    Returns:
        The parsed value: a dictionary, list, string, number, True, False, or None.

    Raises:
        ValueError: If it is not valid JSON.
        DeeplyNestedError: If it is nested too deeply; a subclass of `ValueError`.

    Example:
        >>> parse_json('{"layers": ["stem"]}')
        {'layers': ['stem']}
        >>> parse_json("[" * 1000 + "]" * 1000)
        Traceback (most recent call last):
            ...
        qdq_workbench._documents.DeeplyNestedError: the text is nested too deeply
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    # Python stops at its recursion limit, but a program may have raised it beyond the size of the process's stack.
    if _depth(text) > _DEEPEST_JSON:
        raise DeeplyNestedError("the text is nested too deeply")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise DeeplyNestedError("the text is nested too deeply") from error


def _depth(text: str) -> int:
    """Return the nesting depth of a JSON text; 0 if it has too few brackets to exceed the limit."""
    if text.count("[") + text.count("{") <= _DEEPEST_JSON:
        return 0
    depth = deepest = 0
    for found in _BRACKETS.finditer(text):
        if found[1]:
            depth += 1
            deepest = max(deepest, depth)
        elif found[2]:
            depth -= 1
    return deepest


def _document_of_json(text: str) -> Any:
    try:
        return parse_json(text)
    # It is a ValueError too, but the text may be valid JSON.
    except DeeplyNestedError:
        raise
    except ValueError as error:
        raise _UnparsedError(f"JSON file; this one is not valid JSON: {error}") from error


def _parsed_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.load(text, _bounded_loader())  # noqa: S506 - a subclass of the safe loader
    except (yaml.YAMLError, ValueError) as error:  # ValueError: of dates such as 2001-99-99
        raise _UnparsedError(f"YAML or JSON file; this one is not valid YAML: {error}") from error


@functools.cache
def _bounded_loader() -> type[Any]:
    """Return PyYAML's safe loader with limits on the values that aliases repeat and on the nesting depth."""
    import yaml

    class BoundedLoader(yaml.SafeLoader):
        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self._values = self._repeated = self._depth = 0
            self._sizes: dict[str, int] = {}

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            if isinstance(event, yaml.AliasEvent):
                self._repeat(event)
                return super().compose_node(parent, index)
            before = self._values
            self._values += 1
            self._depth += 1
            if self._depth > _DEEPEST:
                raise RecursionError
            node = super().compose_node(parent, index)
            self._depth -= 1
            if event.anchor is not None:
                self._sizes[event.anchor] = self._values - before
            return node

        def _repeat(self, event: Any) -> None:
            if event.anchor in self.anchors and event.anchor not in self._sizes:
                raise yaml.composer.ComposerError(
                    None, None, "an alias stands inside of what it means", event.start_mark
                )
            size = self._sizes.get(event.anchor, 0)
            self._values += size
            self._repeated += size
            if self._repeated > _MOST_REPEATED:
                raise yaml.composer.ComposerError(
                    None, None, f"aliases repeat more than {_MOST_REPEATED:,} values", event.start_mark
                )

    return BoundedLoader
