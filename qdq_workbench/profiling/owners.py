"""The owners of kernels: which layers each kernel of an optimized graph computes, and which kernels belong to none."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import onnx

from qdq_workbench.export.metadata import read_metadata
from qdq_workbench.export.node_names import layer_of, layers_by_name
from qdq_workbench.onnx_graph.qdq_graph import PAIR_OPERATORS, QDQGraph
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.profiling.kernels import Kernel

_LAYOUT = frozenset({"ReorderInput", "ReorderOutput", "Transpose"})


class KernelOwners:
    """The kernels that a runtime executes for a file, and the layers that they compute.

    Args:
        file: The file, with a name of its own for every node.
        kernels: The kernels, with the nodes of the file that each computes.
        plan: The plan of its model; None to count every node as a layer.
    """

    def __init__(self, file: onnx.ModelProto, kernels: Sequence[Kernel], plan: PlacementPlan | None) -> None:
        self._plan = plan
        self._operators = {node.name: node.op_type for node in file.graph.node}
        graph = QDQGraph(file)
        first = {node.name: [each for name in node.output for each in graph.readers(name)[:1]] for node in graph.nodes}
        self._reader = {name: readers[-1].name for name, readers in first.items() if readers}
        self._layers = {} if plan is None else _computing_layers(plan)
        self.kernels = tuple(kernels)

    def kind(self, kernel: Kernel) -> Literal["pair", "layout"] | None:
        """Return the kind of a kernel that belongs to no layer; None for all others."""
        if kernel.kind is not None:
            return kernel.kind
        if kernel.operator in PAIR_OPERATORS:
            return "pair"
        # A transposition is the layer itself if the layer has no other operator, as a Permute; else a change of layout.
        if kernel.leader is None or (kernel.operator in _LAYOUT and self._computes(self.layer(kernel.leader))):
            return "layout"
        return None

    def layer(self, node: str) -> str:
        """Return the layer of a node by its name, else that of its first reader that has one, else the name itself."""
        name: str | None = node
        while self._layers and name is not None:
            layer = layer_of(name, self._layers)
            if layer is not None:
                return layer
            name = self._reader.get(name)
        return node

    def fused(self, kernel: Kernel, layer: str) -> Iterator[str]:
        """Yield the layers that a kernel computes besides its main one, `layer`; once for each of their nodes."""
        for node in kernel.nodes:
            operator, name = self._operators[node], self.layer(node)
            moves = operator in _LAYOUT and self._computes(name)
            if name != layer and operator not in PAIR_OPERATORS and not moves:
                yield name

    def _computes(self, layer: str) -> bool:
        """Return whether the plan knows the layer's operators and there are any; True for a name without a layer."""
        if self._plan is None:
            return False
        if layer not in self._plan.graph.layers:
            return True
        steps = [self._plan.onnx_lowering.nodes[call.name] for call in self._plan.graph.calls(layer)]
        return all(step.operators is not None for step in steps) and any(step.operators for step in steps)


def with_names(file: onnx.ModelProto) -> onnx.ModelProto:
    """Give every node of the file a unique name, in place, as profiles identify kernels by name; return the file."""
    taken = {node.name for node in file.graph.node}
    seen: set[str] = set()
    for place, node in enumerate(file.graph.node):
        if not node.name or node.name in seen:
            node.name = next(
                name
                for number in itertools.count()
                if (name := f"{node.name or node.op_type}_{place}{'_' * number}") not in taken
            )
            taken.add(node.name)
        seen.add(node.name)
    return file


def noted_plan(files: Iterable[onnx.ModelProto]) -> PlacementPlan | None:
    """Return the plan in the metadata of the first file that has one; None if no file has one."""
    noted = (read_metadata(file) for file in files)
    return next((PlacementPlan.from_dict(found["plan"]) for found in noted if found is not None), None)


def _computing_layers(plan: PlacementPlan) -> dict[str, str]:
    """Return the layers by their names in a file, without input layers, which exist in Keras only."""
    inputs = {node.layer for node in plan.graph.nodes if node.is_model_input}
    return {name: layer for name, layer in layers_by_name(plan.graph.layers).items() if layer not in inputs}
