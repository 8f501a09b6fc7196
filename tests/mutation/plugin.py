"""Two ways to run what pytest collected: once with a record of what reaches what, and against mutant after mutant."""

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
from collections.abc import Callable, Iterable

import pytest
from mutation import swap
from mutation.mutants import Mutant

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


class Server:
    """Forks a process per mutant, in which the functions are changed and the tests run until one fails.

    Args:
        root: The repository.
        jobs: (mutant, the ids of its tests in order, the processor time that they take unchanged).
        told: Is given (mutant, result) after each.
    """

    def __init__(
        self,
        root: pathlib.Path,
        jobs: Iterable[tuple[Mutant, list[str], float]],
        told: Callable[[Mutant, dict], None],
    ) -> None:
        self._root, self._jobs, self._told = root, jobs, told

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        """Run the mutants instead of the tests."""
        items = {}
        for item in session.items:
            names = {item.nodeid, item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]}
            for name in names:  # every case of a test and every test of a file, too
                items.setdefault(name, []).append(item)
        for mutant, tests, seconds in self._jobs:
            chosen = [item for name in tests for item in items.get(name, [])]
            self._told(mutant, in_a_fork(lambda m=mutant, c=chosen: self._run(m, c), seconds))
        return True

    def _run(self, mutant, items):
        path = self._root / mutant.path
        changed = mutant.source(self._root)
        pairs = swap.changed_functions(path.read_text(encoding="utf-8"), changed, str(path))
        assert pairs is not None, mutant
        if not swap.put_in(pairs):
            return {"status": "not loaded"}
        path.write_text(changed, encoding="utf-8")  # for the processes that a test starts
        return run_until_one_fails(items)


def run_until_one_fails(items: list[pytest.Item]) -> dict:
    """Run collected tests in this process.

    Args:
        items: The tests, in order.

    Returns:
        The result: `{"status": "killed", "by": id}` or `{"status": "survived"}`, and how many tests ran.
    """
    watch = _Watch()
    if items:
        plugins = items[0].config.pluginmanager
        plugins.register(watch)
        plugins.unregister(name="terminalreporter")
    for number, item in enumerate(items):
        nextitem = items[number + 1] if number + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        if watch.failed:
            return {"status": "killed", "by": watch.failed, "ran": number + 1}
    return {"status": "survived", "ran": len(items)}


class _Watch:
    failed = ""

    def pytest_runtest_logreport(self, report):
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
