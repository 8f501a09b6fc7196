"""What an export did."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class ExportReport:
    """What `export_onnx` wrote.

    Args:
        path: The file.
        target: The target whose encoding it has.
        opset: Its ONNX opset.
        activations: How many activation tensors have a Q/DQ pair.
        weights: How many weights are integers followed by DequantizeLinear.
        folded: How many batch normalizations were folded.
        bytes: Size of the file, in bytes.
        seconds: How long the export took, in seconds.
        notes: What the user should know.
        left_out: Names of planned pairs and weights that the file lacks, since no output of the model depends on them.
        float_type: The type of what is not integer.
        half_nodes: How many nodes compute in half precision.
        float32_nodes: The nodes that stay in float32 beside half precision, by the reason.
    """

    path: pathlib.Path
    target: str
    opset: int
    activations: int
    weights: int
    folded: int
    bytes: int
    seconds: float
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    float_type: str = "float32"
    half_nodes: int = 0
    float32_nodes: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def pairs(self) -> int:
        """How many Q/DQ pairs the file has: activation tensors and weights."""
        return self.activations + self.weights

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dictionary."""
        return {
            **dataclasses.asdict(self),
            "path": str(self.path),
            "pairs": self.pairs,
            "notes": list(self.notes),
            "left_out": list(self.left_out),
            "float32_nodes": {reason: list(names) for reason, names in self.float32_nodes.items()},
        }

    def summary(self) -> str:
        """Return the report as a few lines of text."""
        head = f"{self.path}: {self.bytes / 1024:.1f} KiB, for {self.target}, opset {self.opset}"
        if self.float_type != "float32":
            head += f", {self.float_type}"
        counts = (
            f"{self.pairs} Q/DQ pairs ({self.activations} activations, {self.weights} weights), "
            f"{self.folded} batch normalizations folded, {self.seconds:.1f} s"
        )
        return "\n".join([head, counts, *self.notes])
