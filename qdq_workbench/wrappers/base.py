"""The base classes of all layer wrappers.

A wrapper computes its layer with fake-quantized weights. In a model made by `quantize_model` the Q/DQ pairs of
activations are layers of their own; a wrapper used by itself quantizes its own inputs too.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from qdq_workbench.errors import QuantizerError, nearest_names
from qdq_workbench.graph_builder import layer_weights, takes_training
from qdq_workbench.placement.defaults import LayerDefault, class_name_of, default_of_class, register_default
from qdq_workbench.quantizers.fake_quantize import fake_quantize_weight
from qdq_workbench.quantizers.moving_average import MovingAverageQuantizer
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.wrappers.model_state import ModelState
from qdq_workbench.wrappers.qdq import QuantizeDequantize
from qdq_workbench.wrappers.substitution import WeightSubstitution

_SUFFIX = "QuantizeWrapper"
_WRAPPERS: dict[str, type[BaseQuantizeWrapper]] = {}


class BaseQuantizeWrapper(keras.layers.Wrapper):
    """Base class of all quantize wrappers.

    A subclass called `<LayerClass>QuantizeWrapper` serves that layer class from the moment it is defined; aliases
    of a class count, so `GlobalMaxPool2DQuantizeWrapper` serves `GlobalMaxPooling2D`. Subclasses that override
    `__init__` must accept and pass on `**kwargs`.

    Args:
        layer: The layer to wrap; not a model.
        quantize_inputs: Whether the wrapper quantizes its own inputs. In a quantized model the pairs are layers.
        quantize_weights: Whether the weights named in `weight_quantizers` are quantized.
        quantization_index: Which of several inputs are quantized by the wrapper; None for all.
        weight_quantizers: The grid of every quantized weight, by name below the layer; None for the defaults.
        model_state: What a quantized model keeps in its first quantizing layer.
        **kwargs: Those of `keras.layers.Layer`; the name defaults to `quant_<name of the layer>`.

    Raises:
        QuantizerError: If `layer` is not a layer.

    Example:
        >>> wrapper = WeightedBaseQuantizeWrapper(keras.layers.Dense(2, name="head"))
        >>> wrapper.name, wrapper(keras.ops.ones((1, 3)), training=True).shape
        ('quant_head', TensorShape([1, 2]))
    """

    _qdq_transparent = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        keras.saving.register_keras_serializable(package="qdq_workbench.wrappers")(cls)
        served = cls.__name__.removesuffix(_SUFFIX)
        if cls.__name__.endswith(_SUFFIX) and served and not served.endswith("Base"):
            _WRAPPERS[class_name_of(served)] = cls
            register_default(served, cls._default())

    def __init__(
        self,
        layer: Any,
        *,
        quantize_inputs: bool = True,
        quantize_weights: bool = True,
        quantization_index: list[int] | None = None,
        weight_quantizers: Mapping[str, Any] | None = None,
        model_state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(layer, keras.layers.Layer) or isinstance(layer, keras.Model):
            raise QuantizerError(
                "A quantize wrapper holds one Keras layer; models are quantized with quantize_model(model). "
                f"Received: {type(layer).__module__}.{type(layer).__name__}"
            )
        kwargs.setdefault("name", f"quant_{layer.name}")
        kwargs.setdefault("dtype", layer.dtype_policy)
        trainable = kwargs.pop("trainable", layer.trainable)
        super().__init__(layer, **kwargs)
        self.supports_masking = layer.supports_masking
        self.quantize_inputs = quantize_inputs
        self.quantize_weights = quantize_weights
        self.quantization_index = quantization_index
        self.weight_quantizers = None if weight_quantizers is None else _read_specs(weight_quantizers)
        self.enabled = self.add_weight(name="enabled", shape=(), dtype="bool", initializer="ones", trainable=False)
        self.bypassed = False
        self.model_state = ModelState(model_state)
        self._input_quantizers: list[QuantizeDequantize | None] = []
        self.trainable = trainable

    @classmethod
    def _default(cls) -> LayerDefault:
        """Return what happens by default to the layers that this class serves."""
        return LayerDefault(quantize_input=True)

    def build(self, input_shape: Any = None) -> None:
        """Build the layer and, for a wrapper used by itself, the quantizers of its inputs.

        Args:
            input_shape: Shape of the input, or a list of shapes.
        """
        super().build(input_shape)
        if self.weight_quantizers is None:
            self.weight_quantizers = self._default_weight_quantizers()
        unknown = set(self.weight_quantizers) - {name for name, _ in layer_weights(self.layer)}
        for name in sorted(unknown):
            hint = nearest_names(name, [known for known, _ in layer_weights(self.layer)])
            raise QuantizerError(f"Layer {self.layer.name!r} has no weight of that name. {hint} Received: {name!r}")
        if self.quantize_inputs and not self._input_quantizers:
            self._build_input_quantizers(input_shape)
        self.built = True

    def call(self, inputs: Any, *args: Any, training: Any = None, **kwargs: Any) -> Any:
        """Compute the layer with quantized inputs and weights.

        Args:
            inputs: A tensor or a list of tensors, as the layer takes them.
            *args: Further arguments of the layer's call, passed on.
            training: Whether the model is training.
            **kwargs: Further arguments of the layer's call, passed on.
        """
        inputs = self._quantized_inputs(inputs, training)
        if takes_training(self.layer):
            kwargs["training"] = training
        substitutes = self._substitutes()
        if not substitutes:
            return self.layer(inputs, *args, **kwargs)
        with WeightSubstitution(substitutes):
            return self.layer(inputs, *args, **kwargs)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Return the mask that the layer computes."""
        return self.layer.compute_mask(inputs, previous_mask)

    def compute_output_spec(self, inputs: Any, *args: Any, training: Any = None, **kwargs: Any) -> Any:
        """Return the symbolic output, by tracing the call: not every layer knows its output shape by itself.

        Args:
            inputs: A symbolic tensor or a list of them.
            *args: Further arguments of the layer's call.
            training: Whether the model is training.
            **kwargs: Further arguments of the layer's call.
        """
        return keras.Operation.compute_output_spec(self, inputs, *args, training=training, **kwargs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape of the layer.

        Args:
            input_shape: Shape of the input, or a list of shapes.
        """
        return self.layer.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        specs = self.weight_quantizers
        return {
            **super().get_config(),
            "quantize_inputs": self.quantize_inputs,
            "quantize_weights": self.quantize_weights,
            "quantization_index": self.quantization_index,
            "weight_quantizers": None if specs is None else {name: spec.to_dict() for name, spec in specs.items()},
            **self.model_state.config(),
        }

    def _default_weight_quantizers(self) -> dict[str, QuantizerSpec]:
        """Return a grid for each weight that the layer's class quantizes by default."""
        default = default_of_class(type(self.layer))
        ranks = {name: len(variable.shape) for name, variable in layer_weights(self.layer)}
        axes = default.weights if default is not None else {}
        return {
            name: QuantizerSpec(narrow_range=True, axis=None if axis is None else axis % ranks[name])
            for name, axis in axes.items()
            if name in ranks
        }

    def _build_input_quantizers(self, input_shape: Any) -> None:
        several = isinstance(input_shape, (list, tuple)) and input_shape and isinstance(input_shape[0], (list, tuple))
        shapes = list(input_shape) if several else [input_shape]
        chosen = range(len(shapes)) if self.quantization_index is None else self.quantization_index
        for index, shape in enumerate(shapes):
            pair = None
            if index in chosen:
                tensor = f"{self.layer.name}/input {index}"
                pair = QuantizeDequantize(tensor, MovingAverageQuantizer(), name=f"input_{index}")
                pair.build(shape)
            self._input_quantizers.append(pair)

    def _quantized_inputs(self, inputs: Any, training: Any) -> Any:
        if not self.quantize_inputs:
            return inputs
        flat = keras.tree.flatten(inputs)
        pairs = self._input_quantizers
        quantized = [x if pair is None else pair(x, training=training) for x, pair in zip(flat, pairs, strict=True)]
        return keras.tree.pack_sequence_as(inputs, quantized)

    def _substitutes(self) -> list[tuple[Any, Any]]:
        """Return the fake-quantized tensor of every quantized weight."""
        if self.bypassed or not self.quantize_weights or not self.weight_quantizers:
            return []
        variables = dict(layer_weights(self.layer))
        enabled = tf.convert_to_tensor(self.enabled)
        return [
            (variables[name], _switched(enabled, tf.convert_to_tensor(variables[name].value), spec))
            for name, spec in self.weight_quantizers.items()
        ]


@keras.saving.register_keras_serializable(package="qdq_workbench.wrappers")
class WeightedBaseQuantizeWrapper(BaseQuantizeWrapper):
    """Base class of the wrappers of layers with weights.

    Args:
        layer: The layer to wrap.
        kernel_type: Name of the weight that is quantized.
        **kwargs: Those of `BaseQuantizeWrapper`.
    """

    def __init__(self, layer: Any, kernel_type: str = "kernel", **kwargs: Any) -> None:
        super().__init__(layer, **kwargs)
        self.kernel_type = kernel_type

    @classmethod
    def _default(cls) -> LayerDefault:
        parameter = inspect.signature(cls.__init__).parameters.get("kernel_type")
        kernel = parameter.default if parameter is not None and isinstance(parameter.default, str) else "kernel"
        return LayerDefault(quantize_input=True, quantize_weight=True, weights={kernel: -1})

    def _default_weight_quantizers(self) -> dict[str, QuantizerSpec]:
        known = super()._default_weight_quantizers()
        names = {name: len(variable.shape) for name, variable in layer_weights(self.layer)}
        if self.kernel_type in known or self.kernel_type not in names:
            return known  # Keras 3 calls the kernel of a depthwise convolution `kernel`, Keras 2 `depthwise_kernel`
        return {self.kernel_type: QuantizerSpec(narrow_range=True, axis=names[self.kernel_type] - 1)}

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "kernel_type": self.kernel_type}


