"""Annotation of layers and models for quantization, as in TFMOT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from qdq_workbench import LayerQuantizeConfig, QuantizeConfig
from qdq_workbench._warned_line import warn_caller
from qdq_workbench.conversion.engine.rebuild import Rebuilder, clone_operation
from qdq_workbench.errors import SpecError
from qdq_workbench.graph_builder import BoundGraph, Call, bind_graph, takes_training
from qdq_workbench.spec.quantization_spec import config_from_dict, config_to_dict


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class QuantizeAnnotate(keras.layers.Wrapper):
    """A wrapper that marks a layer for quantization by `quantize_apply`; its output is that of the layer.

    Args:
        layer: The layer.
        quantize_config: The `QuantizeConfig` or `LayerQuantizeConfig` of the layer; None for the scheme's default.
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    # Without this mark the wrapper counts as a layer of the user's own, of whose inside nothing is known.
    _qdq_transparent = True

    def __init__(self, layer: Any, quantize_config: Any = None, **kwargs: Any) -> None:
        if not isinstance(layer, keras.layers.Layer) or isinstance(layer, (QuantizeAnnotate, keras.Model)):
            raise SpecError(
                "quantize_annotate_layer takes one Keras layer that is not annotated yet; a whole model is annotated "
                f"with quantize_annotate_model(model). Received: {layer!r}"
            )
        if quantize_config is not None and not isinstance(quantize_config, (QuantizeConfig, LayerQuantizeConfig)):
            raise SpecError(
                "quantize_config must be an instance of a subclass of QuantizeConfig, or None for the default. "
                f"Received: quantize_config={quantize_config!r}"
            )
        # Keras casts the inputs of the wrapper to the wrapper's own dtype before the layer sees them.
        kwargs.setdefault("dtype", layer.dtype_policy)
        super().__init__(layer, **kwargs)
        self.quantize_config = quantize_config
        self.supports_masking = layer.supports_masking
        self.trainable = layer.trainable
        shape = getattr(layer, "_input_shape_arg", None)
        if shape is not None:
            self._input_shape_arg = shape  # Sequential builds itself from this attribute of its first layer

    def call(self, inputs: Any, *args: Any, training: Any = None, **kwargs: Any) -> Any:
        """Return the output of the layer.

        Args:
            inputs: The inputs of the layer.
            *args: Further arguments of the layer's call.
            training: Whether the model is training.
            **kwargs: Further arguments of the layer's call.
        """
        if takes_training(self.layer):
            kwargs["training"] = training
        return self.layer(inputs, *args, **kwargs)

    def compute_output_spec(self, inputs: Any, *args: Any, training: Any = None, **kwargs: Any) -> Any:
        """Return the symbolic output, by tracing the call.

        Args:
            inputs: The inputs of the layer.
            *args: Further arguments of the layer's call.
            training: Whether the model is training.
            **kwargs: Further arguments of the layer's call.
        """
        # Layer's method would use `compute_output_shape`, and so give every output the compute dtype.
        return keras.Operation.compute_output_spec(self, inputs, *args, training=training, **kwargs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape of the layer.

        Args:
            input_shape: Shape of the input, or a list of shapes.
        """
        return self.layer.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = None if self.quantize_config is None else config_to_dict(self.quantize_config)
        return {**super().get_config(), "quantize_config": config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> QuantizeAnnotate:
        """Rebuild the wrapper from `get_config`.

        Args:
            config: The dictionary of `get_config`.
        """
        config = dict(config)
        layer = keras.saving.deserialize_keras_object(config.pop("layer"))
        own = config.pop("quantize_config", None)
        return cls(layer, None if own is None else config_from_dict(own, f"layer {layer.name!r}"), **config)


def quantize_annotate_layer(to_annotate: Any, quantize_config: Any = None) -> QuantizeAnnotate:
    """Annotate a layer, so that `quantize_apply` quantizes it.

    Args:
        to_annotate: The layer.
        quantize_config: The `QuantizeConfig` or `LayerQuantizeConfig` of the layer; None for the scheme's default.

    Returns:
        The layer in a wrapper with the same output.

    Raises:
        SpecError: If `to_annotate` is no layer, is a model, or is annotated already, or the config is of another type.

    Example:
        >>> annotated = quantize_annotate_layer(keras.layers.Dense(2, name="head"))
        >>> annotated.layer.name
        'head'
    """
    return QuantizeAnnotate(to_annotate, quantize_config)


def quantize_annotate_model(to_annotate: keras.Model) -> keras.Model:
    """Return a copy of a model in which every layer is annotated; annotated layers keep their config.

    Lambda layers are not annotated, as in TFMOT.

    Args:
        to_annotate: A built sequential or functional model; it is only read.

    Returns:
        A functional model with the same weights, not compiled.

    Raises:
        SpecError: If it is not a model.
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model's input shape is unknown.

    Warns:
        UserWarning: If the model has Lambda layers, which stay in float.

    Example:
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="head")])
        >>> [type(layer).__name__ for layer in quantize_annotate_model(model).layers]
        ['InputLayer', 'QuantizeAnnotate']
    """
    if isinstance(to_annotate, keras.layers.Layer) and not isinstance(to_annotate, keras.Model):
        raise SpecError(
            "quantize_annotate_model takes a whole model; a single layer is annotated with "
            f"quantize_annotate_layer(layer). Received: {to_annotate!r}"
        )
    builder = _Annotator(bind_graph(to_annotate, enter_layers=False))
    model: keras.Model = builder.rebuilt(to_annotate.name)
    return model


def annotated_with(model: keras.Model, configs: Mapping[str, Any]) -> keras.Model:
    """Return a copy of a model in which exactly the named layers are annotated; existing annotations are removed.

    Args:
        model: A built sequential or functional model; it is only read.
        configs: The quantize configs by layer name.
    """
    builder = _Annotator(bind_graph(model, enter_layers=False), configs)
    marked: keras.Model = builder.rebuilt(model.name)
    return marked


class _Annotator(Rebuilder):
    """Rebuilds a model with every layer, or the named layers, annotated."""

    def __init__(self, bound: BoundGraph, configs: Mapping[str, Any] | None = None) -> None:
        super().__init__(bound)
        self._configs = configs

    def make(self, call: Call) -> Any:
        operation, inner = call.operation, inner_of(call.operation)
        if self._configs is not None:
            clone = self.begun_as(inner, clone_operation(inner, inner.name))
            config = self._configs.get(inner.name)
            return clone if config is None else QuantizeAnnotate(clone, config)
        if not isinstance(operation, keras.layers.Layer) or isinstance(operation, QuantizeAnnotate):
            clone = self.begun_as(inner, clone_operation(inner, inner.name))
            return clone if inner is operation else QuantizeAnnotate(clone, operation.quantize_config)
        if isinstance(operation, keras.layers.Lambda):
            warn_caller(
                UserWarning(
                    f"Lambda layer {operation.name!r} is not annotated and stays in float, because nothing is known "
                    "about its inside; make it a layer of your own and annotate that with a QuantizeConfig to quantize "
                    "it.",
                )
            )
            return super().make(call)
        return QuantizeAnnotate(super().make(call))

    def copy_weights(self) -> None:
        sources = {call.node.layer: call.operation for call in self.bound.calls}
        for layer, clone in self.clones.items():
            if isinstance(clone, QuantizeAnnotate) or self._configs is not None:
                self.copy_state(inner_of(sources[layer]), inner_of(clone))


def inner_of(operation: Any) -> Any:
    """Return the layer inside a `QuantizeAnnotate`; other layers and operations unchanged."""
    return operation.layer if isinstance(operation, QuantizeAnnotate) else operation
