"""The base classes of all layer wrappers.

A wrapper computes its layer with fake-quantized weights. In a model made by `quantize_model` the Q/DQ pairs of
activations are separate layers; a wrapper used by itself also quantizes its inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import keras

from qdq_workbench.errors import QuantizerError, nearest_names
from qdq_workbench.graph_builder import describe_layer, layer_weights, takes_training
from qdq_workbench.placement.defaults import LayerDefault, class_name_of, find_default, register_default
from qdq_workbench.quantizers.moving_average import MovingAverageQuantizer
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.wrappers.call_arguments import CallArguments, holds_tensors
from qdq_workbench.wrappers.model_state import ModelState
from qdq_workbench.wrappers.qdq import QuantizeDequantize
from qdq_workbench.wrappers.substitution import WeightSubstitution
from qdq_workbench.wrappers.weight_quantizers import WeightQuantizers
from qdq_workbench.wrappers.weight_state import WeightState

_SUFFIX = "QuantizeWrapper"
# What stands before it in the names of the bases, which serve no layer class.
_BASES = ("", "Base", "WeightedBase", "NonWeightedBase")
# Arguments of the wrapper's own `call`; all others belong to the layer.
_OWN = ("training", "plain_arguments")
_WRAPPERS: dict[str, type[BaseQuantizeWrapper]] = {}


class BaseQuantizeWrapper(WeightQuantizers, keras.layers.Wrapper):
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
        weight_methods: The method that finds a weight's range, by name below the layer; by default the range of its
            values at every call.
        quantize_config: The user's `quantize_config` of the layer; only stored.
        model_state: The state of a quantized model, stored in its first quantizing layer.
        **kwargs: Those of `keras.layers.Layer`; the name defaults to `quant_<name of the layer>`.

    Raises:
        QuantizerError: If `layer` is not a layer.

    Example:
        >>> wrapper = WeightedBaseQuantizeWrapper(keras.layers.Dense(2, name="head"))
        >>> wrapper.name, wrapper(keras.ops.ones((1, 3)), training=True).shape
        ('quant_head', TensorShape([1, 2]))
    """

    # Without this mark a wrapper would be described as opaque, like any layer class that is not Keras's.
    _qdq_transparent = True
    _layer_trains = True  # whether the layer receives `training`, or False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A user's subclass, too, loads from a saved model without custom_objects.
        keras.saving.register_keras_serializable(package="qdq_workbench.wrappers")(cls)
        served = cls.__name__.removesuffix(_SUFFIX)
        if cls.__name__.endswith(_SUFFIX) and served not in _BASES:
            _WRAPPERS[class_name_of(served)] = cls
            default = cls._default()
            if default is not None:
                register_default(served, default)

    def __init__(
        self,
        layer: Any,
        *,
        quantize_inputs: bool = True,
        quantize_weights: bool = True,
        quantization_index: list[int] | None = None,
        weight_quantizers: Mapping[str, Any] | None = None,
        weight_methods: Mapping[str, Any] | None = None,
        quantize_config: Any = None,
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
        self.autocast = layer.autocast  # without it, layers such as normalizations cast by themselves
        self.quantize_inputs = quantize_inputs
        self.quantize_weights = quantize_weights
        self.quantization_index = quantization_index
        self.weight_quantizers = None if weight_quantizers is None else _read_specs(weight_quantizers)
        self.weight_methods = {name: _read_method(method) for name, method in (weight_methods or {}).items()}
        self._quantize_config = quantize_config
        self._weight_states: dict[str, WeightState] = {}
        self.enabled = self.add_weight(name="enabled", shape=(), dtype="bool", initializer="ones", trainable=False)
        # Read at tracing, unlike the variable `enabled`: the graph then has no quantizers at all.
        self.bypassed = False
        self.model_state = ModelState(model_state)
        self._input_quantizers: list[QuantizeDequantize | None] = []
        self._first_call: CallArguments | None = None
        # The setter passes the flag on to the layer inside; the constructor of Keras does not.
        self.trainable = trainable

    @classmethod
    def _default(cls) -> LayerDefault | None:
        """Return the default of the layers that this class serves; None to leave the known one."""
        return LayerDefault(quantize_input=True)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapper like its layer; the first argument is positional.

        Args:
            inputs: A tensor or a list of tensors, as the layer takes them.
            *args: Further arguments of the layer's call.
            **kwargs: Further arguments of the layer's call.
        """
        # Keras refuses `**kwargs` with tensors and plain values, so the latter have an argument of their own.
        plain = {key: kwargs.pop(key) for key in list(kwargs) if key not in _OWN and not holds_tensors(kwargs[key])}
        plain |= dict(kwargs.pop("plain_arguments", ()))
        if plain:
            # Pairs, because Keras before 3.13 takes {"mask": None} for tensors and fails to find their shapes.
            kwargs["plain_arguments"] = [[key, value] for key, value in plain.items()]
        if not self.built:  # `build` receives the shape of the first argument only
            tensors = {key: value for key, value in kwargs.items() if key not in _OWN}
            self._first_call = CallArguments(inputs, args, {**tensors, **plain})
        return super().__call__(inputs, *args, **kwargs)

    def build(self, input_shape: Any = None) -> None:
        """Build the layer and, in a wrapper outside of a quantized model, the quantizers of its inputs.

        Args:
            input_shape: Shape of the input, or a list of shapes.

        Raises:
            QuantizerError: If `weight_quantizers` names a weight that the layer does not have.
        """
        first_call = self._first_call
        # `Wrapper.build` of Keras would build the layer from the shape of its first tensor alone.
        if first_call is not None and first_call.has_further_tensors and not self.layer.built:
            first_call.build(self.layer)
        super().build(input_shape)
        if self.weight_quantizers is None:
            self.weight_quantizers = self._default_weight_quantizers()
        unknown = set(self.weight_quantizers) - {name for name, _ in layer_weights(self.layer)}
        for name in sorted(unknown):
            hint = nearest_names(name, [known for known, _ in layer_weights(self.layer)])
            raise QuantizerError(f"Layer {self.layer.name!r} has no weight of that name. {hint} Received: {name!r}")
        self._build_weight_states()
        if self.quantize_inputs and not self._input_quantizers:
            self._build_input_quantizers(input_shape)
        self.built = True

    def get_build_config(self) -> dict[str, Any] | None:
        """Return the config from which a loaded copy is built; None if only its first call can build it."""
        if self._first_call is not None and self._first_call.has_further_tensors:
            return None
        config: dict[str, Any] | None = super().get_build_config()
        return config

    def call(
        self,
        inputs: Any,
        *args: Any,
        training: Any = None,
        plain_arguments: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        **kwargs: Any,
    ) -> Any:
        """Compute the layer with quantized inputs and weights.

        Args:
            inputs: A tensor or a list of tensors, as the layer takes them.
            *args: Further arguments of the layer's call, passed on.
            training: Whether the model is training.
            plain_arguments: Those further arguments that hold no tensors, by name or as pairs of name and value.
            **kwargs: Further arguments of the layer's call, passed on.
        """
        kwargs = {**kwargs, **dict(plain_arguments or ())}
        inputs, args, kwargs = self._quantized_inputs(CallArguments(inputs, args, kwargs), training)
        if takes_training(self.layer):
            kwargs["training"] = training if self._layer_trains else False
        substitutes = self._substitutes(training)
        if not substitutes:
            return self.layer(inputs, *args, **kwargs)
        with WeightSubstitution(substitutes) as scope:
            outputs = self.layer(inputs, *args, **kwargs)
        self.add_loss(scope.losses)
        return outputs

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Return the mask that the layer computes.

        Args:
            inputs: A tensor or a list of tensors.
            previous_mask: Their masks: bool tensors, or None.
        """
        return self.layer.compute_mask(inputs, previous_mask)

    def compute_output_spec(
        self,
        inputs: Any,
        *args: Any,
        training: Any = None,
        plain_arguments: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        **kwargs: Any,
    ) -> Any:
        """Return the symbolic output of the layer, without tracing the quantizers.

        Args:
            inputs: A symbolic tensor or a list of them.
            *args: Further arguments of the layer's call.
            training: Whether the model is training.
            plain_arguments: Those further arguments that hold no tensors, by name or as pairs of name and value.
            **kwargs: Further arguments of the layer's call.
        """
        kwargs = {**kwargs, **dict(plain_arguments or ())}
        if takes_training(self.layer):
            kwargs["training"] = training
        return self.layer.compute_output_spec(inputs, *args, **kwargs)

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
            **self._own_quantizers_config(),
            **self.model_state.config(),
        }

    def _default_weight_quantizers(self) -> dict[str, QuantizerSpec]:
        """Return a grid for each weight that the layer's class quantizes by default."""
        default = find_default(describe_layer(self.layer))
        axes = default.weights if default is not None else {}
        # Narrow, because folding a normalization with a negative gamma negates the integers: without the lowest one,
        # the negated integers are on the grid too.
        return {name: QuantizerSpec(narrow_range=True, axis=axis) for name, axis in axes.items()}

    def _build_input_quantizers(self, input_shape: Any) -> None:
        arguments = self._first_call or CallArguments.of_shapes(input_shape)
        values = arguments.quantizable()
        chosen = range(len(values)) if self.quantization_index is None else self.quantization_index
        for index, value in enumerate(values):
            pair = None
            if index in chosen:
                tensor = f"{self.layer.name}/input {index}"
                pair = QuantizeDequantize(tensor, MovingAverageQuantizer(), name=f"input_{index}")
                pair.build(value.shape)
            self._input_quantizers.append(pair)  # None holds the place of an input that stays in float

    def _quantized_inputs(self, arguments: CallArguments, training: Any) -> tuple[Any, Any, dict[str, Any]]:
        if self.quantize_inputs:
            pairs = self._input_quantizers
            values = [
                value if pair is None else pair(value, training=training)
                for value, pair in zip(arguments.quantizable(), pairs, strict=True)
            ]
            arguments = arguments.replaced(values)
        return arguments.first, arguments.args, arguments.kwargs


