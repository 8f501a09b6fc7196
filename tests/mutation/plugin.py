"""Runs what pytest collects with a record of what reaches what, or some of it in a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import resource
import signal
import sys
import time
from collections.abc import Callable

import pytest

_PR_SET_PDEATHSIG = 1
_PATIENCE = 60  # seconds of waiting per second of processor time, on a busy machine


class Reach:
    """Runs the tests once and records, for each, its processor time and the lines of the packages that it executes.

    Args:
        root: The repository.
        target: The JSON file to write.
    """

    def __init__(self, root: pathlib.Path, target: pathlib.Path) -> None:
        import coverage

        self._root, self._target = root, target
        packages = [str(root / "qdq_workbench"), str(root / "widgets" / "qdq_widgets")]
        self._coverage = coverage.Coverage(data_file=None, source=packages, config_file=False, messages=False)
        self._coverage._warn = lambda *_, **__: None  # which files were never imported is no news here
        self._times: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self._coverage.switch_context(item.nodeid)
        began = time.process_time()
        result = yield
        self._times[item.nodeid] = time.process_time() - began
        self._coverage.switch_context("-")
        return result

    def pytest_runtest_logreport(self, report):
        if report.failed or report.skipped:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self):
        """Write the record."""
        self._coverage.stop()
        data = self._coverage.get_data()
        names = list(self._times)
        index = {name: number for number, name in enumerate(names)} | {"": -1, "-": -1}
        lines = {}
        for path in data.measured_files():
            lines[os.path.relpath(path, self._root)] = {
                line: sorted({index[context] for context in contexts if context in index})
                for line, contexts in data.contexts_by_lineno(path).items()
            }
        tests = [[name, self._times[name], name not in self._failed] for name in names]
        self._target.write_text(json.dumps({"tests": tests, "lines": lines}), encoding="utf-8")


class Chosen:
    """Runs only some of the tests that pytest collects, in a given order, and remembers the first that fails.

    Args:
        names: Ids of tests; of a test without its cases all of them.
    """

    def __init__(self, names: list[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self.failed = ""
        self.ran = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        """Keep the chosen tests."""
        found = [(self._place(item.nodeid), place, item) for place, item in enumerate(items)]
        items[:] = [item for place, _, item in sorted(found, key=lambda each: each[:2]) if place < len(self._places)]

    def _place(self, name):
        return self._places.get(name, self._places.get(name.partition("[")[0], len(self._places)))

    def pytest_runtest_logreport(self, report):
        """Count the tests that ran."""
        self.ran += report.when == "call"
        if report.failed:
            self.failed = self.failed or report.nodeid


def in_a_fork(work: Callable[[], dict], seconds: float) -> dict:
    """Do some work in a process of its own, of which nothing is left afterwards.

    Args:
        work: Returns what can be written as JSON.
        seconds: The processor time that it takes where nothing is wrong; it may take ten times that.

    Returns:
        What it returned; `{"status": "timeout"}` where it took too long, `{"status": "crashed"}` where it died.
    """
    limit = int(10 + 10 * seconds)
    read, write = os.pipe()
    number = os.fork()
    if number == 0:
        os.close(read)
        _become_worker(limit)
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 - a mutant may raise anything, at any place
            answer = {"status": "killed", "by": f"{type(error).__name__}: {error}"[:200]}
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    try:
        ended = _wait(number, time.monotonic() + _PATIENCE * limit)
        answer = os.read(read, 1 << 16) if ended else b""
    finally:  # also when this process is interrupted
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(number, signal.SIGKILL)  # what its tests started
    if not ended:
        return {"status": "timeout"}
    return json.loads(answer) if answer else {"status": "timeout" if ended == "cpu" else "crashed"}


def die_with_parent():
    """End this process when the one that forked it ends, even by a signal that it cannot answer (Linux alone)."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _become_worker(limit):
    os.setsid()
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, sys.stdout.fileno() if sys.stdout is sys.__stdout__ else 1)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


def _wait(number, until):
    """Wait for a process: "ended", "cpu" where its processor time was up, "" where it still worked and was killed."""
    while time.monotonic() < until:
        found, status = os.waitpid(number, os.WNOHANG)
        if found:
            return (
                "cpu" if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "ended"
            )
        time.sleep(0.02)
    os.killpg(number, signal.SIGKILL)
    os.waitpid(number, 0)
    return ""
