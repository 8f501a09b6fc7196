"""Rebuilding a bound graph with other layers: the common engine of quantizing, stripping, cutting and transforming."""

from __future__ import annotations

import contextlib
import functools
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import keras
from keras import tree

from qdq_workbench._collector import collector_paused
from qdq_workbench._interrupts import interrupts_held, safe_point
from qdq_workbench._pages import page
from qdq_workbench.conversion.engine.configs import copy_from_attributes, in_float32
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.late_variables import LateVariables
from qdq_workbench.conversion.engine.named_types import named_types, naming_float32
from qdq_workbench.conversion.engine.own_training import copy_user_state, float_class, own_training
from qdq_workbench.errors import UnsupportedModelError, first_line
from qdq_workbench.graph.free_names import take_name
from qdq_workbench.graph_builder import BoundGraph, Call, TensorRef, inner_layers, integers_of
from qdq_workbench.placement.plan import Placement, PlacementPlan

K = TypeVar("K")


def _check_no_integers(bound: BoundGraph) -> None:
    """Raise an error if Keras has quantized a layer, because a copy would lose its integers."""
    for call in bound.calls:
        if integers_of(call.operation):
            raise UnsupportedModelError(
                f"Keras has quantized layer {call.node.layer!r} already (model.quantize(...)). quantize_model takes "
                "its integers as they are; what changes or moves float weights would lose them. Quantize the model as "
                "it is, or give the float model, as it was before. Received: layer of class "
                f"{call.node.class_name}"
            )


