"""Faults written by hand that tests once did not notice, each with the test that notices it now: `planted.yaml`."""

from __future__ import annotations

import dataclasses
import pathlib

import yaml

PLANTED = pathlib.Path(__file__).with_name("planted.yaml")


@dataclasses.dataclass(frozen=True)
class Planted:
    """A fault.

    Args:
        name: What it is called in the records.
        path: The file, from the root of the repository.
        old: Text that stands in the file once.
        new: What the fault writes there.
        test: The id of a test that notices it.
    """

    name: str
    path: str
    old: str
    new: str
    test: str

    @property
    def line(self):
        """None: it is found by its text."""
        return 0

    @property
    def key(self):
        """The fault's name in the records."""
        return f"planted: {self.name}"

    @property
    def operator(self):
        """What a mutant of cosmic-ray has here."""
        return "by hand"

    def source(self, root):
        """Return the text of the whole file with the fault in it."""
        text = (root / self.path).read_text(encoding="utf-8")
        assert text.count(self.old) == 1, f"{self.path} must hold once: {self.old!r}"
        return text.replace(self.old, self.new)


def planted(path: pathlib.Path = PLANTED) -> list[Planted]:
    """Return the faults of the list.

    Args:
        path: A YAML file.
    """
    return [Planted(**entry) for entry in yaml.safe_load(path.read_text(encoding="utf-8"))]
