"""Where ONNX Runtime moves Q/DQ pairs to before it forms integer kernels.

A QuantizeLinear moves backwards, and a DequantizeLinear forwards, through operations that only move or choose values.
Measured with 1.31 (`tests/runtimes/test_propagation.py`), for such an operation with result T:

    readers of T                         input quantized           input float
    none through a pair                  integers                  float
    all through one pair                 integers if one scale     integers if nothing else reads the input
    several pairs, or some without one   float                     float

A pair that moved backwards counts as if it had always been there. Of two pairs in a row, with nothing else that reads
the first, the runtime makes one, for the values that both can hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import is_never_negative
from qdq_workbench.placement.plan import Placement
from qdq_workbench.runtimes.facts import PlanFacts, vanishes

PASSED = ("MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "Flatten", "Reshape", "Permute")
PADDING = ("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")
_CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D")
_MAXIMA = ("MaxPooling1D", "MaxPooling2D", "MaxPooling3D")
# Their results hold the values of their inputs, and perhaps zeros, which every range contains: one range.
_SAME_VALUES = ("Flatten", "Reshape", "Permute", "UpSampling2D", *PADDING)

Scale = tuple[Any, ...]


class Propagation:
    """Answers, for a plan, where integers flow once the runtime has moved its pairs.

    Args:
        facts: The plan.
    """

    def __init__(self, facts: PlanFacts) -> None:
        self._facts = facts
        self._graph = facts.graph
        self._plan = facts.plan
        self._known: dict[str, Scale | None] = {}
        self._members: dict[str, list[str]] = {}  # by the pair that has the range of a group, the tensors of the group
        owners = facts.plan.range_owners
        for pair in facts.plan.tensors:
            if pair.name in owners:
                self._members.setdefault(owners[pair.name], []).append(pair.tensor)

    def pair_behind(self, tensor: str) -> Scale | None:
        """Return the scale of the one QuantizeLinear that a tensor reaches; None without one or with other readers.

        Args:
            tensor: Name of the tensor.
        """
        if tensor not in self._known:
            scales = set(self._reads(tensor))
            self._known[tensor] = next(iter(scales)) if len(scales) == 1 else None
        return self._known[tensor]

    def float_inputs(self, node: Node) -> list[int]:
        """Return the inputs of a node that arrive as floats.

        Args:
            node: A call.
        """
        return [index for index in range(len(node.inputs)) if self._arriving(node, index) is None]

    def passes(self, node: Node) -> tuple[bool, str]:
        """Return whether an operation that moves or chooses values does so with integers, and why not.

        Args:
            node: A call of a class in `PASSED`.
        """
        arriving, result = self._arriving(node, 0), node.outputs[0]
        behind = self.pair_behind(result)
        if arriving is None:
            if behind is not None and self._graph.has_one_use(node.inputs[0]):
                return True, "the pair behind it moves in front of it"
            return False, "its input is not quantized"
        if behind is not None:
            same = behind == arriving
            return same, "input and output share one scale" if same else "its output has another scale than its input"
        if any(scale is not None for scale in self._reads(result)):
            return False, f"some readers of {result!r} read it through a pair, others do not, or through another one"
        return True, "integers pass through it"

    def one_scale(self, node: Node) -> bool:
        """Return whether the inputs of a node and the one pair behind it have one scale.

        Args:
            node: A call.
        """
        scales = {self._arriving(node, index) for index in range(len(node.inputs))}
        return len(scales) == 1 and None not in scales and self.pair_behind(node.outputs[0]) in scales

    def takes_padding(self, node: Node, padding: Node) -> bool:
        """Return whether the export moves zero padding into a reader.

        It does so for convolutions, and for maxima of values that are never negative.

        Args:
            node: The reader.
            padding: The padding.
        """
        positive = node.is_a(*_MAXIMA) and is_never_negative(self._graph, padding.inputs[0])
        return not node.is_operation and (node.is_a(*_CONVOLUTIONS) or positive)

    def _reads(self, tensor: str) -> Iterator[Scale | None]:
        """Yield, for every reader of a tensor, the scale through which it reads; None without a pair."""
        for_all = self._plan.output_placement(tensor)
        if for_all is not None:
            yield self._scale(for_all)
            return
        if tensor in self._graph.outputs:
            yield None
        for node, index in self._graph.readers(tensor):
            placement = self._plan.input_placement(node.name, index)
            if placement is not None:
                yield self._scale(placement)
            elif vanishes(node) or self._moves_into_readers(node):
                yield from self._reads(node.outputs[0])
            elif node.is_a(*PASSED) and self._graph.has_one_use(tensor):
                yield self.pair_behind(node.outputs[0])
            else:
                yield None

    def _moves_into_readers(self, node: Node) -> bool:
        readers = [reader for reader, _ in self._graph.readers(node.outputs[0])]
        inside = node.is_a(*PADDING) and node.outputs[0] not in self._graph.outputs
        return inside and bool(readers) and all(self.takes_padding(reader, node) for reader in readers)

    def _arriving(self, node: Node, index: int) -> Scale | None:
        """Return the scale of the integers that an input gets; None for floats."""
        placement = self._plan.input_placement(node.name, index)
        if placement is not None:
            return self._scale(placement)
        source = self._graph.producer(node.inputs[index])
        padded = source.is_a(*PADDING) and self.takes_padding(node, source)
        if source.is_operation or not source.inputs:
            return None
        if vanishes(source) or padded or (source.is_a(*PASSED) and self.passes(source)[0]):
            return self._arriving(source, 0)
        return None

    def _scale(self, placement: Placement) -> Scale:
        """Return what identifies the scale of a pair; of pairs in a row, the runtime makes one on a grid of its own."""
        before, behind = [placement], [placement]
        while found := self._pair_before(before[0]):
            before.insert(0, found)
        while found := self._next_pair(behind[-1]):
            behind.append(found)
        scales = dict.fromkeys(self._own_scale(each) for each in (*before, *behind[1:]))
        return next(iter(scales)) if len(scales) == 1 else ("merged", *scales)

    def _next_pair(self, placement: Placement) -> Placement | None:
        """Return the pair that follows directly, where nothing else reads what either of them makes."""
        tensor = placement.tensor
        readers = self._graph.readers(tensor)
        if tensor in self._graph.outputs or len(readers) != 1 or not vanishes(readers[0][0]):
            return None
        result = readers[0][0].outputs[0]
        for_all = self._plan.output_placement(result)
        found = [for_all] if for_all else [self._read_by(reader) for reader in self._graph.readers(result)]
        pairs = {None if each is None else self._plan.pair_of(each).name for each in found}
        one = len(pairs) == 1 and None not in pairs and (for_all or result not in self._graph.outputs)
        return found[0] if one else None

    def _read_by(self, reader: tuple[Node, int]) -> Placement | None:
        return self._plan.input_placement(reader[0].name, reader[1])

    def _pair_before(self, placement: Placement) -> Placement | None:
        """Return the pair that stands directly before another."""
        node = self._graph.producer(placement.tensor)
        if not vanishes(node):
            return None
        before = self._plan.input_placement(node.name, 0)
        follows = self._next_pair(before) if before is not None else None
        same = follows is not None and self._plan.pair_of(follows).name == self._plan.pair_of(placement).name
        return before if same else None

    def _own_scale(self, placement: Placement) -> Scale:
        """Return what identifies the scale of a pair in the file: the same values on one grid have the same one."""
        pair = self._plan.pair_of(placement)
        owner = self._plan.range_owners[pair.name]
        if pair.scale_group is None:
            return "values", self._origin(pair.tensor), pair.quantizer, pair.method
        members = self._members[owner]
        origins = {self._origin(member, *_MAXIMA) for member in members}
        if len(origins) == 1 and origins <= {self._origin(member) for member in members}:
            return "values", origins.pop(), pair.quantizer, pair.method  # maxima of values do not widen their range
        return "group", owner

    def _origin(self, tensor: str, *choosing: str) -> str:
        source = self._graph.producer(tensor)
        kept = source.is_a(*_SAME_VALUES, *choosing) or vanishes(source)
        nearest = source.settings.get("interpolation", "nearest") == "nearest"
        moves = kept and nearest and not source.is_operation and bool(source.inputs)
        return self._origin(source.inputs[0], *choosing) if moves else tensor
