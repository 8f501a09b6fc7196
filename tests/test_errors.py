"""Quoting somebody else's error."""

import pytest

from qdq_workbench.errors import first_line


@pytest.mark.parametrize(
    ("message", "quoted"),
    [
        ("Too many axes.\nCall stack: ...", "Too many axes"),
        ("\n  \n  indented. \nmore", "indented"),
        ("x" * 500, "x" * 300),
        ("", "ValueError"),
    ],
)
def test_first_line(message, quoted):
    assert first_line(ValueError(message)) == quoted
