"""`import_trained`: import of a model that was trained with TFMOT on Keras 2."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from qdq_workbench import LayerQuantizeConfig, QuantizedModel, Target
from qdq_workbench.conversion.files.keras2_files import Keras2File, build_keras2, read_keras2
from qdq_workbench.errors import DataError, SpecError
from qdq_workbench.graph_builder import bind_graph
from qdq_workbench.tfmot import quantizers
from qdq_workbench.tfmot.annotate import annotated_with, inner_of
from qdq_workbench.tfmot.apply import apply_marks, quantize_scope
from qdq_workbench.tfmot.trained_config import TrainedQuantizeConfig, config_of, unwrapped_config, weight_of

_PREFIX = "quant_"
_OF_INPUTS = {
    "AllValuesQuantizer": "all_values",
    "MovingAverageQuantizer": "moving_average",
    "LastValueQuantizer": "last_value",
    "FixedQuantizer": "fixed",
}
_USUAL = {"num_bits": 8, "symmetric": False, "narrow_range": False}


def import_trained(
    path: str | os.PathLike[str],
    model: keras.Model | None = None,
    *,
    custom_objects: Mapping[str, Any] | None = None,
    target: str | Target = "onnxruntime",
) -> QuantizedModel:
    """Return a model that was trained with TensorFlow's Model Optimization Toolkit, with its weights and ranges.

    Layers, weights, the ranges of weights and activations and the bit widths are those of the file, so the predictions
    equal TFMOT's, up to single steps where a value is on a tie. The model can be exported, calibrated and trained.

    Supported files: whole models as HDF5 (`model.save("model.h5")`), SavedModel (`save_format="tf"`) and `.keras`; and
    weights by name (`model.save_weights("weights.h5")`) together with `model`. TFMOT itself is not needed.

    Args:
        path: The file or folder.
        model: For files of weights: the float network as a Keras 3 model with the layer names used in TFMOT; layers
            with a custom config must be annotated by `quantize_annotate_layer`. It is only read.
        custom_objects: Custom layers, functions and quantize configs by name, written for `qdq_workbench.tfmot`;
            `quantize_scope` works too.
        target: The inference runtime to place pairs for. Pairs that only the target needs have no range in the file:
            `q_model.uncalibrated_tensors()` returns them; `qdq_workbench.calibrate` or training sets their ranges.

    Returns:
        The quantized model, not compiled.

    Raises:
        FileAccessError: If the file cannot be read.
        UnsupportedModelError: If it holds no model, or one that Keras 3 cannot build.
        SpecError: If a layer was quantized by an unknown class, nothing is quantized, or the file holds only weights
            and `model` is None.
        DataError: If weights or ranges are missing or do not fit the layers, or the file of weights has no quantized
            layer of `model`.
    """
    file = read_keras2(os.fspath(path))
    objects = dict(custom_objects or {})
    with quantize_scope(objects):
        if file.config is not None:
            apart = unwrapped_config(file.config)
            source = _Source(file, build_keras2(apart.config, file.path), apart.layers)
            configs = {
                name: config_of(saved, source.layer(name), _lookup(objects))
                for name, (_, saved) in apart.layers.items()
            }
            inputs = {name: (wrapper, _input_config(saved)) for name, (wrapper, saved) in apart.inputs.items()}
        else:
            if model is None:
                raise SpecError(
                    "The file holds weights without the network. Pass the float network as a Keras 3 model with the "
                    f"same layer names: import_trained(path, model). Received: path={file.path!r}, model=None"
                )
            source = _Source(file, *_marked_layers(model, file))
            configs = {name: _config_by_names(source, name) for name in source.wrappers}
            inputs = _inputs_by_names(source)
        return _quantized(source, configs, inputs, target)


class _Source:
    """A float model, and the variables of its layers in the file."""

    def __init__(self, file: Keras2File, model: keras.Model, layers: Mapping[str, tuple[str, Any]]) -> None:
        self.file, self.model = file, model
        self.wrappers = {name: wrapper for name, (wrapper, _) in layers.items()}
        self.marks = {name: mark for name, (_, mark) in layers.items()}

    def layer(self, name: str) -> Any:
        return inner_of(self.model.get_layer(name))

    def values(self, name: str, config: TrainedQuantizeConfig | None = None) -> dict[str, np.ndarray]:
        """Return the variables of a layer and of its wrapper, by the last part of their names."""
        wrapper = self.wrappers.get(name, name)
        if self.file.numbered:
            return _named(self.layer(name), config, *self.file.numbered.get(wrapper, ([], [])))
        return {**self.file.values.get(name, {}), **self.file.values.get(wrapper, {})}

    def range(self, name: str, what: str, found: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the range `what` of a layer from its variables; raise DataError if it is missing."""
        if f"{what}_min" not in found or f"{what}_max" not in found:
            raise DataError(
                f"The file has no range {what!r} for layer {name!r}, which was quantized. Save the whole trained model "
                f"again, with model.save('model.h5'). Received: variables {sorted(found)} in {self.file.path!r}"
            )
        return found[f"{what}_min"], found[f"{what}_max"]


