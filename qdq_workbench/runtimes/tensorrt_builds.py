"""How to build an engine with each version of TensorRT, and the resulting precision of every layer.

TensorRT 10.x takes flags: INT8 where the file has Q/DQ pairs, and half precision where the builder finds it faster.
TensorRT 11.x has no such flags: its networks are strongly typed, so the types of the file decide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from qdq_workbench.graph.half_precision import FLOAT32, HALF_TYPES, KEPT, why_kept
from qdq_workbench.graph.kinds import KINDS
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.runtimes.inner_layers import is_recurrent
from qdq_workbench.runtimes.verdict import LayerExplanation

_SHOWN = 3
_TRTEXEC = "trtexec --onnx=model.onnx"
_FLAGS = ("--fp16", "--bf16")  # of 10.x: the half precision that the builder may choose for what is not INT8
# Roles whose operators the table of kinds does not know.
_BY_ROLE = {"recurrent": "LSTM", "normalization": "LayerNormalization"}


@dataclasses.dataclass(frozen=True)
class Build:
    """One way to build an engine, and the resulting precision of the layers.

    Args:
        version: The versions of TensorRT.
        float_type: The `float_type` of `export_onnx`.
        command: The command line.
        int8: Layers in INT8, also those that are partly in INT8.
        half: Layers in half precision.
        float32: Layers in float32.
        reasons: Reasons by layer, for the layers in float32 of a file in half precision.
    """

    version: str
    float_type: str
    command: str
    int8: tuple[str, ...]
    half: tuple[str, ...]
    float32: tuple[str, ...]
    reasons: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield the build as text."""
        counts = ((self.int8, "INT8"), (self.half, "half"), (self.float32, "float32"))
        shown = ", ".join(f"{len(layers)} {name}" for layers, name in counts if layers)
        yield f"TensorRT {self.version}, file in {self.float_type}: {self.command}  ->  {shown or 'no layers'}"
        for reason in dict.fromkeys(self.reasons.values()):
            layers = [layer for layer, why in self.reasons.items() if why == reason]
            more = f" and {len(layers) - _SHOWN} more" if len(layers) > _SHOWN else ""
            yield f"  float32: {', '.join(layers[:_SHOWN])}{more}: {reason}"


def tensorrt_builds(layers: Sequence[LayerExplanation], plan: PlacementPlan) -> tuple[Build, ...]:
    """Return the ways to build an engine from the files of a plan for TensorRT.

    Layers that stay in float32 because of their weights' values or recorded ranges are named by the export report.
    """
    int8 = tuple(entry.layer for entry in layers if entry.status != "float")
    rest = tuple(entry.layer for entry in layers if entry.status == "float")
    reasons = {layer: reason for layer in rest if (reason := _why_float32(plan, layer))}
    half = tuple(layer for layer in rest if layer not in reasons)
    return (
        # With a flag the builder chooses per layer; it may leave some in float32.
        *(Build("10.x", FLOAT32, f"{_TRTEXEC} --int8 {flag}", int8, rest, ()) for flag in _FLAGS),
        Build("11.x", FLOAT32, _TRTEXEC, int8, (), rest),
        *(Build("11.x", name, _TRTEXEC, int8, half, tuple(reasons), reasons) for name in HALF_TYPES),
    )


def _why_float32(plan: PlacementPlan, layer: str) -> str:
    """Return why a layer stays in float32 in a file in half precision; "" if it does not."""
    for node in plan.graph.calls(layer):
        # Where the operators depend on the converter, only the class tells.
        reason = why_kept(plan.lowering.nodes[node.name].operators or ()) or _by_class(node)
        if reason:
            return reason
    return ""


def _by_class(node: Node) -> str:
    """Return the reason that follows from a node's class; "" for none."""
    if is_recurrent(node):
        return KEPT["LSTM"]
    if node.activation_name in ("softmax", "log_softmax"):
        return KEPT["Softmax"]
    kind = next((KINDS[name] for name in node.classes if name in KINDS), None)
    return "" if kind is None else why_kept([kind.operator, _BY_ROLE.get(kind.role, "")])
