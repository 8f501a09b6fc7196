"""Comparison of what the layers of a file read with what the plan says: a tensor, or the pair on it.

The numbers do not tell: beside its pair, or without one, a tensor differs by less than one step, and so do the results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import onnx

from qdq_workbench.export.node_names import layer_of, layers_by_name
from qdq_workbench.graph.op_kinds import readers_in_onnx, readers_past_vanishing
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
    for pair, reads in _reads_of_pairs(plan, proto):
        planned = _planned(plan, reads.tensor)
        # TensorFlow merges equal sums: a layer may read the tensor as the first part of a sum of its own, and the pair.
        for layer in sorted((reads.of_tensor | (reads.of_unmoved - reads.of_others)) - reads.of_pair):
            if True in planned.get(layer, ()):
                yield f"{layer!r} reads the tensor of the pair {pair!r} in float, beside the pair"
        for layer in sorted(reads.of_pair):
            wanted = planned.get(layer)
            if wanted == {False} or (wanted == {False, True} and layer not in reads.of_tensor | reads.of_unmoved):
                yield f"{layer!r} reads the pair {pair!r}, and by the plan the tensor in float"


def mixed_pairs(plan: PlacementPlan, proto: onnx.ModelProto) -> set[str]:
    """Return the pairs of a file that a layer reads with some of its inputs, and the tensor in float with others."""
    return {
        pair
        for pair, reads in _reads_of_pairs(plan, proto)
        if reads.of_pair & (reads.of_tensor | reads.of_unmoved) & _planned(plan, reads.tensor).keys()
    }


@dataclasses.dataclass(frozen=True)
class _Reads:
    """The layers that read one pair of a file, or its tensor in float.

    Args:
        tensor: The tensor of the plan; None for a pair that it does not have.
        of_pair: Those that read the pair.
        of_tensor: Those that read the tensor as it is in front of the pair.
        of_unmoved: Those that read what that is moved from, in another layout for one.
        of_others: Those that may do so because they read another tensor of the plan.
    """

    tensor: str | None
    of_pair: set[str]
    of_tensor: set[str]
    of_unmoved: set[str]
    of_others: set[str]


def _reads_of_pairs(plan: PlacementPlan, proto: onnx.ModelProto) -> Iterator[tuple[str, _Reads]]:
    """Yield the name and the readers of every pair of a file."""
    graph = QDQGraph(proto)
    clips = {node.name: node for node in proto.graph.node if node.op_type == "Clip"}
    walk = _Walk(plan, graph)
    tensors = {each.name: each.tensor for each in plan.tensors}
    for node in proto.graph.node:
        if node.op_type != QUANTIZE:
            continue
        pair = node.name.removesuffix(f"/{QUANTIZE}")
        clip = clips.get(f"{pair}{NARROWING}")
        sources = [node.input[0], *([] if clip is None else [clip.input[0]])]
        dequantized = [each.output[0] for each in graph.readers(node.output[0]) if each.op_type == DEQUANTIZE]
        yield (
            pair,
            _Reads(
                tensors.get(pair),
                of_pair=walk.layers(dequantized),
                of_tensor=walk.layers(sources),
                of_unmoved=walk.layers(_unmoved(graph, sources[-1])),
                of_others=_readers_before_movements(plan, tensors.get(pair)),
            ),
        )


def _unmoved(graph: QDQGraph, tensor: str) -> list[str]:
    """Return the tensors that a tensor was moved from; a reader in another layout may read one of them instead."""
    found: list[str] = []
    node = graph.producer(tensor)
    while node is not None and node.op_type in HELPERS and not graph.is_constant(tensor):
        tensor = node.input[0]
        found.append(tensor)
        node = graph.producer(tensor)
    return found


def _readers_before_movements(plan: PlacementPlan, tensor: str | None) -> set[str]:
    """Return the layers that read what a tensor is moved from by layers: of the file's movements, some are theirs."""
    waiting = [] if tensor is None else [tensor]
    found: set[str] = set()
    for each in waiting:
        node = plan.graph.producer(each)
        operators = plan.onnx_lowering.nodes[node.name].operators or ()
        if HELPERS.issuperset(operators):
            waiting.extend(name for name in node.inputs if name not in waiting)
            found.update(reader.layer for name in node.inputs for reader, _ in readers_past_vanishing(plan.graph, name))
    return found


def _planned(plan: PlacementPlan, tensor: str | None) -> dict[str, set[bool]]:
    """Return by layer whether its inputs that hold a tensor are quantized, over all of its calls.

    What is behind a further pair, on the result of a layer without an operator, is read from that one.
    """
    found: dict[str, set[bool]] = {}
    behind_pair: dict[str, bool] = {}
    of_others: set[str] = set()
    for reader, index in () if tensor is None else readers_in_onnx(plan.graph, tensor):
        read = reader.inputs[index]
        if read in of_others or (read != tensor and plan.output_placement(read) is not None):
            of_others.update(reader.outputs)
            continue
        quantized = behind_pair.get(read, False) or plan.input_placement(reader.name, index) is not None
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
