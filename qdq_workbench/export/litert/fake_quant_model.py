"""The Keras model that TensorFlow's converter reads: folded, weights on grids, fake-quant operations for pairs."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench.conversion.engine.cut import biases_behind
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.folding import FoldingRebuilder
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.rebuild import keras_name
from qdq_workbench.export.encode import encode_weights
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.keras_side.traced_layers import all_steps_at_once, can_call_at_once
from qdq_workbench.export.litert.barriers import BARRIER, Barrier
from qdq_workbench.export.litert.supported_grids import INT16_BITS
from qdq_workbench.graph.op_kinds import MASKED, vanishes
from qdq_workbench.graph_builder import Call, layer_weights
from qdq_workbench.placement.plan import Placement, PlacementPlan

FIXED_RANGES = ("sigmoid", "tanh", "softmax", "log_softmax")  # whose integer kernels write a scale of their own
_MOST_AXES = 4  # on which the converter adds a bias inside the product


@dataclasses.dataclass(frozen=True)
class FakeQuantModel:
    """The model that the converter reads, and the encodings that the file has to hold.

    Args:
        model: The Keras model.
        pairs: Pair name -> its tensor after the fake-quant operation.
        activations: Pair name -> encoding.
        weights: Weight name -> encoding, batch normalizations folded in.
        biases: Weight name -> float bias of its layer; layers without a bias are missing.
    """

    model: Any
    pairs: Mapping[str, Any]
    activations: Mapping[str, Encoding]
    weights: Mapping[str, Encoding]
    biases: Mapping[str, np.ndarray]


def fake_quant_model(
    q_model: QuantizedModel, activations: Mapping[str, Encoding], apart: Collection[str] = ()
) -> FakeQuantModel:
    """Return a calibrated model as a float model with folded batch normalizations and fake-quant operations.

    The pairs in `apart` have a barrier in front of them.
    """
    builder = _FakeQuantBuilder(q_model, activations, apart)
    model = builder.rebuilt(q_model.name)
    biases = {name: np.array(bias) for name, bias in biases_behind(q_model.plan, builder.clones).items()}
    encodings = encode_weights(q_model, builder.folds, biases, activations)
    for placement in q_model.plan.placements:
        if placement.weight is not None:
            layer = builder.clones[placement.layer]
            # Values on the grid: `own_integers` finds each weight in the file by them, although it is rounded again.
            dict(layer_weights(layer))[placement.weight].assign(encodings[placement.tensor].dequantized())
    for layer in builder.clones.values():
        # After `biases` was copied: `own_integers` writes the integers of the exact values.
        _make_biases_distinct(layer)
    return FakeQuantModel(model, builder.quantized, activations, encodings, biases)


def _make_biases_distinct(layer: Any) -> None:
    """Move the first value of a bias whose values are all equal by one float32 step.

    The converter gives equal values equal integers, whatever the scales of their channels.
    """
    for name, variable in layer_weights(layer) if isinstance(layer, keras.layers.Layer) else ():
        values = np.array(variable)
        if name.endswith("bias") and values.ndim == 1 and values.size > 1 and values[0] and np.all(values == values[0]):
            values[0] = np.nextafter(values[0], np.float32(0))
            variable.assign(values)


class _FakeQuantize(keras.layers.Layer):
    """The fake-quant operation that the converter reads, with the range of an encoding."""

    def __init__(self, encoding: Encoding, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # by the policy that is set for new layers
        self.supports_masking = True  # masks are passed on to later sequence layers
        spec, scale, zero = encoding.spec, float(encoding.scale), int(encoding.zero_point)
        # Ends on the grid: TensorFlow moves a range until 0 has an integer, and here finds nothing to move.
        self._ends = ((spec.qmin - zero) * scale, (spec.qmax - zero) * scale)
        self._narrow = spec.narrow_range
        if spec.num_bits == INT16_BITS:  # the same range in 8 bits, from which `wide_activations` restores the scale
            self._ends, self._narrow = (-spec.qmax * scale, spec.qmax * scale), True

    def call(self, inputs: Any) -> Any:
        """Return the inputs on the grid."""
        return tf.quantization.fake_quant_with_min_max_vars(inputs, *self._ends, narrow_range=self._narrow)


class _OnRows(keras.layers.Layer):
    """A layer called on rows where the converter would write more than one operator, or one in float.

    It writes the layer of a `TimeDistributed` once per step, and on more than four axes the bias of a Dense as an
    addition of its own, in float. The operators carry the name of the layer.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__(name=layer.name, autocast=False)
        self.supports_masking = layer.supports_masking
        self._layer = layer

    def build(self, input_shape: Any) -> None:
        """Create the variables of the layer."""
        if not self._layer.built:
            self._layer.build(input_shape)

    def call(self, inputs: Any) -> Any:
        """Return what the layer returns."""
        return _on_rows(self._layer, inputs)


