"""The operations that `shift_negative` inserts, and a `FrameworkInfo` that knows these, but no others like them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from qdq_workbench import FrameworkInfo, ModelGraph
from qdq_workbench.post_training.shift_negative import Inserted


class _KnowingInserted(FrameworkInfo):
    """Quantizes the results of inserted additions, and looks through inserted padding."""

    inserted: Mapping[str, Inserted]

    def in_activation_ops(self, layer: Any) -> bool:
        """Return whether a class is in `activation_ops`, or a node is an inserted addition."""
        kind = self.inserted.get(getattr(layer, "name", ""))
        return super().in_activation_ops(layer) if kind is None else kind == "shift"

    def in_no_quantization_ops(self, layer: Any) -> bool:
        """Return whether a class is in `no_quantization_ops`, or a node is an inserted padding."""
        kind = self.inserted.get(getattr(layer, "name", ""))
        return super().in_no_quantization_ops(layer) if kind is None else kind == "pad"


def knowing(info: FrameworkInfo, inserted: Mapping[str, Inserted]) -> FrameworkInfo:
    """Return a copy of the information that knows the inserted operations, too."""
    known: Any = copy.copy(info)
    # Not by class in its lists: the user's own sums would be quantized as well. A class of the user's own stays it.
    known.__class__ = type(type(info).__name__, (_KnowingInserted, type(info)), {})
    known.inserted = inserted
    return known


def is_shifted_next(graph: ModelGraph, tensor: str, inserted: Mapping[str, Inserted]) -> bool:
    """Return whether an inserted addition is the only reader of a tensor; the pair then belongs after it."""
    return graph.has_one_use(tensor) and inserted.get(graph.readers(tensor)[0][0].name) == "shift"
