"""What a test module changed in the process and left so: later tests would run under it, and none would say why."""

import os
import pathlib
import sys
import threading

import pytest

# What JupyterLab, TensorFlow, tqdm and others set for themselves when they are imported.
_OF_OTHERS = (
    "PYTEST_",
    "ENABLE_RUNTIME_UPTIME",
    "HDF5_PLUGIN",
    "TF_",
    "TF2",
    "MPL",
    "KMP_",
    "JPY_",
    "JUPYTER",
    "COLUMNS",
    "LINES",
    "XLA_",
    "TPU_",
)

_PATIENCE = 60  # seconds


class Leaks:
    """Compares the state of the process with what it was, each time the last test of a module is over."""

    def __init__(self):
        self._known = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        for name, value in _state().items():
            self._known.setdefault(name, value)  # Keras is imported by some test
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item, nextitem):
        result = yield
        if nextitem is None or nextitem.path != item.path:
            _end_timers()
            found = _state()
            left = {name: (known, found[name]) for name, known in self._known.items() if found[name] != known}
            self._known = found
            assert not left, f"{item.path.name} changed the process and left it so; (before, after): {left}"
        return result


def _end_timers():
    """End the timers that a module left; those of displayed benches begin to measure, which exports a model.

    TensorFlow's switch of eager functions, which is one of the whole process, is another one while a model is exported.
    """
    for timer in threading.enumerate():
        if isinstance(timer, threading.Timer):
            timer.cancel()
            timer.join(_PATIENCE)
            assert not timer.is_alive(), f"{timer.name!r} is still at work {_PATIENCE} seconds after its module"


def _state():
    state = {
        "recursion limit": sys.getrecursionlimit(),
        "folder": pathlib.Path.cwd(),
        "environment": {name: value for name, value in os.environ.items() if not name.startswith(_OF_OTHERS)},
    }
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "config"):
        state["float type"] = keras.config.floatx()
        state["data format"] = keras.config.image_data_format()
        state["policy"] = keras.config.dtype_policy().name
    tf = sys.modules.get("tensorflow")
    if tf is not None and hasattr(tf, "config"):
        state["eager"] = tf.config.functions_run_eagerly()
    return state