class Rebuilder:
    """Rebuilds a graph by calling a replacement of every operation; subclasses determine the replacements.

    Every operation of the source is cloned, so the source model is only read. Shared layers are cloned once.
    """

    takes_integers = False  # whether layers that Keras has quantized keep their integers
    float32 = False  # whether the copy computes in float32, whatever the dtype policies of the source say
    plan: PlacementPlan | None = None  # the plan whose Q/DQ pairs `pair` inserts

    def __init__(self, bound: BoundGraph) -> None:
        if not self.takes_integers:
            _check_no_integers(bound)
        self.bound = bound
        self.graph = bound.graph
        self.values: dict[str, Any] = {}
        self.clones: dict[str, Any] = {}
        self.behind: dict[str, Any] = {}  # by layer, an activation split from it, called on the result of its clone
        paths = dict.fromkeys(node.layer for node in bound.graph.nodes)
        # Paths of nested models may become equal: layer `b` of model `a`, and a layer called `a.b`.
        self.names = unique_names({path: keras_name(path) for path in paths})
        self.late = LateVariables()
        self._taken = set(self.names.values())

    @interrupts_held()
    def run(self) -> None:
        """Compute the graph; afterwards `values` holds the new tensor of every graph tensor."""
        for name, tensor in self.bound.input_tensors.items():
            self.values[name] = self.make_input(name, tensor)
        for call in self.bound.calls:
            safe_point()
            args, kwargs = self._arguments(call)
            outputs = tree.flatten(self.compute(call, args, kwargs))
            _mark_dense((args, kwargs), outputs)
            self.values.update(zip(call.node.outputs, outputs, strict=True))

    def model(self, name: str, model_class: Callable[..., Any] = keras.Model) -> Any:
        """Return the rebuilt model, with inputs and outputs nested as in the source."""
        inputs = tree.map_structure(lambda ref: self.values[ref.name], self.bound.input_structure)
        outputs = tree.map_structure(lambda ref: self.output(ref.name), self.bound.output_structure)
        return functional_model(inputs, outputs, model_class=model_class, name=name)

    def rebuilt(self, name: str, model_class: Callable[..., Any] | None = None) -> Any:
        """Compute the graph, copy the weights and the user's attributes, and return the new model.

        `model_class` is None for `float_class` of the source.
        """
        source = self.bound.model
        with collector_paused():
            self.run()
            model = self.model(name, float_class(source) if model_class is None else model_class)
            self.copy_weights()
            if own_training(model):
                copy_user_state(source, model, self.counterparts())
            return model

    def counterparts(self) -> dict[int, Any]:
        """Return the new layers by the `id` of the source's."""
        calls = (call for call in self.bound.calls if call.node.layer in self.clones)
        return {id(call.operation): self.clones[call.node.layer] for call in calls}

    def make_input(self, name: str, tensor: Any) -> Any:
        """Return a new symbolic input like `tensor`."""
        dtype = "float32" if self.float32 and "float" in tensor.dtype else tensor.dtype
        return keras.Input(batch_shape=tensor.shape, dtype=dtype, name=self.names[name])

    def read(self, call: Call, index: int, tensor: str) -> Any:
        """Return the tensor that input `index` of a call reads; if the plan has a pair there, the result of `pair`."""
        placement = None if self.plan is None else self.plan.input_placement(call.node.name, index)
        return self.values[tensor] if placement is None else self.pair(placement)

    def output(self, tensor: str) -> Any:
        """Return the model's output for `tensor`; if the plan has a pair there, the result of `pair`."""
        placement = None if self.plan is None else self.plan.output_placement(tensor)
        return self.values[tensor] if placement is None else self.pair(placement)

    def pair(self, placement: Placement) -> Any:
        """Return the tensor that the readers of a placement's Q/DQ pair read; subclasses with a plan create it."""
        raise NotImplementedError

    def compute(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the replacement of an operation, then the activation split from it, if any."""
        operation = self.replacement(call)
        with self.late.building(operation):
            result = operation(*args, **kwargs)
        behind = self.behind.get(call.node.layer)
        return result if behind is None else behind(result)

    def replacement(self, call: Call) -> Any:
        """Return the new operation for a call; one per layer, shared by its calls."""
        if call.node.layer not in self.clones:
            self.clones[call.node.layer] = self.make(call)
        return self.clones[call.node.layer]

    def make(self, call: Call) -> Any:
        """Create the new operation for a layer; subclasses wrap it here."""
        return self.copy(call)

    def copy(self, call: Call) -> Any:
        """Return a copy of a call's operation, whose variables will be initialized with the values of the original."""
        clone = clone_operation(call.operation, self.names[call.node.layer], float32=self.float32)
        # A composite layer casts to its own half precision by operations, which no dtype policy reaches.
        if self.float32 and (self._is_inside_block(call) or call.node.name in self._named_types):
            clone = naming_float32(clone)
        return self.begun_as(call.operation, clone)

    def begun_as(self, source: Any, clone: Any) -> Any:
        """Return a copy, whose variables will be initialized with the values of its source; operations have none."""
        if isinstance(clone, keras.layers.Layer):
            self.late.copied(source, clone)
        return clone

    @functools.cached_property
    def _named_types(self) -> frozenset[str]:
        return frozenset() if self.plan is None else named_types(self.bound, self.plan)

    def _is_inside_block(self, call: Call) -> bool:
        return any(call.node.layer.startswith(f"{path}/") for path in self.graph.blocks)

    def copy_state(self, source: Any, clone: Any) -> None:
        """Copy a layer's values to its built clone, unless they were its initial values, and the `trainable` flags."""
        copy_variables(source, clone, values=not self.late.has_values(clone))

    def free_name(self, name: str) -> str:
        """Return a name that no layer has, and reserve it; the source's own layers may be called `quant_...`."""
        return take_name(name, self._taken)

    def named(self, tensor: Any, name: str) -> Any:
        """Rename the operation that produced a symbolic tensor; a number is appended if the name is taken.

        Keras names it after its class.
        """
        tensor._keras_history.operation.name = self.free_name(name)  # noqa: SLF001 - Keras has no other way to it
        return tensor

    def copy_weights(self) -> None:
        """Copy the values of all variables from the source's layers to their clones."""
        sources = {call.node.layer: call.operation for call in self.bound.calls}
        for layer, clone in self.clones.items():
            if isinstance(clone, keras.layers.Layer):
                self.copy_state(sources[layer], clone)

    def _arguments(self, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # `node.inputs` lists the tensors in the order in which `tree` visits the arguments.
        counter = iter(range(len(call.node.inputs)))

        def resolve(value: Any) -> Any:
            return self.read(call, next(counter), value.name) if isinstance(value, TensorRef) else value

        args, kwargs = tree.map_structure(resolve, (call.args, call.kwargs))
        return args, kwargs


def _mark_dense(inputs: Any, outputs: list[Any]) -> None:
    """Mark the outputs for dense inputs as dense.

    Keras (3.15) declares the product of a tensor and a constant sparse, which custom layers cannot read.
    """
    tensors = [value for value in tree.flatten(inputs) if isinstance(value, keras.KerasTensor)]
    if not any(tensor.sparse for tensor in tensors):
        for tensor in outputs:
            tensor._sparse = False  # noqa: SLF001 - Keras has no other way to it


def keras_name(path: str) -> str:
    """Return the name that a layer of a nested model gets in a flat one.

    Keras allows no slash in names, and TensorFlow few other special characters in the scopes that it derives from
    them.

    Example:
        >>> keras_name("backbone/block1_conv"), keras_name("conv#1")
        ('backbone.block1_conv', 'conv.1')
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "_", path.replace("/", ".").replace("#", "."))


def model_name(name: str) -> str:
    """Return a name that TensorFlow accepts for a model: the given one, or a similar one if that is no valid scope.

    Example:
        >>> model_name("resnet"), model_name("мой net")
        ('resnet', 'model____net')
    """
    if re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9_.\\/-]*", name):
        return name
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    return safe if safe[:1].isalnum() else f"model{safe}"


def clone_operation(operation: Any, name: str, *, float32: bool = False) -> Any:
    """Return a fresh, unconnected copy of a layer or operation under another name; variables are not copied.

    With `float32` it computes in that type, whatever its dtype policies.
    """
    if type(operation) is keras.layers.Lambda:
        return _clone_lambda(operation, name)
    try:
        clone = _copy(operation, name, float32=float32)
    except Exception as error:
        kind = type(operation).__name__
        raise UnsupportedModelError(
            f"Layer {operation.name!r} cannot be copied: {kind}.from_config(layer.get_config()) fails with "
            f"{type(error).__name__}: {first_line(error)}. Give the class a get_config that returns every argument "
            f"of its constructor, and functions that it takes a name (`def`); more on {page('howto/custom_layer.md')}. "
            f"Received: layer {operation.name!r} of class {kind}"
        ) from error
    clone.name = name  # a configuration need not hold it
    if isinstance(operation, keras.layers.Layer):
        clone.trainable = operation.trainable
    return clone


def _copy(operation: Any, name: str, *, float32: bool) -> Any:
    """Make the copy from the configuration, or from attributes where that fails."""
    try:
        config = operation.get_config()
        # A class whose configuration lacks the name may not take one; `clone_operation` sets it afterwards.
        if isinstance(operation, keras.layers.Layer) and "name" in config:
            config = {**with_policy(operation, config), "name": name}
        return _from_config(operation, in_float32(config) if float32 else config)
    except Exception as error:
        # Keras writes no configuration of an Identity whose `dtype` is a policy, but for other layers it always does.
        of_keras = type(operation).__module__.startswith("keras.") and not isinstance(error, NotImplementedError)
        if not isinstance(operation, keras.layers.Layer) or of_keras:
            raise
        with contextlib.suppress(Exception):  # the first error explains what is wrong with the class
            return copy_from_attributes(operation, name, float32=float32)
        raise


def _from_config(operation: Any, config: dict[str, Any]) -> Any:
    """Copy from a configuration; functions that it cannot express, such as a lambda as activation, are shared."""
    try:
        return type(operation).from_config(config)
    except Exception:
        values = {key: getattr(operation, key, None) for key in config}
        functions = {key: value for key, value in values.items() if isinstance(value, types.FunctionType)}
        if not functions:
            raise
        return type(operation).from_config({**config, **functions})


def with_policy(layer: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with the layer's dtype policy, and that of the layer inside a wrapper with its own.

    SpatialDropout writes its variables' dtype instead.
    """
    if isinstance(layer, keras.layers.InputLayer):  # its dtype is that of the tensor
        return config
    if config.get("dtype") == layer.dtype_policy.variable_dtype:
        config = {**config, "dtype": keras.dtype_policies.serialize(layer.dtype_policy)}
    held = config.get("layer")
    if isinstance(layer, keras.layers.Wrapper) and isinstance(held, dict):
        config = {**config, "layer": {**held, "config": with_policy(layer.layer, held["config"])}}
    return config


def _clone_lambda(layer: Any, name: str) -> Any:
    """Copy a Lambda layer, sharing its function.

    Keras would read the function from bytecode, which safe mode refuses and which loses the names that it refers to.
    """
    config = {key: layer.get_config()[key] for key in ("trainable", "dtype")}
    shape, arguments = layer._output_shape, dict(layer.arguments)  # noqa: SLF001 - its configuration holds bytes
    return keras.layers.Lambda(
        layer.function, output_shape=shape, mask=layer.mask, arguments=arguments, name=name, **config
    )


def copy_variables(source: Any, clone: Any, *, values: bool = True) -> None:
    """Copy the values of a layer's variables, if `values`, and the `trainable` flags to its built clone."""
    _check_same_variables(source, clone)
    if values:
        for theirs, ours in zip(source.variables, clone.variables, strict=True):
            ours.assign(theirs)
    for layer in (clone, *inner_layers(clone)):
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()  # it computes with constants that it derives from its variables
    _copy_trainable(source, clone)


def _check_same_variables(source: Any, clone: Any) -> None:
    """Refuse a layer with variables that its configuration does not create, such as LoRA inside another layer."""
    shapes = [[tuple(variable.shape) for variable in layer.variables] for layer in (source, clone)]
    if shapes[0] != shapes[1]:
        known = {variable.path.rpartition("/")[2] for variable in clone.variables}
        further = [variable.path for variable in source.variables if variable.path.rpartition("/")[2] not in known]
        raise UnsupportedModelError(
            f"Layer {source.name!r} cannot be copied: its configuration does not give the variables that it has. "
            "Low-rank updates (LoRA) enabled inside another layer are such: quantize merge_lora(model) instead. "
            f"Received: {len(shapes[0])} variables, {len(shapes[1])} in the copy, further ones {further[:3]}"
        )


def _copy_trainable(source: Any, clone: Any) -> None:
    """Copy the `trainable` flags of a layer and of its inner layers, which may differ."""
    # The outer flag first: its setter overwrites the flags of all layers inside.
    clone.trainable = source.trainable
    for inner, theirs in zip(inner_layers(clone), inner_layers(source), strict=True):
        inner.trainable = theirs.trainable


def unique_names(names: Mapping[K, str]) -> dict[K, str]:
    """Return the mapping with unique values: repeated ones get a number appended."""
    taken: set[str] = set()
    return {key: take_name(name, taken) for key, name in names.items()}
