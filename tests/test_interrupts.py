"""Ctrl-C takes effect where nothing is half done, and never later than the end of the call."""

import contextlib
import signal
import threading
import time

import pytest

import qdq_workbench._interrupts as interrupts
from qdq_workbench._interrupts import interrupts_held, interrupts_released, released_between, safe_point


@pytest.fixture(autouse=True)
def usual_handler():
    """The handler of the process stays what it was, whatever a test does."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    after = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert after in (signal.default_int_handler, handled)


def handled(*_):
    """A handler of the user's own."""
    raise HandledError


class HandledError(Exception):
    """What the user's own handler raises."""


def press():
    signal.raise_signal(signal.SIGINT)


def test_it_waits_for_the_end():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        with interrupts_held():
            press()
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]
    with interrupts_held():  # nothing is left of it
        safe_point()


def test_it_waits_for_a_safe_point():
    done = []

    @interrupts_held()
    def call():
        for step in range(5):
            safe_point()
            done.append(step)
            if step == 2:
                press()

    with pytest.raises(KeyboardInterrupt):
        call()
    assert done == [0, 1, 2]


def test_the_users_own_code_is_interrupted_at_once():
    done = []

    def batches():
        yield 1
        press()
        done.append("not interrupted")

    with interrupts_held():
        with pytest.raises(KeyboardInterrupt):
            list(released_between(batches()))
        with pytest.raises(KeyboardInterrupt), interrupts_released():
            press()
        press()  # it is held again
        with pytest.raises(KeyboardInterrupt):
            safe_point()
    assert not done
    assert list(released_between(iter("ab"))) == ["a", "b"]


def test_one_that_waits_takes_effect_before_the_users_code_begins():
    with interrupts_held():
        press()
        with pytest.raises(KeyboardInterrupt), interrupts_released():
            pytest.fail("the user's code began")


def test_an_error_inside_stays_the_cause():
    with pytest.raises(KeyboardInterrupt) as caught, interrupts_held():
        press()
        raise ValueError("inside")
    assert isinstance(caught.value.__context__, ValueError)


def test_who_waits_for_long_may_press_again(monkeypatch):
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        press()
        press()
        done.append("both wait")
        monkeypatch.setattr(interrupts, "PATIENCE", -1.0)
        press()
        done.append("the third waits")
    assert done == ["both wait"]


def test_the_handler_is_the_users():
    signal.signal(signal.SIGINT, handled)
    with pytest.raises(HandledError), interrupts_held():
        press()
    assert signal.getsignal(signal.SIGINT) is handled
    with interrupts_held(), interrupts_released():  # taken away inside
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with interrupts_held():
        signal.signal(signal.SIGINT, handled)
    assert signal.getsignal(signal.SIGINT) is handled


def test_without_a_handler_in_python_nothing_happens():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_held(), interrupts_released():
        press()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, before)


def test_other_threads_neither_hold_nor_are_interrupted():
    found = []

    def work():
        with interrupts_held():
            safe_point()
            found.append(signal.getsignal(signal.SIGINT))
            with contextlib.suppress(KeyboardInterrupt):
                list(released_between([1, 2]))
            found.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler, "done"]


def test_whenever_it_comes_it_comes_once_and_leaves_nothing_behind():
    """From another thread, at moments that no instruction was chosen for."""
    main = threading.main_thread().ident
    for delay in range(100):
        half_done, until = [], time.monotonic() + 60.0
        sender = threading.Timer(delay * 1e-5, signal.pthread_kill, (main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            sender.start()
            while time.monotonic() < until:
                with interrupts_held():
                    half_done.append(1)
                    half_done.pop()
        sender.join()
        assert not half_done
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
