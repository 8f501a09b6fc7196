"""The state of the process is compared once what a module began has ended."""

import threading
import types

import leaks
import pytest
import tensorflow as tf


def teardown_of(found):
    """The hook at the end of a module, given the state of the process before it."""
    item = types.SimpleNamespace(path=types.SimpleNamespace(name="test_module.py"))
    hook = found.pytest_runtest_teardown(item, None)
    next(hook)
    try:
        hook.send(None)
    except StopIteration as end:
        return end.value


@pytest.fixture
def known():
    found = leaks.Leaks()
    next(found.pytest_runtest_setup(None))
    return found


def test_a_timer_at_work_is_waited_for_and_one_that_waits_is_ended(known):
    begun, done = threading.Event(), threading.Event()

    def export():
        tf.config.run_functions_eagerly(run_eagerly=True)
        begun.set()
        done.wait(0.5)
        tf.config.run_functions_eagerly(run_eagerly=False)

    at_work, waiting = threading.Timer(0.0, export), threading.Timer(3600.0, export)
    for timer in (at_work, waiting):
        timer.daemon = True
        timer.start()
    assert begun.wait(10)
    teardown_of(known)
    assert not at_work.is_alive()
    assert not waiting.is_alive()


def test_what_a_module_changed_is_told(known):
    tf.config.run_functions_eagerly(run_eagerly=True)
    try:
        with pytest.raises(AssertionError, match=r"test_module\.py changed the process and left it so.*eager"):
            teardown_of(known)
    finally:
        tf.config.run_functions_eagerly(run_eagerly=False)
