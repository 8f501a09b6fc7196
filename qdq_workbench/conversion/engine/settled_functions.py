"""The train, test and predict functions of a quantized model, traced for the current switches of its layers.

The switches (`enabled`, `frozen`) are read before every call, because Keras, TensorFlow or a loaded file may have
changed them. A function that was traced for other switches is not called. After a change, the general function, which
has a condition per layer, computes until the new switches have stayed for some calls; then a function is traced for
them. Normally a model has one trace of each function.

Within one call of `predict` or `evaluate`, quantized weights are reused from batch to batch (`KeptWeights`), by a
function that reads them instead of quantizing.
"""

from __future__ import annotations

import contextlib
import dataclasses
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
from qdq_workbench.wrappers.graph_so_far import writes_nothing
from qdq_workbench.wrappers.kept_weights import KeptWeights
from qdq_workbench.wrappers.settled_scope import Roster, SettledScope

# Not `__doc__`: the wrapped methods have docstrings of their own. `__wrapped__` shows Keras's signature.
_NAMES = ("__module__", "__name__", "__qualname__")
_CALLS_TO_STAY = 20  # calls with unchanged switches before another function is traced
_MOST_STATES = 4  # for which a function is kept
_CALLS_TO_COMPILE = 4  # until then the switches are read eagerly
_BEFORE_CALLBACKS = 3  # arguments of `predict` between the data and the callbacks
_here = threading.local()


class SettledFunctions:
    """The part of `QuantizedModel` that creates its train, test and predict functions."""

    @adds_to_training
    @functools.wraps(keras.Model.evaluate, assigned=_NAMES)
    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluate as Keras does; if `x` consists of arrays, quantized weights are reused from batch to batch.

        Args:
            x: As of `keras.Model.evaluate`.
            *args: Likewise.
            **kwargs: Likewise.
        """
        # Other data may call Python functions in the middle of a step, which may change the weights.
        with _keeping_weights(self) if _all_arrays(x) else contextlib.nullcontext():
            return super().evaluate(x, *args, **kwargs)  # type: ignore[misc]

    @adds_to_training
    @functools.wraps(keras.Model.predict, assigned=_NAMES)
    def predict(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Predict as Keras does; quantized weights are reused from batch to batch.

        If `x` consists of arrays and there are no callbacks, switches and weights are those at the beginning of the
        call, whatever another thread changes meanwhile.

        Args:
            x: As of `keras.Model.predict`.
            *args: Likewise.
            **kwargs: Likewise.
        """
        alone = _all_arrays(x) and len(args) <= _BEFORE_CALLBACKS and not kwargs.get("callbacks")
        # Keras takes each batch from the data before it calls the function, so data of any kind cannot interfere.
        with _keeping_weights(self), _reading_once() if alone else contextlib.nullcontext():
            return super().predict(x, *args, **kwargs)  # type: ignore[misc]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; TensorFlow would skip `quantization_enabled = False` if a single layer is off already."""
        if name == "quantization_enabled":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @adds_to_training
    def make_train_function(self, force: bool = False) -> Any:
        """Create the training function, as Keras does for `fit`; `force` replaces an existing one."""
        _make(self, "train", super().make_train_function, force)  # type: ignore[misc]

    @adds_to_training
    def make_test_function(self, force: bool = False) -> Any:
        """Create the evaluation function, as Keras does for `evaluate`; `force` replaces an existing one."""
        _make(self, "test", super().make_test_function, force)  # type: ignore[misc]

    @adds_to_training
    def make_predict_function(self, force: bool = False) -> Any:
        """Create the prediction function, as Keras does for `predict`; `force` replaces an existing one."""
        _make(self, "predict", super().make_predict_function, force)  # type: ignore[misc]

    @contextlib.contextmanager
    def quantizers_off(self) -> Iterator[None]:
        """Compute as the float model does within a `with` block; the switches of all layers are restored at its end.

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
        """Replace the existing functions, so that a running loop calls a newly traced one for its next batch."""
        for kind in ("train", "test", "predict"):
            if getattr(self, f"{kind}_function") is not None:
                getattr(self, f"make_{kind}_function")(force=True)


@contextlib.contextmanager
def switches_kept(layers: Iterable[Any]) -> Iterator[None]:
    """Restore the switches of Q/DQ layers and wrappers at the end of a `with` block."""
    before = [(layer, bool(layer.enabled.numpy()), layer.bypassed) for layer in layers]
    try:
        yield
    finally:
        for layer, on, bypassed in before:
            layer.enabled.assign(on)
            layer.bypassed = bypassed


def _make(model: Any, kind: str, make: Callable[..., Any], force: bool) -> None:
    """Create the train, test or predict function of a model, unless it exists."""
    attribute = f"{kind}_function"
    if getattr(model, attribute) is not None and not force:
        return

    # Keras stores a new function in the attribute, where a running loop must still find the present one.
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
    """A function of a model, with the signature of the one that Keras creates.

    Args:
        roster: The layers whose switches it is traced for.
        fresh: A function created by Keras and not called yet.
        make: Creates another one.
        weights: The quantized weights that may be reused from one call to the next; None for none.
        create: Creates the metrics of a step from the function's argument; None for a function without metrics.
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
        self._functions: dict[Any, Any] = {}  # by their kinds, see `_kind`
        self._harmless: dict[Any, bool] = {}  # whether they change nothing, likewise
        self._tensors: Callable[[], Any] = roster.tensors
        self._read: bytes | None = None  # the switches and ranges of the latest state
        self._state: Any = None
        self._calls = self._stays = 0
        self._lock = threading.Lock()

    def __call__(self, data: Any) -> Any:
        """Compute with the current switches of the layers; `data` is the argument that Keras passes."""
        read = getattr(_here, "read", None)
        if read is not None and read.owner is self:
            return self._compute(read.kind, read.function, data, refresh=False)
        # The lock covers the choice alone: several threads may predict at the same time.
        with self._lock:
            kind = self._kind(self._present())
            first = kind not in self._functions
            if first and self._create is not None:
                self._create(data)
            function = self._function(kind)
        with _without_retracing_warnings() if first else contextlib.nullcontext():
            if kind is None:
                return function(data)
            result = self._compute(kind, function, data, refresh=True)
        if read is not None and read.owner is None:
            # The graph is examined from the second batch on: many calls have one batch.
            if (kind in self._harmless or read.batches) and self._changes_nothing(kind, function, data):
                read.owner, read.kind, read.function = self, kind, function
            read.batches += 1
        return result

    def _compute(self, kind: Any, function: Any, data: Any, *, refresh: bool) -> Any:
        """Call the function of a kind; `refresh` quantizes stored weights again where they have changed."""
        # The scope is opened at every call, because TensorFlow may trace again, as for a batch of another shape.
        state, keeps = kind
        if not keeps or self._weights is None:
            return SettledScope(self._roster, state).call(function, data)
        with self._weights.in_use():
            if refresh:
                self._weights.refresh()
            # With an iterator, Keras calls the function of a step inside of another function.
            depth = 2 if isinstance(data, tf.data.Iterator) else 1
            return SettledScope(self._roster, state, self._weights, depth).call(function, data)

    def _changes_nothing(self, kind: Any, function: Any, data: Any) -> bool:
        """Return whether the function of a kind, called with this data before, changes no variable."""
        if kind not in self._harmless:
            self._harmless[kind] = writes_nothing(function.get_concrete_function(data).graph)
        return self._harmless[kind]

    def _kind(self, state: Any) -> Any:
        """Return the kind of the function to call: (state, whether weights are reused), or None for the general one."""
        if state is None:
            return None
        keeps = self._weights is not None and self._weights.used_here
        wanted, other = (state, keeps), (state, not keeps)
        # The first batch may have had the general function, as it initialized a learned step.
        if wanted in self._functions or not any(self._functions) or self._stays >= _CALLS_TO_STAY:
            return wanted
        # With or without stored weights the result is the same, and both are faster than conditions.
        return other if other in self._functions else None

    def _function(self, kind: Any) -> Any:
        """Return the function of a kind; a new one, not traced yet, if there is none."""
        if kind not in self._functions:
            settled = [known for known in self._functions if known is not None]
            if len(settled) >= _MOST_STATES:
                del self._functions[settled[0]]
                self._harmless.pop(settled[0], None)
            fresh, self._fresh = self._fresh, None
            self._functions[kind] = self._make() if fresh is None else fresh
        return self._functions[kind]

    def _present(self) -> Any:
        """Read the switches and ranges, and return the state that they determine; None if only the general fits."""
        self._calls += 1
        if self._calls == _CALLS_TO_COMPILE:
            self._tensors = traced(self._roster.tensors)
        switches, ranges = (tensor.numpy() for tensor in self._tensors())
        before, read = self._state, switches.tobytes() + ranges.tobytes()
        if read != self._read:
            self._read, self._state = read, self._roster.state(switches, ranges, training=self._training)
        self._stays = self._stays + 1 if self._state == before else 0
        return self._state


