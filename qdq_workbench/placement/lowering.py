"""The step of every node of a plan in a file: determined here, carried out by the exporters, checked by verification.

Every node takes one step:

    written     it has one operator of its own, or operators that depend on its settings
    split       it has several operators in sequence, and no Q/DQ pair can be placed between them
    moved       it only gives values another place or shape
    folded      a batch normalization that becomes a part of the weights and the bias of the layer before it
    absorbed    a constant that becomes a part of a bias, or zero padding that becomes a setting of its readers
    vanishes    a layer that does nothing at inference

Which operators a runtime then fuses into one kernel is determined in `runtimes`, which reads the steps.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from qdq_workbench.graph.file_operators import find_operators, main_operators
from qdq_workbench.graph.folds import Fold, find_folds
from qdq_workbench.graph.kinds import CROPPINGS, MOVEMENTS, SEPARABLE
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import (
    adds_constant,
    is_convolution,
    pads_with_zeros,
    step_before,
    step_behind,
    vanishes,
)
from qdq_workbench.graph.paddings import takes_padding
from qdq_workbench.placement.kept import kept_for_scales
from qdq_workbench.placement.placement import Placement

Step = Literal["written", "split", "moved", "folded", "absorbed", "vanishes"]
_OWN: tuple[Step, ...] = ("written", "split", "moved")


@dataclasses.dataclass(frozen=True)
class LoweredNode:
    """The lowering of one node.

    Args:
        node: Name of the node.
        step: Its step.
        into: The nodes into which it is folded or absorbed.
        operators: Its ONNX operators, without those that only move, cast or measure values and without the addition of
            a bias; None if they depend on more than its class and settings.
        reason: The reason, as a sentence without a full stop; empty for "written".
    """

    node: str
    step: Step
    into: tuple[str, ...] = ()
    operators: tuple[str, ...] | None = None
    reason: str = ""

    @property
    def has_operators(self) -> bool:
        """Whether the file holds operators of its own for the node."""
        return self.step in _OWN

    def to_dict(self) -> dict[str, Any]:
        """Return the step and the operators as a JSON-compatible dictionary; what is "written" needs no reason."""
        told = {"step": self.step, "operators": None if self.operators is None else list(self.operators)}
        return told if self.step == "written" else {**told, "into": list(self.into), "reason": self.reason}


@dataclasses.dataclass(frozen=True)
class Lowering:
    """The lowering of every node of a plan.

    Args:
        nodes: The lowering by node name, in computing order.
        merged: The nodes that are folded into or absorbed by the layer before them.
    """

    nodes: Mapping[str, LoweredNode]
    merged: Merged = dataclasses.field(repr=False, compare=False)

    @property
    def folds(self) -> tuple[Fold, ...]:
        """The batch normalizations that are folded, with the layers that they are folded into."""
        return tuple(self.merged.folds)

    def of_step(self, step: Step) -> list[LoweredNode]:
        """Return the nodes that take a step, in computing order."""
        return [node for node in self.nodes.values() if node.step == step]

    def to_dict(self) -> dict[str, Any]:
        """Return the step and the operators of every node, as a JSON-compatible dictionary.

        For display only: a plan that is read from JSON derives it from its placements again.
        """
        return {name: node.to_dict() for name, node in self.nodes.items()}


def lower(graph: ModelGraph, placements: Iterable[Placement], *, in_onnx: bool = True) -> Lowering:
    """Return the lowering of every node.

    Args:
        graph: The model.
        placements: The placements of its plan.
        in_onnx: Whether the file is an ONNX file. For other files, whose converter determines the rest, only the steps
            before the conversion are known: "folded" and "vanishes".
    """
    return _Lowering(graph, tuple(placements), in_onnx=in_onnx).run()


class Merged:
    """The nodes that are folded into or absorbed by the layer before them, given some placements.

    Tensors with a pair stay, and the integers of quantized weights do not change.

    Args:
        graph: The model.
        placements: The placements.
        in_onnx: Whether the file is an ONNX file, in which biases absorb constants.
    """

    def __init__(self, graph: ModelGraph, placements: Collection[Placement], *, in_onnx: bool = True) -> None:
        self._graph = graph
        self.paired = {placement.tensor for placement in placements if placement.site != "weight"}
        self._weights = {placement.tensor for placement in placements if placement.site == "weight"}
        self._kept = kept_for_scales(graph, placements)
        self.folds = find_folds(graph, self.paired | self._kept, self._weights)
        self.into = {fold.batch_norm.name: fold.layer.name for fold in self.folds}
        self.added: dict[str, str] = {}
        # In computing order: a constant may follow another one that is merged already.
        for node in graph.once(_constant_additions) if in_onnx else ():
            layer = self._adds_to(node)
            if layer is not None:
                self.added[node.name] = self.into[node.name] = layer.name

    @functools.cached_property
    def parted(self) -> list[Fold]:
        """The normalizations that would be folded without the pairs in between."""
        return [fold for fold in find_folds(self._graph, self._kept, self._weights) if fold not in self.folds]

    def behind(self, node: Node, stops: Collection[str], fused: Collection[str]) -> str:
        """Return the output tensor of everything that the kernel of a node computes, activations in `fused` included.

        `stops` are tensors that must exist, because they have a pair.
        """
        tensor = node.outputs[0]
        # The activation inside a layer is the last step of its kernel; nothing behind it is fused.
        if node.activation_name in fused:
            return tensor
        while tensor != (
            after := step_behind(self._graph, tensor, stops, lambda r: self.into.get(r.name) == node.name)
        ):
            tensor = after
        return step_behind(
            self._graph, tensor, stops, lambda reader: reader.is_activation and reader.activation_name in fused
        )

    def _adds_to(self, addition: Node) -> Node | None:
        """Return the layer before `x + c` whose bias can absorb the constant; None if there is none."""
        graph = self._graph
        # A pair, another reader and an activation need the sum without the constant.
        before = step_before(graph, addition.inputs[0], self.paired)
        if before is None:
            return None
        # Behind a folded normalization or another constant, the bias is that of the layer in front of both.
        layer = graph.node(self.into.get(before.name, before.name))
        if layer.opaque or layer.activation_name != "linear":
            return None
        joins = is_per_channel(graph, addition, layer) if is_convolution(layer) else _joins_gemm(graph, addition, layer)
        return layer if joins else None


class _Lowering:
    def __init__(self, graph: ModelGraph, placements: Collection[Placement], *, in_onnx: bool) -> None:
        self._graph = graph
        self._alone = graph.once(_nodes_in_onnx if in_onnx else _nodes_in_others)
        self._merged = Merged(graph, placements, in_onnx=in_onnx)

    def run(self) -> Lowering:
        return Lowering({node.name: self._step(node) for node in self._graph.nodes}, self._merged)

    def _step(self, node: Node) -> LoweredNode:
        layer = self._merged.into.get(node.name)
        if layer is None or not node.inputs or vanishes(node):
            return self._alone[node.name]
        if node.name in self._merged.added:
            reason = f"its constant becomes a part of the bias of {layer!r}"
            return LoweredNode(node.name, "absorbed", (layer,), (), reason)
        reason = f"it becomes a part of the weights and the bias of {layer!r}"
        return LoweredNode(node.name, "folded", (layer,), (), reason)


def _nodes_in_onnx(graph: ModelGraph) -> dict[str, LoweredNode]:
    """Return the lowering in an ONNX file of every node where it is not merged into the layer before it."""
    return {node.name: _bare(node) or _in_file(graph, node) for node in graph.nodes}


def _nodes_in_others(graph: ModelGraph) -> dict[str, LoweredNode]:
    """Return the lowering in other files of every node where it is not merged into the layer before it."""
    return {node.name: _bare(node) or LoweredNode(node.name, "written") for node in graph.nodes}


def _bare(node: Node) -> LoweredNode | None:
    """Return the lowering of a node that computes nothing in any file; None for others."""
    if not node.inputs:
        return LoweredNode(node.name, "written", operators=())
    if vanishes(node):
        return LoweredNode(node.name, "vanishes", operators=(), reason="it does nothing at inference")
    return None


def _in_file(graph: ModelGraph, node: Node) -> LoweredNode:
    takers = padding_readers(graph, node)
    if takers:
        shown = ", ".join(repr(name) for name in takers)
        return LoweredNode(node.name, "absorbed", takers, (), f"{shown} pads instead")
    operators = graph.once(find_operators)[node.name]
    if not node.opaque and node.is_a(*MOVEMENTS, *CROPPINGS):
        return LoweredNode(node.name, "moved", operators=operators, reason="it only gives values another place")
    parts = main_operators(node) or ()
    if len(parts) > 1:
        return LoweredNode(node.name, "split", operators=operators, reason=_why_split(node, parts))
    return LoweredNode(node.name, "written", operators=operators)


def padding_readers(graph: ModelGraph, node: Node) -> tuple[str, ...]:
    """Return the readers that absorb a zero padding; empty if one of them cannot, or the node is no zero padding."""
    if not pads_with_zeros(node):
        return ()
    readers, pending = [], [node.outputs[0]]
    while pending:
        tensor = pending.pop()
        if tensor in graph.outputs:
            return ()
        for reader, _ in graph.readers(tensor):
            if vanishes(reader):
                pending.append(reader.outputs[0])
            elif takes_padding(graph, node, reader):
                readers.append(reader.name)
            else:
                return ()
    return tuple(dict.fromkeys(readers))


def _why_split(node: Node, parts: tuple[str, ...]) -> str:
    reason = f"{' and '.join(parts)} compute it, with no Q/DQ pair between them"
    return f"{reason}; split_separable_convolutions makes two layers of it" if node.is_a(*SEPARABLE) else reason


def _constant_additions(graph: ModelGraph) -> list[Node]:
    return [node for node in graph.nodes if adds_constant(node)]


def _joins_gemm(graph: ModelGraph, addition: Node, layer: Node) -> bool:
    """Return whether `x + c` has one constant per unit of a Dense on vectors, whose Gemm can absorb it."""
    # With more than two axes the file holds a MatMul, which has no bias.
    if layer.is_operation or not layer.is_a("Dense") or len(graph.tensors[layer.inputs[0]].shape) != 2:
        return False
    constant: list[int] = addition.settings.get("constant_shape") or []
    return is_per_channel(graph, addition, layer) and constant[-1:] == [graph.tensors[layer.outputs[0]].shape[-1]]


def is_per_channel(graph: ModelGraph, operation: Node, layer: Node) -> bool:
    """Return whether an operation such as `x * c` has a constant with one value, or one per channel of `layer`."""
    constant, shape = operation.settings.get("constant_shape"), graph.tensors[layer.outputs[0]].shape
    if constant is None or len(operation.inputs) != 1 or len(constant) > len(shape):
        return False
    axis = 1 if layer.settings.get("data_format") == "channels_first" else len(shape) - 1
    # Broadcasting aligns shapes at their last axis. All axes but that of the channels must have size 1.
    full = [1] * (len(shape) - len(constant)) + list(constant)
    return full[axis] in (1, shape[axis]) and math.prod(full) == full[axis]
