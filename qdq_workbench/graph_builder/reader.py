"""Reading of a Keras model and the models nested in it.

Tested with Keras 3.12 to 3.15. The internals used here: `Functional._nodes_by_depth`, `Functional._inputs_struct`,
`Functional._outputs_struct`, `Sequential._functional`, and a node's `operation`, `arguments` and `outputs`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import keras
from keras import tree

from qdq_workbench.graph.free_names import take_name
from qdq_workbench.graph.macs import count_macs
from qdq_workbench.graph.model_graph import INTEGERS, ModelGraph, Node, Tensor
from qdq_workbench.graph.reachable import needed_nodes
from qdq_workbench.graph_builder.between_layers import OwnWeight
from qdq_workbench.graph_builder.composites import is_composite, trace_of, training_of
from qdq_workbench.graph_builder.describe import describe, describe_layer, normalized_call
from qdq_workbench.graph_builder.functional_models import (
    calls_of,
    functional_of,
    is_functional,
    model_inside,
)
from qdq_workbench.graph_builder.keras_integers import float_copy, has_integers, integers_of
from qdq_workbench.graph_builder.layer_parts import takes_training
from qdq_workbench.graph_builder.masks import Masks
from qdq_workbench.graph_builder.open_batches import OpenBatches
from qdq_workbench.graph_builder.references import TensorRef
from qdq_workbench.graph_builder.returned_dtypes import returned_dtypes
from qdq_workbench.graph_builder.steps import Step, Trace, unique_tensors
from qdq_workbench.placement.unknown_layers import NOT_ENTERED


@dataclasses.dataclass(frozen=True)
class Call:
    """One node of the graph together with the Keras object and the arguments that it is called with.

    Args:
        node: The node.
        operation: The Keras layer or operation.
        args: Positional arguments; tensors are `TensorRef`.
        kwargs: Keyword arguments; tensors are `TensorRef`.
        position: The number of the call among those of the operation, in creation order.
    """

    node: Node
    operation: keras.Operation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    position: int = 0


@dataclasses.dataclass(frozen=True)
class BoundGraph:
    """A `ModelGraph` with the Keras objects of its nodes, from which the model can be computed again.

    Args:
        graph: The framework-independent graph.
        calls: The calls, in an order in which they can be computed; input layers are not calls.
        input_tensors: The model's symbolic inputs by tensor name.
        tensors: Keras's symbolic tensor of every graph tensor.
        input_structure: The model's inputs, nested as the model takes them, with `TensorRef` leaves.
        output_structure: The model's outputs, nested as the model returns them, with `TensorRef` leaves.
        model: The Keras model whose class and attributes a rebuilt model takes over; None for none.
    """

    graph: ModelGraph
    calls: tuple[Call, ...]
    input_tensors: dict[str, Any]
    tensors: dict[str, Any]
    input_structure: Any
    output_structure: Any
    model: Any = None


def build_graph(model: keras.Model, *, enter_layers: bool = True) -> ModelGraph:
    """Read the graph of a Keras model.

    Nested functional, sequential and functional-subclass models are entered, to any depth, and so are composite
    layers: custom layers that call layers. The layers inside get paths as names. The model is only read.

    Args:
        model: A built Keras 3 model on the TensorFlow backend: functional, sequential, or a subclass of a
            functional model.
        enter_layers: Whether composite layers are entered; if False, each of them is one node.

    Returns:
        The graph: nodes in computing order, tensors, inputs, outputs.

    Raises:
        UnsupportedModelError: If the model has no graph (subclassed), is not a Keras 3 model, Keras has quantized it
            (`model.quantize`) in a way that no Q/DQ pair can express, or Keras runs on another backend than
            TensorFlow.
        UnbuiltModelError: If the model does not know its input shape yet.

    Example:
        >>> import keras
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
        >>> [node.name for node in build_graph(model).nodes]
        ['image', 'conv']
    """
    return bind_graph(model, enter_layers=enter_layers).graph


def bind_graph(model: keras.Model, *, enter_layers: bool = True) -> BoundGraph:
    """Read the graph of a Keras model, together with its Keras objects.

    Args:
        model: As for `build_graph`.
        enter_layers: As for `build_graph`. The layers of a quantized model are never entered: its plan did so.

    Raises:
        UnsupportedModelError: As for `build_graph`.
        UnbuiltModelError: As for `build_graph`.
    """
    functional = functional_of(model)
    closed: dict[int, str] | None = {} if enter_layers and not getattr(model, "has_plan", False) else None
    # Shared weights show in the whole graph alone: layers that read them are closed, and the model is read again.
    while True:
        reader = _Reader(closed)
        names = reader.add_inputs(functional)
        reader.walk(calls_of(functional), names, prefix="", training=None)
        if closed is None or not reader.close_shared(closed):
            break
    to_ref = _renamer(names)
    output_structure = tree.map_structure(to_ref, functional._outputs_struct)
    reader.drop_unread([ref.name for ref in tree.flatten(output_structure)])
    graph = ModelGraph(
        name=model.name,
        nodes=tuple(reader.nodes),
        tensors=reader.tensors,
        inputs=tuple(names[id(tensor)] for tensor in functional.inputs),
        outputs=tuple(ref.name for ref in tree.flatten(output_structure)),
        blocks=reader.blocks,
    )
    return BoundGraph(
        graph=graph,
        calls=tuple(reader.calls),
        input_tensors={names[id(tensor)]: tensor for tensor in functional.inputs},
        tensors=reader.keras_tensors,
        input_structure=tree.map_structure(to_ref, functional._inputs_struct),
        output_structure=output_structure,
        model=model,
    )


def _renamer(names: dict[int, str]) -> Callable[[Any], Any]:
    """Return a function that replaces Keras's symbolic tensors by references, and returns other values unchanged."""

    def rename(value: Any) -> Any:
        return TensorRef(names[id(value)]) if isinstance(value, keras.KerasTensor) else value

    return rename


