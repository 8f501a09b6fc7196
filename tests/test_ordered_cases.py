"""The cases of a test have one order in every process; a set has another one in each."""

import ast
from types import SimpleNamespace

import pytest
from ordered_cases import lines_with_sets, refuse_sets
from project import ROOT

NAMES = {"one": 1, "two": 2}


def cases_of(values):
    """What pytest tells of a test with these cases."""
    mark = pytest.mark.parametrize("x", values).mark
    return SimpleNamespace(definition=SimpleNamespace(nodeid="a::b", iter_markers=lambda name: [mark]))


def test_a_parametrization_over_a_set_is_refused():
    for values in (NAMES.keys() - {"two"}, frozenset(NAMES)):
        with pytest.raises(pytest.UsageError, match="The cases of a::b are a set, whose order differs"):
            refuse_sets(cases_of(values))
    refuse_sets(cases_of(sorted(NAMES)))
    refuse_sets(cases_of(NAMES.keys()))


@pytest.mark.parametrize(
    ("cases", "found"),
    [
        ("list({1, 2})", [1]),
        ("[x for x in {1, 2}]", [1]),
        ("[x for x in set(NAMES)]", [1]),
        ("[*frozenset(NAMES)]", [1]),
        ("[(x, y) for x in NAMES for y in {str(x) for x in NAMES}]", [1]),
        ("sorted({1, 2})", []),
        ("[x for x in NAMES if x not in {1, 2}]", []),
        ("range(len({1, 2}))", []),
        ("NAMES - {1}", [1]),
        ("[x for x in NAMES.keys() - {1}]", [1]),
        ("[('a', {1, 2}), ('b', set())]", []),
        ("NAMES", []),
    ],
)
def test_a_set_inside_the_cases_is_found(cases, found):
    assert lines_with_sets(ast.parse(f"@pytest.mark.parametrize('x', {cases})\ndef test(x): ...")) == found


def test_no_cases_come_from_a_set():
    files = sorted((ROOT / "tests").rglob("*.py"))
    found = {path.name: lines_with_sets(ast.parse(path.read_text(encoding="utf-8"))) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}
