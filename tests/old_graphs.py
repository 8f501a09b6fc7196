"""Graphs that nobody calls any more: TensorFlow keeps every one that holds a gradient of `tf.custom_gradient`.

Such gradients are registered by name for the rest of the process, and each holds the graph that it was traced in. By
the end of all tests these are millions of objects, through which Python's collector looks again and again: LiteRT's
converter calls it once per file, and took ten times as long as in a fresh process.
"""

import sys

import pytest

_NAMES = "CustomGradient-"


class OldGraphs:
    """Forgets the registered gradients when the last test of a module is over."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item, nextitem):
        result = yield
        if nextitem is None or nextitem.path != item.path:
            forget_gradients()
        return result


def forget_gradients():
    """Forget the gradients of all functions that are traced so far: none of them can be differentiated any more."""
    ops = sys.modules.get("tensorflow.python.framework.ops")
    known = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    for name in [name for name in known if name.startswith(_NAMES)]:
        del known[name]
