"""Cases of a test that come from a set: their order differs between processes, and xdist then starts no tests."""

import ast

import pytest


def refuse_sets(metafunc):
    """Refuse a test whose cases are a set."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        _, values, *_ = (*mark.args, *mark.kwargs.values())
        if isinstance(values, (set, frozenset)):
            raise pytest.UsageError(
                f"The cases of {metafunc.definition.nodeid} are a set, whose order differs between processes. "
                f"Write sorted(...) around them. Received: {values!r}"
            )


def lines_with_sets(tree):
    """Return the lines of the parametrizations whose cases are made by going through a set without `sorted`."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node) == "parametrize")
    cases = ((call.lineno, given) for call in calls for given in call.args[1:2])
    return [line for line, given in cases if any(map(_is_set, [given, *_gone_through(given)]))]


def _gone_through(cases):
    for node in ast.walk(cases):
        if isinstance(node, ast.comprehension):
            yield node.iter
        elif isinstance(node, ast.Starred):
            yield node.value
        elif isinstance(node, ast.Call) and _name(node) in _IN_ORDER:
            yield from node.args


def _is_set(node):
    if isinstance(node, ast.BinOp):
        return _is_set(node.left) or _is_set(node.right)
    return isinstance(node, (ast.Set, ast.SetComp)) or (
        isinstance(node, ast.Call) and _name(node) in {"set", "frozenset"}
    )


def _name(call):
    return getattr(call.func, "id", getattr(call.func, "attr", None))


# What goes through its arguments in their order.
_IN_ORDER = {"list", "tuple", "enumerate", "zip", "map", "filter", "product", "chain"}
