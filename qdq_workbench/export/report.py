"""The report of `export_onnx`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class ExportReport:
    """The result of `export_onnx`.

    Args:
        path: The file.
        target: The target that it was exported for, as `PlacementPlan.target_label`: "onnxruntime", or
            "onnxruntime (altered)".
        opset: Its ONNX opset.
        activations: Number of Q/DQ pairs on activations.
        weights: Number of weights stored as integers followed by DequantizeLinear.
        folded: Number of folded batch normalizations.
        bytes: Size of the file, in bytes, that of its data file included.
        seconds: Duration of the export, in seconds.
        notes: Remarks for the user, such as how integers of unusual width are stored.
        left_out: Names of planned pairs and weights that the file lacks, since no output of the model depends on them.
        float_type: The type of the floats: "float32", "float16" or "bfloat16".
        half_nodes: Number of nodes that compute in half precision.
        float32_nodes: Reason -> names of the nodes that stay in float32 in a file in half precision.
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
        """The number of Q/DQ pairs in the file, those of activations and weights together."""
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
