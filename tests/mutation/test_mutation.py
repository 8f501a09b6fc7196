"""The tools of `make soak`: what is drawn, how a change gets into loaded code, what counts as noticed."""

import ast
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from mutation.long_run import reaching_tests, stages
from mutation.mutants import Mutant, draw
from mutation.planted import planted
from mutation.plugin import Chosen, in_a_fork
from mutation.records import REASONS, Records
from mutation.rooms import Room, rooms
from named_tests import functions
from project import ROOT
from toy_source import SOURCE


class TestDrawing:
    def test_a_seed_gives_one_sample_and_a_longer_one_begins_with_it(self, tmp_path):
        (tmp_path / "toy.py").write_text(SOURCE, encoding="utf-8")
        sample = draw(tmp_path, ["toy.py"], 6, 0)
        assert draw(tmp_path, ["toy.py"], 6, 0) == sample
        assert draw(tmp_path, ["toy.py"], 9, 0)[:6] == sample
        assert draw(tmp_path, ["toy.py"], 6, 1) != sample

    def test_every_mutant_is_another_program_and_no_annotation(self, tmp_path):
        (tmp_path / "toy.py").write_text(SOURCE, encoding="utf-8")
        every = draw(tmp_path, ["toy.py"], 1000, 0)
        assert len(every) > 8
        for mutant in every:
            changed = mutant.source(tmp_path)
            assert changed != SOURCE
            ast.parse(changed)
            assert "list[int] | None" in changed

    def test_every_room_has_files_and_tests(self):
        for room in rooms().values():
            assert room.files
            assert all((ROOT / test).exists() for test in room.tests), room

    def test_every_package_is_a_room(self):
        folders = {path.parent.name for path in (ROOT / "qdq_workbench").glob("*/__init__.py")}
        assert folders <= set(rooms())


REACH = {
    "tests": [
        ["tests/cli/test_it.py::slow", 3.0, True],
        ["tests/graph/test_it.py::own", 2.0, True],
        ["tests/graph/test_toy.py::same", 4.0, True],
        ["tests/cli/test_it.py::quick", 1.0, True],
        ["tests/graph/test_it.py::failed", 0.1, False],
    ],
    "lines": {"graph/toy.py": {"5": [0, 1, 2, 3, 4], "3": [-1], "4": [-1], "9": [0]}, "table.py": {"1": [-1]}},
}
ROOM = Room("graph", (), ("tests/graph",))
TEXT = "\n\nTABLE = 1\ndef function():\n    return 2\n"


class TestChoosing:
    def found(self, path, line, text=TEXT):
        mutant = Mutant(path, line, "operator", 0, "", "")
        return [name.partition("::")[2] for name, _ in reaching_tests(mutant, ROOM, REACH, text)]

    def test_the_rooms_own_tests_come_first_then_the_quick_ones_and_none_that_failed(self):
        assert self.found("graph/toy.py", 5) == ["same", "own", "quick", "slow"]

    def test_what_runs_at_the_import_concerns_all_that_reach_the_file(self):
        assert self.found("graph/toy.py", 3) == ["same", "own", "quick", "slow"]
        assert self.found("table.py", 1, "TABLE = 1") == ["own", "same"]

    def test_a_line_that_no_test_reaches_has_none(self):
        assert self.found("graph/toy.py", 7, "\n" * 6 + "def other():\n    pass") == []
        assert self.found("elsewhere.py", 1, "A = 1") == []

    def test_tests_of_the_first_files_run_before_the_others_as_long_as_the_limit_lasts(self):
        tests = [(f"{file}.py::{name}", 1.0) for file, name in ("aa", "bb", "ab", "cc", "dd", "ac", "ee")]
        names = [[name.replace(".py::", "") for name, _ in stage] for stage in stages(tests, 100.0)]
        assert names == [["aa", "bb", "ab", "cc", "ac"], ["dd", "ee"]]
        assert stages(tests, 2.5) == [tests[:2]]
        assert stages(tests, 0.0) == [tests[:1]]
        assert stages([], 1.0) == []

    def test_only_the_chosen_ones_run_in_their_order_until_one_fails(self, tmp_path):
        for name, second in (("first", "assert False"), ("second", "pass")):
            cases = "import pytest\n@pytest.mark.parametrize('x', [1, 2])\ndef test_a(x):\n    pass\n"
            (tmp_path / f"test_{name}.py").write_text(f"{cases}def test_b():\n    {second}\n")
        (tmp_path / "conftest.py").write_text("")

        def run(*names):
            os.chdir(tmp_path)
            watch = Chosen([f"test_{name}" for name in names])
            pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", "."], plugins=[watch])
            return {"failed": watch.failed, "ran": watch.ran}

        result = in_a_fork(lambda: run("second.py::test_a", "first.py::test_b", "first.py::test_a[1]"), 60)
        assert result == {"failed": "test_first.py::test_b", "ran": 3}
        result = in_a_fork(lambda: run("second.py::test_b", "first.py::test_a[2]"), 60)
        assert result == {"failed": "", "ran": 2}


