"""The threads of a bench end before Python does: C++ code that is ended by force takes the process down."""

import threading

import pytest
from project import ROOT

import qdq_workbench as qdq
from qdq_widgets import exiting
from qdq_widgets.errors import BenchStoppedError

MEASURING = """
import time
from small_benches import tiny_data, tiny_model
from qdq_widgets import Workbench
wb = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
wb.calibrate()
wb.effects.measuring, wb.effects.pause = True, 0.0
wb.toggle("conv", "weight")
time.sleep(0.5)
assert wb.effects.present.state != "measured"
print("the last line")
"""


def test_a_program_that_ends_while_a_change_is_measured_ends_as_any_other(fresh):
    ended = fresh.run(MEASURING, path=[ROOT / "tests", ROOT / "widgets", ROOT])
    assert (ended.returncode, ended.stdout) == (0, "the last line\n"), ended.stderr


@pytest.fixture
def ending(monkeypatch):
    """Ends the threads as the end of Python does, in a process that goes on."""
    monkeypatch.setattr(exiting, "_ENDING", threading.Event())
    monkeypatch.setattr(exiting, "PATIENCE", 60.0)
    return exiting.end_threads


def test_a_job_is_stopped_and_waited_for(bench, ending):
    errors, begun = [], threading.Event()

    def work():
        with bench.jobs.run("counting") as job:
            while True:
                begun.set()
                job.raise_if_stopped()

    thread = bench.jobs.start(work, errors.append)
    assert begun.wait(60)
    ending()
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [BenchStoppedError]
    assert not exiting._STOPS


def test_work_of_the_library_ends_at_its_next_safe_point(bench, ending):
    begun = threading.Event()
    errors = []

    def work():
        with bench.jobs.run("building"):
            while True:  # no look at the job: what is called has safe points
                begun.set()
                qdq.quantize_model(bench.model)

    thread = bench.jobs.start(work, errors.append)
    assert begun.wait(60)
    ending()
    assert not thread.is_alive()
    assert errors == []  # nobody is left to read them


def test_what_has_ended_is_not_stopped(ending):
    stopped = []
    with exiting.ended_with_python(lambda: stopped.append("late")):
        pass
    ending()
    assert stopped == []
