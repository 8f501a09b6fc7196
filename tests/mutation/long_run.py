"""`make soak`: mutation testing of a sample, resumable; prints what survived, and fails below the goal.

A sample is drawn from every room (seeded; a longer one begins with the shorter one). Each mutant runs against those
tests that execute its line, its room's first, until one fails: a test that does not reach the line cannot notice it.
What reaches what is recorded once. Tests run in a copy of the repository, in processes forked from one that has
imported TensorFlow.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import traceback

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import pytest
from mutation import swap
from mutation.mutants import draw
from mutation.planted import planted
from mutation.plugin import Reach, Server, die_with_parent, in_a_fork
from mutation.records import Records
from mutation.rooms import rooms
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


def main():
    """Plant the faults of the list, draw mutants, run what has no result yet, print; exit status 1 below the goal."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mutants", type=int, default=13, help="how many per room (default: 13, about 300 in all)")
    parser.add_argument("--rooms", nargs="*", default=sorted(rooms()), help="which rooms (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other mutants (default: 0)")
    parser.add_argument(
        "--others", nargs="*", default=["tests"], help="the suite behind the rooms' own (default: tests)"
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
        waiting = [fault for fault in planted() if not self._records.knows(fault)]
        at_once = [fault for fault in waiting if not self._changes_import(fault)]
        if at_once:
            self._serve([(fault, [fault.test], 60) for fault in at_once], dict.fromkeys(at_once, "planted"))
            self._records.read()
        for fault in waiting:
            if not self._records.knows(fault):
                self._tell("planted", fault, in_a_fork(lambda f=fault: self._import_anew(f, [f.test]), 60))

    def run(self, chosen):
        """Run the mutants of some rooms that have no result yet."""
        sample = [(room, mutant) for room in chosen for mutant in self._draw(room)]
        waiting = {mutant: room for room, mutant in sample if not self._records.knows(mutant)}
        print(f"{len(sample)} mutants, {len(waiting)} of them without a result", flush=True)
        if not waiting:
            return
        reach = self._reach(chosen)
        jobs = {mutant: _tests_of(mutant, room, reach, self._root) for mutant, room in waiting.items()}
        anew = [mutant for mutant, (tests, _) in jobs.items() if tests and self._runs_at_import(mutant, reach)]
        for mutant, (tests, _) in jobs.items():
            if not tests:
                self._tell(waiting[mutant].name, mutant, {"status": "survived", "ran": 0})
        at_once = [(mutant, *job) for mutant, job in jobs.items() if job[0] and mutant not in anew]
        if at_once:
            self._serve(at_once, {mutant: room.name for mutant, room in waiting.items()})
            self._records.read()
            anew += [mutant for mutant, *_ in at_once if not self._records.knows(mutant)]
        for mutant in anew:
            tests, seconds = jobs[mutant]
            result = in_a_fork(lambda m=mutant, t=tests: self._import_anew(m, t), 10 + seconds)
            self._tell(waiting[mutant].name, mutant, result)

    def _draw(self, room):
        return draw(self._root, list(room.files), self._options.mutants, self._options.seed)

    def _serve(self, jobs, rooms_of):
        """Collect the tests once, and fork from there for every mutant."""
        modules = sorted({test.partition("::")[0] for _, tests, _ in jobs for test in tests})

        def told(mutant, result):
            self._tell(rooms_of[mutant], mutant, result)

        _fork_and_wait(lambda: pytest.main([*ARGUMENTS, *modules], plugins=[Server(self._root, jobs, told)]))

    def _tell(self, room, mutant, result):
        """Write a result, and the file as it was."""
        (self._root / mutant.path).write_text((ROOT / mutant.path).read_text(encoding="utf-8"), encoding="utf-8")
        if result["status"] == "not loaded":
            return
        self._records.add(room, mutant, result)
        print(
            f"  {result['status']:9} {mutant.path}:{mutant.line} {mutant.key.partition(' | ')[2] or mutant.key}",
            flush=True,
        )

    def _changes_import(self, mutant):
        text = (self._root / mutant.path).read_text(encoding="utf-8")
        return swap.changed_functions(text, mutant.source(self._root), mutant.path) is None

    def _runs_at_import(self, mutant, reach):
        if self._changes_import(mutant):
            return True
        text = (self._root / mutant.path).read_text(encoding="utf-8")
        lines = reach["lines"].get(mutant.path, {})
        return any(-1 in lines.get(str(line), []) for line in _statement(text, mutant.line))

    def _import_anew(self, mutant, tests):
        (self._root / mutant.path).write_text(mutant.source(self._root), encoding="utf-8")
        watch = _FirstFailure()
        status = pytest.main([*ARGUMENTS, "-x", *tests], plugins=[watch])
        if status == pytest.ExitCode.OK:
            return {"status": "survived", "ran": watch.ran}
        return {"status": "killed", "by": watch.failed or f"pytest ends with {status!r}", "ran": watch.ran}

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


class _FirstFailure:
    failed = ""
    ran = 0

    def pytest_runtest_logreport(self, report):
        self.ran += report.when == "call"
        if report.failed:
            self.failed = self.failed or report.nodeid


def _tests_of(mutant, room, reach, root):
    """Return the tests that may notice a mutant, its room's first, then the quick ones first; and what they take.

    What runs when a module is imported concerns every test of the files that reach the module at all.
    """
    text = (root / mutant.path).read_text(encoding="utf-8")
    lines = reach["lines"].get(mutant.path, {})
    numbers = {test for line in _statement(text, mutant.line) for test in lines.get(str(line), [])}
    if -1 in numbers:
        numbers = {test for tests in lines.values() for test in tests}
    tests = [reach["tests"][number] for number in numbers - {-1}]
    tests = [test for test in tests if test[2]]
    own = tuple(room.tests)
    same = f"test_{pathlib.Path(mutant.path).stem.lstrip('_')}.py"
    tests.sort(key=lambda test: (not test[0].startswith(own), same not in test[0], test[1], test[0]))
    return [test[0] for test in tests], sum(test[1] for test in tests)


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
