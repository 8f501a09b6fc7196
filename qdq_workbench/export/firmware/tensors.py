"""The values that `Walk` computes with: tensors of integers or floats, and kernel results without a grid yet."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from qdq_workbench.export.encodings import Encoding
from qdq_workbench.graph.model_graph import Node

#: Returns the settings of a kernel's node that depend on the grid of its result; None stands for a float32 result.
Finish = Callable[[Encoding | None], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Integers:
    """A tensor that the firmware holds as integers.

    Args:
        name: Its name in the file.
        shape: Its shape without the batch.
        encoding: Its grid.
        pads: Zero padding that its readers apply, (before, after) per spatial axis.
        padded_by: The calls of zero padding that `pads` replaces.
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
    """The result of a kernel, not yet requantized to a grid.

    Args:
        node: The call of the kernel.
        operator: The kernel's operator.
        sources: The kernel's inputs.
        shape: Shape of the result without the batch.
        finish: Returns the settings of the node that depend on the grid of the result.
        fixed: The settings that do not.
        low: Lower bound of the activations fused into the kernel.
        high: Upper bound of these activations.
        layers: The calls that the kernel computes, in execution order.
        written: (low, high, tensor) of what was written already; the copies that `behind` makes share this list.
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
        """Return a copy with one more call in the kernel, which may clamp the result."""
        return dataclasses.replace(
            self, low=max(self.low, low), high=min(self.high, high), layers=(*self.layers, layer)
        )


@dataclasses.dataclass(frozen=True)
class Padded:
    """A kernel result or a float tensor, with zero padding that its readers apply."""

    value: Pending | Floats
    pads: tuple[tuple[int, int], ...]
    padded_by: tuple[str, ...]


Value = Integers | Floats | Pending | Padded


def same_grid(one: Encoding, other: Encoding) -> bool:
    """Return whether two encodings of activations have equal type, scale and zero point."""
    return (one.dtype, one.scale.tobytes(), one.zero_point.tobytes()) == (
        other.dtype,
        other.scale.tobytes(),
        other.zero_point.tobytes(),
    )


def clamp(encoding: Encoding, low: float, high: float) -> list[int]:
    """Return the integers of a lower and an upper bound on a grid; an infinite bound is the end of the grid."""
    spec, zero = encoding.spec, int(encoding.zero_point)
    ends = [spec.qmin, spec.qmax]
    for index, value in enumerate((low, high)):
        if math.isfinite(value):
            steps = np.rint(np.float32(value) / np.float32(encoding.scale))
            ends[index] = int(np.clip(steps + zero, spec.qmin, spec.qmax))
    return ends