@keras.saving.register_keras_serializable(package="qdq_workbench.wrappers")
class WeightedBaseQuantizeWrapper(BaseQuantizeWrapper):
    """Base class of the wrappers of layers with weights.

    Args:
        layer: The layer to wrap.
        kernel_type: Name of the weight that is quantized: a name in `layer.weights`, or the end of its path. A
            subclass for a custom layer sets it as the default of this argument, as a class attribute
            `kernel_type`, or by passing it on from its constructor.
        **kwargs: Those of `BaseQuantizeWrapper`.

    Example:
        >>> class BlenderQuantizeWrapper(WeightedBaseQuantizeWrapper):  # for your layer class Blender
        ...     kernel_type = "mix"  # the weight self.mix
        >>> wrapper_class_for(("Blender",), has_weights=True).__name__
        'BlenderQuantizeWrapper'
    """

    kernel_type = "kernel"

    def __init__(self, layer: Any, kernel_type: str = "kernel", **kwargs: Any) -> None:
        super().__init__(layer, **kwargs)
        # The default "kernel" gives way to the class attribute of a subclass.
        self.kernel_type = kernel_type if kernel_type != "kernel" else type(self).kernel_type

    @classmethod
    def _default(cls) -> LayerDefault | None:
        return LayerDefault(quantize_input=True, quantize_weight=True, weights={cls._named_kernel(): -1})

    @classmethod
    def _named_kernel(cls) -> str:
        """Return the weight that the class quantizes, from its constructor's default, its attribute or an instance."""
        # The class is registered when it is defined, before the user has made an instance.
        parameter = inspect.signature(cls.__init__).parameters.get("kernel_type")
        if parameter is not None and isinstance(parameter.default, str) and parameter.default != "kernel":
            return parameter.default
        if cls.kernel_type != "kernel" or parameter is not None:
            return cls.kernel_type
        try:  # a constructor that passes the name on to this class's
            return str(cls(keras.layers.Identity()).kernel_type)
        except Exception:  # noqa: BLE001 - a user's constructor may need more than a layer
            return "kernel"

    def _default_weight_quantizers(self) -> dict[str, QuantizerSpec]:
        known = super()._default_weight_quantizers()
        ranks = {name: len(variable.shape) for name, variable in layer_weights(self.layer)}
        named = [name for name in ranks if name == self.kernel_type or name.endswith(f"/{self.kernel_type}")]
        # The table of layer kinds knows the channel axis of the weight; the last axis is only a guess.
        if set(named) & set(known):
            return known
        # Keras 3 calls the kernel of a depthwise convolution `kernel`, Keras 2 `depthwise_kernel`
        return {name: QuantizerSpec(narrow_range=True, axis=ranks[name] - 1) for name in named} or known

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "kernel_type": self.kernel_type}


