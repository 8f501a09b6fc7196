"""How a quantized model trains, evaluates and predicts: by functions traced for the switches that its layers have.

Before every call the switches are read, whoever has set them and however: Keras, TensorFlow, a file. A function that
was traced for others is not called. The usual function, which has a condition per layer, computes meanwhile; where
the new switches stay, one is traced for them. In the ordinary course of things a model has one trace of each function.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from qdq_workbench.conversion.engine.own_training import adds_to_training
from qdq_workbench.conversion.engine.traced import traced
from qdq_workbench.wrappers.settled_scope import Roster, SettledScope

_CALLS_TO_STAY = 20  # as many calls as tracing may cost
_MOST_STATES = 4  # of one function
_CALLS_TO_COMPILE = 4  # until then variables are read one by one


class SettledFunctions:
    """The half of a quantized model that makes its functions; the other half is Keras's model."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. TensorFlow skips what has the value already: False where a single layer is off."""
        if name == "quantization_enabled":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @adds_to_training
    def make_train_function(self, force: bool = False) -> Any:
        """Prepare training, as Keras does at the start of `fit`.

        Args:
            force: Whether to make the function again.
        """
        _make(self, "train", super().make_train_function, force)  # type: ignore[misc]

    @adds_to_training
    def make_test_function(self, force: bool = False) -> Any:
        """Prepare evaluation, as Keras does at the start of `evaluate`.

        Args:
            force: Whether to make the function again.
        """
        _make(self, "test", super().make_test_function, force)  # type: ignore[misc]

    @adds_to_training
    def make_predict_function(self, force: bool = False) -> Any:
        """Prepare prediction, as Keras does at the start of `predict`.

        Args:
            force: Whether to make the function again.
        """
        _make(self, "predict", super().make_predict_function, force)  # type: ignore[misc]


def _make(model: Any, kind: str, make: Callable[..., Any], force: bool) -> None:
    """Make a function of a model, unless there is one."""
    attribute = f"{kind}_function"
    if getattr(model, attribute) is not None and not force:
        return

    def made() -> Any:
        present = getattr(model, attribute)
        make(force=True)
        new = getattr(model, attribute)
        setattr(model, attribute, present)
        return new

    roster = model.kept("roster", lambda: Roster(model.activation_quantizers, model.wrappers))
    function = made()
    if _may_settle(model, f"{kind}_step") and (roster.pairs or roster.wrappers):
        function = _SettledFunction(roster, function, made, training=kind == "train")
    setattr(model, attribute, function)


class _SettledFunction:
    """A function of a model, with the signature of the one that Keras makes.

    Args:
        roster: The layers whose switches it is traced for.
        fresh: A function that Keras made, not called yet.
        make: Makes another one.
        training: Whether it trains.
    """

    def __init__(self, roster: Roster, fresh: Any, make: Callable[[], Any], *, training: bool) -> None:
        self._roster, self._fresh, self._make, self._training = roster, fresh, make, training
        self._functions: dict[Any, Any] = {}  # by the states that they were traced for; None: with conditions
        self._tensors: Callable[[], Any] = roster.tensors
        self._read: bytes | None = None  # what the latest state was computed from
        self._state: Any = None
        self._calls = self._stays = 0
        self._lock = threading.Lock()

    def __call__(self, data: Any) -> Any:
        """Compute with the layers' present switches.

        Args:
            data: What Keras passes.
        """
        with self._lock:
            state = self._present()
            if state not in self._functions and self._functions and self._stays < _CALLS_TO_STAY:
                state = None
            first = state not in self._functions
            function = self._function(state)
        with _without_retracing_warnings() if first else contextlib.nullcontext():
            return function(data) if state is None else SettledScope(self._roster, state).call(function, data)

    def _function(self, state: Any) -> Any:
        """Return the function for a state; a new one, not traced yet, where there is none."""
        if state not in self._functions:
            settled = [known for known in self._functions if known is not None]
            if len(settled) >= _MOST_STATES:
                del self._functions[settled[0]]
            fresh, self._fresh = self._fresh, None
            self._functions[state] = self._make() if fresh is None else fresh
        return self._functions[state]

    def _present(self) -> Any:
        """Read the switches and return the state that they and the ranges are in."""
        self._calls += 1
        if self._calls == _CALLS_TO_COMPILE:
            self._tensors = traced(self._roster.tensors)
        switches, ranges = (tensor.numpy() for tensor in self._tensors())
        before, read = self._state, switches.tobytes() + ranges.tobytes()
        if read != self._read:
            self._read, self._state = read, self._roster.state(switches, ranges, training=self._training)
        self._stays = self._stays + 1 if self._state == before else 0
        return self._state


def _may_settle(model: Any, step: str) -> bool:
    """Return whether a step of a model is Keras's own, computed in graphs on a single device.

    A step of the user's own may read what is left out of a settled graph, such as the gradient of a ReLU's output.
    """
    own = getattr(getattr(model, step), "__func__", None) is not getattr(keras.Model, step)
    return not (own or model.run_eagerly) and model.distribute_strategy.num_replicas_in_sync == 1


@contextlib.contextmanager
def _without_retracing_warnings() -> Iterator[None]:
    """Suppress TensorFlow's warning of functions of one line that are traced several times: here once per model."""
    logger = tf.get_logger()

    def passes(record: logging.LogRecord) -> bool:
        return "triggered tf.function retracing" not in record.getMessage()

    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)
