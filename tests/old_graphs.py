"""What a test module leaves, through which Python's collector looks again and again: LiteRT's converter calls it.

TensorFlow keeps every graph that holds a gradient of `tf.custom_gradient`: such gradients are registered by name for
the rest of the process, and each holds the graph that it was traced in. By the end of all tests these are millions of
objects, with which a file for LiteRT took ten times as long as in a fresh process. Behind test_architecture.py, whose
syntax trees are 900,000 objects, it took twice as long.
"""

import gc
import sys

import pytest

_NAMES = "CustomGradient-"
_MANY = 100_000


class OldGraphs:
    """Forgets the registered gradients when the last test of a module is over, and leaves out what stays."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item, nextitem):
        result = yield
        if nextitem is None or nextitem.path != item.path:
            forget_gradients()
            leave_out_what_stays()
        return result


def forget_gradients():
    """Forget the gradients of all functions that are traced so far: none of them can be differentiated any more."""
    ops = sys.modules.get("tensorflow.python.framework.ops")
    known = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    for name in [name for name in known if name.startswith(_NAMES)]:
        del known[name]


def leave_out_what_stays():
    """Let the collector pass over what is alive behind a module, as over what was imported, once it is much."""
    if len(gc.get_objects()) > _MANY:
        gc.collect()
        gc.freeze()
