"""Walking through a Keras model and the models nested in it.

Tried with Keras 3.10 to 3.15. The internals used here: `Functional._nodes_by_depth`, `Functional._inputs_struct`,
`Functional._outputs_struct`, `Sequential._functional`, and a node's `operation`, `arguments` and `outputs`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import tree

from qdq_workbench.errors import UnbuiltModelError, UnsupportedModelError
from qdq_workbench.graph.macs import count_macs
from qdq_workbench.graph.model_graph import ModelGraph, Node, Tensor
from qdq_workbench.graph.reachable import needed_nodes
from qdq_workbench.graph_builder.describe import describe, normalized_call
from qdq_workbench.graph_builder.layer_parts import inner_layers, takes_training
from qdq_workbench.graph_builder.references import TensorRef


def small_model() -> Any:
    """Return a functional model of one layer."""
    scalar = keras.Input((1,), name="scalar")
    return keras.Model(scalar, keras.layers.Identity(name="identity_of_scalar")(scalar), name="probe")


#: `keras.Model(inputs, outputs)` makes an instance of a class that Keras does not export: ask an instance.
FUNCTIONAL: Any = type(small_model())


@dataclasses.dataclass(frozen=True)
class Call:
    """One node of the graph together with the Keras object and the arguments that it is called with.

    Args:
        node: The node.
        operation: The Keras layer or operation.
        args: Positional arguments; tensors are `TensorRef`.
        kwargs: Keyword arguments; tensors are `TensorRef`.
        position: Which call of the operation this is, in the order in which they were made.
    """

    node: Node
    operation: keras.Operation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    position: int = 0


@dataclasses.dataclass(frozen=True)
class BoundGraph:
    """A `ModelGraph` with the Keras objects behind its nodes, enough to compute the model again.

    Args:
        graph: The framework-free graph.
        calls: The calls, in an order in which they can be computed; input layers are not calls.
        input_tensors: The model's symbolic inputs by tensor name.
        tensors: Keras's symbolic tensor of every graph tensor.
        input_structure: The model's inputs, nested as the model takes them, with `TensorRef` leaves.
        output_structure: The model's outputs, nested as the model returns them, with `TensorRef` leaves.
        model: The Keras model whose class and attributes a rebuilt model takes over; None where it is another one's.
    """

    graph: ModelGraph
    calls: tuple[Call, ...]
    input_tensors: dict[str, Any]
    tensors: dict[str, Any]
    input_structure: Any
    output_structure: Any
    model: Any = None


def build_graph(model: keras.Model) -> ModelGraph:
    """Read the graph of a Keras model.

    Nested functional, sequential and functional-subclass models are entered, to any depth; their layers get
    paths as names. The model is only read.

    Args:
        model: A built Keras 3 model on the TensorFlow backend: functional, sequential, or a subclass of a
            functional model.

    Returns:
        The graph: nodes in computing order, tensors, inputs, outputs.

    Raises:
        UnsupportedModelError: If the model has no graph (subclassed), is not a Keras 3 model, Keras has quantized it
            (`model.quantize`), or Keras runs on another backend than TensorFlow.
        UnbuiltModelError: If the model does not know its input shape yet.

    Example:
        >>> import keras
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
        >>> [node.name for node in build_graph(model).nodes]
        ['image', 'conv']
    """
    return bind_graph(model).graph


def bind_graph(model: keras.Model) -> BoundGraph:
    """Read the graph of a Keras model and keep the Keras objects behind it.

    Args:
        model: As for `build_graph`.

    Raises:
        UnsupportedModelError: As for `build_graph`.
        UnbuiltModelError: As for `build_graph`.
    """
    functional = _functional_of(model)
    reader = _Reader()
    names = reader.add_inputs(functional)
    reader.walk(functional, names, prefix="", training=None)
    to_ref = _renamer(names)
    output_structure = tree.map_structure(to_ref, functional._outputs_struct)
    reader.drop_unread([ref.name for ref in tree.flatten(output_structure)])
    graph = ModelGraph(
        name=model.name,
        nodes=tuple(reader.nodes),
        tensors=reader.tensors,
        inputs=tuple(names[id(tensor)] for tensor in functional.inputs),
        outputs=tuple(ref.name for ref in tree.flatten(output_structure)),
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


def check_model(model: Any) -> None:
    """Raise a named error unless `model` is one whose graph can be read; see `build_graph`."""
    _functional_of(model)


def _functional_of(model: Any) -> Any:
    """Return the functional model inside `model`, or explain why there is none."""
    if keras.config.backend() != "tensorflow":
        raise UnsupportedModelError(
            "The model runs on another Keras backend than TensorFlow; quantization and export need TensorFlow. "
            'Set the environment variable KERAS_BACKEND="tensorflow" before Keras is imported and load the model '
            f"again. Received: backend={keras.config.backend()!r}"
        )
    if not isinstance(model, keras.Model):
        raise UnsupportedModelError(_foreign_model_text(model))
    inner = getattr(model, "_functional", None) if isinstance(model, keras.Sequential) else model
    if inner is None:
        raise UnbuiltModelError(
            "The Sequential model is not built: its input shape is unknown, so it has no graph. Start it with "
            "keras.Input(shape), or call model.build((None, ...)) with the input shape, batch first. "
            f"Received: model={model.name!r} with {len(model.layers)} layers"
        )
    if not is_functional(inner):
        raise UnsupportedModelError(
            "The model is subclassed: its call() method is Python code, so there is no graph of layers to quantize. "
            "Express it as a functional model, keras.Model(inputs, outputs); parts of it that are functional or "
            "sequential can be quantized by themselves (docs/importing.md). "
            f"Received: model of class {type(model).__name__}"
        )
    return inner


def _foreign_model_text(model: Any) -> str:
    module = type(model).__module__
    if module.split(".")[0] in ("tf_keras", "tensorflow") or ".legacy_tf_keras" in module:
        return (
            "The model belongs to Keras 2 (tf_keras); a Keras 3 model was expected. Save it as HDF5 or .keras and "
            "load the file with keras.models.load_model of Keras 3, or rebuild it with keras 3 layers and copy the "
            f"weights (docs/importing.md). Received: {module}.{type(model).__name__}"
        )
    return (
        "A Keras 3 model (keras.Model) was expected; load one with keras.models.load_model or build one with "
        f"keras.Model(inputs, outputs). Received: {module}.{type(model).__name__}"
    )


def is_functional(layer: Any) -> bool:
    """Return whether `layer` is a model whose inside can be read: its call() must be Keras's own."""
    return isinstance(layer, FUNCTIONAL) and type(layer).call is FUNCTIONAL.call


