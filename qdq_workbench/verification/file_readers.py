"""Comparison of what the layers of a file read with what the plan says: a tensor, or the pair on it.

The numbers do not tell: beside its pair, or without one, a tensor differs by less than one step, and so do the results.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from qdq_workbench.export.node_names import layer_of, layers_by_name
from qdq_workbench.graph.op_kinds import readers_past_vanishing
from qdq_workbench.graph.operators import HELPERS
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, NARROWING, QUANTIZE, QDQGraph
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.verification.presence import grid_differences, presence_differences
from qdq_workbench.verification.report import Check, check_of
from qdq_workbench.verification.structure_reader import read_strays


def check_readers(plan: PlacementPlan, proto: onnx.ModelProto) -> Check:
    """Check that a file holds the plan's pairs and integer weights, and that its layers read those of their inputs.

    The plan is that of the export, or of the same model planned again for the file's target.
    """
    problems = [f"stray quantizer {stray}" for stray in read_strays(proto)]
    problems += [*presence_differences(plan, proto), *grid_differences(plan, proto), *reader_differences(plan, proto)]
    finding = "all planned pairs and integer weights are there, and every layer reads the pairs planned for it"
    return check_of("readers", problems, finding)


def reader_differences(plan: PlacementPlan, proto: onnx.ModelProto) -> Iterator[str]:
    """Yield the layers that read a tensor in float where the plan has a pair, or the pair where it has none.

    The plan is that of the export, or of the same model planned again for the file's target.
    """
    graph = QDQGraph(proto)
    clips = {node.name: node for node in proto.graph.node if node.op_type == "Clip"}
    walk = _Walk(plan, graph)
    tensors = {each.name: each.tensor for each in plan.tensors}
    for node in proto.graph.node:
        if node.op_type != QUANTIZE:
            continue
        pair = node.name.removesuffix(f"/{QUANTIZE}")
        planned = _planned(plan, tensors.get(pair))
        clip = clips.get(f"{pair}{NARROWING}")
        sources = [node.input[0], *([] if clip is None else [clip.input[0]])]
        dequantized = [each.output[0] for each in graph.readers(node.output[0]) if each.op_type == DEQUANTIZE]
        of_pair, of_tensor = walk.layers(dequantized), walk.layers(sources)
        # TensorFlow merges equal sums: a layer may read the tensor as the first part of a sum of its own, and the pair.
        for layer in sorted(of_tensor - of_pair):
            if True in planned.get(layer, ()):
                yield f"{layer!r} reads the tensor of the pair {pair!r} in float, beside the pair"
        for layer in sorted(of_pair):
            wanted = planned.get(layer)
            if wanted == {False} or (wanted == {False, True} and layer not in of_tensor):
                yield f"{layer!r} reads the pair {pair!r}, and by the plan the tensor in float"


def _planned(plan: PlacementPlan, tensor: str | None) -> dict[str, set[bool]]:
    """Return by layer whether its inputs that hold a tensor are quantized, over all of its calls."""
    found: dict[str, set[bool]] = {}
    behind_pair: dict[str, bool] = {}
    for reader, index in () if tensor is None else readers_past_vanishing(plan.graph, tensor):
        before = behind_pair.get(reader.inputs[index], False)
        quantized = before or plan.input_placement(reader.name, index) is not None
        found.setdefault(reader.layer, set()).add(quantized)
        behind_pair.update(dict.fromkeys(reader.outputs, quantized))
    return found


class _Walk:
    """Finds the layers that read a tensor of the file.

    Args:
        plan: The plan of the file.
        graph: The index of the file.
    """

    def __init__(self, plan: PlacementPlan, graph: QDQGraph) -> None:
        self._graph = graph
        self._names = layers_by_name(plan.graph.layers)
        self._behind: dict[str, set[str]] = {}
        for node in plan.graph.nodes:
            behind = {reader.layer for output in node.outputs for reader, _ in plan.graph.readers(output)}
            self._behind.setdefault(node.layer, set()).update(behind - {node.layer})

    def layers(self, tensors: list[str]) -> set[str]:
        """Return the layers whose nodes read the tensors, directly or behind nodes that only move values.

        A layer behind another layer that moves values, such as a transpose of the model, reads that one's result.
        """
        found: set[str] = set()
        waiting: list[tuple[str, frozenset[str]]] = [(tensor, frozenset()) for tensor in tensors]
        seen = set(waiting)
        while waiting:
            tensor, passed = waiting.pop()
            for node in self._graph.readers(tensor):
                if node.op_type in (QUANTIZE, DEQUANTIZE, "Shape"):
                    continue
                layer = layer_of(node.name, self._names)
                if layer is not None and layer not in passed:
                    found.add(layer)
                if node.op_type in HELPERS:
                    behind = passed if layer is None else passed | self._behind[layer]
                    new = {(name, behind) for name in node.output} - seen
                    waiting.extend(new)
                    seen |= new
        return found