def _in_mode(step: Step, training: Any) -> Step:
    """Return a call inside a nested model with the `training` argument of the model's call, if that has one.

    It replaces the call's own, as in Keras, which notes a layer's default there too.
    """
    if not isinstance(training, bool) or not takes_training(step.operation):
        return step
    return dataclasses.replace(step, kwargs={**step.kwargs, "training": training})


class _Reader:
    """Collects nodes, calls and tensors of a model and the models nested in it."""

    def __init__(self, closed: dict[int, str] | None = None) -> None:
        self.blocks: dict[str, tuple[str, ...]] = {}
        self._closed = closed
        # By id; the object is stored beside its layer, so that no id is reused while the reader lives.
        self._weights: dict[int, tuple[Any, Any]] = {}
        self._entered: list[tuple[Any, Any]] = []
        self._floats: dict[int, tuple[Any, Any]] = {}
        self.nodes: list[Node] = []
        self.calls: list[Call] = []
        self.tensors: dict[str, Tensor] = {}
        self._masks = Masks(self.tensors)
        self._batches = OpenBatches(self.tensors)
        self.keras_tensors: dict[str, Any] = {}
        self._call_counts: dict[int, int] = {}
        self._paths: dict[int, str] = {}
        self._taken: set[str] = set()

    def add_inputs(self, functional: Any) -> dict[int, str]:
        """Add the model's input layers and return the names of their tensors by id."""
        names: dict[int, str] = {}
        for tensor in functional.inputs:
            operation = tensor._keras_history.operation
            self._add_node(operation, operation.name, ((), {}), [tensor], names)
        return names

    def drop_unread(self, outputs: list[str]) -> None:
        """Drop the calls that no output depends on, such as those of an unread output of a nested model."""
        needed = needed_nodes(self.nodes, outputs)
        # Inputs stay, read or not: they are the signature of the model.
        self.nodes = [node for node in self.nodes if node.name in needed or node.is_model_input]
        self.calls = [call for call in self.calls if call.node.name in needed]
        kept = {name for node in self.nodes for name in node.outputs}
        self.tensors = {name: tensor for name, tensor in self.tensors.items() if name in kept}
        self.keras_tensors = {name: tensor for name, tensor in self.keras_tensors.items() if name in kept}

    def walk(
        self, steps: Iterable[Step], names: dict[int, str], prefix: str, training: bool | None, policy: Any = None
    ) -> None:
        """Add the calls inside a model or a layer in order, and the names of their symbolic tensors by id to `names`.

        `training` is that argument of the calls, if it is fixed, and `policy` the dtype policy of the composite layer
        that contains them; None outside of one.
        """
        for step in steps:
            operation, rename = self._in_float(step.operation, prefix + step.name), _renamer(names)
            args, kwargs = tree.map_structure(rename, (step.args, step.kwargs))
            # As in Keras, the argument of a call wins over that of the composite layer around it.
            if training is not None and not isinstance(kwargs.get("training"), bool) and takes_training(operation):
                kwargs["training"] = training
            inner = operation._functional if isinstance(operation, keras.Sequential) else operation
            path = prefix + step.name
            if inner is not None and is_functional(inner):
                self._enter_model(inner, step, args, kwargs, names, path)
                continue
            trace = self._trace(operation, step, inside=policy is not None)
            if isinstance(trace, Trace):
                self._enter_layer(operation, trace, step, names, path, kwargs.get("training", training))
                continue
            if isinstance(operation, keras.Variable):
                operation = self._own_weight(operation, step.name, policy)
            args, kwargs = normalized_call(operation, args, kwargs)
            node = self._add_node(operation, path, (args, kwargs), step.outputs, names, trace)
            position = self._call_counts[id(operation)] - 1 if step.position is None else step.position
            self.calls.append(Call(node, operation, args, kwargs, position))

    def _in_float(self, operation: Any, path: str) -> Any:
        """Return an operation, or the float copy of a layer that Keras has quantized; one copy for all its calls."""
        if is_functional(getattr(operation, "_functional", operation)) or not has_integers(operation):
            return operation
        if id(operation) not in self._floats:
            self._floats[id(operation)] = operation, float_copy(operation, path)
        return self._floats[id(operation)][1]

    def _enter_model(
        self,
        inner: Any,
        step: Step,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        names: dict[int, str],
        path: str,
    ) -> None:
        """Add the calls of a nested model; its inputs are the tensors that it is called with."""
        values = kwargs.get("inputs", args[0] if args else None)
        given = [leaf for leaf in tree.flatten(values) if isinstance(leaf, TensorRef)]
        pairs = zip(inner.inputs, given, strict=True)
        inside = {id(tensor): self._as_declared(ref.name, tensor, path) for tensor, ref in pairs}
        training = kwargs.get("training")
        steps = (_in_mode(each, training) for each in calls_of(inner))
        self.walk(steps, inside, prefix=path + "/", training=training)
        for outer, inner_output in zip(step.outputs, inner.outputs, strict=True):
            names[id(outer)] = inside[id(inner_output)]

    def _as_declared(self, name: str, declared: Any, path: str) -> str:
        """Return the name of a tensor in the dtype of a nested model's input, to which Keras casts what it is given."""
        given, wanted = self.tensors[name].dtype, keras.backend.standardize_dtype(declared.dtype)
        # Layers cast floats themselves, to the dtype of their policy.
        if given == wanted or ("float" in given and "float" in wanted):
            return name
        cast = keras.ops.cast(keras.KerasTensor(self.tensors[name].shape, dtype=given), wanted)
        operation = cast._keras_history.operation
        args, kwargs = normalized_call(operation, (TensorRef(name),), {})
        node = self._add_node(operation, f"{path}/cast", (args, kwargs), [cast], {})
        self.calls.append(Call(node, operation, args, kwargs, 0))
        return node.outputs[0]

    def _trace(self, operation: Any, step: Step, *, inside: bool) -> Trace | str:
        """Return the trace of a composite layer, or the reason why it is not entered; "" for everything else."""
        if self._closed is None or not is_composite(operation, inside=inside):
            return ""
        return self._closed.get(id(operation)) or trace_of(operation, step.args, step.kwargs, step.outputs)

    def _enter_layer(
        self, layer: Any, trace: Trace, step: Step, names: dict[int, str], path: str, training: bool | None
    ) -> None:
        """Add the calls of a composite layer."""
        given = unique_tensors((step.args, step.kwargs))
        inside = {id(ours): names[id(theirs)] for ours, theirs in zip(trace.inputs, given, strict=True)}
        self.blocks.setdefault(path, describe_layer(layer).classes)
        self._entered.append((layer, trace))
        fixed = training_of(layer, step.args, step.kwargs)
        told = training if fixed is None and isinstance(training, bool) else fixed
        self.walk(trace.steps, inside, f"{path}/", told, trace.policy)
        for outer, inner_output in zip(step.outputs, trace.outputs, strict=True):
            names[id(outer)] = inside[id(inner_output)]

    def _own_weight(self, variable: Any, name: str, policy: Any) -> Any:
        """Return the layer for a variable that a composite layer uses directly; one for all its uses."""
        if id(variable) not in self._weights:
            self._weights[id(variable)] = variable, OwnWeight.of(variable, name.replace("/", "."), policy)
        return self._weights[id(variable)][1]

    def close_shared(self, closed: dict[int, str]) -> bool:
        """Return whether composite layers use a variable of another layer directly, of which a copy would have two.

        They are added to `closed`, which has the reasons why layers are not entered, by id.
        """
        owned = {
            id(variable)
            for call in self.calls
            if isinstance(call.operation, keras.layers.Layer) and not isinstance(call.operation, OwnWeight)
            for variable in call.operation.variables
        }
        found = False
        for layer, trace in self._entered:
            shared = [s.operation for s in trace.steps if isinstance(s.operation, keras.Variable)]
            names = [variable.path for variable in shared if id(variable) in owned]
            if names:
                closed[id(layer)] = f"it computes with a weight of another layer by itself ({names[0]})"
                found = True
        return found

    def _add_node(
        self,
        operation: Any,
        path: str,
        call: tuple[tuple[Any, ...], dict[str, Any]],
        outputs: list[Any],
        names: dict[int, str],
        closed: str = "",
    ) -> Node:
        count = self._call_counts.get(id(operation), 0)
        self._call_counts[id(operation)] = count + 1
        if count == 0:
            self._paths[id(operation)] = self._free_name(path)
        path = self._paths[id(operation)]
        name = path if count == 0 else self._free_name(f"{path}#{count}")
        tensor_names = tuple(name if index == 0 else f"{name}:{index}" for index in range(len(outputs)))
        dtypes = returned_dtypes(operation, call, outputs, self.tensors)
        node = describe(operation, name, path, call, tensor_names)
        for tensor_name, tensor, dtype in zip(tensor_names, outputs, dtypes, strict=True):
            shape = self._batches.shape(node, tensor_name, tensor)
            self.tensors[tensor_name] = Tensor(tensor_name, shape, dtype, name)
            self.keras_tensors[tensor_name] = tensor
            names[id(tensor)] = tensor_name
        masked = self._masks.settings(node)
        if masked:
            node = dataclasses.replace(node, settings={**node.settings, **masked})
        self._masks.follow(operation, call[0], outputs, tensor_names)
        integers = integers_of(operation)
        if integers:
            told = {name: found.spec.to_dict() for name, found in integers.items()}
            node = dataclasses.replace(node, settings={**node.settings, INTEGERS: told})
        inside = model_inside(operation)
        if inside is not None:  # the shapes in it are known only here
            graph = build_graph(inside)
            macs = sum(count_macs(graph, part) for part in graph.nodes)
            node = dataclasses.replace(node, settings={**node.settings, "macs_inside": macs})
        if closed and node.opaque:
            node = dataclasses.replace(node, opaque=f"{node.opaque}; {NOT_ENTERED}{closed}")
        self.nodes.append(node)
        return node

    def _free_name(self, name: str) -> str:
        """Return a unique name; Keras checks only the names of layers, so that operations may have equal ones."""
        return take_name(name, self._taken, "~")