def _lookup(objects: Mapping[str, Any]) -> Any:
    def custom(kind: str) -> Any:
        return objects.get(kind) or keras.saving.get_registered_object(kind)

    return custom


def _input_config(saved: Any) -> LayerQuantizeConfig | None:
    """Return the config of an input; None if it was not quantized. A fixed quantizer of TFMOT always has 8 bits."""
    kind = "NoQuantizer" if saved is None else saved["class_name"].rpartition(">")[2]
    if kind == "NoQuantizer":
        return None
    if kind not in _OF_INPUTS:
        raise SpecError(
            f"An input was quantized by {kind}, a class of your own, for which there is no counterpart: inputs take "
            f"{', '.join(_OF_INPUTS)}. Read the weights into a network that is quantized here: "
            f"import_trained('weights.h5', model). Received: {saved}"
        )
    settings = saved["config"]
    if kind == "FixedQuantizer":
        kept = {"num_bits": 8, "symmetric": False, "init_min": settings["init_min"], "init_max": settings["init_max"]}
    else:
        kept = {"num_bits": settings["num_bits"], "symmetric": settings["symmetric"]}
    return LayerQuantizeConfig(output={**kept, "narrow_range": settings["narrow_range"], "quantizer": _OF_INPUTS[kind]})


def _marked_layers(model: keras.Model, file: Keras2File) -> tuple[keras.Model, dict[str, tuple[str, Any]]]:
    """Return the float model, and by layer name the wrapper's name in the file and the annotated config."""
    bound = bind_graph(model, enter_layers=False)
    layers: dict[str, tuple[str, Any]] = {}
    for operation in (call.operation for call in bound.calls):
        inner = inner_of(operation)
        if isinstance(inner, keras.layers.Layer) and f"{_PREFIX}{inner.name}" in file.values:
            layers[inner.name] = (f"{_PREFIX}{inner.name}", getattr(operation, "quantize_config", None))
    if not layers:
        raise DataError(
            "The file has no quantized layer of this model; layers must be named as where it was trained: "
            f"'quant_conv' there is 'conv' here. Received: layers {sorted(file.values)[:5]} in {file.path!r}"
        )
    return annotated_with(model, {}), layers


def _config_by_names(source: _Source, name: str) -> TrainedQuantizeConfig:
    """Return the config of a layer, from its annotation or else from its variables' names, with 8 bits."""
    mark, found = source.marks[name], source.values(name)
    if mark is not None:
        kind = type(mark)
        return config_of({"class_name": kind.__name__, "config": mark.get_config()}, source.layer(name), lambda _: kind)
    ranges = [key.removesuffix("_min") for key in found if key.endswith("_min")]
    own = ("pre_activation", "post_activation", "output")
    value = quantizers.MovingAverageQuantizer(8)
    weight = quantizers.LastValueQuantizer(8, symmetric=True, narrow_range=True)
    return TrainedQuantizeConfig(
        dict.fromkeys([key for key in ranges if key not in own], weight),
        value if {"pre_activation", "post_activation"} & set(ranges) else None,
        value if "output" in ranges else None,
    )


