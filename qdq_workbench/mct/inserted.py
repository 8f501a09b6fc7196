"""The operations that `shift_negative` inserts, and a `FrameworkInfo` that knows these, but no others like them."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from qdq_workbench import FrameworkInfo, ModelGraph

_SHIFT, _PAD = "_shift", "_pad"  # the ends of their names
_END = re.compile(rf"({_SHIFT}|{_PAD})(_\d+)?$")  # a name that is taken gets a number


def inserted_operations(before: ModelGraph, after: ModelGraph) -> dict[str, str]:
    """Return the operations that `shift_negative` has inserted: the end of the name, by the name.

    Args:
        before: The model that was shifted.
        after: The result.
    """
    old = {node.name for node in before.nodes}
    new = [node for node in after.nodes if node.is_operation and len(node.inputs) == 1 and node.name not in old]
    ends = {node.name: _END.search(node.name) for node in new}
    return {name: end[1] for name, end in ends.items() if end}


class _KnowingInserted(FrameworkInfo):
    """Quantizes the results of inserted additions, and looks through inserted padding."""

    inserted: dict[str, str]

    def in_activation_ops(self, layer: Any) -> bool:
        """Return whether a class is in `activation_ops`, or a node is an inserted addition."""
        end = self.inserted.get(getattr(layer, "name", ""))
        return super().in_activation_ops(layer) if end is None else end == _SHIFT

    def in_no_quantization_ops(self, layer: Any) -> bool:
        """Return whether a class is in `no_quantization_ops`, or a node is an inserted padding."""
        end = self.inserted.get(getattr(layer, "name", ""))
        return super().in_no_quantization_ops(layer) if end is None else end == _PAD


def knowing(info: FrameworkInfo, inserted: dict[str, str]) -> FrameworkInfo:
    """Return a copy of the information that knows the inserted operations, too."""
    known: Any = copy.copy(info)
    # Not by class in its lists: the user's own sums would be quantized as well. A class of the user's own stays it.
    known.__class__ = type(type(info).__name__, (_KnowingInserted, type(info)), {})
    known.inserted = inserted
    return known


def is_shifted_next(graph: ModelGraph, tensor: str, inserted: Mapping[str, str]) -> bool:
    """Return whether an inserted addition is the only reader of a tensor; the pair then belongs after it."""
    return graph.has_one_use(tensor) and inserted.get(graph.readers(tensor)[0][0].name) == _SHIFT
