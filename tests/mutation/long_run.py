"""`make soak`: mutation testing of a sample, resumable; prints what survived, and fails below the goal.

A sample is drawn from every room (seeded; a longer one begins with the shorter one). Each mutant runs against those
tests that execute its line, its room's first, until one fails: a test that does not reach the line cannot notice it.
What reaches what is recorded once. Tests run in a copy of the repository, in a process per mutant that is forked from
one that has imported TensorFlow, and no more: the threads that TensorFlow starts with its first tensor, as some test
modules make one, do not survive a fork, and what waits for them never ends.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import pytest
from mutation.mutants import Mutant, draw
from mutation.planted import planted
from mutation.plugin import Chosen, Reach, die_with_parent, in_a_fork
from mutation.records import Records
from mutation.rooms import Room, rooms
from project import ROOT

WARM = ("numpy", "tensorflow", "keras", "onnx", "onnxruntime")  # and nothing of this package
ARGUMENTS = (
    "-q",
    "-W",
    "ignore:Module already imported",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--no-header",
    "--no-summary",
)
GOAL = 0.85
_FIRST = 3  # files
_GOLDEN = ("tests/test_golden.py",)


def main():
    """Plant the faults of the list, draw mutants, run what has no result yet, print; exit status 1 below the goal."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mutants", type=int, default=13, help="how many per room (default: 13, about 300 in all)")
    parser.add_argument("--rooms", nargs="*", default=sorted(rooms()), help="which rooms (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other mutants (default: 0)")
    parser.add_argument(
        "--others", nargs="*", default=["tests"], help="the suite behind the rooms' own (default: tests)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=300.0,
        help="how long the tests of one mutant may take together; longer ones are left out (default: 300)",
    )
    parser.add_argument("--slow", action="store_true", help="with the tests that are marked as slow")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "mutation", help="where results go")
    options = parser.parse_args()
    options.output = options.output.resolve()
    records = Records(options.output / "mutants.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(_copy(pathlib.Path(folder) / "repository"), options, records)
        soak.plant()
        if options.mutants:
            soak.run([rooms()[name] for name in options.rooms])
    print(records.report())
    sys.exit(0 if records.share() >= GOAL and not records.unnoticed_planted() else 1)


class Soak:
    """Runs mutants in a copy of the repository.

    Args:
        root: The copy, in which files are changed.
        options: Of the command line.
        records: What was found already, and where results go.
    """

    def __init__(self, root, options, records):
        self._root, self._options, self._records = root, options, records
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "widgets"), os.environ.get("PYTHONPATH", "")])
        sys.path[:] = [str(root), str(root / "widgets"), str(root / "tests"), *sys.path]
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        os.chdir(root)
        for module in WARM:
            __import__(module)

    def plant(self):
        """Run every fault of the list that has no result yet against its test."""
        for fault in planted():
            if not self._records.knows(fault):
                self._tell("planted", fault, self._result(fault, [(fault.test, 60.0)]))

    def run(self, chosen):
        """Run the mutants of some rooms that have no result yet."""
        sample = [(room, mutant) for room in chosen for mutant in self._draw(room)]
        waiting = [(room, mutant) for room, mutant in sample if not self._records.knows(mutant)]
        print(f"{len(sample)} mutants, {len(waiting)} of them without a result", flush=True)
        # In any order, so that what an ended run leaves is a sample of all rooms.
        random.Random(self._options.seed).shuffle(waiting)  # noqa: S311
        reach = self._reach(chosen) if waiting else None
        for room, mutant in waiting:
            tests = reaching_tests(mutant, room, reach, (self._root / mutant.path).read_text(encoding="utf-8"))
            self._tell(room.name, mutant, self._result(mutant, tests))

    def _draw(self, room):
        return draw(self._root, list(room.files), self._options.mutants, self._options.seed)

    def _result(self, mutant, tests):
        """Run a mutant against its tests until one fails: against those of a few files, then against the others."""
        ran = 0
        for stage in stages(tests, self._options.seconds):
            names = [name for name, _ in stage]
            result = in_a_fork(lambda n=names: self._run(mutant, n), sum(seconds for _, seconds in stage))
            ran += result.get("ran", 0)
            if result["status"] != "survived":
                return {**result, "ran": ran}
        return {"status": "survived", "ran": ran}

    def _run(self, mutant, names):
        (self._root / mutant.path).write_text(mutant.source(self._root), encoding="utf-8")
        files = sorted({name.partition("::")[0] for name in names})
        watch = Chosen(names)
        status = pytest.main([*ARGUMENTS, "-x", *files], plugins=[watch])
        if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return {"status": "survived", "ran": watch.ran}
        return {"status": "killed", "by": watch.failed or f"pytest ends with {status!r}", "ran": watch.ran}

    def _tell(self, room, mutant, result):
        """Write a result, and the file as it was."""
        (self._root / mutant.path).write_text((ROOT / mutant.path).read_text(encoding="utf-8"), encoding="utf-8")
        self._records.add(room, mutant, result)
        print(
            f"  {result['status']:9} {mutant.path}:{mutant.line} {mutant.key.partition(' | ')[2] or mutant.key}",
            flush=True,
        )

    def _reach(self, chosen):
        """Return the record of what the tests execute; made once for each state of the repository."""
        tests = _outermost([*(test for room in chosen for test in room.tests), *self._options.others])
        marks = [] if self._options.slow else ["-m", "not slow"]
        target = self._options.output / f"reach-{_digest(self._root, tests, marks)}.json"
        if not target.exists():
            print(f"  recording what {' '.join(tests)} reach ...", flush=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            _fork_and_wait(lambda: pytest.main([*ARGUMENTS, *marks, *tests], plugins=[Reach(self._root, target)]))
        return json.loads(target.read_text(encoding="utf-8"))


def reaching_tests(mutant: Mutant, room: Room, reach: dict[str, Any], text: str) -> list[tuple[str, float]]:
    """Return the tests that may notice a mutant and their seconds: its room's first, then the quick ones first.

    What runs when a module is imported concerns every test of the files that reach the module at all. Where none does,
    as in a module of tables, it concerns the tests of its room, and the golden files.

    Args:
        mutant: The mutant.
        room: Its room.
        reach: The record of what reaches what.
        text: The unchanged file.
    """
    own = tuple(room.tests)
    lines = reach["lines"].get(mutant.path, {})
    numbers = {test for line in _statement(text, mutant.line) for test in lines.get(str(line), [])}
    if -1 in numbers:
        numbers = {test for tests in lines.values() for test in tests}
        if numbers == {-1}:
            numbers = {place for place, (name, *_) in enumerate(reach["tests"]) if name.startswith((*own, *_GOLDEN))}
    tests = [reach["tests"][number] for number in numbers - {-1}]
    same = f"test_{pathlib.Path(mutant.path).stem.lstrip('_')}.py"
    tests.sort(key=lambda test: (not test[0].startswith(own), same not in test[0], test[1], test[0]))
    return [(name, seconds) for name, seconds, passed in tests if passed]


def stages(tests: list[tuple[str, float]], limit: float) -> list[list[tuple[str, float]]]:
    """Return tests in two parts: those of the first files, which are collected at once, and the others.

    Args:
        tests: The tests with their seconds, in order.
        limit: What follows the tests that take as many seconds is left out.
    """
    total = 0.0
    chosen = []
    for name, seconds in tests:
        total += seconds
        if chosen and total > limit:
            break
        chosen.append((name, seconds))
    files = list(dict.fromkeys(name.partition("::")[0] for name, _ in chosen))[:_FIRST]
    first = [test for test in chosen if test[0].partition("::")[0] in files]
    others = [test for test in chosen if test not in first]
    return [stage for stage in (first, others) if stage]


def _statement(text, line):
    """Return the lines of the innermost statement around a line; of a compound one those of its head."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(text)):  # from the outside to the inside
        if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno:
            body = getattr(node, "body", None)
            end = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            if line <= end:
                found = range(node.lineno, end + 1)
    return found


def _outermost(tests):
    """Return test paths without those that lie in another one of them."""
    unique = sorted(set(tests))
    return [test for test in unique if not any(test.startswith(f"{other}/") for other in unique)]


def _digest(root, tests, marks):
    digest = hashlib.sha256(repr((tests, marks)).encode())
    for path in sorted(
        [*root.glob("qdq_workbench/**/*.py"), *root.glob("widgets/**/*.py"), *root.glob("tests/**/*.py")]
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _fork_and_wait(work):
    number = os.fork()
    if number == 0:
        die_with_parent()
        status = 1
        try:
            status = int(work())
        except BaseException:  # noqa: BLE001 - told here, since the process ends here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def _copy(target):
    """Copy what git would commit, and link to the optional data beside the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    for name in listed:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    if (ROOT.parent / "shared").exists():
        (target.parent / "shared").symlink_to((ROOT.parent / "shared").resolve())
    return target.resolve()


if __name__ == "__main__":
    main()
