"""Operations that name the type of their result, such as `ops.cast(x, "float16")`: no dtype policy changes it.

Files have pairs between tensors in float32 alone, whatever the model computes in. So where a file is made of a model,
such an operation names float32, if the tensor behind a pair would have another type otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import keras

from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph_builder import BoundGraph
from qdq_workbench.placement.plan import PlacementPlan

_BFLOAT16 = "bfloat16"
OTHER_FLOATS = frozenset({"float16", _BFLOAT16, "float64"})  # than float32


def named_types(bound: BoundGraph, plan: PlacementPlan) -> frozenset[str]:
    """Return the operations that must name float32 in place of another float type, by the names of their nodes."""
    paired = {placement.tensor for placement in plan.placements if placement.site != "weight"}
    named = (call.node for call in bound.calls if names_type(call.operation))
    # A cast at an output, with no pair behind it, is what the model returns; but tf2onnx has no bfloat16.
    return frozenset(
        node.name
        for node in named
        if (dtype := bound.graph.tensors[node.outputs[0]].dtype) in OTHER_FLOATS
        and (dtype == _BFLOAT16 or _reaches(bound.graph, node.outputs[0], paired))
    )


def names_type(operation: Any) -> bool:
    """Return whether something is an operation, and no layer, that names the type of its result."""
    return not isinstance(operation, keras.layers.Layer) and getattr(operation, "dtype", None) is not None


def naming_float32(operation: Any) -> Any:
    """Return an operation of the same name and settings that names float32; one that names no other float as it is."""
    if not names_type(operation) or keras.backend.standardize_dtype(operation.dtype) not in OTHER_FLOATS:
        return operation
    made = type(operation).from_config({**operation.get_config(), "dtype": "float32"})
    made.name = operation.name
    return made


def _reaches(graph: ModelGraph, tensor: str, wanted: Collection[str]) -> bool:
    """Return whether a tensor, or one behind it that has its type, is among those wanted."""
    dtype, waiting, seen = graph.tensors[tensor].dtype, [tensor], {tensor}
    while waiting:
        found = waiting.pop()
        if found in wanted:
            return True
        behind = {each for node, _ in graph.readers(found) for each in node.outputs} - seen
        behind = {each for each in behind if graph.tensors[each].dtype == dtype}
        seen |= behind
        waiting.extend(behind)
    return False
