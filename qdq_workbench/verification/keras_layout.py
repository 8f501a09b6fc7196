"""Bringing a file's tensors into the shape that they have in Keras.

The exporter puts channels first, and moves zero padding behind the pair that quantizes the padded tensor, into the
convolution (exact, since 0 is on every grid). So a tensor of the file may have its channels on axis 1, and may lack
the border of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.graph.op_kinds import pads_with_zeros, vanishes
from qdq_workbench.graph.paddings import zeros_added
from qdq_workbench.graph_builder import BoundGraph

Pads = list[tuple[int, int]]


def zero_paddings(view: BoundGraph) -> dict[str, Pads]:
    """Return how many zeros stand before and after each axis of the tensors that zero padding makes.

    Args:
        view: A graph bound to its Keras layers.
    """
    found: dict[str, Pads] = {}
    for node in view.graph.nodes:
        pads = zeros_added(view.graph, node) if pads_with_zeros(node) else None
        if vanishes(node):
            pads = found.get(node.inputs[0])  # what does nothing hands the border on
        if pads is not None:
            found[node.outputs[0]] = pads
    return found


def fitting_layouts(
    values: np.ndarray, shape: tuple[int | None, ...], pads: Pads | None, fill: float
) -> list[np.ndarray]:
    """Return the ways to read a file's tensor as one of a Keras shape.

    Args:
        values: The tensor, as the file has it.
        shape: The shape in Keras; None where it is open.
        pads: The zero padding that made the tensor, if any, in the axes of Keras.
        fill: What stands for zero in `values`.
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
