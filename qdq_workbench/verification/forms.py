"""The form of a file's layers, compared with the plan; and what the passes of the exporter left undone.

A file in another form computes what the plan says, at most more slowly: a runtime may lack an integer kernel for it. So
other forms are told and fail no check, except the one that ends the process of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from qdq_workbench.export.passes.order import unfinished
from qdq_workbench.export.planned_joins import PlannedJoins
from qdq_workbench.export.target_stages import stages_for
from qdq_workbench.onnx_graph.graph import Graph, standard_opset
from qdq_workbench.onnx_graph.model_files import SINGLE_FILE_LIMIT, constant_bytes
from qdq_workbench.onnx_graph.qdq_graph import QDQGraph
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.verification.layer_forms import layer_differences
from qdq_workbench.verification.loops import loop_differences
from qdq_workbench.verification.product_forms import product_differences
from qdq_workbench.verification.report import Check, check_of, first_few
from qdq_workbench.verification.rows_of_pairs import row_differences
from qdq_workbench.verification.typed_file import TypedFile


def check_form(plan: PlacementPlan, typed: onnx.ModelProto) -> Check:
    """Check that ONNX Runtime can load all loops, and that no pass of the exporter left a node that it rewrites.

    The file is given with inferred shapes.
    """
    if ending := list(loop_differences(QDQGraph(typed))):
        return check_of("form", ending, "")
    graph = Graph(typed)
    target = plan.target_object
    graph.slow_transposes = target.slow_transposes
    graph.may_join = PlannedJoins(plan.graph, plan.onnx_lowering)
    found = unfinished(graph, stages_for(target, half=True))
    if found:
        detail = first_few([f"{node.op} {node.name!r} was left by {each.name}" for each, node in found])
        return Check("form", passed=False, detail=detail)
    return Check("form", passed=True, detail="no node is left that a pass of the exporter rewrites")


def with_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with inferred shapes, if it is small enough for ONNX to infer them."""
    return onnx.shape_inference.infer_shapes(proto) if constant_bytes(proto) <= SINGLE_FILE_LIMIT else proto


def form_differences(plan: PlacementPlan, typed: onnx.ModelProto) -> Iterator[str]:
    """Yield where a file, given with inferred shapes, may have another form than its plan's, one sentence each.

    The plan is that of the export, or of the same model planned again for the file's target.
    """
    file = TypedFile(plan, typed)
    yield from product_differences(file)
    yield from layer_differences(file, standard_opset(typed))
    yield from row_differences(file)
