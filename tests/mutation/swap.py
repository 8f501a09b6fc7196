"""Puts a changed function into the modules that are loaded: tests that were collected then run against it.

To import the package anew for every mutant would cost more than the tests that notice it.
"""

from __future__ import annotations

import functools
import gc
import inspect
import types

_Cached = type(functools.lru_cache(len))


def changed_functions(before: str, after: str, path: str) -> list[tuple[types.CodeType, types.CodeType]] | None:
    """Compare two texts of a file.

    Args:
        before: The text that is loaded.
        after: The text with a change.
        path: The file, as the loaded functions name it.

    Returns:
        (code, its replacement) of the outermost functions that differ; None where anything differs that runs when the
        module is imported, such as a table, a default or a class body: such a module has to be imported anew.
    """
    return _compare(compile(before, path, "exec", dont_inherit=True), compile(after, path, "exec", dont_inherit=True))


def _compare(old, new):
    if old == new:
        return []
    if inspect.CO_OPTIMIZED & old.co_flags:  # a function, and neither a module nor the body of a class
        return [(old, new)]
    if _own(old) != _own(new):
        return None
    found = []
    for one, other in zip(_nested(old), _nested(new), strict=True):
        inner = _compare(one, other)
        if inner is None:
            return None
        found += inner
    return found


def _nested(code):
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def _own(code):
    """Return what a code does by itself, without the functions and classes in it."""
    constants = [constant for constant in code.co_consts if not isinstance(constant, types.CodeType)]
    return code.co_code, repr(constants), code.co_names, len(_nested(code))


def put_in(pairs: list[tuple[types.CodeType, types.CodeType]]) -> int:
    """Give the loaded functions their changed code.

    Args:
        pairs: What `changed_functions` returned.

    Returns:
        How many functions were changed. 0 means that none of them is loaded: the change has no effect here.
    """
    changed = {}
    for old, new in pairs:
        changed.update(_aligned(old, new))
    done = 0
    gc.unfreeze()  # conftest.py freezes what is imported, and `get_objects` does not return that
    for thing in gc.get_objects():
        kind = type(thing)  # a weak proxy whose object is gone answers `isinstance` with an error
        if issubclass(kind, types.FunctionType):
            new = changed.get(_place(thing.__code__))
            if new is not None and new.co_freevars == thing.__code__.co_freevars:
                thing.__code__ = new
                done += 1
        elif issubclass(kind, _Cached) and str(thing.__module__).startswith("qdq_"):
            thing.cache_clear()
    return done


def _aligned(old, new):
    found = {_place(old): new}
    inner, other = _nested(old), _nested(new)
    if len(inner) == len(other):
        for one, two in zip(inner, other, strict=True):
            found.update(_aligned(one, two))
    return found


def _place(code):
    return code.co_filename, code.co_firstlineno, code.co_name
