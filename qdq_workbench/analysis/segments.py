"""Where a network can be cut in two: places where later layers need a single tensor of the earlier ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qdq_workbench.analysis.cost import bytes_of
from qdq_workbench.graph_builder import BoundGraph, Call


@dataclasses.dataclass(frozen=True)
class Boundary:
    """A place where later calls need only one tensor.

    Args:
        tensor: Name of the tensor.
        position: How many calls are computed before the cut.
        bytes: Size of the tensor for one sample.
    """

    tensor: str
    position: int
    bytes: int


def find_boundaries(bound: BoundGraph, may_cut: Callable[[str], bool]) -> list[Boundary]:
    """Return the places where a model's graph can be cut at a tensor that `may_cut` allows, in computing order."""
    outputs = set(bound.graph.outputs)
    last_use = {name: len(bound.calls) for name in outputs}
    for position, call in enumerate(bound.calls):
        for name in call.node.inputs:
            last_use[name] = max(last_use.get(name, -1), position)
    live = set(bound.input_tensors)
    cuts = []
    for position, call in enumerate(bound.calls):
        live.update(name for name in call.node.outputs if name in last_use)
        live = {name for name in live if last_use.get(name, -1) > position}
        # An output of the model would be needed behind later segments, too.
        if len(live) == 1 and not live & outputs and live & set(call.node.outputs):
            (name,) = live
            size = _bytes(bound.tensors[name])
            if size is not None and may_cut(name):
                cuts.append(Boundary(name, position + 1, size))
    return cuts


def choose_boundaries(
    cuts: Sequence[Boundary], work: Sequence[float], samples: int, budget: int, most: int
) -> list[Boundary]:
    """Choose up to `most` cuts that divide the work evenly and whose tensors fit into memory for all samples.

    `work` is the cost of each call of the graph, in any unit; `budget` is in bytes, for all kept tensors together.
    """
    done = np.concatenate([[0.0], np.cumsum(np.asarray(work, np.float64))])
    # Whichever of these are chosen, together they fit into the budget.
    affordable = [cut for cut in cuts if cut.bytes * samples <= budget / max(1, min(most, len(cuts)))]
    chosen: dict[int, Boundary] = {}
    for step in range(1, most + 1):
        goal = done[-1] * step / (most + 1)
        if affordable:
            cut = min(affordable, key=lambda each: abs(done[each.position] - goal))
            # Two goals may have the same nearest cut.
            chosen[cut.position] = cut
    return [chosen[position] for position in sorted(chosen)]


def reads_of(bound: BoundGraph) -> dict[str, list[Call]]:
    """Return the calls that read each tensor."""
    readers: dict[str, list[Call]] = {}
    for call in bound.calls:
        for name in call.node.inputs:
            readers.setdefault(name, []).append(call)
    return readers


def _bytes(tensor: Any) -> int | None:
    """Return the size of a symbolic tensor for one sample; None where its shape is not known."""
    shape = tuple(tensor.shape[1:])
    if None in shape:
        return None
    return int(math.prod(shape)) * bytes_of(str(tensor.dtype))
