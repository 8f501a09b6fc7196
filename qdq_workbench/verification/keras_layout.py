"""Conversion of a file's tensors to their Keras layout.

The exporter puts channels first, and moves zero padding after the pair that quantizes the padded tensor, into the
convolution (exact, since 0 is on every grid). So a tensor in the file may have its channels on axis 1, and may lack
the border of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph.op_kinds import pads_with_zeros, vanishes
from qdq_workbench.graph.paddings import zeros_added

Pads = list[tuple[int, int]]


def zero_paddings(graph: ModelGraph) -> dict[str, Pads]:
    """Return by tensor the (before, after) zeros on each axis, for the outputs of zero padding."""
    found: dict[str, Pads] = {}
    for node in graph.nodes:
        pads = zeros_added(graph, node) if pads_with_zeros(node) else None
        if vanishes(node):
            pads = found.get(node.inputs[0])  # a node that vanishes passes the border on
        if pads is not None:
            found[node.outputs[0]] = pads
    return found


def fitting_layouts(
    values: np.ndarray, shape: tuple[int | None, ...], pads: Pads | None, fill: float
) -> list[np.ndarray]:
    """Return every layout of a file's tensor that fits a Keras shape: as it is, transposed, with the border of zeros.

    `pads` is the zero padding that created the tensor, if any, in the axes of Keras; `fill` the value that represents
    zero in `values`: 0.0, or the zero point.
    """
    return [candidate for candidate in _layouts(values, pads, fill) if _fits(candidate.shape, shape)]


def _layouts(values: np.ndarray, pads: Pads | None, fill: float) -> Iterator[np.ndarray]:
    orders = [values] if values.ndim < 3 else [values, np.moveaxis(values, 1, -1)]
    yield from orders
    if pads is not None and len(pads) == values.ndim:
        for order in orders:
            yield np.pad(order, pads, constant_values=fill)


def _fits(have: tuple[int, ...], want: tuple[int | None, ...]) -> bool:
    return len(have) == len(want) and all(b in (None, a) for a, b in zip(have, want, strict=True))
