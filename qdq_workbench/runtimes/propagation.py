"""Where ONNX Runtime moves Q/DQ pairs before it forms integer kernels.

A QuantizeLinear moves backwards, and a DequantizeLinear forwards, through operations that only move or select values.
Measured with 1.31 (`tests/runtimes/test_propagation.py`), for such an operation with result T:

    readers of T                         input quantized           input float
    none through a pair                  integers                  float
    all through one pair                 integers if one scale     integers if nothing else reads the input
    several pairs, or some without one   float                     float

A pair that moved backwards counts like one that was placed there. Of two pairs in a row the first is written and the
second is read; a file keeps them apart (`export/passes/keep_pairs_apart.py`).

In front of a pair whose grid leaves out values of its integer type (of fewer than 8 bits, or narrow) stands a Clip,
through which no pair moves: what is in front of it is read by a float operation (`tests/runtimes/test_few_bits.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from qdq_workbench.graph.kinds import GLOBAL_MAXIMA, MAXIMA, RESHAPINGS
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import keeps_shape, pads_with_zeros, vanishes
from qdq_workbench.placement.pairs import PlannedTensor
from qdq_workbench.placement.plan import Placement
from qdq_workbench.placement.settings import grid_of, method_of
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.inner_layers import operands
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

PASSED = (*MAXIMA, *RESHAPINGS)
# Their outputs hold the values of their inputs, and perhaps zeros, which every range contains: the range is the same.
_SAME_VALUES = (*RESHAPINGS, "UpSampling2D")

Scale = tuple[Any, ...]
Settings = tuple[Any, ...]  # the grid and the method of a pair


class Range(NamedTuple):
    """What a plan knows of the range of a pair: the tensors whose values it holds, the grid, and the method."""

    tensors: tuple[str, ...]
    grid: QuantizerSpec
    method: QuantizerMethod | None


_CLIP = "clip"  # the first element of the scale of a pair behind a Clip


class Propagation:
    """Computes for a plan which tensors are integers after the runtime has moved its pairs.

    Args:
        facts: The plan.
    """

    def __init__(self, facts: PlanFacts) -> None:
        self._graph = facts.graph
        self._plan = facts.plan
        self._in_file = facts.plan.target_object.activation_in_file
        self._same_as, self._chosen_from = self._origins(), self._origins(*MAXIMA, *GLOBAL_MAXIMA)
        self._origin_of_group: dict[str, str | None] = {}  # by the pair that has its range
        self._members: dict[str, list[str]] = {}  # by the pair that has the range of a group, the tensors of the group
        self._settings_of_owner: dict[str, Settings] = {}
        owners = facts.plan.range_owners
        for pair in facts.plan.tensors:
            if pair.name in owners:
                self._members.setdefault(owners[pair.name], []).append(pair.tensor)
                self._settings_of_owner[owners[pair.name]] = (self._in_file(pair.quantizer), pair.method)
        # Scales of readers depend on later nodes, scales of inputs on earlier ones: one pass in each direction.
        self._readers: dict[str, frozenset[Scale | None]] = {}
        for node in reversed(self._graph.nodes):
            self._readers.update({tensor: self._scales_of_readers(tensor) for tensor in node.outputs})
        self._first: dict[str, Scale | None] = {}  # by node, the scale of the integers that its first input gets
        for node in self._graph.nodes:
            self._first[node.name] = self._arriving(node, 0) if node.inputs else None

    def pair_behind(self, tensor: str) -> Scale | None:
        """Return the scale of the one QuantizeLinear that a tensor reaches; None without one or with other readers."""
        found = self._only_reader(tensor)
        return None if _is_clip(found) else found

    def clip_behind(self, tensor: str) -> PlannedTensor | None:
        """Return the pair with a Clip in front of it that is all that a tensor reaches; None if there is none."""
        found = self._only_reader(tensor)
        return found[1] if found is not None and _is_clip(found) else None

    def range_of(self, scale: Scale) -> Range:
        """Return what the plan knows of the range of the pair of a scale."""
        if scale[0] == "group":
            return Range(tuple(self._members[scale[1]]), *self._settings_of_owner[scale[1]])
        return Range((scale[1],), *scale[2:])

    def is_partly_quantized(self, tensor: str) -> bool:
        """Return whether a tensor reaches a QuantizeLinear, and is read by something else or another one as well."""
        scales = self._readers[tensor]
        return len(scales) > 1 and any(scale is not None and not _is_clip(scale) for scale in scales)

    def _only_reader(self, tensor: str) -> Scale | None:
        scales = self._readers[tensor]
        return next(iter(scales)) if len(scales) == 1 else None

    def float_inputs(self, node: Node) -> list[int]:
        """Return the indices of the inputs of a node that are floats."""
        return [index for index in operands(node) if self._arriving(node, index) is None]

    def passes(self, node: Node) -> tuple[bool, str]:
        """Return whether an operation of a class in `PASSED` runs on integers, and the reason."""
        arriving, result = self._arriving(node, 0), node.outputs[0]
        behind = self.pair_behind(result)
        if arriving is None:
            if behind is not None and self._graph.has_one_use(node.inputs[0]):
                return True, "the pair behind it moves in front of it"
            return False, "its input is not quantized"
        if behind is not None:
            same = behind == arriving
            return same, "input and output share one scale" if same else "its output has another scale than its input"
        if self.is_partly_quantized(result):
            return False, f"some readers of {result!r} read it through a pair, others do not, or through another one"
        return True, "integers pass through it"

    def one_scale(self, node: Node) -> bool:
        """Return whether the inputs of a node and the one pair behind it have one scale."""
        scales = {self._arriving(node, index) for index in range(len(node.inputs))}
        return len(scales) == 1 and None not in scales and self.pair_behind(node.outputs[0]) in scales

    def takes_pair(self, tensor: str) -> bool:
        """Return whether a pair added to a tensor would be the one that all its readers use."""
        return self._plan.output_placement(tensor) is None and len(self._settings_behind(tensor)) <= 1

    def takes_input_scale(self, node: Node) -> bool:
        """Return whether a pair added to the result of a node, and to its first input, would have one scale."""
        arriving, decision = self._first[node.name], self._plan.decisions.get(node.name)
        own = None if decision is None else (decision.settings or {}).get("activation")
        settings = self._placed(own) if arriving is None else self._settings(arriving)
        result = node.outputs[0]
        return self._plan.output_placement(result) is None and self._settings_behind(result) <= {settings}

    def _placed(self, own: Mapping[str, Any] | None) -> Settings:
        return self._in_file(grid_of(self._plan.target_object.activation, own)), method_of(own, "activation")

    def _settings_behind(self, tensor: str) -> set[Settings]:
        """Return the settings that a pair on a tensor may get, its own ones and those of its readers, if they agree."""
        found = {self._settings(scale) for scale in self._readers[tensor] if scale is not None}
        decision = self._plan.decisions.get(self._graph.producer(tensor).name)
        own = None if decision is None else (decision.settings or {}).get("output")
        if own is not None:
            found.add(self._placed(own))
        return found

    def _settings(self, scale: Scale) -> Settings:
        """Return grid and method of the pair of a scale."""
        if scale[0] == "group":
            return self._settings_of_owner[scale[1]]
        if _is_clip(scale):
            return self._in_file(scale[1].quantizer), scale[1].method
        return scale[2:]

    def _scales_of_readers(self, tensor: str) -> frozenset[Scale | None]:
        """Return the scales through which a tensor is read; None is among them if it is read without a pair too."""
        for_all = self._plan.output_placement(tensor)
        found: set[Scale | None] = set()
        if tensor in self._graph.outputs or (for_all is not None and not self._graph.readers(tensor)):
            found.add(None if for_all is None else self._scale_to_read(for_all))
        # A reader with settings of its own has another pair than that of the others.
        for node, index in self._graph.readers(tensor):
            placement = self._plan.input_placement(node.name, index)
            if placement is not None:
                found.add(self._scale_to_read(placement))
            # In the file the readers of such a node read this tensor.
            elif (
                vanishes(node)
                or keeps_shape(self._graph, node)
                or self._plan.lowering.nodes[node.name].step == "absorbed"
            ):
                found |= self._readers[node.outputs[0]]
            elif node.is_a(*PASSED) and self._graph.has_one_use(tensor):
                found.add(self._only_reader(node.outputs[0]))
            else:
                found.add(None)
        return frozenset(found)

    def _scale_to_read(self, placement: Placement) -> Scale:
        """Return the scale of the pair through which a tensor is read, or that a Clip reads it."""
        return self._scale(placement) if placement.quantizer.fills_type else (_CLIP, self._plan.pair_of(placement))

    def _arriving(self, node: Node, index: int) -> Scale | None:
        """Return the scale of the integers that an input reads; None for floats."""
        placement = self._plan.input_placement(node.name, index)
        if placement is not None:
            return self._scale(placement)
        source = self._graph.producer(node.inputs[index])
        padded = self._plan.lowering.nodes[source.name].step == "absorbed" and pads_with_zeros(source)
        if (source.is_operation and not padded) or not source.inputs:
            return None
        if vanishes(source) or padded or (source.is_a(*PASSED) and self.passes(source)[0]):
            return self._first[source.name]
        return None

    def _scale(self, placement: Placement) -> Scale:
        """Return a key of the scale of a pair in the file: pairs with the same values and the same grid share it."""
        pair = self._plan.pair_of(placement)
        owner = self._plan.range_owners[pair.name]
        settings = self._in_file(pair.quantizer), pair.method
        if pair.scale_group is None:
            return "values", self._same_as[pair.tensor], *settings
        if owner not in self._origin_of_group:
            members = self._members[owner]
            chosen = {self._chosen_from[member] for member in members}
            same = len(chosen) == 1 and chosen <= {self._same_as[member] for member in members}
            self._origin_of_group[owner] = chosen.pop() if same else None  # maxima do not widen the range of values
        origin = self._origin_of_group[owner]
        return ("group", owner) if origin is None else ("values", origin, *settings)

    def _origins(self, *choosing: str) -> dict[str, str]:
        """Return, by tensor, the tensor whose values it holds, perhaps moved, padded or chosen from by some layers."""
        found: dict[str, str] = {}
        for node in self._graph.nodes:
            kept = (node.is_a(*_SAME_VALUES, *choosing) or vanishes(node)) and not node.is_operation
            nearest = node.settings.get("interpolation", "nearest") == "nearest"
            moves = (kept or pads_with_zeros(node)) and nearest and bool(node.inputs)
            found.update({tensor: found[node.inputs[0]] if moves else tensor for tensor in node.outputs})
        return found


def _is_clip(scale: Scale | None) -> bool:
    return scale is not None and scale[0] == _CLIP


# One entry, because it keeps a plan in memory: all verdicts of one explanation ask for the same.
@functools.lru_cache(maxsize=1)
def propagation_of(facts: PlanFacts) -> Propagation:
    """Return where pairs move in a plan; the same object for the same facts, one after the other."""
    return Propagation(facts)
