"""The units of a quantized model whose rounding is learned together, found from its graph.

The calls are sorted into a computing order in which elementwise operations (a normalization, an activation function)
directly follow the layer that they belong to. A unit is a section of this order. It ends behind such a chain, where
its outputs are compared with those of the float model; the calls between two layers with weights (Q/DQ pairs,
poolings, additions) belong to the next unit.

    layer    one layer with quantized weights each
    block    up to the next place where all later calls need a single tensor: a residual block, or a layer of a plain
             chain (BRECQ's choice, Li et al. 2021, arXiv:2102.05426)
    model    everything, compared at the model's outputs

All calls of a shared layer are in one unit, and a tensor with a Keras mask never passes from one unit to another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

from qdq_workbench.graph.kinds import BATCH_NORMALIZATION
from qdq_workbench.graph.op_kinds import vanishes
from qdq_workbench.graph_builder import BoundGraph, Call, carries_mask
from qdq_workbench.wrappers import BaseQuantizeWrapper, QuantizeDequantize

GRANULARITIES = ("layer", "block", "model")
#: The most layers with weights that a block may have; one of more is learned layer by layer.
LARGEST_BLOCK = 16


@dataclasses.dataclass(frozen=True)
class Unit:
    """A section of the model's calls.

    Args:
        calls: The calls, in an order in which they can be computed.
        inputs: The tensors that it reads and other units, or the model's inputs, produce.
        outputs: The tensors that it produces and later units read, or that are outputs of the model.
        compared: Those of its tensors that are compared with the float model's.
        learned: The calls of layers whose weights are learned.
    """

    calls: tuple[Call, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    compared: tuple[str, ...]
    learned: tuple[Call, ...]


def find_units(bound: BoundGraph, learns: Callable[[Call], bool], granularity: str) -> list[Unit]:
    """Divide the calls of a quantized model into units, in computing order; none if no layer is learned.

    Each call is in exactly one unit. Calls behind the last learned layer may form a last unit without learned layers.
    """
    order = _Order(bound)
    weighted = [position for position, call in enumerate(order.calls) if learns(call)]
    if not weighted:
        return []
    if granularity == "model":
        return [order.unit(0, len(order.calls), learns, bound.graph.outputs)]
    layer_ends = _layer_ends(order, weighted)
    ends = layer_ends if granularity == "layer" else _block_ends(order, weighted, layer_ends)
    ends = _joined(order, weighted, ends)
    starts = [0, *ends[:-1]]
    units = [order.unit(start, end, learns) for start, end in zip(starts, ends, strict=True)]
    if ends[-1] < len(order.calls):
        units.append(order.unit(ends[-1], len(order.calls), learns))
    return units


class _Order:
    """The calls of a graph in computing order, with each layer's elementwise chain directly behind it."""

    def __init__(self, bound: BoundGraph) -> None:
        self._bound = bound
        self._readers: dict[str, list[Call]] = {}
        for call in bound.calls:
            for name in set(call.node.inputs):
                self._readers.setdefault(name, []).append(call)
        self._outputs = set(bound.graph.outputs)
        self.calls: list[Call] = []
        seen: set[str] = set()
        for call in bound.calls:
            following: Call | None = call
            while following is not None and following.node.name not in seen:
                seen.add(following.node.name)
                self.calls.append(following)
                following = self.next_of_chain(following)
        positions = {call.node.name: at for at, call in enumerate(self.calls)}
        self._made_at = {name: at for at, call in enumerate(self.calls) for name in call.node.outputs}
        # The model's inputs exist before the first call, and its outputs are needed after the last one.
        self._made_at.update(dict.fromkeys(bound.input_tensors, -1))
        self._last_read = {
            name: max(positions[call.node.name] for call in calls) for name, calls in self._readers.items()
        }
        self._last_read.update(dict.fromkeys(self._outputs, len(self.calls)))

    def next_of_chain(self, call: Call) -> Call | None:
        """Return the only reader of this call's only output if it is elementwise; else None."""
        if len(call.node.outputs) != 1 or call.node.outputs[0] in self._outputs:
            return None
        readers = self._readers.get(call.node.outputs[0], [])
        if len(readers) != 1 or len(readers[0].node.inputs) != 1 or len(readers[0].node.outputs) != 1:
            return None
        operation, node = readers[0].operation, readers[0].node
        # A pair belongs to the layer behind it, and a wrapped layer has quantized weights of its own.
        if isinstance(operation, (QuantizeDequantize, BaseQuantizeWrapper)):
            return None
        in_place = node.is_activation or vanishes(node) or (not node.is_operation and node.is_a(*BATCH_NORMALIZATION))
        return readers[0] if in_place else None

    def crossing(self, end: int) -> list[str]:
        """Return the tensors that are produced before a position of the order and read behind it."""
        return [name for name, at in self._made_at.items() if at < end <= self._last_read.get(name, -1)]

    def may_end(self, end: int) -> bool:
        """Return whether a unit may end at a position: no tensor with a mask crosses it."""
        return not any(carries_mask(self._bound.tensors[name]) for name in self.crossing(end))

    def chain_end(self, position: int) -> int:
        """Return the position behind the chain that begins with a call."""
        end = position + 1
        while end < len(self.calls) and self.next_of_chain(self.calls[end - 1]) is self.calls[end]:
            end += 1
        return end

    def unit(self, start: int, end: int, learns: Callable[[Call], bool], compared: Sequence[str] = ()) -> Unit:
        """Return the unit of a section; an empty `compared` means its outputs that depend on learned layers."""
        calls = self.calls[start:end]
        made = {name for call in calls for name in call.node.outputs}
        inputs = dict.fromkeys(name for call in calls for name in call.node.inputs if name not in made)
        outputs = [name for name in self.crossing(end) if name in made]
        learned = tuple(call for call in calls if learns(call))
        behind = self._behind(calls, learned)
        return Unit(
            calls=tuple(calls),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            compared=tuple(compared) or tuple(name for name in outputs if name in behind),
            learned=learned,
        )

    def _behind(self, calls: Sequence[Call], learned: Collection[Call]) -> set[str]:
        """Return the tensors that depend on a learned layer of these calls."""
        names = {call.node.name for call in learned}
        found: set[str] = set()
        for call in calls:
            if call.node.name in names or found & set(call.node.inputs):
                found.update(call.node.outputs)
        return found


