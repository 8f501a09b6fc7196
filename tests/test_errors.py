"""Quoting somebody else's error, and the names that somebody may have meant."""

import pytest

from qdq_workbench.errors import first_line, nearest_names


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


def test_at_most_three_names_are_proposed_the_nearest_first():
    names = ["conv_1a", "conv_1bc", "conv_1bcd", "conv_1bcde", "dense"]
    assert nearest_names("conv_1", names) == "Did you mean 'conv_1a' or 'conv_1bc' or 'conv_1bcd'?"
