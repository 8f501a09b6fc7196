"""Tests that tables and lists name: those of REGRESSIONS.md, and whether a file has a test of a name."""

import ast
import functools
import re

from project import ROOT

TABLE = (ROOT / "tests" / "REGRESSIONS.md").read_text(encoding="utf-8")
#: (file, function) of every test of Python that the table of regressions names.
OF_REGRESSIONS = frozenset(re.findall(r"`(tests/[\w/]+\.py)::(?:\w+::)?(\w+)`", TABLE))


@functools.cache
def functions(path):
    """Return the names of the functions of a file, given from the root of the repository."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
