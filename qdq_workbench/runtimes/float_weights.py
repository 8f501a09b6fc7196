"""Products whose weight is float in a file, for the rules of ONNX Runtime."""

from __future__ import annotations

from qdq_workbench.runtimes.judge_layers import Verdict
from qdq_workbench.runtimes.verdict import Fix


def judge_float_weight(weight: str, fix: list[Fix], *, rounded: bool) -> Verdict:
    """Judge a product with a float weight, which the runtime may round itself between quantized input and output."""
    if not rounded:
        return "WEIGHT", f"its weight {weight!r} stays in float", fix
    reason = f"its weight {weight!r} is float in the file, and the runtime rounds it with one scale in all"
    return "OWN-WEIGHT", f"{reason}; quantize it here to keep a scale per channel", fix
