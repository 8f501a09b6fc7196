"""The quantized model: a functional Keras model with its plan and the recorded ranges of its tensors."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras

from qdq_workbench.conversion.engine.configs import repair_config
from qdq_workbench.conversion.engine.deep_models import raised_recursion_limit
from qdq_workbench.conversion.engine.own_attributes import decode, encode
from qdq_workbench.conversion.engine.own_training import adds_to_training, build_optimizer, own_attributes
from qdq_workbench.conversion.engine.rebuild import with_policy
from qdq_workbench.conversion.engine.saving import save_weights_whole, save_whole
from qdq_workbench.conversion.engine.settled_functions import SettledFunctions
from qdq_workbench.errors import NotQuantizedError, UnsupportedModelError
from qdq_workbench.graph_builder import FUNCTIONAL, small_model
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.quantizers import numerics
from qdq_workbench.quantizers.make import QUANTIZERS
from qdq_workbench.wrappers import BaseQuantizeWrapper, QuantizeDequantize
from qdq_workbench.wrappers.model_state import ModelState

Range = tuple[float, float]
#: Key of the calibration record: training resets the ranges at its start, because those of inference do not fit it.
BEGINS_ANEW = "begins_anew"

#: Imported together with this module, so that Keras finds all quantizers in saved models.
LOADED = (*QUANTIZERS.values(),)


@keras.saving.register_keras_serializable(package="qdq_workbench")
class QuantizedModel(SettledFunctions, keras.Model):
    """A Keras model with Q/DQ pairs, made by `quantize_model`.

    It is trained, evaluated, saved, loaded and cloned like any functional model. It also knows its plan and, once
    calibrated, the range of every activation tensor, so that another target needs no data.
    """

    own_class: type | None = None  #: The user's class whose training methods the model has.
    _own_state: ModelState | None = None
    _own_plan: PlacementPlan | None = None
    _memo: _Memo | None = None

    # Keras recognizes a functional model by exactly this signature when it loads or clones one. It is the signature
    # of its own decorated `Functional.__init__`; from 3.15 on Keras accepts the undecorated one too.
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with raised_recursion_limit(args[1] if len(args) > 1 else kwargs["outputs"]):
            super().__init__(*args, **kwargs)

    def attach(self, plan: PlacementPlan, layer_paths: Mapping[str, str], output_names: list[str]) -> None:
        """Set the plan of the model; called once, by the conversion.

        Args:
            plan: The plan that the model was built from.
            layer_paths: Path in the source model of every layer and operation, by its name in this model.
            output_names: The source model's output names.
        """
        self._own_state = next((layer.model_state for layer in self.quantizing_layers), ModelState())
        self._own_state.data = {
            "plan": plan,
            "layer_paths": dict(layer_paths),
            "output_names": list(output_names),
            "recorded_ranges": {},
            "calibration": {},
        }
        self._own_plan = plan

    # The signatures of several Keras versions.
    def save(self, filepath: Any, overwrite: bool = True, zipped: bool | None = None, **kwargs: Any) -> None:
        """Save the model like any Keras model, but atomically: the file is written completely or not at all.

        Args:
            filepath: A path that ends in `.keras` or `.h5`, or a folder with `zipped=False`.
            overwrite: Whether to replace an existing file without asking.
            zipped: Whether to write one file, not a folder; None for Keras's default.
            **kwargs: Further arguments of Keras, such as `include_optimizer` for `.h5`.

        Raises:
            OutputPathError: If the file cannot be written; an existing file is then unchanged.
            ValueError: If the name has another suffix.
            UnsupportedModelError: If the file is HDF5 and the model has operations that Keras cannot load from HDF5.
        """
        save_whole(self, super().save, filepath, overwrite=overwrite, zipped=zipped, **kwargs)

    def save_weights(self, filepath: Any, overwrite: bool = True, **kwargs: Any) -> None:
        """Save the weights like those of any Keras model; a single file is written completely or not at all.

        Args:
            filepath: A path that ends in `.weights.h5`.
            overwrite: Whether to replace an existing file without asking.
            **kwargs: Further arguments of Keras, such as `max_shard_size` for several files.

        Raises:
            OutputPathError: If the file cannot be written; an existing file is then unchanged.
            ValueError: If the name has another suffix.
        """
        save_weights_whole(self, super().save_weights, filepath, overwrite=overwrite, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Return the configuration from which Keras rebuilds the model; it holds the plan if no layer holds it."""
        for layer in self._flatten_layers(include_self=False):
            repair_config(layer)
        config: dict[str, Any] = super().get_config()
        operations = {operation.name: operation for operation in self.operations}
        for entry in config["layers"]:
            operation = operations[entry["name"]]
            if isinstance(operation, keras.layers.Layer):
                entry["config"] = with_policy(operation, entry["config"])
        if self.own_class is not None:
            config["own_class"] = keras.saving.get_registered_name(self.own_class)
            config["own_attributes"] = encode(self)
        return {**config, **(ModelState() if self.quantizing_layers else self._state()).config()}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> QuantizedModel:
        """Build a model from the result of `get_config`.

        Args:
            config: The result of `get_config`.
            custom_objects: Classes by name, as for Keras's `from_config`.
        """
        config = dict(config)
        state, attributes = config.pop("model_state", None), config.pop("own_attributes", {})
        own = config.pop("own_class", None)
        home = cls if own is None else quantized_class(_registered(own, custom_objects))
        model: QuantizedModel = super(QuantizedModel, home).from_config(config, custom_objects)
        scope = keras.saving.custom_object_scope  # an empty scope would hide the objects of an outer one
        with scope(custom_objects) if custom_objects else contextlib.nullcontext():
            decode(model, attributes)
        if state is not None:
            model._own_state = ModelState(state)
        return model

    def __reduce__(self) -> Any:
        """Pickle the model as Keras does, through `QuantizedModel`, which pickle can import by name."""
        return QuantizedModel._unpickle_model, super().__reduce__()[1]

    @property
    def has_plan(self) -> bool:
        """Whether the model was made by `quantize_model`, or is a copy of such a model."""
        return self._state().data is not None

    def _state(self) -> ModelState:
        """Return the state of this model, or the state in the layers that a loaded or cloned model was made of."""
        if self._own_state is None:
            states = (layer.model_state for layer in self.quantizing_layers)
            self._own_state = next((state for state in states if state.data is not None), ModelState())
        return self._own_state

    def _data(self) -> dict[str, Any]:
        data = self._state().data
        if data is None:
            raise NotQuantizedError(_NOT_QUANTIZED.format(name=self.name))
        return data

    @property
    def plan(self) -> PlacementPlan:
        """The placement plan: where the Q/DQ pairs are, and why."""
        if self._own_plan is None:
            self._own_plan = PlacementPlan.from_dict(self._data()["plan"])
        return self._own_plan

    @property
    def target(self) -> str:
        """Name of the target on whose grid the model computes."""
        return self.plan.target

    @property
    def layer_paths(self) -> Mapping[str, str]:
        """Path in the source model of every layer and operation, by its name in this model."""
        return dict(self._data()["layer_paths"])

    @property
    def source_output_names(self) -> list[str]:
        """The output names of the float model that was quantized."""
        return list(self._data()["output_names"])

    @property
    def recorded_ranges(self) -> dict[str, Range]:
        """Lowest and highest value of every activation tensor that `calibrate` saw, quantized or not."""
        return {name: (low, high) for name, (low, high) in self._data()["recorded_ranges"].items()}

    @property
    def calibration(self) -> dict[str, Any]:
        """The method, settings, number of samples and batches of the last `calibrate`; empty before the first."""
        return dict(self._data()["calibration"])

    def record(self, ranges: Mapping[str, Range], calibration: Mapping[str, Any]) -> None:
        """Store the ranges of activation tensors.

        Args:
            ranges: Lowest and highest value per tensor.
            calibration: How they were found, JSON-compatible.
        """
        data = self._data()
        data["recorded_ranges"] = {name: [float(low), float(high)] for name, (low, high) in ranges.items()}
        data["calibration"] = dict(calibration)

    @adds_to_training
    def make_train_function(self, force: bool = False) -> Any:
        """Create the training function, as Keras does at the start of `fit`.

        After a calibration for training, the ranges that training updates are reset first.

        Args:
            force: Whether to replace an existing function.
        """
        if self.has_plan and self.calibration.get(BEGINS_ANEW):
            self._data()["calibration"] = {k: v for k, v in self.calibration.items() if k != BEGINS_ANEW}
            for layer in self.layers_behind_inputs():
                if layer.trainable and layer.quantizer.updates_range and not bool(layer.frozen.numpy()):
                    layer.forget_range()
        build_optimizer(self)
        return super().make_train_function(force)

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the object cached under `key`, such as a compiled function; `make` creates it at the first request.

        The cache belongs to this very model; copies and files of the model do not have it.

        Args:
            key: The key, hashable.
            make: Creates the object.
        """
        if self._memo is None:
            self._memo = _Memo()
        return self._memo.get(key, make)

    @property
    def activation_quantizers(self) -> list[QuantizeDequantize]:
        """The Q/DQ layers of activation tensors."""
        return [layer for layer in self.layers if isinstance(layer, QuantizeDequantize)]

    @property
    def wrappers(self) -> list[BaseQuantizeWrapper]:
        """The wrappers of layers."""
        return [layer for layer in self.layers if isinstance(layer, BaseQuantizeWrapper)]

    @property
    def quantization_enabled(self) -> bool:
        """Whether all quantizers are on. With False assigned, the model computes exactly what the float model does.

        Assigning retraces the model at its next call: TensorFlow fuses the operations of a graph, and only a graph
        without quantizers is fused like the float model's. For single layers use `layer.enabled.assign(False)`.
        """
        return all(bool(layer.enabled.numpy()) for layer in self.quantizing_layers)

    @quantization_enabled.setter
    def quantization_enabled(self, on: bool) -> None:
        for layer in self.quantizing_layers:
            layer.enabled.assign(on)
            layer.bypassed = not on  # left out of the graphs that are traced anew below
        self._remake_functions()

    @property
    def quantizing_layers(self) -> list[QuantizeDequantize | BaseQuantizeWrapper]:
        """The Q/DQ layers and the wrappers."""
        return [*self.activation_quantizers, *self.wrappers]

    def layers_behind_inputs(self) -> list[QuantizeDequantize]:
        """Return the Q/DQ layers of activation tensors, except those of the model's inputs only."""
        inputs = set(self.plan.graph.inputs)
        return [layer for layer in self.activation_quantizers if not inputs.issuperset(self.tensors_of(layer))]

    def activation_ranges(self) -> dict[str, Range]:
        """Return the current range (lowest, highest) of every calibrated Q/DQ pair on an activation.

        A pair is named after its tensor; further pairs of the same tensor are named `<tensor>@2` and so on.
        """
        ranges = {}
        for layer in self.activation_quantizers:
            found = layer.range
            if found is not None:
                ranges.update(dict.fromkeys(self.pairs_of(layer), found))
        return ranges

    def uncalibrated_tensors(self) -> list[str]:
        """Return the Q/DQ pairs of activations that have no range yet."""
        missing = (layer for layer in self.activation_quantizers if layer.range is None)
        return [pair for layer in missing for pair in self.pairs_of(layer)]

    def pairs_of(self, layer: QuantizeDequantize) -> list[str]:
        """Return the names of the Q/DQ pairs that a layer computes: one, or all of its scale group.

        Args:
            layer: A Q/DQ layer of this model.
        """
        return [pair for pair, owner in self.plan.range_owners.items() if owner == layer.tensor]

    def tensors_of(self, layer: QuantizeDequantize) -> list[str]:
        """Return the tensors that a Q/DQ layer quantizes: one, or all of its scale group.

        Args:
            layer: A Q/DQ layer of this model.
        """
        pairs = set(self.pairs_of(layer))
        return [pair.tensor for pair in self.plan.tensors if pair.kind == "activation" and pair.name in pairs]

    def wrappers_by_path(self) -> dict[str, BaseQuantizeWrapper]:
        """Return the wrappers by the paths of their layers in the source model."""
        paths = self.layer_paths
        return {paths[wrapper.layer.name]: wrapper for wrapper in self.wrappers}

    def weight_qparams(self) -> dict[str, numerics.QParams]:
        """Return scale and zero point of every quantized weight, by `<layer>/<weight>`.

        Weights that are quantized by a user's own function have neither and are omitted.
        """
        wrappers = self.wrappers_by_path()
        found = {}
        for placement in self.plan.placements:
            if placement.weight is not None and wrappers[placement.layer].has_grid(placement.weight):
                ends = wrappers[placement.layer].weight_range(placement.weight)
                found[placement.tensor] = numerics.qparams_from_range(*ends, placement.quantizer)
        return found


