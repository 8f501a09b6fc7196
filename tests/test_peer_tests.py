"""docs/peer_tests.md: every test that it names exists, every row says how it is, every test made for it is named."""

import ast
import functools
import re

from project import ROOT

PAGE = (ROOT / "docs" / "peer_tests.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"\[(\w+)\]\(\.\./(tests/[\w/]+\.py)\)", PAGE)))
ROWS = [
    [cell.strip() for cell in row.strip("|").split("|")]
    for row in re.findall(r"^\| (?!Their test).*\|$", PAGE, flags=re.MULTILINE)
]


@functools.cache
def functions(path):
    if not (ROOT / path).is_file():
        return set()
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_the_page_names_exists():
    assert [f"{path}::{name}" for name, path in NAMED if name not in functions(path)] == []


def test_every_link_to_a_test_is_of_that_form():
    assert len(re.findall(r"\]\(\.\./tests/", PAGE)) == len(re.findall(r"\[test_\w+\]\(\.\./tests/[\w/]+\.py\)", PAGE))


def test_every_row_has_a_verdict_with_its_reason_and_what_is_offered_has_a_test():
    assert len(ROWS) > 100
    assert {len(row) for row in ROWS} == {4}
    verdicts = [re.fullmatch(r"(same|different|out of scope)(: .{10,}|, .{10,})?", row[3]) for row in ROWS]
    assert [row for row, found in zip(ROWS, verdicts, strict=True) if found is None] == []
    assert [row for row, found in zip(ROWS, verdicts, strict=True) if found[1] == "different" and not found[2]] == []
    tested = [row for row, found in zip(ROWS, verdicts, strict=True) if found[1] != "out of scope"]
    assert [row for row in tested if "](../tests/" not in row[2]] == []


def test_every_test_that_was_written_for_the_page_is_on_it():
    own = {
        (name, path.relative_to(ROOT).as_posix())
        for path in (ROOT / "tests" / "peer_suites").glob("test_*.py")
        for name in functions(path.relative_to(ROOT).as_posix())
        if name.startswith("test_")
    }
    assert own - set(NAMED) == set()
