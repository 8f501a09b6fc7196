"""Findings that the plan in a file's metadata explains: a layer that it leaves in float is no fault of the file."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from qdq_workbench.errors import QDQError
from qdq_workbench.export.metadata import read_metadata
from qdq_workbench.export.node_names import layer_of, layers_by_name
from qdq_workbench.foreign.finding import Finding
from qdq_workbench.placement.plan import PlacementPlan

# The rules about floats between integers, which cost time but change no value.
_ABOUT_FLOATS = ("QDQ-ISLAND", "QDQ-JOIN", "QDQ-OPERAND")


def split_planned(findings: Iterable[Finding], proto: onnx.ModelProto) -> tuple[list[Finding], list[str]]:
    """Return the findings that are faults (all, if the file has no plan), and a note for each of the others."""
    findings = list(findings)
    plan = _plan_of(proto) if any(finding.rule in _ABOUT_FLOATS for finding in findings) else None
    if plan is None:
        return findings, []
    names, faults, planned = layers_by_name(plan.graph.layers), list[Finding](), list[str]()
    for finding in findings:
        layer = layer_of(finding.node, names) if finding.rule in _ABOUT_FLOATS else None
        if layer is None or not _is_partly_float(plan, layer):
            faults.append(finding)
        else:
            planned.append(
                f"{finding.node}: {finding.message}; so says the plan of this file, which leaves values of {layer!r} "
                f"in float. explain names what helps (rule {finding.rule})"
            )
    return faults, planned


def _plan_of(proto: onnx.ModelProto) -> PlacementPlan | None:
    try:
        noted = read_metadata(proto)
        return None if noted is None else PlacementPlan.from_dict(noted["plan"])
    except QDQError:
        return None  # `verify_onnx` reports damaged metadata


def _is_partly_float(plan: PlacementPlan, layer: str) -> bool:
    """Return whether a plan leaves an input or a matrix of a layer in float."""
    calls = plan.graph.calls(layer)
    quantized = {placement.weight for placement in plan.placements if placement.layer == layer}
    # Matrices alone: plans leave biases and other vectors in float in integer layers, too.
    matrices = {weight.name for weight in calls[0].weights if len(weight.shape) > 1}
    return bool(matrices - quantized) or any(
        plan.input_placement(call.name, index) is None for call in calls for index in range(len(call.inputs))
    )
