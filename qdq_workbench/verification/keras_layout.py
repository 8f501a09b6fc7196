"""Bringing a file's tensors into the shape that they have in Keras.

The exporter puts channels first, and moves zero padding behind the pair that quantizes the padded tensor, into the
convolution (exact, since 0 is on every grid). So a tensor of the file may have its channels on axis 1, and may lack
the border of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from qdq_workbench.graph_builder import BoundGraph

Pads = list[tuple[int, int]]


def zero_paddings(view: BoundGraph) -> dict[str, Pads]:
    """Return how many zeros stand before and after each axis of the tensors that zero padding makes.

    Args:
        view: A graph bound to its Keras layers.
    """
    found = {}
    for call in view.calls:
        rank = len(view.graph.tensors[call.node.outputs[0]].shape)
        pads = _pads_of(call.operation, rank)
        if pads is not None:
            found[call.node.outputs[0]] = pads
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


def _pads_of(operation: Any, rank: int) -> Pads | None:
    kind = type(operation).__name__
    if kind == "Pad" and isinstance(getattr(operation, "pad_width", None), (tuple, list)):
        widths = [tuple(int(size) for size in pair) for pair in operation.pad_width]
        return [(pair[0], pair[-1]) for pair in widths] if len(widths) == rank else None
    if not kind.startswith("ZeroPadding"):
        return None
    padding = operation.padding if kind != "ZeroPadding1D" else (operation.padding,)
    spatial = [(int(low), int(high)) for low, high in padding]
    first = getattr(operation, "data_format", "channels_last") == "channels_first"
    return [(0, 0), (0, 0), *spatial] if first else [(0, 0), *spatial, (0, 0)]
