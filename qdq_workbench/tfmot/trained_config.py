"""Separation of a saved TFMOT configuration into the float model and the quantize configs of its layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras

from qdq_workbench import QuantizeConfig
from qdq_workbench.errors import SpecError, UnsupportedModelError
from qdq_workbench.graph.op_kinds import BEFORE_ACTIVATION
from qdq_workbench.tfmot import quantizers

_WRAPPERS = ("QuantizeWrapper", "QuantizeWrapperV2")
_FUSED = "fused_with_reader"
_NOTHING = ("NoOpQuantizeConfig",)
_OUTPUT = ("Default8BitOutputQuantizeConfig", "DefaultNBitOutputQuantizeConfig")
_ACTIVATION_LAYER = ("Default8BitActivationQuantizeConfig", "DefaultNBitActivationQuantizeConfig")
_LAYER = tuple(
    f"Default{bits}{kind}QuantizeConfig" for bits in ("8Bit", "NBit") for kind in ("", "Conv", "ConvTranspose")
)
_QUANTIZED_ACTIVATION_LAYERS = ("relu", "swish", "silu", "gelu", "relu6")


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class TrainedQuantizeConfig(QuantizeConfig):
    """The quantizers of one layer in a model trained with TFMOT.

    Args:
        weights: Quantizers by weight name.
        activation: The quantizer of the layer's activation; for some activations it is before the activation.
        output: The quantizer of the layer's output.

    Example:
        >>> TrainedQuantizeConfig({"kernel": quantizers.LastValueQuantizer(num_bits=4)}).weights["kernel"].spec.num_bits
        4
    """

    def __init__(self, weights: Mapping[str, Any] | None = None, activation: Any = None, output: Any = None) -> None:
        self.weights = {name: _made(quantizer) for name, quantizer in (weights or {}).items()}
        self.activation = _made(activation)
        self.output = _made(output)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is quantized."""
        return not self.weights and self.activation is None and self.output is None

    def get_weights_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:
        """Return the weights, each with its quantizer."""
        return [(weight_of(layer, name), quantizer) for name, quantizer in self.weights.items()]

    def get_activations_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:
        """Return the activation with its quantizer."""
        return [] if self.activation is None else [(layer.activation, self.activation)]

    def set_quantize_weights(self, layer: Any, quantize_weights: list[Any]) -> None:
        """Set the layer's weights to the quantized ones."""
        for name, weight in zip(self.weights, quantize_weights, strict=True):
            setattr(layer, attribute_of(layer, name), weight)

    def set_quantize_activations(self, layer: Any, quantize_activations: list[Any]) -> None:
        """Set the layer's activation to the quantized one.

        Args:
            layer: The layer.
            quantize_activations: A list of the quantized activation, or an empty list.
        """
        if quantize_activations:
            layer.activation = quantize_activations[0]

    def get_output_quantizers(self, layer: Any) -> list[Any]:  # noqa: ARG002 (the interface)
        """Return the quantizer of the output, if it has one."""
        return [] if self.output is None else [self.output]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        kept = keras.saving.serialize_keras_object
        return {
            "weights": {name: kept(quantizer) for name, quantizer in self.weights.items()},
            "activation": None if self.activation is None else kept(self.activation),
            "output": None if self.output is None else kept(self.output),
        }


@dataclasses.dataclass
class UnwrappedConfig:
    """The float model of a saved configuration, and the wrappers and quantizing layers removed from it.

    Args:
        config: The Keras 2 configuration of the float model.
        layers: By float layer name: the wrapper's name, and its saved `quantize_config`.
        inputs: By input name: the name of the layer that quantizes it, and its saved quantizer.
    """

    config: dict[str, Any]
    layers: dict[str, tuple[str, dict[str, Any]]]
    inputs: dict[str, tuple[str, Any]]


