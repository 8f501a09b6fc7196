"""`merge_lora`: layers with low-rank updates (LoRA) as equivalent plain layers.

A layer with LoRA adds the product of two small matrices to its kernel at every call. In a file this is an addition
after the DequantizeLinear of the kernel, so the layer computes in float. After merging, the kernel holds the sum.
"""

from __future__ import annotations

from typing import Any

import keras

from qdq_workbench.conversion.engine.rebuild import Rebuilder
from qdq_workbench.graph_builder import Call, bind_graph, inner_layers

_SETTINGS = ("lora_rank", "lora_alpha")
_MERGED = ("kernel", "embeddings")


def merge_lora(model: keras.Model) -> keras.Model:
    """Return a copy of a float model whose low-rank updates (LoRA) are added to the kernels.

    The copy computes the same function up to rounding, and its layers are quantized like any others. Train the
    updates first, then quantize the copy instead of the model.

    Args:
        model: A built functional or sequential Keras model; it is only read. Nested models are flattened.

    Returns:
        The new model, not compiled. Its merged kernels are trainable where the layer is.

    Raises:
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> x = keras.Input((4,), name="x")
        >>> model = keras.Model(x, keras.layers.Dense(2, name="head")(x))
        >>> model.get_layer("head").enable_lora(1)
        >>> len(model.weights), len(merge_lora(model).weights)
        (4, 2)
    """
    builder = _Merger(bind_graph(model))
    return builder.rebuilt(model.name)


class _Merger(Rebuilder):
    """Rebuilds a float graph with plain layers in place of those with LoRA."""

    def make(self, call: Call) -> Any:
        if not has_lora(call.operation):
            return super().make(call)
        config = {**call.operation.get_config(), "name": self.names[call.node.layer]}
        return type(call.operation).from_config(_without_updates(config))

    def copy_state(self, source: Any, clone: Any) -> None:
        if not has_lora(source):
            super().copy_state(source, clone)
            return
        for theirs, ours in zip((source, *inner_layers(source)), (clone, *inner_layers(clone)), strict=True):
            _copy_own_variables(theirs, ours)
            ours.trainable = theirs.trainable


def has_lora(layer: Any) -> bool:
    """Return whether a layer, or one inside it, has a low-rank update."""
    if not isinstance(layer, keras.layers.Layer):
        return False
    return any(getattr(part, "lora_enabled", False) for part in (layer, *inner_layers(layer)))


def _without_updates(config: Any) -> Any:
    """Return a layer's configuration without updates, of the layer itself and of those that it holds."""
    if isinstance(config, (list, tuple)):
        return type(config)(_without_updates(item) for item in config)
    if isinstance(config, dict):
        return {key: _without_updates(value) for key, value in config.items() if key not in _SETTINGS}
    return config


def _copy_own_variables(source: Any, clone: Any) -> None:
    """Copy the variables that a layer itself holds; a kernel with a low-rank update is copied as the sum."""
    theirs = {_last_name(v): v for v in (*source._trainable_variables, *source._non_trainable_variables)}  # noqa: SLF001
    for variable in (*clone._trainable_variables, *clone._non_trainable_variables):  # noqa: SLF001
        name = _last_name(variable)
        # The property adds the update; the variable of that name holds the kernel without it.
        merged = getattr(source, "lora_enabled", False) and name in _MERGED
        variable.assign(getattr(source, name) if merged else theirs[name])


def _last_name(variable: Any) -> str:
    return str(variable.path).rpartition("/")[2]
