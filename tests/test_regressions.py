"""The table of faults that users met: each has a test that fails without its repair, and the table cannot go stale."""

import re

import pytest
from named_tests import OF_REGRESSIONS, TABLE, functions
from project import ROOT

NAMED = sorted(OF_REGRESSIONS)
OF_THE_FRONT_END = sorted(set(re.findall(r"`(widgets/src/\w+\.test\.ts)::([^`]+)`", TABLE)))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_the_test_exists(path, name):
    assert name in functions(path)


@pytest.mark.parametrize(("path", "title"), OF_THE_FRONT_END)
def test_the_test_of_the_front_end_exists(path, title):
    assert f'  it("{title}", ' in (ROOT / path).read_text(encoding="utf-8")


def test_every_row_names_a_test():
    rows = [line for line in TABLE.splitlines() if re.match(r"\| (?!What went wrong|What holds now|---)\S", line)]
    assert len(rows) > 20
    assert [row for row in rows if "::" not in row] == []


def test_no_name_is_left_unchecked():
    """A test of a class stands behind the name of the class; nobody would look for what is written otherwise."""
    checked = {f"{path}::{name}" for path, name in NAMED} | {f"{path}::{name}" for path, name in OF_THE_FRONT_END}
    written = {re.sub(r"::Test\w+::", "::", name) for name in re.findall(r"`([^`]*::[^`]*)`", TABLE)}
    assert written == checked
