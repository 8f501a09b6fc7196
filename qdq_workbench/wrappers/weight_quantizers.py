"""The part of a wrapper that quantizes the weights of its layer."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from qdq_workbench.graph_builder import layer_weights
from qdq_workbench.quantizers._xla import traced_for_xla
from qdq_workbench.quantizers.fake_quantize import fake_quantize_weight
from qdq_workbench.quantizers.kept import KeptQuantizer
from qdq_workbench.quantizers.shared_functions import fake_quantize_weight_if
from qdq_workbench.spec.quantization_spec import config_from_dict, config_to_dict
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.wrappers.float_only import computes_float
from qdq_workbench.wrappers.settled_scope import settled_scope
from qdq_workbench.wrappers.weight_state import WeightState, tfmot_view, weight_range

# Least elements of a weight to compile with XLA: a step of ResNet50 drops from 1.11 to 1.02 of the float one's time.
_WORTH_COMPILING = 50_000


class WeightQuantizers:
    """The part of a wrapper that quantizes weights; the rest is the Keras layer."""

    layer: Any
    enabled: Any
    trainable: Any
    bypassed: bool
    quantize_weights: bool
    weight_quantizers: dict[str, QuantizerSpec] | None
    weight_methods: dict[str, QuantizerMethod]
    _quantize_config: Any
    _weight_states: dict[str, WeightState]

    def _own_quantizers_config(self) -> dict[str, Any]:
        """Return the constructor's arguments that only wrappers with their own quantizers have."""
        config = self._quantize_config
        found: dict[str, Any] = {}
        if self.weight_methods:
            found["weight_methods"] = {name: method.to_dict() for name, method in self.weight_methods.items()}
        if config is not None:
            found["quantize_config"] = config if isinstance(config, dict) else config_to_dict(config)
        return found

    @property
    def quantize_config(self) -> Any:
        """The `quantize_config` that the layer was quantized with; None if there was none."""
        if isinstance(self._quantize_config, dict):  # read from a file
            self._quantize_config = config_from_dict(self._quantize_config, f"layer {self.layer.name!r}")
        return self._quantize_config

    @property
    def kept_quantize_config(self) -> Any:
        """The `quantize_config` as stored: after loading a dictionary, whose class need not be importable."""
        return self._quantize_config

    @property
    def _weight_vars(self) -> list[tuple[Any, Any, dict[str, Any]]]:
        """The quantized weights, each with its quantizer and range, for user code written for TFMOT."""
        return tfmot_view(dict(layer_weights(self.layer)), self.weight_quantizers or {}, self._weight_states)

    def weight_range(self, name: str) -> tuple[Any, Any]:
        """Return the range (lowest, highest) from which the grid of a quantized weight is computed."""
        spec = (self.weight_quantizers or {})[name]
        return weight_range(dict(layer_weights(self.layer))[name], spec, self._weight_states.get(name))

    def has_grid(self, name: str) -> bool:
        """Return whether a weight's quantizer computes a grid, rather than a user's own function."""
        state = self._weight_states.get(name)
        return state is None or state.quantizer.has_grid

    def keeps_range(self, name: str) -> bool:
        """Return whether a weight's range is stored in variables, not computed from its values at every call."""
        state = self._weight_states.get(name)
        return state is not None and state.range() is not None

    def keep_grid(self, name: str, scale: Any, zero_point: Any) -> None:
        """Store a fixed grid for a weight, if its quantizer is a `KeptQuantizer`."""
        state = self._weight_states.get(name)
        if state is not None and isinstance(state.quantizer, KeptQuantizer):
            state.quantizer.write_grid(state.variables, scale, zero_point)

    def start_weight_ranges(self, source: WeightQuantizers | None = None) -> None:
        """Set the stored ranges of weight quantizers: from another wrapper of the layer, else from the weights."""
        theirs = {} if source is None else source._weight_states  # noqa: SLF001 - of this very class
        variables = dict(layer_weights(self.layer))
        for name, state in self._weight_states.items():
            if name in theirs:
                state.copy_from(theirs[name])
            else:
                state.start_from(variables[name])

    def _build_weight_states(self) -> None:
        variables = dict(layer_weights(self.layer))
        for name, spec in (self.weight_quantizers or {}).items():
            if name in self.weight_methods and name not in self._weight_states:
                self._weight_states[name] = WeightState(spec, self.weight_methods[name])
                self._weight_states[name].build(name, variables[name], self)

    def weights_by_values(self) -> list[tuple[str, Any, QuantizerSpec]]:
        """Return name, variable and grid of the weights whose quantized values depend on their own values only."""
        if not self.quantize_weights:
            return []
        variables = dict(layer_weights(self.layer))
        specs = self.weight_quantizers or {}
        return [(name, variables[name], spec) for name, spec in specs.items() if name not in self._weight_states]

    def _substitutes(self, training: Any) -> list[tuple[Any, Any]]:
        """Return the fake-quantized tensor of every quantized weight."""
        if self.bypassed or computes_float() or not self.quantize_weights or not self.weight_quantizers:
            return []
        scope = settled_scope()
        known = None if scope is None else scope.enabled(self)
        if known is False:
            return []
        variables = dict(layer_weights(self.layer))
        enabled = tf.convert_to_tensor(self.enabled) if known is None else True
        learns: Any = False
        if self._weight_states and self.trainable and training is not None and training is not False:
            learns = tf.logical_and(enabled, tf.cast(training, tf.bool))
        substitutes = []
        for name, spec in self.weight_quantizers.items():
            # Stored weights are quantized ones, so only a wrapper that is known to be on may use them.
            quantized = scope.kept_weight(self, name) if scope is not None and known else None
            if quantized is None:
                value = tf.convert_to_tensor(variables[name].value)
                state = self._weight_states.get(name)
                quantized = state.quantize(value, learns, enabled) if state else _switched(enabled, value, spec)
            substitutes.append((variables[name], quantized))
        return substitutes


def quantized_weight(weight: Any, spec: QuantizerSpec) -> Any:
    """Fake-quantize a weight, compiled with XLA if it is large."""
    return fake_quantize_weight(weight, spec, jit=_worth_compiling(weight))


def _switched(enabled: Any, weight: Any, spec: QuantizerSpec) -> Any:
    if enabled is True:
        return quantized_weight(weight, spec)
    # Tracing a condition takes long; all small weights of a grid and rank call one traced function that has it.
    if weight.shape.num_elements() and not (tf.executing_eagerly() or _worth_compiling(weight)):
        return fake_quantize_weight_if(enabled, weight, spec)
    return tf.cond(enabled, lambda: quantized_weight(weight, spec), lambda: tf.identity(weight))


def _worth_compiling(weight: Any) -> bool:
    # Compiling takes as long as some twenty eager calls, and TensorFlow warns of every further shape. What is compiled
    # as a whole needs no compiled part.
    if tf.executing_eagerly() or traced_for_xla():
        return False
    return sys.platform == "linux" and weight.shape.num_elements() >= _WORTH_COMPILING