@keras.saving.register_keras_serializable(package="qdq_workbench.wrappers")
class NonWeightedBaseQuantizeWrapper(BaseQuantizeWrapper):
    """Base class of the wrappers of layers without weights.

    Args:
        layer: The layer to wrap.
        **kwargs: Those of `BaseQuantizeWrapper`.
    """


def wrapper_class_for(class_names: tuple[str, ...], has_weights: bool) -> type[BaseQuantizeWrapper]:
    """Return the wrapper class that serves a layer class.

    Args:
        class_names: The layer's class and its parents, nearest first.
        has_weights: Whether weights of the layer are quantized.
    """
    for name in class_names:
        if name in _WRAPPERS:
            return _WRAPPERS[name]
    return WeightedBaseQuantizeWrapper if has_weights else NonWeightedBaseQuantizeWrapper


def _switched(enabled: Any, weight: Any, spec: QuantizerSpec) -> Any:
    return tf.cond(enabled, lambda: fake_quantize_weight(weight, spec), lambda: tf.identity(weight))


def _read_specs(specs: Mapping[str, Any]) -> dict[str, QuantizerSpec]:
    return {
        name: spec if isinstance(spec, QuantizerSpec) else QuantizerSpec.from_dict(spec) for name, spec in specs.items()
    }
