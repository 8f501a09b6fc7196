"""Running a quantized model over the same data many times, with any subset of its layers quantized.

The model is cut into segments, each traced once. For one subset of layers, the base, the inputs of every segment are
kept; another subset is computed from the first segment in which it differs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from qdq_workbench.analysis.cost import layer_costs
from qdq_workbench.analysis.samples import Samples
from qdq_workbench.analysis.segments import Boundary, choose_boundaries, find_boundaries, reads_of
from qdq_workbench.analysis.switches import Grids, Switch, SwitchedCopy
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.traced import traced
from qdq_workbench.wrappers import QuantizeDequantize

Array = npt.NDArray[Any]

_CACHE_BYTES = 1 << 30
_MOST_CUTS = 11  # each segment costs a call from Python per batch


class Sweep:
    """A quantized model ready to be run with any of its switches on.

    Args:
        q_model: A calibrated model made by `quantize_model`; it is only read.
        samples: The data.
        cache_bytes: How much memory the kept values may take.
    """

    def __init__(self, q_model: QuantizedModel, samples: Samples, *, cache_bytes: int = _CACHE_BYTES) -> None:
        self._samples = samples
        self._copy = SwitchedCopy(q_model)
        self.switches = self._copy.switches
        self.cuts = self._choose(q_model, cache_bytes)
        self._segments = self._make_segments()
        self._base: frozenset[Switch] = frozenset()
        self._kept: list[list[list[Any]]] = []  # per segment, per batch: its inputs

    def keep(self, on: Collection[Switch]) -> list[Array]:
        """Return the outputs with these switches on, and keep the tensors between segments: the base of later runs."""
        self._base, self._kept = frozenset(on), []
        inputs = self._first_inputs()
        self._copy.set(on)
        for segment in self._segments:
            self._kept.append(inputs)
            inputs = [segment(batch) for batch in inputs]
        return _joined(inputs)

    def outputs(self, on: Collection[Switch], grids: Grids = MappingProxyType({})) -> list[Array]:
        """Return the outputs with these switches and grids, run from the first segment that differs from the base."""
        # Other grids change a layer's weights without changing a switch.
        changed = self._base.symmetric_difference(on).union((layer, "weight") for layer in grids)
        # If nothing differs from the base, the last segment alone is run again.
        first = min((self._segment_of(switch) for switch in changed), default=len(self._segments) - 1)
        first = min(first, len(self._kept) - 1) if self._kept else 0
        inputs = self._kept[first] if self._kept else self._first_inputs()
        self._copy.set(on, grids)
        for segment in self._segments[first:]:
            inputs = [segment(batch) for batch in inputs]
        return _joined(inputs)

    def _segment_of(self, switch: Switch) -> int:
        return sum(cut.position <= self._copy.positions[switch] for cut in self.cuts)

    def _first_inputs(self) -> list[list[Any]]:
        return _as_tensors(self._samples, [tensor.dtype for tensor in self._copy.bound.input_tensors.values()])

    def _choose(self, q_model: QuantizedModel, cache_bytes: int) -> list[Boundary]:
        """Cut in front of Q/DQ pairs only: TensorFlow fuses operations, but never across a pair."""
        bound = self._copy.bound
        readers = reads_of(bound)

        def may_cut(name: str) -> bool:
            # A segment begins with a plain tensor, which has no mask.
            masked = getattr(bound.tensors[name], "_keras_mask", None) is not None
            return not masked and any(isinstance(call.operation, QuantizeDequantize) for call in readers[name])

        if len({id(call.operation) for call in bound.calls}) < len(bound.calls):
            return []  # Keras (3.15) cannot make a model of inner tensors that holds one of several calls of a layer
        costs = layer_costs(q_model.plan.graph)
        paths = q_model.layer_paths
        work = []
        for call in bound.calls:
            inner = getattr(call.operation, "layer", call.operation)
            cost = costs.get(paths.get(inner.name, ""))
            # Operations without multiplications take time, too.
            work.append(1.0 + (cost.macs if cost is not None else 0))
        return choose_boundaries(find_boundaries(bound, may_cut), work, self._samples.count, cache_bytes, _MOST_CUTS)

    def _make_segments(self) -> list[Any]:
        values = self._copy.values
        starts: list[list[Any]] = [[values[name] for name in self._copy.bound.input_tensors]]
        starts += [[values[cut.tensor]] for cut in self.cuts]
        ends = [*starts[1:], self._copy.copied_outputs]
        return [concrete(functional_model(a, b, name="segment")) for a, b in zip(starts, ends, strict=True)]


class Traces:
    """The traced functions of the first model that ran and of the last one: other samples need no other trace."""

    def __init__(self) -> None:
        self._kept: list[tuple[keras.Model, Any]] = []

    def of(self, model: keras.Model) -> Any:
        """Return any functional model as a traced function of flat inputs."""
        for known, run in self._kept:
            if known is model:
                return run
        run = concrete(functional_model(model.inputs, keras.tree.flatten(model.outputs), name="outputs"))
        self._kept = [*self._kept[:1], (model, run)]
        return run


def model_outputs(model: keras.Model, samples: Samples, traces: Traces | None = None) -> list[Array]:
    """Return the outputs of any functional model over all samples, one array per output.

    Args:
        model: The model.
        samples: The samples.
        traces: What was traced before; None to trace it for these samples alone.
    """
    dtypes = [tensor.dtype for tensor in model.inputs]
    run = (traces or Traces()).of(model)
    return _joined([run(batch) for batch in _as_tensors(samples, dtypes)])


def concrete(model: keras.Model) -> Any:
    """Return a model with flat inputs and outputs as one traced function, for any batch size."""
    return traced(lambda inputs: list(keras.tree.flatten(model(inputs, training=False))), model.inputs)


def _as_tensors(samples: Samples, dtypes: Sequence[Any]) -> list[list[Any]]:
    return [
        [tf.cast(tf.convert_to_tensor(array), dtype) for array, dtype in zip(batch, dtypes, strict=True)]
        for batch in samples.batches
    ]


def _joined(batches: Sequence[Sequence[Any]]) -> list[Array]:
    """Return one array per output, over all batches."""
    return [np.concatenate([_array(value) for value in column]) for column in zip(*batches, strict=True)]


def _array(value: Any) -> Array:
    half = value.dtype in (tf.float16, tf.bfloat16)
    return np.asarray(tf.cast(value, tf.float32) if half else value)
