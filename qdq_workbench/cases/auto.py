"""`AutoQDQCase`: the placement that a target needs, from the structure of the graph."""

from __future__ import annotations

import copy
from typing import Any

from qdq_workbench.cases.base import GraphCase, check_is_quantizable_by_layer_name
from qdq_workbench.cases.residual import ResidualConnectionQDQCase
from qdq_workbench.graph.kinds import ELEMENTWISE, MERGES, MOVEMENTS, POOLINGS, TENSOR_PRODUCTS
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import reads_infinity, vanishes
from qdq_workbench.placement.defaults import find_default
from qdq_workbench.placement.targets import Target, get_target, target_names
from qdq_workbench.spec.quantization_spec import QuantizationSpec


class AutoQDQCase(GraphCase):
    """Places the pairs that a target's integer kernels need, for any network.

    For runtimes whose kernels are integer on both sides (ONNX Runtime, LiteRT) every operation with such a kernel gets
    all its inputs quantized, and the target adds the pairs on outputs and the shared scales. For runtimes that fuse
    (TensorRT, OpenVINO) residual connections get a pair on the skip branch only, and squeeze-and-excite products,
    concatenations and pooling get pairs on their inputs.

    It adds to the defaults of the layer classes, and has no entries for what these quantize (convolutions, matrix
    products, average pooling). For a plan or a model that is retargeted or exported for another target it decides
    again, if it is the plan's only case and was made without a target or for the plan's own.

    Args:
        target: A target's name or a `Target`; None for the one that the model is planned for.

    Raises:
        TargetError: If there is no such target.

    Example:
        >>> AutoQDQCase("onnxruntime").target.name
        'onnxruntime'
    """

    def __init__(self, target: str | Target | None = None) -> None:
        self._given = target is not None
        # Without a target a stand-in: planning asks `for_target` first.
        self.target = get_target("tensorrt" if target is None else target)

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The target by name, if a registered one was given."""
        known = self._given and self.target.name in target_names() and get_target(self.target.name) == self.target
        return ((self.target.name,), {}) if known else super().arguments

    def for_target(self, target: Target) -> AutoQDQCase:
        """Return the case for the target that is planned for, unless it was made for a given one.

        Args:
            target: The target that the model is planned for.
        """
        if self._given:
            return self
        found = copy.copy(self)  # of the user's own class, if it is one
        found.target = target
        return found

    def info(self) -> str:
        """Return a description of the case and its purpose."""
        if self.target.integer_kinds:
            how = "quantizes both sides of every operation that has an integer kernel there, with one scale at pooling"
        else:
            how = "quantizes the skip branch of residual connections, products, pooling"
        return f"For {self.target.title}: {how} and at Concatenate. It looks at the structure, not at names."

    def case_for_graph(self, graph: ModelGraph, qspec: QuantizationSpec) -> QuantizationSpec:
        """Return the entries for the layers that neither the defaults quantize nor the user's spec names.

        Args:
            graph: The model's graph.
            qspec: The user's specification.
        """
        found = QuantizationSpec()
        # Kinds are listed there for runtimes whose kernels need a pair on their output, too.
        on_both_sides = bool(self.target.integer_kinds)
        if not on_both_sides:
            residual = ResidualConnectionQDQCase().case_for_graph(graph, qspec).layers
            found.layers.extend(entry for entry in residual if not _leads_to_softmax(graph, graph.node(entry.name)))
        for node in graph.nodes:
            if not check_is_quantizable_by_layer_name(qspec, node.layer) or not _reads_reals(graph, node):
                continue
            if reads_infinity(graph, node) or (node.is_a(*ELEMENTWISE) and _leads_to_softmax(graph, node)):
                continue
            default = find_default(node)
            if default is not None and default.quantize_input:
                continue
            if on_both_sides and self._has_integer_kernel(node):
                found.add(node.name, quantize_output=self._writes_integers(node))
            elif not on_both_sides and self._is_worth_reading_quantized(graph, node):
                found.add(node.name, quantize_weight=False, quantize_output=self._needs_both_sides(graph, node))
        return found

    # Runtimes whose kernels are integer on both sides

    def _has_integer_kernel(self, node: Node) -> bool:
        target = self.target
        if node.is_activation:
            return node.activation_name in target.integer_activations - {"softmax"}  # scores are better left in float
        if node.is_a(*target.integer_kinds):
            # The kernels of sums and products take two tensors, that of a concatenation any number.
            return len(node.inputs) == 2 or node.is_a("Concatenate") or not node.is_a(*MERGES)
        return node.is_a(*target.same_scale_kinds) and node.is_a(*POOLINGS, "Concatenate")

    def _writes_integers(self, node: Node) -> bool:
        """Return whether a node needs an output pair that the target does not add: activations, for some targets."""
        return node.is_activation and not self.target.completes_activations

    # Runtimes that fuse

    def _is_worth_reading_quantized(self, graph: ModelGraph, node: Node) -> bool:
        if node.is_a(*TENSOR_PRODUCTS):
            # A constant factor has no pair, and keeps the product in float.
            return len(node.inputs) > 1
        return node.is_a("Concatenate", *POOLINGS) and _leads_to_integers(graph, node)

    def _needs_both_sides(self, graph: ModelGraph, node: Node) -> bool:
        """Return whether a Multiply needs an output pair: TensorRT runs it on integers only if its result is int8."""
        return node.is_a("Multiply") and not _leads_to_integers(graph, node)


def _reads_reals(graph: ModelGraph, node: Node) -> bool:
    return bool(node.inputs) and all(graph.tensors[tensor].is_float for tensor in node.inputs)


def _leads_to_softmax(graph: ModelGraph, node: Node) -> bool:
    """Return whether a result is the scores of an attention, to which masks add numbers such as -1e9.

    A range up to these would leave no steps to the scores, which are better left in float in any case.
    """
    todo, seen = [node], {node.name}
    while todo:
        for reader, _ in (found for tensor in todo.pop().outputs for found in graph.readers(tensor)):
            if reader.is_activation and reader.activation_name == "softmax":
                return True
            between = vanishes(reader) or reader.is_a(*ELEMENTWISE) or reader.is_a("Cast", "Where", *MOVEMENTS)
            if between and reader.name not in seen:
                seen.add(reader.name)
                todo.append(reader)
    return False


def _leads_to_integers(graph: ModelGraph, node: Node) -> bool:
    """Return whether a reader quantizes the result by default, directly or after concatenation and pooling."""
    todo, seen = list(node.outputs), set()
    while todo:
        tensor = todo.pop()
        for reader, _ in graph.readers(tensor):
            default = find_default(reader)
            if default is not None and default.quantize_input:
                return True
            if reader.name not in seen and (vanishes(reader) or reader.is_a("Concatenate", *POOLINGS)):
                seen.add(reader.name)
                todo.extend(reader.outputs)
    return False