def _inputs_by_names(source: _Source) -> dict[str, tuple[str, LayerQuantizeConfig | None]]:
    """Return the quantizers of inputs: TFMOT numbers their layers in the order of the inputs."""
    found = sorted((name for name in source.file.values if name.startswith("quantize_layer")), key=_counted)
    names = [tensor.name for tensor in source.model.inputs]
    if len(found) not in (0, len(names)):
        raise DataError(
            "The file quantizes only some of the inputs, and does not say which. Save the whole trained model instead, "
            f"with model.save('model.h5'). Received: {found} for inputs {names}"
        )
    default = _input_config({"class_name": "AllValuesQuantizer", "config": _USUAL})
    return {name: (layer, default) for name, layer in zip(names, found, strict=False)}


def _counted(name: str) -> int:
    digits = name.rpartition("_")[2]
    return int(digits) if digits.isdigit() else 0


def _named(
    layer: Any, config: TrainedQuantizeConfig | None, own: list[np.ndarray], inside: list[np.ndarray]
) -> dict[str, np.ndarray]:
    """Return numbered variables by name.

    The variables of a wrapper (`own`) are the layer's trainable weights, the quantized ones again, `optimizer_step`
    (the only integer), and the ranges of weights, activation and output; the others are the layer's (`inside`).
    """
    trainable = [variable.name for variable in layer.trainable_weights]
    others = [variable.name for variable in layer.non_trainable_weights]
    if config is None:
        return dict(zip([*trainable, *others], own, strict=False))
    step = next((index for index, value in enumerate(own) if value.dtype.kind == "i"), len(own))
    found = dict(zip([*trainable, *config.weights][:step], own[:step], strict=False))
    found.update(zip(others, inside[len(inside) - len(others) :], strict=False))
    ranges = [*config.weights, *_activation_ranges(layer, config), *(["output"] if config.output is not None else [])]
    ends = [f"{what}_{end}" for what in ranges for end in ("min", "max")]
    if len(own) - step - 1 < len(ends) or (trainable and step < len(trainable)):
        raise DataError(
            f"The archive does not hold the variables of layer {layer.name!r} that its configuration asks for. Save "
            f"the trained model as HDF5: model.save('model.h5'). Received: {len(own)} variables"
        )
    found.update(zip(ends, own[step + 1 :], strict=False))
    return found


def _activation_ranges(layer: Any, config: TrainedQuantizeConfig) -> Iterator[str]:
    name = getattr(getattr(layer, "activation", None), "__name__", "")
    if config.activation is not None:
        # The names of TFMOT's variables; gelu is quantized before and after.
        yield from ["pre_activation"] if name in ("softmax", "sigmoid", "tanh", "gelu") else []
        yield from ["post_activation"] if name in ("linear", "relu", "silu", "swish", "gelu") else []


def _quantized(
    source: _Source,
    configs: Mapping[str, TrainedQuantizeConfig],
    inputs: Mapping[str, tuple[str, LayerQuantizeConfig | None]],
    target: str | Target,
) -> QuantizedModel:
    """Return the quantized model with the weights and ranges of the file."""
    found = {name: source.values(name, config) for name, config in configs.items()}
    for layer in (inner_of(layer) for layer in source.model.layers):
        _set_weights(layer, found.get(layer.name) or source.values(layer.name), source.file.path)
    shaped = {name: _per_axis(source, name, config, found[name]) for name, config in configs.items()}
    marked = annotated_with(source.model, {name: config for name, config in shaped.items() if not config.is_empty})
    used = {name: config for name, (_, config) in inputs.items() if config is not None}
    q_model = apply_marks(marked, used, target)
    ends: dict[str, tuple[Any, Any]] = {}
    for name, of_input in used.items():
        if (of_input.output or {})["quantizer"] != "fixed":
            layer = inputs[name][0]
            values = _numbered_input(source.file, layer) if source.file.numbered else source.file.values.get(layer, {})
            ends[name] = source.range(name, layer, values)
    for name, config in shaped.items():
        ends.update(_activation_ends(source, name, config, found[name], q_model))
    _set_activations(q_model, ends)
    _set_weight_ranges(q_model, source, shaped, found)
    return q_model


