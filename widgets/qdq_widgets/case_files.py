"""Insertion cases as JSON: class name and constructor arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.literals import keywords, literal

_TUPLE = "__tuple__"


def case_to_dict(case: Any) -> dict[str, Any]:
    """Return name and arguments of a case; the arguments are None if they do not rebuild an equal case."""
    found = arguments_of(case)
    if found is None:
        return {"name": case.name, "arguments": None}
    args, named = found
    return {"name": case.name, "arguments": _encoded(list(args)), "named": _encoded(named)}


def arguments_of(case: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of a case after a round trip through JSON; None if they do not rebuild an equal case."""
    try:
        args, named = case.arguments
        kept = json.loads(json.dumps([_encoded(list(args)), _encoded(named)], allow_nan=False))
        args, named = tuple(_decoded(kept[0])), _decoded(kept[1])
        # Comparing attributes that are arrays may raise; such a case is not saved either.
        same = bool(_state(type(case)(*args, **named)) == _state(case))
    except Exception:  # noqa: BLE001 - arguments of any kind, and a constructor of the user's own
        return None
    return (args, named) if same else None


def _state(case: Any) -> dict[str, Any]:
    # Without the arguments as they were given: a `Target` and its name make equal cases.
    return {key: value for key, value in vars(case).items() if key != "_made_with"}


class KnownCases:
    """Rebuilds the cases of a file from the classes of the library and of the cases that the caller gave.

    Args:
        given: Cases of the caller; their classes are also called with other arguments from the file.
    """

    def __init__(self, given: Iterable[Any]) -> None:
        self._given: dict[str, list[Any]] = {}
        for case in given:
            self._given.setdefault(case.name, []).append(case)

    def all_of(self, items: Sequence[Any]) -> tuple[Any, ...]:
        """Return the cases of one state, in order, from one dictionary of `case_to_dict` per case.

        Files of version 2 have names only. A case whose class is not known raises `BenchError`.
        """
        unsaved: dict[str, int] = {}
        cases = []
        for item in (item if isinstance(item, Mapping) else {"name": item} for item in items):
            name, arguments = item["name"], item.get("arguments", [])
            given = self._given.get(name, [])
            # Version 2 has names only, so a given case of that name is taken as it is.
            if arguments is None or ("arguments" not in item and given):
                # Without saved arguments, cases of one class are told apart by their order alone.
                number = unsaved[name] = unsaved.get(name, -1) + 1
                cases.append(self._brought(name, given, number))
            else:
                cases.append(self._made(name, given, tuple(_decoded(arguments)), _decoded(item.get("named", {}))))
        return tuple(cases)

    def _brought(self, name: str, given: list[Any], number: int) -> Any:
        if not given:
            raise BenchError(
                "The bench uses a case whose arguments could not be saved; make it again and pass it: "
                f"load(folder, cases=[{name}(...)]). Received: cases={sorted(self._given)}"
            )
        return given[min(number, len(given) - 1)]

    def _made(self, name: str, given: list[Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        same = next((case for case in given if arguments_of(case) == (args, named)), None)
        if same is not None:
            return same
        kind = type(given[0]) if given else _library_class(name)
        shown = call_of(name, args, named)
        if kind is None:
            raise BenchError(
                f"The bench uses a case of your own that is not known here; pass it: load(folder, cases=[{shown}]). "
                f"Received: cases={sorted(self._given)}"
            )
        try:
            return kind(*args, **named)
        except Exception as error:
            raise BenchError(
                f"A case of the bench cannot be made again: {type(error).__name__}: {error}. Pass one that fits: "
                f"load(folder, cases=[...]). Received: {shown}"
            ) from error


def call_of(name: str, args: Iterable[Any], named: Mapping[str, Any]) -> str:
    """Return the Python source of a call.

    Example:
        >>> call_of("AutoQDQCase", ["onnxruntime"], {})
        "AutoQDQCase('onnxruntime')"
    """
    return f"{name}({', '.join([*map(literal, args), *keywords(named)])})"


def _library_class(name: str) -> Any:
    # A name in a file may lead to the library's public cases only, never to another function of it.
    found = getattr(qdq, name, None) if name in qdq.__all__ else None
    return found if isinstance(found, type) and issubclass(found, qdq.CustomQDQInsertionCase) else None


def _encoded(value: Any) -> Any:
    """Return a value with tuples replaced by marked dictionaries, since JSON has no tuples."""
    if isinstance(value, tuple):
        return {_TUPLE: [_encoded(item) for item in value]}
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    if isinstance(value, dict):
        # With that key it would be read as a tuple; JSON would turn other keys into texts.
        if _TUPLE in value or not all(isinstance(key, str) for key in value):
            raise TypeError(value)
        return {key: _encoded(item) for key, item in value.items()}
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if isinstance(value, dict):
        return tuple(map(_decoded, value[_TUPLE])) if _TUPLE in value else {k: _decoded(v) for k, v in value.items()}
    return value
