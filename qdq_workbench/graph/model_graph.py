"""Nodes, tensors and the graph of a model.

A node is one call of one layer or operation: a layer called twice has two nodes, `conv` and `conv#1`. Layers of a
nested model have its path in their names: `backbone/block1_conv`. A tensor is named after the node that produces it,
with `:1`, `:2`... appended for a node's further outputs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from qdq_workbench.errors import SpecError, nearest_names
from qdq_workbench.graph.activations import find_activation, only_activates

Shape = tuple[int | None, ...]
#: The node setting with the grids of weights that are integers already: by weight, as dictionaries.
INTEGERS = "integers"
Found = TypeVar("Found")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A value that flows between nodes.

    Args:
        name: Unique name within the graph.
        shape: Shape with None for unknown dimensions, batch first.
        dtype: Name of the dtype, such as `float32`.
        producer: Name of the node that computes it.
    """

    name: str
    shape: Shape
    dtype: str
    producer: str

    @property
    def is_float(self) -> bool:
        """Whether it holds floats of any width, not integers, booleans or text."""
        return "float" in self.dtype


@dataclasses.dataclass(frozen=True)
class Weight:
    """A variable of a layer.

    Args:
        name: Path below the layer, such as `kernel` or `forward_layer/cell/kernel`.
        shape: Shape of the variable.
        dtype: Name of the dtype it is stored in.
        trainable: Whether an optimizer updates it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    trainable: bool = True

    @property
    def is_float(self) -> bool:
        """Whether it is stored as floats of any width."""
        return "float" in self.dtype


@dataclasses.dataclass(frozen=True)
class Part:
    """A layer inside a layer, such as the projections of an attention layer or the cell of a recurrent one.

    Args:
        name: Path below the layer, such as `query` or `forward_layer/cell`.
        class_name: Its class.
        bases: Names of its parent classes, nearest first.
        settings: The relevant part of its configuration, JSON-compatible.
        opaque: Why planning cannot see inside; empty for ordinary layers.
    """

    name: str
    class_name: str
    bases: tuple[str, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    opaque: str = ""

    @property
    def classes(self) -> tuple[str, ...]:
        """Its class and that class's parents, nearest first."""
        return (self.class_name, *self.bases)


