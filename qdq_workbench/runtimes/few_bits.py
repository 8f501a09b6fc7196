"""What runtimes compute in float because of a grid of fewer than 8 bits or of several grids, and the remedies.

The values of such a grid are stored in an integer type of 8 bits. An activation is clipped to the grid in front of its
QuantizeLinear, and ONNX Runtime forms no integer kernel in front of that Clip; OpenVINO does. As an input the tensor is
as good as any of 8 bits, and so is a weight, unless the file holds it as INT4.
"""

from __future__ import annotations

from qdq_workbench.graph.model_graph import Node
from qdq_workbench.placement.opsets import WIDE_INTEGER_OPSET
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.judge_layers import Verdict
from qdq_workbench.runtimes.propagation import propagation_of
from qdq_workbench.runtimes.verdict import Fix

_BITS = 8


def why_clipped(facts: PlanFacts, tensor: str) -> Verdict | None:
    """Return the verdict on a layer whose result reaches a pair's Clip instead of a QuantizeLinear; None for others."""
    pair = propagation_of(facts).clip_behind(tensor)
    if pair is None:
        return None
    grid = pair.quantizer
    what = "a narrow range" if grid.num_bits == _BITS else f"{grid.num_bits} bits"
    reason = f"its result {pair.tensor!r} has {what}, so a Clip stands in front of its QuantizeLinear"
    setting = '"narrow_range": False' if grid.num_bits == _BITS else f'"num_bits": {_BITS}'
    return "CLIP", reason, [f"set {{{setting}}} in the quantizer settings of {pair.tensor!r}"]


def why_no_shared_pair(facts: PlanFacts, tensor: str, rule: str, missing: str, fix: Fix) -> Verdict:
    """Return the verdict on a layer whose result has no pair that all its readers share; `fix` adds one."""
    if clipped := why_clipped(facts, tensor):
        return clipped
    # Where there is such a pair already, a reader has a grid of its own, which no fix takes away.
    helps = propagation_of(facts).takes_pair(tensor)
    return rule, missing, [fix if helps else f"let all readers of {tensor!r} have one grid"]


def why_packed(facts: PlanFacts, node: Node) -> Verdict | None:
    """Return the verdict on a layer with a weight that the file holds as 4-bit integers; None if it has none."""
    packed = facts.packed_weights(node)
    if not packed:
        return None
    reason = f"its weight {packed[0].weight!r} is INT4 in a file of opset {facts.opset}, and is dequantized"
    return "GRID", reason, [f"export at an opset below {WIDE_INTEGER_OPSET}, which holds it as 8-bit integers"]