def _numbered_input(file: Keras2File, layer: str) -> dict[str, np.ndarray]:
    return dict(zip((f"{layer}_min", f"{layer}_max"), file.numbered.get(layer, ([], []))[0], strict=False))


def _set_weights(layer: Any, values: Mapping[str, np.ndarray], path: str) -> None:
    for variable in layer.weights:
        name = variable.name
        value = values.get(name, values.get(f"depthwise_{name}"))
        if value is None or tuple(value.shape) != tuple(variable.shape):
            raise DataError(
                f"The file has no weight {name!r} of shape {tuple(variable.shape)} for layer {layer.name!r}, a "
                f"{type(layer).__name__}. Layers of layers cannot be read by name: copy their weights by hand. "
                f"Received: { ({key: item.shape for key, item in values.items()}) } in {path!r}"
            )
        variable.assign(value)


def _per_axis(
    source: _Source, name: str, config: TrainedQuantizeConfig, found: Mapping[str, np.ndarray]
) -> TrainedQuantizeConfig:
    """Return a config whose weights are per-axis exactly if the file has several ranges for them."""
    weights = {}
    for weight, quantizer in config.weights.items():
        low, _ = source.range(name, weight, found)
        settings = {**quantizer.get_config(), "per_axis": low.size > 1}
        weights[weight] = type(quantizer).from_config(settings) if "per_axis" in quantizer.get_config() else quantizer
    return TrainedQuantizeConfig(weights, config.activation, config.output)


def _activation_ends(
    source: _Source, name: str, config: TrainedQuantizeConfig, found: Mapping[str, np.ndarray], q_model: QuantizedModel
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the ranges of a layer's activation and output, each with the name of the layer after splitting."""
    layer = source.layer(name)
    for what in _activation_ranges(layer, config):
        if config.activation.updates_range:
            # With a range on both sides, as of gelu, the second one belongs to the activation that was split off.
            is_split = what == "post_activation" and f"pre_{what[5:]}_min" in found
            at = f"{name}_{layer.activation.__name__}" if is_split else name
            yield at, source.range(name, what, found)
    if config.output is not None and config.output.updates_range:
        split = f"{name}_{getattr(getattr(layer, 'activation', None), '__name__', '')}"
        is_split = any(placement.layer == split for placement in q_model.plan.placements)
        yield split if is_split else name, source.range(name, "output", found)


def _set_activations(q_model: QuantizedModel, ends: Mapping[str, tuple[Any, Any]]) -> None:
    plan = q_model.plan
    pairs = {
        placement.layer: plan.pair_of(placement).name
        for placement in plan.placements
        # Pairs that only the target needs have no range in the file.
        if placement.site == "output" and placement.author != "target"
    }
    layers = {layer.tensor: layer for layer in q_model.activation_quantizers}
    for name, (low, high) in ends.items():
        layers[pairs[name]].set_range(float(low), float(high))


def _set_weight_ranges(
    q_model: QuantizedModel,
    source: _Source,
    configs: Mapping[str, TrainedQuantizeConfig],
    found: Mapping[str, Mapping[str, np.ndarray]],
) -> None:
    for wrapper in q_model.wrappers:
        config = configs.get(wrapper.layer.name)
        if config is None:
            continue
        for weight, quantizer, variables in wrapper._weight_vars:  # noqa: SLF001 - TFMOT's own view of a wrapper
            name = next(key for key in config.weights if weight_of(wrapper.layer, key) is weight)
            if quantizer.updates_range:
                for end, value in zip(("min", "max"), source.range(name, name, found[wrapper.layer.name]), strict=True):
                    variables[f"{end}_var"].assign(np.reshape(value, variables[f"{end}_var"].shape))
