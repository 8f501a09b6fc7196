"""A file's graph with the types and ranks of its tensors and the nodes of every layer, to be compared with its plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx

from qdq_workbench.export.node_names import layer_of, layers_by_name
from qdq_workbench.onnx_graph.qdq_graph import PAIR_OPERATORS, QDQGraph
from qdq_workbench.placement.plan import PlacementPlan

_FLOATS = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16})


class TypedFile:
    """The index of a file, with the types and ranks that ONNX infers, and its nodes by layer of its plan.

    Args:
        plan: The plan of the file.
        proto: The file, with inferred shapes.
    """

    def __init__(self, plan: PlacementPlan, proto: onnx.ModelProto) -> None:
        self.plan = plan
        self.graph = QDQGraph(proto)
        values = (*proto.graph.input, *proto.graph.output, *proto.graph.value_info)
        self._types = {value.name: value.type.tensor_type for value in values}
        names = layers_by_name(plan.graph.layers)
        self.layers: Collection[str] = names.values()
        self._nodes: dict[str, list[onnx.NodeProto]] = {}
        self._layers: dict[str, str | None] = {}
        for node in proto.graph.node:
            layer = self._layers[node.name] = layer_of(node.name, names)
            if layer is not None and node.op_type not in PAIR_OPERATORS:
                self._nodes.setdefault(layer, []).append(node)

    def nodes(self, layer: str) -> list[onnx.NodeProto]:
        """Return the nodes of a layer, without those of Q/DQ pairs and integer weights."""
        return self._nodes.get(layer, [])

    def layer(self, node: onnx.NodeProto) -> str | None:
        """Return the layer of a node, None if its name tells none."""
        return self._layers.get(node.name)

    def rank(self, tensor: str) -> int | None:
        """Return the number of axes of a tensor that is no constant, None if it is not known."""
        known = self._types.get(tensor)
        return len(known.shape.dim) if known is not None and known.HasField("shape") else None

    def is_float(self, tensor: str) -> bool | None:
        """Return whether a tensor holds floats, None if its type is not known."""
        known = self._types.get(tensor)
        return None if known is None else known.elem_type in _FLOATS

    def only_reader(self, tensor: str) -> onnx.NodeProto | None:
        """Return the one node that reads a tensor; None for none, several, or an output of the model."""
        readers = self.graph.readers(tensor)
        return readers[0] if len(readers) == 1 and tensor not in self.graph.outputs else None

    def behind(self, tensor: str, fused: Collection[str]) -> Iterator[onnx.NodeProto]:
        """Yield the readers of a tensor, past operators in `fused` that are the only reader of what they read."""
        reader = self.only_reader(tensor)
        while reader is not None and reader.op_type in fused:
            tensor = reader.output[0]
            reader = self.only_reader(tensor)
        yield from self.graph.readers(tensor)
