"""What `make test` leaves out: cases that a record of lines chose, and tests that a reader chose."""

from __future__ import annotations

import dataclasses

import yaml
from project import ROOT

#: The cases that tests/mutation/further_cases.py chooses.
LIST = ROOT / "tests" / "exhaustive.txt"
#: What was chosen by reading.
CHOICES = ROOT / "tests" / "held_elsewhere.yaml"


@dataclasses.dataclass(frozen=True)
class Choice:
    """Tests or cases that others hold.

    Args:
        left_out: Their ids.
        held_by: Ids of tests that stay and would fail for the same faults; without a case, all that stay.
        because: Why.
    """

    left_out: list[str]
    held_by: list[str]
    because: str


def choices() -> list[Choice]:
    """Return what was chosen by reading."""
    return [Choice(**entry) for entry in yaml.safe_load(CHOICES.read_text(encoding="utf-8"))]


def left_out() -> frozenset[str]:
    """Return the ids of all tests that `make test` leaves out."""
    read = [name for choice in choices() for name in choice.left_out]
    return frozenset([*LIST.read_text(encoding="utf-8").splitlines(), *read])
