"""The results of mutants: one line of JSON each, so that a run goes on where another one ended; and their report."""

from __future__ import annotations

import collections
import json
import pathlib

import yaml
from mutation.mutants import Mutant

REASONS = pathlib.Path(__file__).with_name("survivors.yaml")
_NOTICED = ("killed", "timeout", "crashed")


class Records:
    """What became of each mutant.

    Args:
        path: The file of results; made with the first one.
        reasons: The YAML file that says of survivors why no test notices them: by the mutant's key, `equivalent` or
            `accepted`, each with a sentence.
    """

    def __init__(self, path: pathlib.Path, reasons: pathlib.Path = REASONS) -> None:
        self._path = path
        self._reasons = yaml.safe_load(reasons.read_text(encoding="utf-8")) or {} if reasons.exists() else {}
        self.read()

    def read(self) -> None:
        """Read the file again: another process may have added to it."""
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        self._found = {entry["key"]: entry for entry in map(json.loads, lines)}

    def knows(self, mutant: Mutant) -> bool:
        """Whether a mutant has a result."""
        return mutant.key in self._found

    def add(self, room: str, mutant: Mutant, result: dict) -> None:
        """Write a result."""
        entry = {"key": mutant.key, "room": room, "line": mutant.line, "operator": mutant.operator, **result}
        self._found[mutant.key] = entry
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def equivalent(self, key: str) -> bool:
        """Whether a survivor is listed as computing the same."""
        return "equivalent" in self._reasons.get(key, {})

    def share(self) -> float:
        """The part of the mutants that a test noticed, of those that are not listed as equivalent."""
        counted = [entry for key, entry in self._drawn().items() if not self.equivalent(key)]
        return sum(_noticed(entry) for entry in counted) / len(counted) if counted else 1.0

    def unnoticed_planted(self) -> list[str]:
        """The faults of the list that their tests did not notice."""
        return [key for key, entry in self._found.items() if entry["room"] == "planted" and not _noticed(entry)]

    def _drawn(self):
        return {key: entry for key, entry in self._found.items() if entry["room"] != "planted"}

    def report(self) -> str:
        """A table of the rooms, and every survivor with its reason, in Markdown."""
        by_room = collections.defaultdict(list)
        for key, entry in self._found.items():
            by_room[entry["room"]].append((key, entry))
        lines = [
            "| Room | Mutants | Noticed | by its own tests' folder | Equivalent | Survived |",
            "|---|---|---|---|---|---|",
        ]
        for room, entries in sorted(by_room.items()):
            lines.append(f"| {room} | " + " | ".join(map(str, self._counts(room, entries))) + " |")
        lines += [
            "",
            f"Noticed of those that are not equivalent: {self.share():.1%} of {len(self._drawn())} drawn.",
            "",
        ]
        survivors = sorted(key for key, entry in self._found.items() if not _noticed(entry))
        for key in survivors:
            kind, reason = next(iter(self._reasons.get(key, {"no reason yet": ""}).items()))
            lines.append(f"- `{key}`: {kind}. {reason}".rstrip())
        return "\n".join(lines) + "\n"

    def _counts(self, room, entries):
        noticed = [entry for _, entry in entries if _noticed(entry)]
        folder = "tests/widgets" if room == "bench" else f"tests/{room}"
        own = sum(str(entry.get("by", "")).startswith(folder) for entry in noticed)
        left = [key for key, entry in entries if not _noticed(entry)]
        equivalent = sum(map(self.equivalent, left))
        return len(entries), len(noticed), own, equivalent, len(left) - equivalent


def _noticed(entry):
    return entry["status"] in _NOTICED
