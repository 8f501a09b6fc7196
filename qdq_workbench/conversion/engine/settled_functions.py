"""How a quantized model trains, evaluates and predicts: by functions traced for the switches that its layers have.

Before every call the switches are read, whoever has set them and however: Keras, TensorFlow, a file. A function that
was traced for others is not called. The usual function, which has a condition per layer, computes meanwhile; where
the new switches stay, one is traced for them. In the ordinary course of things a model has one trace of each function.

Within one call of `predict` or `evaluate` quantized weights are kept from batch to batch (`KeptWeights`), by a function
that reads them instead of quantizing.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench.conversion.engine.created_ahead import create_metrics
from qdq_workbench.conversion.engine.own_training import adds_to_training, own_training
from qdq_workbench.conversion.engine.traced import traced
from qdq_workbench.wrappers.kept_weights import KeptWeights
from qdq_workbench.wrappers.settled_scope import Roster, SettledScope

_NAMES = ("__module__", "__name__", "__qualname__")
_CALLS_TO_STAY = 20  # as many calls as tracing may cost
_MOST_STATES = 4  # of one function
_CALLS_TO_COMPILE = 4  # until then variables are read one by one


class SettledFunctions:
    """The half of a quantized model that makes its functions; the other half is Keras's model."""

    @adds_to_training
    @functools.wraps(keras.Model.evaluate, assigned=_NAMES)
    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluate as Keras does; where `x` holds arrays, quantized weights are kept from batch to batch.

        Args:
            x: As of `keras.Model.evaluate`.
            *args: Likewise.
            **kwargs: Likewise.
        """
        # The batches of other data may be made by functions of Python in the midst of a step, which may do anything.
        arrays = all(isinstance(part, (np.ndarray, tf.Tensor)) for part in keras.tree.flatten(x))
        with _keeping_weights(self) if arrays else contextlib.nullcontext():
            return super().evaluate(x, *args, **kwargs)  # type: ignore[misc]

    @adds_to_training
    @functools.wraps(keras.Model.predict, assigned=_NAMES)
    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Predict as Keras does; quantized weights are kept from batch to batch.

        Args:
            *args: As of `keras.Model.predict`.
            **kwargs: Likewise.
        """
        with _keeping_weights(self):
            return super().predict(*args, **kwargs)  # type: ignore[misc]

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

    @contextlib.contextmanager
    def quantizers_off(self) -> Iterator[None]:
        """Compute as the float model does, for a while; afterwards every layer is switched as it was before.

        Example:
            >>> import keras, qdq_workbench as qdq
            >>> x = keras.Input((4,))
            >>> q_model = qdq.quantize_model(keras.Model(x, keras.layers.Dense(2)(x)))
            >>> with q_model.quantizers_off():
            ...     float_outputs = q_model.predict(keras.ops.ones((1, 4)), verbose=0)
            >>> q_model.quantization_enabled
            True
        """
        model: Any = self
        try:
            with switches_kept(model.quantizing_layers):
                model.quantization_enabled = False
                yield
        finally:
            self._remake_functions()

    def _remake_functions(self) -> None:
        """Replace the functions that there are: a loop that runs calls them for its next batch, traced anew."""
        for kind in ("train", "test", "predict"):
            if getattr(self, f"{kind}_function") is not None:
                getattr(self, f"make_{kind}_function")(force=True)


@contextlib.contextmanager
def switches_kept(layers: Iterable[Any]) -> Iterator[None]:
    """Restore the switches of Q/DQ layers and wrappers at the end.

    Args:
        layers: The layers.
    """
    before = [(layer, bool(layer.enabled.numpy()), layer.bypassed) for layer in layers]
    try:
        yield
    finally:
        for layer, on, bypassed in before:
            layer.enabled.assign(on)
            layer.bypassed = bypassed


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
        weights = _kept_weights(model) if kind != "train" and _may_keep_weights(model) else None
        create = functools.partial(create_metrics, model) if kind != "predict" else None
        function = _SettledFunction(roster, function, made, weights, create, training=kind == "train")
    setattr(model, attribute, function)


class _SettledFunction:
    """A function of a model, with the signature of the one that Keras makes.

    Args:
        roster: The layers whose switches it is traced for.
        fresh: A function that Keras made, not called yet.
        make: Makes another one.
        weights: The quantized weights that may be kept from one call to the next; None for none.
        create: Creates the metrics of a step, given what the function is called with; None where it has none.
        training: Whether it trains.
    """

    def __init__(
        self,
        roster: Roster,
        fresh: Any,
        make: Callable[[], Any],
        weights: KeptWeights | None,
        create: Callable[[Any], None] | None,
        *,
        training: bool,
    ) -> None:
        self._roster, self._fresh, self._make, self._training = roster, fresh, make, training
        self._weights, self._create = weights, create
        self._functions: dict[Any, Any] = {}  # by what they were traced for, see `_kind`
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
            kind = self._kind(self._present())
            first = kind not in self._functions
            if first and self._create is not None:
                self._create(data)
            function = self._function(kind)
        with _without_retracing_warnings() if first else contextlib.nullcontext():
            if kind is None:
                return function(data)
            state, keeps = kind
            if not keeps or self._weights is None:
                return SettledScope(self._roster, state).call(function, data)
            with self._weights.in_use():
                self._weights.refresh()
                # Keras computes a step in a function of its own inside of one that takes it from an iterator.
                depth = 2 if isinstance(data, tf.data.Iterator) else 1
                return SettledScope(self._roster, state, self._weights, depth).call(function, data)

    def _kind(self, state: Any) -> Any:
        """Return what the function to call was traced for: a state, and whether weights are kept; or None.

        Args:
            state: The state that the layers are in. None, with conditions, serves all of them.
        """
        keeps = self._weights is not None and self._weights.used_here
        wanted, other = (state, keeps), (state, not keeps)
        if wanted in self._functions or not self._functions or self._stays >= _CALLS_TO_STAY:
            return wanted
        return other if other in self._functions else None

    def _function(self, kind: Any) -> Any:
        """Return the function of a kind; a new one, not traced yet, where there is none."""
        if kind not in self._functions:
            settled = [known for known in self._functions if known is not None]
            if len(settled) >= _MOST_STATES:
                del self._functions[settled[0]]
            fresh, self._fresh = self._fresh, None
            self._functions[kind] = self._make() if fresh is None else fresh
        return self._functions[kind]

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


def _may_keep_weights(model: Any) -> bool:
    """Return whether the quantized weights of a model may be kept from batch to batch.

    A class of the user's own may compute gradients of its weights, and several steps may be computed in one call. On
    other devices than the CPU the memory of tensors cannot be compared.
    """
    if model.steps_per_execution != 1 or own_training(model) or tf.config.list_physical_devices("GPU"):
        return False
    return not (model.run_eagerly or model.jit_compile) and model.distribute_strategy.num_replicas_in_sync == 1


def _kept_weights(model: Any) -> KeptWeights:
    weights: KeptWeights = model.kept("weights", lambda: KeptWeights(model.wrappers))
    return weights


def _keeping_weights(model: Any) -> contextlib.AbstractContextManager[None]:
    """Return the scope of one call of a model's, in which its quantized weights are kept."""
    return _kept_weights(model).in_use() if _may_keep_weights(model) else contextlib.nullcontext()


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
