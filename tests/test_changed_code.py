"""Which functions of a file differ between two texts of it."""

import pytest
from changed_code import changed_functions
from toy_source import SOURCE


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("value > LIMIT", "value > 4", ["counted"]),
        ("other < self", "other <= self", ["has"]),
        ("value * 2", "value * 3", ["doubled"]),
        ("size + 1", "size - 1", ["__init__"]),
        ("LIMIT", "LIMIT", []),
    ],
)
def test_the_outermost_functions_that_differ_with_their_replacements(old, new, names):
    found = changed_functions(SOURCE, SOURCE.replace(old, new), "toy.py")
    assert [before.co_name for before, _ in found] == [after.co_name for _, after in found] == names
    assert all(before != after for before, after in found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("least: int = 2", "least: int = 3"),
        ("@functools.lru_cache\n", ""),
        ("class Box", "class Case"),
    ],
)
def test_what_runs_at_the_import_is_no_change_of_functions_alone(old, new):
    assert changed_functions(SOURCE, SOURCE.replace(old, new), "toy.py") is None


def test_every_function_that_differs_is_found():
    both = SOURCE.replace("value * 2", "value * 3").replace("size + 1", "size - 1")
    assert [before.co_name for before, _ in changed_functions(SOURCE, both, "toy.py")] == ["doubled", "__init__"]
