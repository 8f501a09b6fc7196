"""Finds the functions in which two texts of a file differ, so that a test can change a loaded one."""

from __future__ import annotations

import inspect
import types


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