@functools.cache
def quantized_class(own: type) -> type[QuantizedModel]:
    """Return the class of quantized models that train as a user's class does, whose constructor is not called."""
    small = small_model()
    QuantizedModel(small.inputs, small.outputs)  # at its first instance, Keras makes it a subclass of `Functional`

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        keras_init: Any = QuantizedModel.__init__  # now that of functional models, see above
        keras_init(self, *args, **kwargs)

    body = {
        "__init__": construct,
        "__module__": QuantizedModel.__module__,
        "__doc__": f"A quantized model that trains as {own.__name__} does.",
        "get_config": QuantizedModel.get_config,
        "from_config": QuantizedModel.__dict__["from_config"],  # the classmethod object: `cls` is then the new class
        "own_class": own,
    }
    made = type(f"Quantized{own.__name__}", (own, QuantizedModel), body)
    register = keras.saving.register_keras_serializable(package="qdq_workbench", name="QuantizedModel")
    register(made)  # files name it QuantizedModel, whose from_config finds the user's class
    register(QuantizedModel)
    return made


def colliding_names(model: Any) -> list[str]:
    """Return the attributes of a user's model that `QuantizedModel` defines too."""
    classes = type(model).__mro__[: type(model).__mro__.index(FUNCTIONAL)]
    theirs = {name for own in classes for name in vars(own)} | set(own_attributes(model))
    ours = {name for part in (SettledFunctions, QuantizedModel) for name in vars(part) if not name.startswith("__")}
    return sorted(theirs & ours - set(dir(keras.Model)))  # overrides of keras.Model call ours by super()


def _registered(name: str, custom_objects: Any) -> type:
    found = keras.saving.get_registered_object(name, custom_objects)
    if found is None:
        raise UnsupportedModelError(
            f"The quantized model trains as a class that Keras does not know. Decorate it with "
            "@keras.saving.register_keras_serializable() and import it before the file is loaded, or pass "
            f"custom_objects={{{name!r}: ...}}. Received: own_class={name!r}"
        )
    return found


class _Memo:
    """A cache of objects by key; a plain Python object, so that Keras neither tracks nor saves its content."""

    def __init__(self) -> None:
        self._objects: dict[Any, Any] = {}

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._objects:
            self._objects[key] = make()
        return self._objects[key]


_NOT_QUANTIZED = (
    "A model made by quantize_model is needed here; this one has no plan. Call qdq_workbench.quantize_model(model) "
    "first and pass what it returns. Received: model {name!r}"
)


def check_quantized(model: Any) -> QuantizedModel:
    """Return `model` if it was made by `quantize_model`.

    Raises:
        NotQuantizedError: If it was not.
    """
    if not isinstance(model, QuantizedModel) or not model.has_plan:
        raise NotQuantizedError(_NOT_QUANTIZED.format(name=getattr(model, "name", type(model).__name__)))
    return model
