"""The form of a file's layers, compared with the plan alone, not with a new export nor with contracts of passes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from qdq_workbench.onnx_graph.graph import standard_opset
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.verification.layer_forms import layer_differences, loop_differences
from qdq_workbench.verification.product_forms import product_differences
from qdq_workbench.verification.typed_file import TypedFile


def form_differences(plan: PlacementPlan, proto: onnx.ModelProto) -> Iterator[str]:
    """Yield where a file, given with inferred shapes, has another form than its plan's, one sentence each.

    The plan is that of the export, or of the same model planned again for the file's target.
    """
    file = TypedFile(plan, proto)
    yield from product_differences(file)
    yield from layer_differences(file, standard_opset(proto))
    yield from loop_differences(file.graph)
