"""The placements that a target needs beyond the user's decisions: output pairs and shared scales, author "target".

ONNX Runtime forms an integer kernel only if the node's inputs *and* its output are quantized, and its output reaches
exactly one QuantizeLinear. So the pair is placed on the output tensor, where all readers share it, after the
BatchNormalization and the activation that the runtime fuses.

Scales are shared where a runtime would rescale values otherwise: across an operation that only moves or selects
values, and between the branches of a concatenation.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping

from qdq_workbench.graph.kinds import ARITHMETIC
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.never_negative import ceiling, is_never_negative
from qdq_workbench.graph.op_kinds import (
    MASKED,
    producer_in_file,
    readers_past_vanishing,
    vanishes,
)
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.defaults import find_default
from qdq_workbench.placement.lowering import Merged, padding_readers
from qdq_workbench.placement.plan import Placement
from qdq_workbench.placement.settings import grid_of, method_of
from qdq_workbench.placement.targets import Target
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


def complete(
    graph: ModelGraph, placements: list[Placement], decisions: Mapping[str, Decision], mode: str, target: Target
) -> list[Placement]:
    """Return the placements together with those that the target needs, in computing order.

    Args:
        graph: The model.
        placements: The placements of the user-level decisions.
        decisions: Those decisions, per node.
        mode: In "partial" mode only nodes that were named are completed.
        target: The target.
    """
    return _Completion(graph, placements, decisions, mode, target).run()


class _Completion:
    def __init__(
        self,
        graph: ModelGraph,
        placements: list[Placement],
        decisions: Mapping[str, Decision],
        mode: str,
        target: Target,
    ) -> None:
        self._graph = graph
        self._asked = placements
        self._decisions = decisions
        self._mode = mode
        self._target = target
        self._inputs = {p.key for p in placements if p.site == "input"}
        self._weights = {p.tensor for p in placements if p.site == "weight"}
        self._paired = {p.tensor for p in placements if p.site != "weight"}
        self._outputs = {p.tensor for p in placements if p.site == "output"}
        self._leaders: dict[str, str] = {}
        self._by_node: dict[str, list[Placement]] = {}
        for placement in placements:
            self._by_node.setdefault(placement.node, []).append(placement)

    def run(self) -> list[Placement]:
        for node in self._graph.nodes:
            # In computing order: an output pair that is added here quantizes the inputs of later nodes.
            if self._may_complete(node) and self._all_inputs_quantized(node):
                self._complete_node(node)
            elif self._may_complete(node) and (padded := self._before_padding(node)):
                self._complete_same_scale(node, padded)
        self._move_behind_what_vanishes()
        ordered = [p for node in self._graph.nodes for p in self._by_node.get(node.name, [])]
        return [self._with_group(placement) for placement in ordered]

    @functools.cached_property
    def _merged(self) -> Merged:
        """The nodes that are folded into or absorbed by the layer before them, given the user's decisions."""
        return Merged(self._graph, self._asked, in_onnx=self._target.file == "onnx")

    def _complete_node(self, node: Node) -> None:
        target = self._target
        if node.is_a(*target.same_scale_kinds):
            self._complete_same_scale(node, *self._read(node))
        elif node.is_a(*target.integer_kinds):
            self._complete_integer(node)
        elif target.completes_activations and node.is_activation:
            self._complete_activation(node)
        # Last, because an output pair that was added above shares the scale of the joined inputs, too.
        decision = self._decisions[node.name]
        if node.is_a(*target.joined_kinds) and decision.is_explicit and decision.input_indices:
            tensors = (*self._read(node), *(tensor for tensor in node.outputs if tensor in self._paired))
            if not target.relu_needs_zero or self._agree_in_ends(tensors):
                self._join(*tensors)

    def _may_complete(self, node: Node) -> bool:
        decision = self._decisions.get(node.name)
        if decision is None or not node.inputs or vanishes(node):
            return False
        # What a spec or a case leaves in float stays so. A layer that is off by default runs on integers as soon as
        # its inputs are quantized anyway.
        if decision.is_float:
            return self._mode == "full" and not decision.is_explicit
        return True

    def _all_inputs_quantized(self, node: Node) -> bool:
        return all(self._quantized(node, index) for index in range(len(node.inputs)))

    def _read(self, node: Node) -> list[str]:
        """Return the tensors whose pairs the inputs of a node read."""
        found = (self._quantized(node, index) for index in range(len(node.inputs)))
        return [tensor for tensor in found if tensor is not None]

    def _quantized(self, node: Node, index: int) -> str | None:
        """Return the tensor whose pair an input reads, also in front of a Dropout, which has no operator; else None."""
        tensor, reader = node.inputs[index], node
        while tensor not in self._outputs and ("input", reader.name, index) not in self._inputs:
            reader, index = self._graph.producer(tensor), 0
            if not vanishes(reader):
                return None
            tensor = reader.inputs[0]
        return tensor

    def _before_padding(self, node: Node) -> str | None:
        """Return the quantized tensor before a zero padding that a max pooling absorbs; None for other nodes."""
        # LiteRT has kinds with one scale, too, but its files keep the padding as an operator of its own.
        if not (node.is_a(*self._target.same_scale_kinds) and self._target.relu_needs_zero):
            return None
        padding = producer_in_file(self._graph, node.inputs[0])
        if node.name in padding_readers(self._graph, padding) and padding.inputs[0] in self._outputs:
            return padding.inputs[0]
        return None

    def _complete_integer(self, node: Node) -> None:
        default = find_default(node)
        needed = [f"{node.layer}/{name}" for name in (default.weights if default else ())]
        # With a float weight the kernel computes in float, whatever pair stands behind it.
        if not all(name in self._weights for name in needed):
            return
        # The kernels take two tensors. A sum of three is written as two operators, and a constant has no pair; nor has
        # what a layer chooses by a mask.
        if (node.is_a(*ARITHMETIC) and len(node.inputs) != 2) or node.settings.get(MASKED):
            return
        tensor = self._fused_output(node)
        # A kernel that may return floats gets a pair for all readers only if one of them reads integers.
        if tensor is None or (node.is_a(*self._target.float_output_kinds) and tensor not in self._paired):
            return
        self._add_output(
            tensor,
            f"{self._target.title} runs {node.class_name} {node.name!r} on integers only when "
            "its output is quantized too",
        )

    def _fused_output(self, node: Node) -> str | None:
        """Return the output tensor of `node` with all that the runtime fuses; None if its activation is not fused."""
        fused = self._target.fused_activations
        if node.activation_name not in fused | {"linear"}:
            return None
        return self._merged.behind(node, self._paired, fused)

    def _complete_same_scale(self, node: Node, *quantized: str) -> None:
        """Add an output pair with the scale of the input, as max pooling and data movement need to run on integers."""
        result = node.outputs[0]
        kinds = (*self._target.integer_kinds, *self._target.same_scale_kinds)
        # In a file the readers of a Dropout read the tensor before it.
        readers = [reader for reader, _ in readers_past_vanishing(self._graph, result) if not vanishes(reader)]
        helps = any(reader.is_a(*kinds) for reader in readers)
        # A second pair on the same scale costs time where nothing behind it reads integers.
        if not helps and result not in self._paired:
            return
        self._join(*quantized, result)
        self._add_output(
            result,
            f"{self._target.title} runs {node.class_name} {node.name!r} on integers only when "
            "its input and output share one scale",
        )

    def _complete_activation(self, node: Node) -> None:
        name = node.activation_name
        if name in self._target.integer_activations or name in self._target.fused_activations:
            self._add_output(
                node.outputs[0],
                f"{self._target.title} computes {name} on integers only when its output is quantized too",
            )

    def _join(self, *tensors: str) -> None:
        """Merge the scale groups of some tensors into one."""
        # The first leader stays, because its name is the name of the group.
        first, *others = dict.fromkeys(self._leader(tensor) for tensor in tensors)
        for other in others:
            self._leaders[other] = first
        self._leaders.setdefault(first, first)

    def _agree_in_ends(self, tensors: Iterable[str]) -> bool:
        """Return whether the tensors in the scale groups of some tensors are all never negative, and have one maximum.

        Or none of them is. A ReLU is fused only if 0 is the lowest integer of its pair, which a range shared with
        negative values prevents, and if no integer stands for more than its maximum.
        """
        leaders = {self._leader(tensor) for tensor in tensors}
        members = [tensor for tensor in self._leaders if self._leader(tensor) in leaders]
        every = {*leaders, *members, *tensors}
        return len({(is_never_negative(self._graph, name), ceiling(self._graph, name)) for name in every}) == 1

    def _leader(self, tensor: str) -> str:
        while self._leaders.get(tensor, tensor) != tensor:
            tensor = self._leaders[tensor]
        return tensor

    @functools.cached_property
    def _grouped(self) -> frozenset[str]:
        """The tensors that share their scale with another one; read only after all groups are formed."""
        sizes = Counter(self._leader(tensor) for tensor in self._leaders)
        return frozenset(tensor for tensor in self._leaders if sizes[self._leader(tensor)] > 1)

    def _add_output(self, tensor: str, reason: str) -> None:
        if tensor in self._outputs:
            return
        producer = self._graph.producer(tensor)
        self._outputs.add(tensor)
        self._paired.add(tensor)
        decision = self._decisions.get(producer.name)
        # The user's settings for the output hold for a pair that the target adds, too.
        own = None if decision is None else (decision.settings or {}).get("output")
        self._by_node.setdefault(producer.name, []).append(
            Placement(
                site="output",
                layer=producer.layer,
                node=producer.name,
                tensor=tensor,
                quantizer=grid_of(self._target.activation, own),
                reason=reason,
                author="target",
                method=method_of(own, "activation"),
            )
        )

    def _move_behind_what_vanishes(self) -> None:
        """Merge two pairs that would be adjacent in a file, because only layers such as Dropout lie between them."""
        if not any(p.author == "target" and p.site == "output" for placed in self._by_node.values() for p in placed):
            return
        grids: dict[str, set[tuple[QuantizerSpec, QuantizerMethod | None]]] = {}
        for placements in self._by_node.values():
            for placement in placements:
                grids.setdefault(placement.tensor, set()).add((placement.quantizer, placement.method))
        for node in self._graph.nodes:
            for placement in list(self._by_node.get(node.name, ())):
                if placement.site != "output" or placement.author != "target":
                    continue
                behind = self._pair_behind_what_vanishes(placement.tensor)
                # A pair with another grid or method changes the values that its readers get, so both stay.
                if behind is not None and grids[behind] == {(placement.quantizer, placement.method)}:
                    self._by_node[node.name].remove(placement)
                    self._move(placement, behind)

    def _pair_behind_what_vanishes(self, tensor: str) -> str | None:
        """Return the next tensor with a pair, if only layers without effect at inference lie between; else None."""
        while self._graph.has_one_use(tensor):
            reader, index = self._graph.readers(tensor)[0]
            if not vanishes(reader) or ("input", reader.name, index) in self._inputs:
                return None
            tensor = reader.outputs[0]
            if tensor in self._paired:
                return tensor
        return None

    def _move(self, placement: Placement, tensor: str) -> None:
        """Move an output's pair to another tensor, whose scale group the pair's group joins."""
        self._outputs.discard(placement.tensor)
        self._paired.discard(placement.tensor)
        if placement.tensor in self._leaders:
            self._join(placement.tensor, tensor)
        if tensor not in self._outputs:
            self._outputs.add(tensor)
            there = self._graph.producer(tensor)
            moved = dataclasses.replace(placement, layer=there.layer, node=there.name, tensor=tensor)
            self._by_node.setdefault(there.name, []).append(moved)

    def _with_group(self, placement: Placement) -> Placement:
        if placement.site == "weight" or not self._leaders:
            return placement
        group = self._leader(placement.tensor) if placement.tensor in self._grouped else None
        return dataclasses.replace(placement, scale_group=group) if group else placement
