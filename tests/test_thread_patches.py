"""A function of the whole process that behaves otherwise in one thread's scope."""

import inspect
import types
from concurrent.futures import ThreadPoolExecutor

import pytest
from keras import layers

from qdq_workbench._thread_patches import ThreadPatch


@pytest.fixture
def shared():
    return types.SimpleNamespace(double=lambda value: 2 * value)


@pytest.fixture
def patch(shared):
    return ThreadPatch(lambda: shared, "double", lambda usual, value: -usual(value))


def test_this_thread_alone_is_in_the_scope(shared, patch):
    usual = shared.double
    with ThreadPoolExecutor(1) as pool:
        with patch:
            assert shared.double(3) == -6
            assert pool.submit(shared.double, 3).result() == 6
        assert shared.double is usual


def test_scopes_of_one_thread_nest(shared, patch):
    with patch:
        with patch:
            assert shared.double(3) == -6
        assert shared.double(3) == -6
    assert shared.double(3) == 6


def test_scopes_of_two_threads_end_in_any_order(shared, patch):
    usual = shared.double
    with ThreadPoolExecutor(1) as pool:
        pool.submit(patch.__enter__).result()
        assert shared.double(3) == 6
        with patch:
            pool.submit(patch.__exit__, None, None, None).result()
            assert pool.submit(shared.double, 3).result() == 6
            assert shared.double(3) == -6
    assert shared.double is usual


def test_an_error_ends_the_scope(shared, patch):
    usual = shared.double
    with pytest.raises(KeyError), patch:
        raise KeyError
    assert shared.double is usual


def test_the_signature_is_as_ever_also_of_a_layer_that_another_thread_makes_meanwhile():
    with ThreadPatch(lambda: layers.TimeDistributed, "call", lambda usual, *args, **kwargs: usual(*args, **kwargs)):
        assert list(inspect.signature(layers.TimeDistributed.call).parameters) == ["self", "inputs", "training", "mask"]
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(layers.TimeDistributed, layers.Dense(2)).result()
    assert made._call_has_training_arg
