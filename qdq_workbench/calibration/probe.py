"""An observer for every activation tensor of the float model, fed by one compiled pass over the batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench.calibration.observers import (
    Histogram,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageObserver,
    Observer,
    make_observer,
)
from qdq_workbench.calibration.observers.histogram import BINS
from qdq_workbench.calibration.observers.power_of_two import rounded_up
from qdq_workbench.calibration.reader import TensorReading, reader_for
from qdq_workbench.calibration.states import States
from qdq_workbench.conversion.engine.few_calls import FEW_CALLS
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import DataError
from qdq_workbench.graph.op_kinds import INFINITE
from qdq_workbench.placement.plan import PlannedTensor
from qdq_workbench.quantizers.fixed import FixedQuantizer
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

# The methods, not the classes: a subclass that overrides `observe` may need all values.
_ENDS_ARE_ENOUGH = (MinMaxObserver.observe, MovingAverageObserver.observe)
Inputs = Sequence[Any]


class Probe:
    """The float model with an observer for each of its activation tensors.

    Args:
        q_model: A model made by `quantize_model`.
        method: Name of the calibration method.
        settings: Its settings.
        known: Tensors with a fixed range; they are not observed.
        histograms: Whether to collect histograms under a method that does not need them.
        batches: The number of batches that will be read; None if unknown.
    """

    def __init__(
        self,
        q_model: QuantizedModel,
        method: str,
        settings: Mapping[str, Any],
        *,
        known: Mapping[str, Any],
        histograms: bool,
        batches: int | None = None,
    ) -> None:
        floats = [name for name in q_model.kept("float tensors", lambda: _float_tensors(q_model)) if name not in known]
        self._specs = _grids(q_model, floats)
        further = _further_pairs(q_model, self._specs)
        self._specs |= {pair.name: pair.quantizer for pair in further}
        self._tensors = {name: name for name in floats} | {pair.name: pair.tensor for pair in further}
        self._position = {name: index for index, name in enumerate(floats)}
        self.observers = {name: make_observer(method, name, self._specs[name], **settings) for name in self._tensors}
        some = next(iter(self.observers.values()), None)  # all are of one class
        self._counts = isinstance(some, HistogramObserver) and type(some).observe is HistogramObserver.observe
        self._whole = some is not None and not self._counts and type(some).observe not in _ENDS_ARE_ENOUGH
        # A `HistogramObserver` has a histogram in its state anyway.
        collected = histograms and not isinstance(some, HistogramObserver)
        self._histograms = {name: Histogram() for name in floats} if collected else {}
        bins = some.histogram.bins if isinstance(some, HistogramObserver) else BINS
        self._reader = reader_for(q_model, floats, bins if self._counts or collected else 0)
        self._reader.few_calls = batches is not None and batches <= FEW_CALLS
        self.batches = 0

    def read_all(self, batches: Iterator[Inputs], *, ahead: bool) -> Iterator[Inputs]:
        """Yield each batch after all observers have read it; `ahead` fetches the next one while the model computes."""
        ahead = ahead and not self._reader.few_calls
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="calibration") as pool:
            waiting: tuple[Inputs, Callable[[], list[Any]]] | None = None
            for inputs in map(_owned, batches) if ahead else batches:
                if waiting is not None:
                    # The pool computes this batch while this thread passes the previous one to the observers.
                    result = pool.submit(self._compute, inputs).result
                    yield self._finish(*waiting)
                    waiting = inputs, result
                    continue
                # The first batch traces the function: on this thread, which has the state of Keras and strategies.
                done = functools.partial(_same, self._compute(inputs))
                if ahead:
                    waiting = inputs, done
                else:
                    yield self._finish(inputs, done)
            if waiting is not None:
                yield self._finish(*waiting)

    def ranges(self, rounding: str | None) -> dict[str, tuple[float, float]]:
        """Return the range of every observed tensor, rounded up to powers of two unless `rounding` is None."""
        found = {name: observer.range() for name, observer in self.observers.items()}
        if rounding is None:
            return found
        return {name: rounded_up(ends, self._specs[name], rounding) for name, ends in found.items()}

    def states(self) -> States:
        """Return the states of the observers that implement `state`."""
        kept = {name: seen for name, seen in self.observers.items() if type(seen).state is not Observer.state}
        return States({name: self._state_of(name, seen) for name, seen in kept.items()})

    def grids_for_states(self) -> dict[str, dict[str, Any]]:
        """Return the grid of every observed tensor; raise DataError if its statistics cannot be saved."""
        unsaved = next((seen for seen in self.observers.values() if type(seen).state is Observer.state), None)
        if unsaved is not None:
            raise DataError(
                "A checkpoint needs a method whose observer can save its statistics: implement `state` and `absorb`, "
                f"or leave checkpoint out. Received: an observer of class {type(unsaved).__name__} without `state`"
            )
        return {name: self._specs[name].to_dict() for name in self.observers}

    def resume(self, states: Mapping[str, Mapping[str, Any]], batches: int) -> None:
        """Continue from the `states` of a probe of this model, method and settings after its first batches."""
        for name, observer in self.observers.items():
            observer.absorb(dict(states[name]))
            if name in self._histograms:
                self._histograms[name] = Histogram.from_state(states[name]["histogram"])
        self.batches = batches

    def _state_of(self, name: str, observer: Observer) -> Callable[[], dict[str, Any]]:
        def state() -> dict[str, Any]:
            found = {**observer.state(), "spec": self._specs[name].to_dict()}
            if name in self._histograms:
                found.setdefault("histogram", self._histograms[name].state())
            return found

        return state

    def _compute(self, inputs: Inputs) -> list[Any]:
        return self._reader.values(inputs) if self._whole else self._reader.read(inputs)

    def _finish(self, inputs: Inputs, result: Callable[[], list[Any]]) -> Inputs:
        self._observe(inputs, result())
        return inputs

    def _observe(self, inputs: Inputs, found: list[Any]) -> None:
        """Update every observer with its tensor of a batch: by reductions and counts, or by values where needed."""
        counting = self._counts or bool(self._histograms)
        # If a tensor was not counted (see `reader`), the batch is run a second time, for its values.
        uncountable = not self._whole and counting and not all(reading.is_counted for reading in found)
        values = found if self._whole else self._reader.values(inputs) if uncountable else None
        for name, observer in self.observers.items():
            index, histogram = self._position[self._tensors[name]], self._histograms.get(name)
            if values is not None and (self._whole or not found[index].is_counted):
                observer.update(values[index])
                if histogram is not None:
                    histogram.add(values[index])
            else:
                self._hand_over(observer, histogram, found[index])
        self.batches += 1

    def _hand_over(self, observer: Observer, histogram: Histogram | None, reading: TensorReading) -> None:
        seen = (reading.low, reading.high, int(reading.first), reading.counts) if reading.counts.size else None
        if isinstance(observer, HistogramObserver) and seen is not None:
            observer.update_counts(*seen)
        else:
            # The ends stand for the batch: these observers read nothing else of it (`_ENDS_ARE_ENOUGH`).
            observer.update([reading.low, reading.high])
        if histogram is not None and seen is not None:
            histogram.add_counts(*seen)


def _owned(inputs: Inputs) -> Inputs:
    """Return copies of NumPy inputs, because a data source may reuse one array for every batch."""
    return [x if tf.is_tensor(x) else np.array(x) for x in inputs]


def _same(found: list[Any]) -> list[Any]:
    return found


def known_ranges(q_model: QuantizedModel) -> dict[str, tuple[float, float]]:
    """Return the ranges by tensor of the tensors whose quantizers all have a fixed range."""
    known: dict[str, tuple[float, float]] = {}
    wanted: set[str] = set()
    for layer in q_model.activation_quantizers:
        ends = None if layer.quantizer.updates_range else layer.range
        for tensor in q_model.tensors_of(layer):
            if ends is None:
                wanted.add(tensor)
            else:
                low, high = known.get(tensor, ends)
                known[tensor] = (min(low, ends[0]), max(high, ends[1]))
    return {tensor: ends for tensor, ends in known.items() if tensor not in wanted}


def _float_tensors(q_model: QuantizedModel) -> list[str]:
    """Return the names of the non-empty float tensors that have a reader or are an input or output of the model.

    Others are excluded because Keras may declare outputs that a layer cannot compute, such as the states of a
    Bidirectional layer with an LSTM forward and a GRU backward. A tensor that is padded with infinity has no range.
    """
    graph = q_model.plan.graph
    tensors = float_view(q_model).tensors.items()
    held = [name for name, x in tensors if 0 not in x.shape and "float" in keras.backend.standardize_dtype(x.dtype)]
    held = [name for name in held if not graph.producer(name).settings.get(INFINITE)]
    return [name for name in held if graph.readers(name) or name in graph.outputs or name in graph.inputs]


def _further_pairs(q_model: QuantizedModel, grids: Mapping[str, QuantizerSpec]) -> list[PlannedTensor]:
    """Return the further pairs of a tensor (`conv@2`) that need their own range, because their grid differs."""
    pairs = [pair for pair in q_model.plan.tensors if pair.kind == "activation" and pair.name != pair.tensor]
    # A fixed quantizer keeps its range, whatever the data are.
    fixed = FixedQuantizer.method_name
    learned = [pair for pair in pairs if pair.method is None or pair.method.name != fixed]
    return [pair for pair in learned if pair.tensor in grids and grids[pair.tensor] != pair.quantizer]


def _grids(q_model: QuantizedModel, tensors: list[str]) -> dict[str, QuantizerSpec]:
    """Return the grid of every tensor: its pair's, or the target's grid of activations for one without a pair."""
    planned = {tensor.name: tensor.quantizer for tensor in q_model.plan.tensors if tensor.kind == "activation"}
    usual = q_model.plan.target_object.activation
    return {name: planned.get(name, usual) for name in tensors}
