"""Properties of a plan, for the rule sets."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from qdq_workbench.graph.macs import macs_by_node
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import is_convolution, step_before, vanishes
from qdq_workbench.graph.output_axes import output_axes
from qdq_workbench.graph.weight_sizes import weight_sizes
from qdq_workbench.placement.blocks import is_one_block
from qdq_workbench.placement.defaults import find_default
from qdq_workbench.placement.kept import kept_for_scales
from qdq_workbench.placement.opsets import is_packed, least_opset
from qdq_workbench.placement.plan import Placement, PlacementPlan
from qdq_workbench.placement.wrong_kernels import WHY_FLOAT, tensors_without_pairs
from qdq_workbench.runtimes.inner_layers import operands

_FLOAT_BYTES = 4


class PlanFacts:
    """A plan with the properties that the rules of every runtime need.

    Args:
        plan: The plan.
        opset: The opset of its ONNX file; None for the one that `export_onnx` chooses.
    """

    def __init__(self, plan: PlacementPlan, opset: int | None = None) -> None:
        self.plan = plan
        self.graph: ModelGraph = plan.graph
        self.opset = least_opset(tensor.quantizer for tensor in plan.tensors) if opset is None else opset

    @functools.cached_property
    def paired(self) -> frozenset[str]:
        """The activation tensors that have a Q/DQ pair."""
        return frozenset(tensor.tensor for tensor in self.plan.tensors if tensor.kind == "activation")

    @functools.cached_property
    def folded(self) -> dict[str, str]:
        """The batch normalizations that the export folds, each with the layer that absorbs it."""
        return {fold.batch_norm.name: fold.layer.name for fold in self.plan.lowering.folds}

    @property
    def added(self) -> dict[str, str]:
        """The additions of one constant per channel that the export folds, each with the layer that absorbs it."""
        return self.plan.lowering.merged.added

    def absorber(self, node: Node) -> Node:
        """Return the node that a node is folded into in the file, or the node itself."""
        return self.graph.node(self.plan.lowering.merged.into.get(node.name, node.name))

    def owns_bias(self, node: Node) -> bool:
        """Return whether a layer has a bias of its own."""
        return any(weight.name == "bias" for weight in node.weights)

    def merged_into(self, node: Node) -> list[str]:
        """Return the calls that are a part of a matrix product in an ONNX file, in computing order."""
        return [name for name, layer in {**self.folded, **self.added}.items() if layer == node.name]

    @functools.cached_property
    def _weights(self) -> frozenset[str]:
        return frozenset(placement.tensor for placement in self.plan.placements if placement.site == "weight")

    @functools.cached_property
    def _sizes(self) -> Mapping[str, Mapping[str, int]]:
        return weight_sizes(self.graph)

    @functools.cached_property
    def _costs(self) -> Mapping[str, tuple[int, int]]:
        return self.graph.once(_costs)

    @functools.cached_property
    def _placed_weights(self) -> dict[str, list[Placement]]:
        found: dict[str, list[Placement]] = {}
        for placement in self.plan.placements:
            if placement.site == "weight":
                found.setdefault(placement.layer, []).append(placement)
        return found

    @functools.cached_property
    def _pairs_for_all(self) -> frozenset[str]:
        found = {placement.tensor for placement in self.plan.placements if placement.site == "output"}
        for node in filter(vanishes, self.graph.nodes):  # in computing order, so that several in a row pass it on
            if node.inputs[0] in found or (node.name, 0) in self._own_inputs:
                found.add(node.outputs[0])
        return frozenset(found)

    @functools.cached_property
    def _own_inputs(self) -> frozenset[tuple[str, int | None]]:
        return frozenset((one.node, one.input_index) for one in self.plan.placements if one.site == "input")

    def input_pair(self, node: Node, index: int) -> Placement | None:
        """Return the pair that an input reads, also one in front of layers without an operator in the file."""
        tensor, found = node.inputs[index], self.plan.input_placement(node.name, index)
        while found is None and vanishes(self.graph.producer(tensor)):
            layer = self.graph.producer(tensor)
            tensor, found = layer.inputs[0], self.plan.input_placement(layer.name, 0)
        return found

    def float_inputs(self, node: Node) -> list[int]:
        """Return the inputs of a node that are not quantized."""
        # Not by `input_pair`, which is slower: rules ask for the inputs of every node.
        for_all, own, name = self._pairs_for_all, self._own_inputs, node.name
        inputs = node.inputs
        return [i for i in operands(node) if inputs[i] not in for_all and (name, i) not in own]

    def why_not_two_operands(self, node: Node) -> str | None:
        """Return why a kernel of two operands cannot compute a node; None if the node has two input tensors."""
        if len(node.inputs) == 2:
            return None
        if len(node.inputs) == 1:
            return "its other operand is a constant, which has no Q/DQ pair"
        return f"it has {len(node.inputs)} tensor operands, the kernel takes two"

    def float_weights(self, node: Node) -> list[str]:
        """Return the weights that the layer's class quantizes by default and the plan does not."""
        default = find_default(node)
        names = default.weights if default is not None else ()
        return [name for name in names if f"{node.layer}/{name}" not in self._weights]

    def why_axis(self, node: Node) -> tuple[str, str]:
        """Return a reason and a remedy if a weight has several scales along a contracted axis; else ("", "")."""
        for placement in self._placed_weights.get(node.layer, ()):
            axis = placement.quantizer.axis
            if placement.weight is None or axis is None:
                continue
            if placement.quantizer.block_size is not None:
                continue  # blocks are for kernels that dequantize them, not for integer kernels
            axes = output_axes(node, placement.weight)
            shape = next((weight.shape for weight in node.weights if weight.name == placement.weight), ())
            # Along an axis of one element there is one scale, over which a kernel may sum.
            if axes is not None and axis % len(shape) not in axes and shape[axis] > 1:
                return (
                    (
                        f"the scales of its weight {placement.weight!r} lie along axis {axis}, over which an integer "
                        "kernel sums up"
                    ),
                    f"one scale in all, or one per output channel (axis {axes[-1]}), lets it run in INT8",
                )
        return "", ""

    @functools.cached_property
    def _unpaired(self) -> frozenset[str]:
        """The tensors that the plan's target gets no pair of, whatever a specification says."""
        return tensors_without_pairs(self.graph, self.plan.target_object)

    def why_unpaired(self, node: Node) -> str:
        """Return why an input of a node has no pair, whatever a specification says; empty if it may have one."""
        return "" if self._unpaired.isdisjoint(node.inputs) else WHY_FLOAT

    def why_not_real(self, node: Node) -> str:
        """Return the reason if a node reads or returns anything but floats, so that no pair helps it; else ""."""
        for verb, names in (("returns", node.outputs), ("reads", [node.inputs[index] for index in operands(node)])):
            for name in names:
                tensor = self.graph.tensors[name]
                if not tensor.is_float:
                    return f"it {verb} {tensor.dtype} values, {name!r}, and a Q/DQ pair holds real numbers"
        return ""

    def cost(self, node: Node) -> tuple[int, int, int]:
        """Return the multiply-accumulate operations of a call, the bytes of its weights in float, and of integer ones.

        The weights of a shared layer are counted at its first call.
        """
        macs, stored = self._costs[node.name]
        if not stored:
            return macs, 0, 0
        sizes, placed = self._sizes[node.layer], self._placed_weights.get(node.layer, ())
        as_integers = sum([sizes.get(placement.tensor, 0) for placement in placed]) if placed else 0
        return macs, _FLOAT_BYTES * stored, _FLOAT_BYTES * as_integers

    def blocks(self, node: Node) -> Placement | None:
        """Return the placement of a weight of a node that is in blocks; None without one."""
        placed = self._placed_weights.get(node.layer, ())
        return next((found for found in placed if found.quantizer.block_size is not None), None)

    def is_one_block(self, node: Node) -> bool:
        """Return whether a node's weight has one block per output, which a file stores as one scale per output."""
        placed = self.blocks(node)
        return placed is not None and is_one_block(node, placed)

    def weights(self, node: Node) -> list[Placement]:
        """Return the placements of a node's weights."""
        return list(self._placed_weights.get(node.layer, ()))

    def activations(self, node: Node) -> list[Placement]:
        """Return the placements of the inputs and outputs of a node."""
        reads = [self.input_pair(node, index) for index in range(len(node.inputs))]
        writes = [self.plan.output_placement(tensor) for tensor in node.outputs]
        return [placement for placement in (*reads, *writes) if placement is not None]

    def wide_grids(self, node: Node) -> list[str]:
        """Return the tensors that a node reads or writes on a grid of more than 8 bits."""
        found = (*self.activations(node), *self.weights(node))
        return [placement.tensor for placement in found if placement.quantizer.num_bits > 8]

    def packed_weights(self, node: Node) -> list[Placement]:
        """Return the placements of a node's weights that an ONNX file holds as 4-bit integers."""
        return [placed for placed in self.weights(node) if is_packed(placed.quantizer, self.opset)]

    def is_paired(self, tensor: str) -> bool:
        """Return whether any use of a tensor reads it through a pair."""
        return tensor in self.paired

    def is_paired_in_file(self, tensor: str) -> bool:
        """Return whether a tensor has a pair, or one stands behind layers without an operator in the file."""
        behind = (reader.outputs[0] for reader, _ in self.graph.readers(tensor) if vanishes(reader))
        return tensor in self.paired or any(map(self.is_paired_in_file, behind))

    def kernel_before(self, tensor: str) -> str | None:
        """Return the node that computes a tensor; None if a pair or another reader needs the tensor itself.

        Layers without an operator in the file are not in between.
        """
        node = step_before(self.graph, tensor, self.paired)
        return None if node is None else node.name

    def has_one_pair(self, tensor: str) -> bool:
        """Return whether all uses of a tensor, outputs included, read it through pairs on one grid."""
        if self.plan.output_placement(tensor) is not None:
            return True
        reads = [self.plan.input_placement(node.name, index) for node, index in self.graph.readers(tensor)]
        grids = {None if found is None else found.quantizer for found in reads}
        return tensor not in self.graph.outputs and len(grids) == 1 and None not in grids

    def why_not_folded(self, node: Node) -> str:
        """Return why the export does not fold a BatchNormalization into the layer before it."""
        tensor = node.inputs[0]
        layer = self.graph.producer(tensor)
        if not (is_convolution(layer) or layer.is_a("Dense")):
            return f"it follows {layer.class_name} {layer.name!r}, into which it cannot be folded"
        if layer.activation_name != "linear":
            return f"{layer.name!r} applies {layer.activation_name} before it, so it cannot be folded"
        if not self.graph.has_one_use(tensor):
            return f"{tensor!r} is needed elsewhere too, so it cannot be folded into {layer.name!r}"
        if tensor in kept_for_scales(self.graph, self.plan.placements):
            if self.blocks(layer) is not None:
                return f"the weights of {layer.name!r} are in blocks, into whose scales nothing is folded"
            return f"the scales of the weights of {layer.name!r} lie along another axis than its channels"
        if node.name in {fold.batch_norm.name for fold in self.plan.lowering.merged.parted}:
            calls = self.graph.calls(node.layer)
            between = next((call.inputs[0] for call in calls if call.inputs[0] in self.paired), tensor)
            return f"the pair on {between!r} stands between {layer.name!r} and it, so it cannot be folded"
        if len(self.graph.calls(layer.layer)) > 1 or len(self.graph.calls(node.layer)) > 1:
            return f"{layer.name!r} or it is called several times, not always the one behind the other"
        return f"folding it would change the integers of {layer.name!r}, or it normalizes another axis"

    def behind(self, node: Node, fused: frozenset[str]) -> str:
        """Return the tensor behind everything that is fused with a node: folded layers, constants, an activation."""
        return self.plan.lowering.merged.behind(node, self.paired, fused)

    def same_scale(self, node: Node) -> bool:
        """Return whether the inputs and the output of a node all share one scale."""
        sources = [self.input_pair(node, index) for index in range(len(node.inputs))]
        groups = {None if found is None else found.scale_group for found in (*sources, self.output_pair(node))}
        return bool(sources) and len(groups) == 1 and None not in groups

    def output_pair(self, node: Node) -> Placement | None:
        """Return the pair that all readers of a node's output share, if there is one."""
        return self.pair_for_all(node.outputs[0])

    def pair_for_all(self, tensor: str) -> Placement | None:
        """Return the pair that all uses of a tensor share, also one behind layers without an operator in the file."""
        found = self.plan.output_placement(tensor)
        while found is None and self.graph.has_one_use(tensor) and vanishes(self.graph.readers(tensor)[0][0]):
            tensor = self.graph.readers(tensor)[0][0].outputs[0]
            found = self.plan.output_placement(tensor)
        return found


def _costs(graph: ModelGraph) -> dict[str, tuple[int, int]]:
    """Return the multiply-accumulate operations of every call, and the number of values of the weights it counts."""
    found = {name: (macs, 0) for name, macs in macs_by_node(graph).items()}
    for layer, sizes in weight_sizes(graph).items():
        first = graph.calls(layer)[0].name
        found[first] = (found[first][0], sum(sizes.values()))
    return found