@keras.saving.register_keras_serializable(package="qdq_workbench.wrappers")
class NonWeightedBaseQuantizeWrapper(BaseQuantizeWrapper):
    """Base class of the wrappers of layers without weights.

    Args:
        layer: The layer to wrap.
        **kwargs: Those of `BaseQuantizeWrapper`.

    Example:
        >>> class ScalerQuantizeWrapper(NonWeightedBaseQuantizeWrapper):  # for your layer class Scaler
        ...     pass
        >>> wrapper_class_for(("Scaler",), has_weights=False).__name__
        'ScalerQuantizeWrapper'
    """


def wrapper_class_for(class_names: tuple[str, ...], has_weights: bool) -> type[BaseQuantizeWrapper]:
    """Return the wrapper class that serves a layer class, given with its parents, nearest first."""
    for name in class_names:
        if name in _WRAPPERS:
            return _WRAPPERS[name]
    return WeightedBaseQuantizeWrapper if has_weights else NonWeightedBaseQuantizeWrapper


def _read_method(method: Any) -> QuantizerMethod:
    return method if isinstance(method, QuantizerMethod) else QuantizerMethod.from_dict(method)


def _read_specs(specs: Mapping[str, Any]) -> dict[str, QuantizerSpec]:
    return {
        name: spec if isinstance(spec, QuantizerSpec) else QuantizerSpec.from_dict(spec) for name, spec in specs.items()
    }