class TestForks:
    def test_what_the_work_returns_and_raises(self):
        assert in_a_fork(lambda: {"status": "survived", "ran": 2}, 1) == {"status": "survived", "ran": 2}
        assert in_a_fork(lambda: 1 / 0, 1)["status"] == "killed"

    def test_a_process_that_dies_and_one_that_does_not_end(self, monkeypatch):
        assert in_a_fork(lambda: os.kill(os.getpid(), signal.SIGTERM), 1) == {"status": "crashed"}
        monkeypatch.setattr("mutation.plugin._PATIENCE", 0.05)
        assert in_a_fork(lambda: time.sleep(600), 0) == {"status": "timeout"}

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
    @pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
    def test_nothing_is_left_when_the_run_is_ended(self, tmp_path, ending):
        number = tmp_path / "number"
        code = f"""
import os, pathlib, time
from mutation.plugin import Chosen, in_a_fork

def work():
    pathlib.Path({str(number)!r}).write_text(str(os.getpid()))
    time.sleep(600)

in_a_fork(work, 600)
"""
        run = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT / "tests", stderr=subprocess.DEVNULL)
        _wait_for(lambda: number.exists() and number.read_text())
        assert _runs(number.read_text())
        run.send_signal(ending)
        run.wait(60)
        _wait_for(lambda: not _runs(number.read_text()))


def _wait_for(condition):
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def _runs(number):
    """Return whether a process runs; one that ended and that nobody asked for its status does not."""
    try:
        return "State:\tZ" not in pathlib.Path(f"/proc/{number}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class TestRecords:
    @pytest.fixture
    def records(self, tmp_path):
        (tmp_path / "toy.py").write_text(SOURCE, encoding="utf-8")
        first, second, third, fourth = draw(tmp_path, ["toy.py"], 4, 0)
        reasons = tmp_path / "reasons.yaml"
        reasons.write_text(f"{second.key!r}:\n  equivalent: The same numbers.\n", encoding="utf-8")
        records = Records(tmp_path / "found.jsonl", reasons)
        records.add("graph", first, {"status": "killed", "by": "tests/graph/test_it.py::test"})
        records.add("graph", second, {"status": "survived", "ran": 3})
        records.add("graph", third, {"status": "survived", "ran": 0})
        records.add("graph", fourth, {"status": "timeout"})
        return records

    def test_equivalent_ones_do_not_count(self, records):
        assert records.share() == pytest.approx(2 / 3)

    def test_a_run_goes_on_from_the_file(self, records, tmp_path):
        again = Records(tmp_path / "found.jsonl", tmp_path / "reasons.yaml")
        assert [again.knows(mutant) for mutant in draw(tmp_path, ["toy.py"], 5, 0)] == [True] * 4 + [False]

    def test_the_report_names_every_survivor_with_its_reason(self, records):
        report = records.report()
        assert "| graph | 4 | 2 | 1 | 1 | 1 |" in report
        assert report.count("equivalent. The same numbers.") == 1
        assert report.count("no reason yet") == 1


@pytest.mark.parametrize("fault", planted(), ids=lambda fault: fault.name)
def test_what_is_planted_has_its_place_and_its_test(fault):
    assert fault.source(ROOT) != (ROOT / fault.path).read_text(encoding="utf-8")
    path, *_, name = fault.test.split("::")
    assert name in functions(path)


def test_reasons_are_about_code_that_is_there():
    for key in Records(ROOT / "no such file")._reasons:
        path, _, change = key.partition(" | ")
        assert change.partition(" -> ")[0] in (ROOT / path).read_text(encoding="utf-8"), key
    assert REASONS.exists()