def _model_inside(operation: Any) -> Any:
    """Return the model with a graph that a wrapper such as TimeDistributed holds; None for other layers."""
    layer = getattr(operation, "layer", None) if isinstance(operation, keras.layers.Wrapper) else None
    inner = getattr(layer, "_functional", None) if isinstance(layer, keras.Sequential) else layer
    return layer if inner is not None and is_functional(inner) else None


def _renamer(names: dict[int, str]) -> Callable[[Any], Any]:
    """Return a function that replaces Keras's symbolic tensors by references, and leaves the rest alone."""

    def rename(value: Any) -> Any:
        return TensorRef(names[id(value)]) if isinstance(value, keras.KerasTensor) else value

    return rename


class _Reader:
    """Collects nodes, calls and tensors while walking through a model and the models nested in it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.calls: list[Call] = []
        self.tensors: dict[str, Tensor] = {}
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
        """Drop the calls that no output depends on, such as those behind an output of a nested model unread outside."""
        needed = needed_nodes(self.nodes, outputs)
        self.nodes = [node for node in self.nodes if node.name in needed or node.class_name == "InputLayer"]
        self.calls = [call for call in self.calls if call.node.name in needed]
        kept = {name for node in self.nodes for name in node.outputs}
        self.tensors = {name: tensor for name, tensor in self.tensors.items() if name in kept}
        self.keras_tensors = {name: tensor for name, tensor in self.keras_tensors.items() if name in kept}

    def walk(self, functional: Any, names: dict[int, str], prefix: str, training: bool | None) -> None:
        """Add the calls inside `functional`; `names` maps ids of its symbolic tensors to tensor names."""
        for keras_node in _ordered_nodes(functional):
            operation = keras_node.operation
            rename = _renamer(names)
            args = tree.map_structure(rename, tuple(keras_node.arguments.args))
            kwargs = tree.map_structure(rename, dict(keras_node.arguments.kwargs))
            if training is not None and not isinstance(kwargs.get("training"), bool) and takes_training(operation):
                kwargs["training"] = training
            inner = operation._functional if isinstance(operation, keras.Sequential) else operation
            path = prefix + operation.name
            if inner is not None and is_functional(inner):
                self._enter(inner, keras_node, args, kwargs, names, path)
                continue
            args, kwargs = normalized_call(operation, args, kwargs)
            node = self._add_node(operation, path, (args, kwargs), keras_node.outputs, names)
            position = operation._inbound_nodes.index(keras_node)
            self.calls.append(Call(node, operation, args, kwargs, position))

    def _enter(
        self,
        inner: Any,
        keras_node: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        names: dict[int, str],
        path: str,
    ) -> None:
        """Walk through a nested model: its inputs are the tensors that it is called with."""
        values = kwargs.get("inputs", args[0] if args else None)
        given = [leaf for leaf in tree.flatten(values) if isinstance(leaf, TensorRef)]
        inside = {id(tensor): ref.name for tensor, ref in zip(inner.inputs, given, strict=True)}
        self.walk(inner, inside, prefix=path + "/", training=kwargs.get("training"))
        for outer, inner_output in zip(keras_node.outputs, inner.outputs, strict=True):
            names[id(outer)] = inside[id(inner_output)]

    def _add_node(
        self,
        operation: Any,
        path: str,
        call: tuple[tuple[Any, ...], dict[str, Any]],
        outputs: list[Any],
        names: dict[int, str],
    ) -> Node:
        count = self._call_counts.get(id(operation), 0)
        self._call_counts[id(operation)] = count + 1
        if count == 0:
            _check_float(operation, path)
            self._paths[id(operation)] = self._free_name(path)
        path = self._paths[id(operation)]
        name = path if count == 0 else self._free_name(f"{path}#{count}")
        tensor_names = tuple(name if index == 0 else f"{name}:{index}" for index in range(len(outputs)))
        for tensor_name, tensor in zip(tensor_names, outputs, strict=True):
            dtype = keras.backend.standardize_dtype(tensor.dtype)
            self.tensors[tensor_name] = Tensor(tensor_name, tuple(tensor.shape), dtype, name)
            self.keras_tensors[tensor_name] = tensor
            names[id(tensor)] = tensor_name
        node = describe(operation, name, path, call, tensor_names)
        inside = _model_inside(operation)
        if inside is not None:  # the shapes in it are known only here
            graph = build_graph(inside)
            macs = sum(count_macs(graph, part) for part in graph.nodes)
            node = dataclasses.replace(node, settings={**node.settings, "macs_inside": macs})
        self.nodes.append(node)
        return node

    def _free_name(self, name: str) -> str:
        """Two operations may carry one name (Keras only checks layers): number the later ones."""
        candidate, number = name, 1
        while candidate in self._taken:
            number += 1
            candidate = f"{name}~{number}"
        self._taken.add(candidate)
        return candidate


def _check_float(operation: Any, path: str) -> None:
    """Refuse a layer that Keras has quantized by itself: its kernel holds integers, and it computes by other rules."""
    if not isinstance(operation, keras.layers.Layer):
        return
    for layer in (operation, *inner_layers(operation)):
        if getattr(layer, "quantization_mode", None) is not None and layer.weights:
            raise UnsupportedModelError(
                f"Keras has quantized layer {path!r} already (model.quantize(...), or a quantized dtype policy), so "
                "its weights are no longer the float ones that Q/DQ pairs are made from. Give the float model, as it "
                f"was before. Received: layer of class {type(operation).__name__} with dtype policy "
                f"{layer.dtype_policy.name!r}"
            )


def _ordered_nodes(functional: Any) -> Iterator[Any]:
    """Yield the calls of a functional model in an order in which they can be computed."""
    for depth in sorted(functional._nodes_by_depth, reverse=True):
        calls = [n for n in functional._nodes_by_depth[depth] if n.operation is not None and not n.is_input]
        # Keras leaves open in which order calls of one depth come; those of one layer come as they were made.
        ids = {id(call) for call in calls}
        made: dict[int, Iterator[Any]] = {
            id(n.operation): iter([call for call in n.operation._inbound_nodes if id(call) in ids]) for n in calls
        }
        for keras_node in calls:
            yield next(made[id(keras_node.operation)])


def input_structure(model: Any) -> Any:
    """Return the symbolic inputs of a functional model, nested as it takes them."""
    return model._inputs_struct


def output_names(model: Any) -> list[str]:
    """Return the names of a model's outputs; a sequential model keeps them in the functional model inside it."""
    return list(_functional_of(model).output_names)