def _layer_ends(order: _Order, weighted: Sequence[int]) -> list[int]:
    """Return the position behind the chain of every learned layer."""
    return [order.chain_end(position) for position in weighted]


def _block_ends(order: _Order, weighted: Sequence[int], layer_ends: Sequence[int]) -> list[int]:
    """Return the ends of the blocks; a block of too many layers is split at the ends of its layers."""
    ends: list[int] = []
    following = [*weighted[1:], len(order.calls)]
    for end, next_one in zip(layer_ends, following, strict=True):
        place = next((at for at in range(end, next_one + 1) if len(order.crossing(at)) == 1), None)
        if place is not None:
            ends.append(order.chain_end(place - 1))
    if not ends or ends[-1] < layer_ends[-1]:
        ends.append(layer_ends[-1])
    found: list[int] = []
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        inside = [layer_end for at, layer_end in zip(weighted, layer_ends, strict=True) if start <= at < end]
        found += [*inside[:-1], end] if len(inside) > LARGEST_BLOCK else [end]
    return found


def _joined(order: _Order, weighted: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Drop the ends between calls of a shared layer, and those that a tensor with a mask crosses."""
    calls: dict[str, list[int]] = {}
    for position in weighted:
        calls.setdefault(order.calls[position].node.layer, []).append(position)
    inside = [(positions[0], positions[-1]) for positions in calls.values() if len(positions) > 1]
    kept = [
        end
        for end in dict.fromkeys(ends)
        if order.may_end(end) and not any(first < end <= last for first, last in inside)
    ]
    last = max(ends)
    if not kept or kept[-1] < last:
        # If a tensor with a mask crosses the last end, all calls behind it join the unit.
        kept.append(last if order.may_end(last) else len(order.calls))
    return kept