@dataclasses.dataclass(frozen=True)
class Node:
    """One call of a layer or of an operation.

    Args:
        name: Unique name within the graph: the layer's path, with `#1`, `#2`... for further calls of that layer.
        layer: Path of the layer or operation that is called; shared by all its calls.
        class_name: Class of the layer or operation.
        bases: Names of its parent classes, nearest first, up to Keras's own base class.
        inputs: Names of the tensors that it reads, in call order.
        outputs: Names of the tensors that it produces.
        arguments: For each input the argument of the layer's call that it belongs to, such as `query`; empty if
            all belong to the first.
        is_operation: True for a `keras.ops` function of the graph, False for a layer.
        weights: The variables of the layer.
        parts: The layers inside it, at any depth.
        settings: The relevant part of its configuration (activation, strides, axis...), JSON-compatible.
        opaque: Why planning cannot see inside; empty for ordinary layers.

    Example:
        >>> node = Node("conv#1", "conv", "Conv2D", inputs=("image",), outputs=("conv#1",))
        >>> node.is_a("Conv2D", "Dense")
        True
    """

    name: str
    layer: str
    class_name: str
    bases: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    is_operation: bool = False
    weights: tuple[Weight, ...] = ()
    parts: tuple[Part, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    opaque: str = ""

    @property
    def classes(self) -> tuple[str, ...]:
        """The class of the layer and its parents, nearest first."""
        return (self.class_name, *self.bases)

    @property
    def is_model_input(self) -> bool:
        """Whether it stands for an input of the model and computes nothing."""
        # The class of an operation may have this name too.
        return self.class_name == "InputLayer" and not self.is_operation

    @property
    def is_activation(self) -> bool:
        """Whether it only applies an activation function: a layer of any class, or an operation."""
        return self.once(only_activates)

    @property
    def activation_name(self) -> str:
        """The activation that it applies, also one inside, as of `Conv2D(activation="relu")`; "linear" for none."""
        return self.once(find_activation)

    def is_a(self, *class_names: str) -> bool:
        """Return whether the layer is of one of these classes, or of a subclass of one.

        Args:
            *class_names: Class names such as `"Conv2D"`.
        """
        return not self._answers_to.isdisjoint(class_names)

    @functools.cached_property
    def _answers_to(self) -> frozenset[str]:
        """The classes for `is_a`; cached, because planning asks for them hundreds of thousands of times."""
        return frozenset(self.bases if self.opaque else self.classes)  # an opaque layer may be named like another

    @functools.cached_property
    def _found(self) -> dict[Callable[[Node], Any], Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return _without_caches(self.__dict__)

    def once(self, find: Callable[[Node], Found]) -> Found:
        """Return the result of a function of the node; it is cached, because a node never changes.

        Args:
            find: A function of a node alone.
        """
        found: dict[Callable[[Node], Found], Found] = self._found
        if find not in found:
            found[find] = find(self)
        return found[find]


def _without_caches(state: dict[str, Any]) -> dict[str, Any]:
    """Return what a process that receives the object needs: what `once` found can be found again."""
    return {name: value for name, value in state.items() if name != "_found"}


@dataclasses.dataclass(frozen=True)
class ModelGraph:
    """The graph of a model, from which planning, explanations and drawings are made; built by `build_graph`.

    Args:
        name: The model's name.
        nodes: Nodes in an order in which they can be computed.
        tensors: Tensors by name.
        inputs: Names of the model's input tensors.
        outputs: Names of the model's output tensors; one may occur twice.
        blocks: The classes of every composite layer that was entered, by its path: its own and its parents.

    Example:
        >>> conv = Node("conv", "conv", "Conv2D", inputs=("x",), outputs=("conv",))
        >>> image = Node("x", "x", "InputLayer", outputs=("x",))
        >>> tensors = {name: Tensor(name, (None, 8, 8, 3), "float32", name) for name in ("x", "conv")}
        >>> graph = ModelGraph("net", (image, conv), tensors, ("x",), ("conv",))
        >>> [node.name for node, index in graph.readers("x")]
        ['conv']
    """

    name: str
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    blocks: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def _nodes_by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @functools.cached_property
    def _calls_by_layer(self) -> dict[str, list[Node]]:
        calls: dict[str, list[Node]] = {}
        for node in self.nodes:
            calls.setdefault(node.layer, []).append(node)
        return calls

    @functools.cached_property
    def _readers_by_tensor(self) -> dict[str, list[tuple[Node, int]]]:
        # Tensors that nothing reads have an entry, too: `readers` takes a missing one for an unknown name.
        readers: dict[str, list[tuple[Node, int]]] = {name: [] for name in self.tensors}
        for node in self.nodes:
            for index, tensor in enumerate(node.inputs):
                readers[tensor].append((node, index))
        return readers

    @property
    def layers(self) -> list[str]:
        """Paths of all layers and operations, in order, shared ones once."""
        return list(self._calls_by_layer)

    def node(self, name: str) -> Node:
        """Return the node called `name`.

        Args:
            name: Name of a call, such as `conv` or `conv#1`.

        Raises:
            SpecError: If there is none; the message shows the nearest names.
        """
        if name not in self._nodes_by_name:
            hint = nearest_names(name, self._nodes_by_name)
            raise SpecError(f"The model has no node of that name. {hint} Received: name={name!r}")
        return self._nodes_by_name[name]

    def calls(self, layer: str) -> list[Node]:
        """Return the nodes of one layer, in call order.

        Args:
            layer: Path of the layer, or the name of one of its calls.

        Raises:
            SpecError: If there is no such layer; the message shows the nearest names.
        """
        if layer in self._calls_by_layer:
            return self._calls_by_layer[layer]
        if layer in self._nodes_by_name:
            return [self._nodes_by_name[layer]]
        hint = nearest_names(layer, self._calls_by_layer)
        raise SpecError(f"The model has no layer of that name. {hint} Received: layer={layer!r}")

    def producer(self, tensor: str) -> Node:
        """Return the node that computes `tensor`.

        Args:
            tensor: Name of a tensor.

        Raises:
            SpecError: If the graph has no such tensor; the message shows the nearest names.
        """
        try:
            return self._nodes_by_name[self.tensors[tensor].producer]
        except KeyError:
            raise self._no_tensor(tensor) from None

    def readers(self, tensor: str) -> list[tuple[Node, int]]:
        """Return the nodes that read `tensor`, each with the index of the input that reads it, from 0 on.

        Args:
            tensor: Name of a tensor.

        Raises:
            SpecError: If the graph has no such tensor; the message shows the nearest names.
        """
        try:
            return self._readers_by_tensor[tensor]
        except KeyError:
            raise self._no_tensor(tensor) from None

    def has_one_use(self, tensor: str) -> bool:
        """Return whether exactly one node reads `tensor` and it is not an output of the model.

        Args:
            tensor: Name of a tensor.

        Raises:
            SpecError: If the graph has no such tensor; the message shows the nearest names.
        """
        # `x + x` reads `x` twice, so neither operand is its only use.
        return len(self.readers(tensor)) == 1 and tensor not in self.outputs

    def _no_tensor(self, name: str) -> SpecError:
        hint = nearest_names(str(name), self.tensors)
        return SpecError(f"The model has no tensor of that name. {hint} Received: tensor={name!r}")

    @functools.cached_property
    def _found(self) -> dict[Callable[[ModelGraph], Any], Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return _without_caches(self.__dict__)

    def once(self, find: Callable[[ModelGraph], Found]) -> Found:
        """Return the result of a function of the graph; it is cached, because a graph never changes.

        Args:
            find: A function of a graph alone.
        """
        if find not in self._found:
            self._found[find] = find(self)
        found: Found = self._found[find]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as a JSON-compatible dictionary."""
        blocks = {"blocks": {path: list(classes) for path, classes in self.blocks.items()}} if self.blocks else {}
        return {
            "name": self.name,
            "nodes": [_compact(dataclasses.asdict(node)) for node in self.nodes],
            "tensors": [dataclasses.asdict(tensor) for tensor in self.tensors.values()],
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            **blocks,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelGraph:
        """Rebuild a graph from `to_dict`.

        Args:
            data: The dictionary of `to_dict`, also after a round trip through JSON.

        Raises:
            KeyError: If a part is missing; `PlacementPlan.from_dict` names it.
            TypeError: If a part has another type.
        """
        tensors = [Tensor(**{**item, "shape": tuple(item["shape"])}) for item in data["tensors"]]
        return cls(
            name=data["name"],
            nodes=tuple(_node_from_dict(item) for item in data["nodes"]),
            tensors={tensor.name: tensor for tensor in tensors},
            inputs=tuple(data["inputs"]),
            outputs=tuple(data["outputs"]),
            blocks={path: tuple(classes) for path, classes in data.get("blocks", {}).items()},
        )


def _compact(node: dict[str, Any]) -> dict[str, Any]:
    """Drop fields that are empty: large graphs are saved inside model files."""
    return {key: value for key, value in node.items() if value or key in ("name", "layer", "class_name")}


def _node_from_dict(item: Mapping[str, Any]) -> Node:
    fields = dict(item)
    for key in ("bases", "inputs", "outputs", "arguments"):
        fields[key] = tuple(fields.get(key, ()))
    fields["weights"] = tuple(Weight(**{**w, "shape": tuple(w["shape"])}) for w in fields.get("weights", ()))
    fields["parts"] = tuple(Part(**{**p, "bases": tuple(p["bases"])}) for p in fields.get("parts", ()))
    return Node(**fields)
