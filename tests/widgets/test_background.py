"""One piece of long work at a time, that can be watched and stopped."""

import threading

import pytest

from qdq_widgets.background import Jobs
from qdq_widgets.errors import BenchBusyError


def test_two_jobs_never_run_together():
    seen = []
    jobs = Jobs(lambda job: seen.append(job and job.label))
    with jobs.run("first"), pytest.raises(BenchBusyError, match="busy with: first"), jobs.run("second"):
        pass
    with jobs.run("third"):
        pass
    assert seen == ["first", None, "third", None]


def test_a_failed_job_frees_the_way_and_its_error_arrives():
    jobs, errors = Jobs(lambda _: None), []

    def work():
        with jobs.run("fails"):
            raise ValueError("no")

    jobs.start(work, errors.append)
    assert jobs.wait(60)
    assert [str(error) for error in errors] == ["no"]
    with jobs.run("next"):
        pass


def test_the_thread_belongs_to_the_task_until_its_error_has_arrived():
    jobs, told, go_on = Jobs(lambda _: None), threading.Event(), threading.Event()

    def work():
        with jobs.run("fails"):
            raise ValueError("no")

    def tell(_):
        told.set()
        assert go_on.wait(60)

    assert not jobs.is_busy
    jobs.start(work, tell)
    assert told.wait(60)
    assert jobs.current is None
    assert jobs.is_busy
    go_on.set()
    assert jobs.wait(60)
    assert not jobs.is_busy
    with jobs.run("here"):
        assert jobs.is_busy


def test_stop_reaches_the_work():
    jobs, started, ended = Jobs(lambda _: None), threading.Event(), []

    def work():
        with jobs.run("long") as job:
            started.set()
            while not job.stop_requested:
                pass
            ended.append(job.text)

    jobs.start(work, ended.append)
    assert started.wait(60)
    with pytest.raises(BenchBusyError):
        jobs.start(work, ended.append)
    jobs.stop()
    assert jobs.wait(60)
    assert ended == ["stopping after this step ..."]
    jobs.stop()  # nothing runs: nothing happens


def test_progress_stays_between_none_and_all():
    fractions = []
    jobs = Jobs(lambda job: fractions.append(job.fraction) if job else None)
    with jobs.run("work") as job:
        for fraction in (0.5, 1.5, -1.0, None):
            job.report(fraction, "")
    assert fractions == [None, 0.5, 1.0, 0.0, None]


def test_a_listener_is_removed_by_what_subscribe_returns(bench):
    heard, kept = [], []
    forget = bench.subscribe(heard.append)
    bench.subscribe(kept.append)
    bench.toggle("conv", "weight")
    assert "plan" in heard
    forget()
    forget()  # twice is once
    before = len(heard)
    bench.undo()
    assert len(heard) == before < len(kept)
