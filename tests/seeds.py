"""The same random numbers in every run: a test starts from its own seed, and so does each fixture.

Weights that are drawn anew in every run let a test fail once in many runs, and nobody can see why. `--seed` gives other
numbers, by which a test that stands on luck is found, and another order within each file, by which a test that stands
on the one before it is: `--dist worksteal` may give the two to different workers.
"""

import contextlib
import itertools
import random
import sys
import unittest.mock
import zlib

import numpy as np
import pytest

_FORGET = "TFE_ContextClearCaches"


def another_order(items, seed):
    """Return tests in an order of that seed within each file; 0 leaves them as they are, 1 turns each file round."""
    ordered = []
    for _, group in itertools.groupby(items, key=lambda item: item.path):
        tests = list(group)
        if seed == 1:
            tests.reverse()
        elif seed:
            random.Random(seed).shuffle(tests)  # noqa: S311 - an order, no secret
        ordered += tests
    return ordered


class Seeds:
    """Seeds Python, NumPy and, where it is imported, Keras with TensorFlow.

    Args:
        base: Another number gives all tests other random numbers.
    """

    def __init__(self, base):
        self._base = base

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef, request):
        self._start_from(f"{fixturedef.baseid}::{fixturedef.argname}[{request.param_index}]")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item):
        self._start_from(item.nodeid)

    def _start_from(self, name):
        # Not Python's hash, which is another one in every process.
        seed = zlib.crc32(f"{self._base} {name}".encode())
        keras = sys.modules.get("keras")
        if keras is not None and hasattr(keras, "utils"):
            with kernels_kept():
                keras.utils.set_random_seed(seed)
        else:
            random.seed(seed)
            np.random.seed(seed)


def kernels_kept():
    """Let TensorFlow keep the kernels and functions that it has prepared, when it is given another seed.

    It forgets them, because a kernel that draws random numbers by itself goes on where it was; no other needs it, and
    to prepare them anew took 0.02 s of the next call of a small model. No code here draws so, which tests/test_seeds.py
    holds. A seed that a test sets for itself is set as ever.
    """
    context = sys.modules.get("tensorflow.python.eager.context")
    if not hasattr(getattr(context, "pywrap_tfe", None), _FORGET):
        return contextlib.nullcontext()
    return unittest.mock.patch.object(context.pywrap_tfe, _FORGET, _nothing)


def _nothing(_):
    pass
