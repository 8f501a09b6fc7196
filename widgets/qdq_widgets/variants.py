"""Named variants of a bench, side by side."""

from __future__ import annotations

import dataclasses
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.snapshots import Snapshot
from qdq_widgets.state import BenchState


@dataclasses.dataclass(frozen=True)
class Variant:
    """A state that was given a name, with all work on it as it was then; going there brings back all of it.

    Args:
        name: The name.
        state: The state.
        pairs: How many Q/DQ pairs its plan has.
        quantized: How many computing layers are quantized in full; see `coverage`.
        computing: How many computing layers there are.
        metric: Name of the metric of `accuracy`.
        accuracy: The metric on the validation data, of the fine-tuned model if there was one; None if not measured.
        size: Bytes of the exported file; None if it was not exported.
        stage: "planned", "calibrated" or "fine-tuned".
        int8: The share of the multiplications that the target computes in INT8, from 0 to 1; None if the library has
            no rules for it.
        work: Its model, ranges, scores and file.
    """

    name: str
    state: BenchState
    pairs: int
    quantized: int
    computing: int
    metric: str = ""
    accuracy: float | None = None
    size: int | None = None
    stage: str = "planned"
    int8: float | None = None
    work: Snapshot = dataclasses.field(default_factory=Snapshot, repr=False, compare=False)


def coverage(plan: Any) -> tuple[int, int]:
    """Return how many computing layers are quantized in full, and how many computing layers there are.

    Computing layers are those with a kernel or embedding, and those that merge tensors; a layer counts when each of
    its floating-point inputs and its kernel are quantized.

    Args:
        plan: A `PlacementPlan`.
    """
    computing = [node for node in plan.graph.nodes if _computes(node)]
    weights = {placement.layer for placement in plan.placements if placement.site == "weight"}
    whole = sum(_is_quantized(plan, node, weights) for node in computing)
    return whole, len(computing)


def int8_share(plan: Any) -> float | None:
    """Return the share of the multiplications that the plan's target computes in INT8; None if that is not known.

    Args:
        plan: A `PlacementPlan`.
    """
    try:
        return float(qdq.explain(plan, target=plan.target).coverage["macs"])
    except qdq.errors.TargetError:
        return None


def _computes(node: Any) -> bool:
    kernels = any(w.name.split("/")[-1].endswith(("kernel", "embeddings")) for w in node.weights)
    return kernels or len(set(node.inputs)) > 1


def _is_quantized(plan: Any, node: Any, weights: set[str]) -> bool:
    floats = [i for i, name in enumerate(node.inputs) if "float" in plan.graph.tensors[name].dtype]
    inputs = all(plan.input_placement(node.name, index) is not None for index in floats)
    return inputs and (not node.weights or node.layer in weights)
