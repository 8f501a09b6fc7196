"""Tensors of a quantized model that have one value, whatever the model's inputs are.

A gain of zeros makes one, as the normalization at the end of a residual branch has before training. What is computed
from such tensors alone is one, too. Whether a layer makes one is tried with inputs of several sizes and both signs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import tree

from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.graph_builder import Call, TensorRef
from qdq_workbench.wrappers import QuantizeDequantize

_BATCH = 2  # in place of an open one: what is left of one sample when their mean is subtracted is always 0
# Each with numbers of its own, for a sign does not depend on the size. Float32 holds the squares.
_FACTORS = (1.0, -1.0, 1e-3, -1e-3, 1e3, -1e3, 1e6, -1e6)


@dataclasses.dataclass(frozen=True)
class ConstantTensors:
    """The constant tensors of a model.

    Args:
        values: Tensor -> its value, for a batch of some size.
        rounded: Q/DQ pair of such a tensor -> its value behind the pair.
    """

    values: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    rounded: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


def constant_tensors(q_model: QuantizedModel) -> ConstantTensors:
    """Return the constant tensors of a calibrated model, as far as they are certain.

    A layer with quantized weights makes none, whatever its weights are, but may compute one from constants.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of a softmax over one element whenever it computes one
        return _Search(q_model).run()


class _Search:
    def __init__(self, q_model: QuantizedModel) -> None:
        self._plan = q_model.plan
        self._calls = float_view(q_model).calls
        self._wrappers = q_model.wrappers_by_path()
        self._quantized = {placement.layer for placement in self._plan.placements if placement.weight is not None}
        self._pairs: dict[str, QuantizeDequantize] = {
            name: layer for layer in q_model.activation_quantizers for name in q_model.pairs_of(layer)
        }
        self._values: dict[str, np.ndarray] = {}
        self._rounded: dict[str, np.ndarray] = {}

    def run(self) -> ConstantTensors:
        """Try every call in computing order."""
        merged = self._plan.lowering.merged.into
        parted = {*merged, *merged.values()}
        for call in self._calls:
            if not call.node.opaque and call.node.name not in parted and call.node.inputs:
                self._values.update(self._constants_of(call))
        for pair in self._plan.tensors:
            if pair.name in self._pairs and pair.tensor in self._values:
                self._round(pair.name, pair.tensor)
        return ConstantTensors(self._values, self._rounded)

    def _constants_of(self, call: Call) -> dict[str, np.ndarray]:
        """Return the results of a call, if they are the same for all inputs."""
        node, operation = call.node, self._wrappers.get(call.node.layer, call.operation)
        varying = [self._plan.graph.tensors[name] for name in node.inputs if name not in self._values]
        # Indices and masks have no size. An axis of an open length may have one element, of which the mean is that one.
        if varying and (
            node.layer in self._quantized or not all(each.is_float and None not in each.shape[1:] for each in varying)
        ):
            return {}
        with _state_kept(operation), contextlib.suppress(Exception):  # such as sizes that another batch would have
            if not varying:
                return self._results(call, operation, {})
            results = (
                self._results(call, operation, self._drawn(call, seed, factor)) for seed, factor in enumerate(_FACTORS)
            )
            first = next(results)
            # Most results part at once, so that the rest is not computed.
            if all(np.array_equal(first[name], other[name]) for other in results for name in node.outputs):
                return first
        return {}

    def _drawn(self, call: Call, seed: int, factor: float) -> dict[tuple[str, str | None], np.ndarray]:
        """Return random numbers for what varies, by tensor and pair; an even seed draws the same as the next one."""
        generator, drawn = np.random.default_rng(seed // 2), {}
        for index, name in enumerate(call.node.inputs):
            tensor, key = self._plan.graph.tensors[name], (name, self._pair_at(call, index))
            if name not in self._values and key not in drawn:
                sizes = [_BATCH if size is None else size for size in tensor.shape]
                drawn[key] = (factor * generator.normal(size=sizes)).astype(tensor.dtype)
        return drawn

    def _results(
        self, call: Call, operation: Any, drawn: Mapping[tuple[str, str | None], np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Return the results of a call by tensor, with these numbers for what varies."""
        places = iter(range(len(call.node.inputs)))

        def given(leaf: Any) -> Any:
            if not isinstance(leaf, TensorRef):
                return leaf
            pair = self._pair_at(call, next(places))
            if leaf.name not in self._values:
                return keras.ops.convert_to_tensor(drawn[leaf.name, pair])
            return keras.ops.convert_to_tensor(
                self._values[leaf.name] if pair is None else self._round(pair, leaf.name)
            )

        args, kwargs = tree.map_structure(given, (call.args, call.kwargs))
        results = tree.flatten(operation(*args, **kwargs))
        return {name: np.asarray(each) for name, each in zip(call.node.outputs, results, strict=True)}

    def _pair_at(self, call: Call, index: int) -> str | None:
        placement = self._plan.input_placement(call.node.name, index)
        return None if placement is None else self._plan.pair_of(placement).name

    def _round(self, pair: str, tensor: str) -> np.ndarray:
        if pair not in self._rounded:
            self._rounded[pair] = np.asarray(self._pairs[pair](keras.ops.convert_to_tensor(self._values[tensor])))
        return self._rounded[pair]


@contextlib.contextmanager
def _state_kept(operation: Any) -> Iterator[None]:
    """Give a layer its variables back, some of which a call may change: the states of a loop, the seed of a Dropout."""
    variables = operation.variables if isinstance(operation, keras.layers.Layer) else []
    before = [np.array(variable) for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
