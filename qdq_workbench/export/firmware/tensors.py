"""What is known of a tensor while a plan is read for firmware: integers, floats, or sums that wait for a grid."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from qdq_workbench.export.encodings import Encoding
from qdq_workbench.graph.model_graph import Node

#: What a kernel adds to its node once the grid of its result is known; None for a result in float32.
Finish = Callable[[Encoding | None], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Integers:
    """A tensor that the firmware holds as integers.

    Args:
        name: Its name in the file.
        shape: Its shape without the batch.
        encoding: Its grid.
        pads: Zeros around it that its readers pad, per spatial axis.
        padded_by: The layers of zero padding that stand for `pads`.
    """

    name: str
    shape: tuple[int, ...]
    encoding: Encoding
    pads: tuple[tuple[int, int], ...] = ()
    padded_by: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Floats:
    """A tensor in float32."""

    name: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Pending:
    """What a kernel has computed and nothing has rounded to a grid yet.

    Args:
        node: The call whose kernel it is.
        operator: The kernel's operator.
        sources: What it reads.
        shape: Shape of its result without the batch.
        finish: What the grid of the result adds to the node.
        fixed: The parts of the node that no grid changes.
        low: Lowest value that the activations behind the kernel let through.
        high: The highest one.
        layers: The layers whose work the kernel does, in computing order.
        written: The tensors that were written, with the activations that they hold: shared by what is made of it.
    """

    node: Node
    operator: str
    sources: tuple[Integers, ...]
    shape: tuple[int, ...]
    finish: Finish
    fixed: dict[str, Any]
    low: float = -math.inf
    high: float = math.inf
    layers: tuple[str, ...] = ()
    written: list[tuple[float, float, Integers | Floats]] = dataclasses.field(default_factory=list)

    def behind(self, layer: str, low: float = -math.inf, high: float = math.inf) -> Pending:
        """Return it with one more layer in the kernel, which may clamp."""
        return dataclasses.replace(
            self, low=max(self.low, low), high=min(self.high, high), layers=(*self.layers, layer)
        )


@dataclasses.dataclass(frozen=True)
class Padded:
    """Accumulators, or floats, around which the readers pad zeros."""

    value: Pending | Floats
    pads: tuple[tuple[int, int], ...]
    padded_by: tuple[str, ...]


Value = Integers | Floats | Pending | Padded


def same_grid(one: Encoding, other: Encoding) -> bool:
    """Return whether two encodings of activations are one grid."""
    return (one.dtype, one.scale.tobytes(), one.zero_point.tobytes()) == (
        other.dtype,
        other.scale.tobytes(),
        other.zero_point.tobytes(),
    )


def clamp(encoding: Encoding, low: float, high: float) -> list[int]:
    """Return the lowest and the highest integer between two values on a grid.

    Args:
        encoding: The grid.
        low: A value, or minus infinity.
        high: A value, or infinity.
    """
    spec, zero = encoding.spec, int(encoding.zero_point)
    ends = [spec.qmin, spec.qmax]
    for index, value in enumerate((low, high)):
        if math.isfinite(value):
            steps = np.rint(np.float32(value) / np.float32(encoding.scale))
            ends[index] = int(np.clip(steps + zero, spec.qmin, spec.qmax))
    return ends
