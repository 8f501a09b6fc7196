"""References to graph tensors."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class TensorRef:
    """Represents a graph tensor in the recorded arguments of a call."""

    name: str