def unwrapped_config(config: dict[str, Any]) -> UnwrappedConfig:
    """Return a saved Keras 2 configuration without wrappers and quantizing layers, and these separately.

    Raises:
        UnsupportedModelError: If it is no sequential or functional model, or a Sequential one without an input layer.
    """
    body = config.get("config")
    if not isinstance(body, dict) or "layers" not in body:
        raise UnsupportedModelError(
            "Only sequential and functional models were quantized by TFMOT. "
            f"Received: a {config.get('class_name')} without layers"
        )
    found = UnwrappedConfig({}, {}, {})
    replaced: dict[str, list[Any]] = {}  # removed layer -> reference to the tensor it reads, or [name of inner layer]
    kept, before = [], None
    for saved in body["layers"]:
        layer, settings = saved, saved["config"]
        if layer["class_name"] == "QuantizeLayer":
            # Without inbound nodes the model is a Sequential one, in which each layer reads the one before it.
            source = layer["inbound_nodes"][0][0] if layer.get("inbound_nodes") else [before, 0, 0, {}]
            replaced[settings["name"]] = source
            found.inputs[source[0]] = (settings["name"], settings.get("quantizer"))
            continue
        if layer["class_name"] in _WRAPPERS:
            inner, fused = _without_quantized_activations(settings["layer"])
            name = inner["config"]["name"]
            found.layers[name] = (settings["name"], {**settings["quantize_config"], _FUSED: fused})
            replaced[settings["name"]] = [name]
            renamed = {"name": name} if "name" in saved else {}
            layer = {**saved, **renamed, "class_name": inner["class_name"], "config": inner["config"]}
        before = layer["config"]["name"]
        kept.append(layer)
    body = _redirected({**body, "layers": kept}, replaced)
    if len(found.inputs) == 1 and None in found.inputs:  # a Sequential model of Keras 2 may come without its input
        raise UnsupportedModelError("The saved Sequential model has no input layer; save it after building it.")
    found.config = {**config, "config": body}
    return found


