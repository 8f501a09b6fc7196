"""Standing in for graph tensors inside recorded arguments."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class TensorRef:
    """Stands for a graph tensor inside the recorded arguments of a call."""

    name: str