class _FakeQuantBuilder(FoldingRebuilder):
    """Rebuilds the float model with a fake-quant layer for every pair."""

    plan: PlacementPlan

    def __init__(self, q_model: QuantizedModel, activations: Mapping[str, Encoding], apart: Collection[str]) -> None:
        self.plan = q_model.plan
        self._activations = activations
        self._pairs_apart = apart
        self.quantized: dict[str, Any] = {}
        self._on_rows: dict[str, _OnRows] = {}
        super().__init__(float_view(q_model), self.plan.lowering.folds)

    def compute(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the replacement of an operation, by `_OnRows` where that helps."""
        if call.node.settings.get(MASKED):
            # The converter would round what the layer chooses, such as 1 in place of a factor, to the grid of its pair.
            return super().compute(call, keras.tree.map_structure(self._apart, args), kwargs)
        kind = type(call.operation)
        if kind not in (keras.layers.Dense, keras.layers.TimeDistributed):
            return super().compute(call, args, kwargs)
        # The copy tells, because a folded normalization gives it a bias.
        layer = self.replacement(call)
        if not _is_split(layer, args[0]):
            return super().compute(call, args, kwargs)
        if kind is keras.layers.TimeDistributed and not can_call_at_once(layer, args[0], kwargs.get("mask")):
            return super().compute(call, args, kwargs)
        if layer.name not in self._on_rows:
            self._on_rows[layer.name] = _OnRows(layer)
        with self.late.building(layer):
            result = self._on_rows[layer.name](args[0])
        behind = self.behind.get(call.node.layer)
        return result if behind is None else behind(result)

    def pair(self, placement: Placement) -> Any:
        """Return the output of the fake-quant layer of a pair."""
        name = self.plan.pair_of(placement).name
        if name not in self.quantized:
            layer = _FakeQuantize(self._activations[name], name=self.free_name(f"qdq.{keras_name(name)}"))
            values = self.values[placement.tensor]
            if name in self._pairs_apart or self._follows_another_grid(placement.tensor, self._activations[name]):
                values = self._apart(values)
            self.quantized[name] = layer(values)
        return self.quantized[name]

    def _apart(self, values: Any) -> Any:
        return Barrier(name=self.free_name(BARRIER))(values)

    def _follows_another_grid(self, tensor: str, encoding: Encoding) -> bool:
        """Return whether the converter would merge the pair of a tensor with the grid that the values come from."""
        moved = False
        while True:
            node = self.plan.graph.producer(tensor)
            before = self.plan.input_placement(node.name, 0) if node.inputs else None
            if len(node.inputs) != 1 or not (vanishes(node) or node.is_a(*self.plan.target_object.same_scale_kinds)):
                break
            moved = True
            if before is not None:
                return not _is_same_grid(self._activations[self.plan.pair_of(before).name], encoding)
            tensor = node.inputs[0]
        # The same is true of an integer kernel, which writes a grid of its own.
        in_float = before is None or not node.is_activation
        return node.activation_name in FIXED_RANGES and (moved or in_float)


def _is_same_grid(one: Encoding, other: Encoding) -> bool:
    return one.spec == other.spec and bool(one.scale == other.scale and one.zero_point == other.zero_point)


def _on_rows(layer: Any, inputs: Any) -> Any:
    ops, sizes = keras.ops, inputs.shape[1:-1]
    if type(layer) is keras.layers.TimeDistributed:
        return all_steps_at_once(layer.layer, inputs, functools.partial(_on_rows, layer.layer))
    if not _is_split(layer, inputs):
        return layer(inputs)
    result = layer(ops.reshape(inputs, (-1, math.prod(sizes), inputs.shape[-1])))
    return ops.reshape(result, (-1, *sizes, result.shape[-1]))


def _is_split(layer: Any, inputs: Any) -> bool:
    """Return whether the converter writes a layer as several operators, or as one in float, as `_OnRows` says."""
    if type(layer) is keras.layers.TimeDistributed:
        return True
    if type(layer) is not keras.layers.Dense or not layer.use_bias or len(inputs.shape) <= _MOST_AXES:
        return False
    if None in inputs.shape[1:]:
        return False
    # A user's own activation may compute along any axis.
    return bool(getattr(layer.activation, "__module__", "").startswith("keras."))