def _redirected(value: Any, replaced: Mapping[str, list[Any]]) -> Any:
    """Return a configuration in which references to removed layers point to their replacements."""
    if isinstance(value, dict):
        return {key: _redirected(item, replaced) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    # Keras 2 writes a tensor as [layer, node index, tensor index], in inbound nodes with keyword arguments as well.
    is_reference = len(value) in (3, 4) and isinstance(value[0], str) and value[0] in replaced
    if is_reference and isinstance(value[1], int) and isinstance(value[2], int):
        source = replaced[value[0]]
        return [*(source[:3] if len(source) > 1 else [source[0], *value[1:3]]), *_redirected(value[3:], replaced)]
    return [_redirected(item, replaced) for item in value]


def _without_quantized_activations(layer: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a layer's configuration with plain activations, and whether the layer was fused with its reader."""
    config, fused = dict(layer["config"]), False
    for key, value in config.items():
        if _is_a(value, "QuantizeAwareActivation"):
            config[key] = value["config"]["activation"]
        if _is_a(config[key], "NoOpActivation"):
            config[key], fused = "linear", True
    return {**layer, "config": config}, fused


def _is_a(value: Any, kind: str) -> bool:
    return isinstance(value, dict) and value.get("class_name") == kind


def config_of(saved: dict[str, Any], layer: Any, custom: Callable[[str], Any]) -> TrainedQuantizeConfig:
    """Return the config of a layer.

    Args:
        saved: The saved `quantize_config`.
        layer: The float layer, built.
        custom: Returns the class for a name that is not TFMOT's, or None.

    Raises:
        SpecError: If the class is unknown, or puts several quantizers on one output.
    """
    kind, settings = saved["class_name"].rpartition(">")[2], saved.get("config") or {}
    if saved.get(_FUSED):
        config = config_of({**saved, _FUSED: False}, layer, custom)
        return TrainedQuantizeConfig(config.weights, None, config.output)
    if kind == "OutputOnlyConfig":
        inner = config_of(settings["quantize_config"], layer, custom)
        return TrainedQuantizeConfig({}, inner.activation, inner.output)
    if kind == "FixedQuantizeConfig":
        return _fixed(config_of(settings["config"], layer, custom), settings)
    weight = quantizers.LastValueQuantizer(settings.get("num_bits_weight", 8), symmetric=True, narrow_range=True)
    value = quantizers.MovingAverageQuantizer(settings.get("num_bits_activation", 8))
    if kind in _NOTHING:
        return TrainedQuantizeConfig()
    if kind in _OUTPUT:
        return TrainedQuantizeConfig(output=value if settings.get("quantize_output", True) else None)
    if kind in _ACTIVATION_LAYER:
        quantized = settings.get("quantize_output", True) and _activation_name(layer) in _QUANTIZED_ACTIVATION_LAYERS
        return TrainedQuantizeConfig(output=value if quantized else None)
    if kind in _LAYER:
        weights = dict.fromkeys(settings["weight_attrs"], weight)
        return TrainedQuantizeConfig(
            weights, value if settings["activation_attrs"] else None, value if settings["quantize_output"] else None
        )
    return _own(kind, settings, layer, custom(kind))


def _own(kind: str, settings: dict[str, Any], layer: Any, cls: Any) -> TrainedQuantizeConfig:
    """Return the config of a layer from a custom config class."""
    if cls is None:
        raise SpecError(
            f"Layer {layer.name!r} was quantized with {kind}, a class of your own. Import its base class and "
            "quantizers from qdq_workbench.tfmot instead of tensorflow_model_optimization and pass the class: "
            f"custom_objects={{{kind!r}: {kind}}}. Received: custom_objects without {kind!r}"
        )
    config = cls.from_config(dict(settings))
    names = {id(variable): variable.name for variable in layer.weights}
    weights = {names[id(variable)]: quantizer for variable, quantizer in config.get_weights_and_quantizers(layer)}
    activations = [quantizer for _, quantizer in config.get_activations_and_quantizers(layer)]
    outputs = list(config.get_output_quantizers(layer) or ())
    if len(activations) > 1 or len(outputs) > 1 or (activations and outputs and not _is_before(layer)):
        raise SpecError(
            f"Layer {layer.name!r} was quantized with {kind}, which puts several quantizers on one output; a layer can "
            "have one there. Quantize it anew with qdq_workbench.tfmot.quantize_apply and train it here. "
            f"Received: {len(activations)} activations, {len(outputs)} outputs"
        )
    return TrainedQuantizeConfig(weights, activations[0] if activations else None, outputs[0] if outputs else None)


def _fixed(config: TrainedQuantizeConfig, settings: dict[str, Any]) -> TrainedQuantizeConfig:
    """Return a config with the quantizers of activation and output replaced by a fixed one, in TFMOT always 8 bits."""
    fixed = quantizers.FixedQuantizer(
        8, settings["init_min"], settings["init_max"], narrow_range=settings["narrow_range"]
    )
    return TrainedQuantizeConfig(
        config.weights,
        None if config.activation is None else fixed,
        None if config.output is None else fixed,
    )


def _is_before(layer: Any) -> bool:
    return _activation_name(layer) in BEFORE_ACTIVATION


def _activation_name(layer: Any) -> str:
    return str(getattr(getattr(layer, "activation", None), "__name__", ""))


def weight_of(layer: Any, name: str) -> Any:
    """Return a weight of a layer by its Keras 2 name; Keras 2's `depthwise_kernel` may be `kernel` in Keras 3."""
    known = {variable.name: variable for variable in layer.weights}
    return known.get(name, known.get("kernel") if name == "depthwise_kernel" else None)


def attribute_of(layer: Any, name: str) -> str:
    """Return the attribute of a layer for a weight's Keras 2 name: `DepthwiseConv2D` has a `kernel` in Keras 3."""
    return "kernel" if name == "depthwise_kernel" and not hasattr(layer, name) else name


def _made(quantizer: Any) -> Any:
    return keras.saving.deserialize_keras_object(quantizer) if isinstance(quantizer, dict) else quantizer