@dataclasses.dataclass
class _ReadOnce:
    """What one of the first batches of a call of `predict` has read: the function to call, its kind and its owner."""

    batches: int = 0
    owner: Any = None
    kind: Any = None
    function: Any = None


@contextlib.contextmanager
def _reading_once() -> Iterator[None]:
    """Read switches and weights in the first batches only, inside of a call that nothing in this thread interrupts."""
    before = getattr(_here, "read", None)
    try:
        _here.read = _ReadOnce()
        yield
    finally:
        _here.read = before


def _all_arrays(x: Any) -> bool:
    return all(isinstance(part, (np.ndarray, tf.Tensor)) for part in keras.tree.flatten(x))


def _may_settle(model: Any, step: str) -> bool:
    """Return whether a step of a model is Keras's own and runs in a graph on a single device.

    A user's own step may read tensors that a settled graph omits, such as the gradient of a ReLU's output.
    """
    own = getattr(getattr(model, step), "__func__", None) is not getattr(keras.Model, step)
    return not (own or model.run_eagerly) and model.distribute_strategy.num_replicas_in_sync == 1


def _may_keep_weights(model: Any) -> bool:
    """Return whether the quantized weights of a model may be reused from batch to batch.

    A user's class may compute gradients of its weights, and one call may compute several steps. On other devices than
    the CPU the memory addresses of tensors cannot be compared.
    """
    if model.steps_per_execution != 1 or own_training(model) or tf.config.list_physical_devices("GPU"):
        return False
    return not (model.run_eagerly or model.jit_compile) and model.distribute_strategy.num_replicas_in_sync == 1


def _kept_weights(model: Any) -> KeptWeights:
    weights: KeptWeights = model.kept("weights", lambda: KeptWeights(model.wrappers))
    return weights


def _keeping_weights(model: Any) -> contextlib.AbstractContextManager[None]:
    """Return the context of one call of a model, in which its quantized weights are reused."""
    return _kept_weights(model).in_use() if _may_keep_weights(model) else contextlib.nullcontext()


@contextlib.contextmanager
def _without_retracing_warnings() -> Iterator[None]:
    """Suppress TensorFlow's retracing warning, which counts the functions of all models together."""
    logger = tf.get_logger()

    def passes(record: logging.LogRecord) -> bool:
        return "triggered tf.function retracing" not in record.getMessage()

    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)
