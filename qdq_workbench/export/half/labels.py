"""The type of every node of a file in half precision, chosen so that few casts are needed.

Convolutions and products compute in half precision, unless a rule keeps them in float32. Every connected group of
other nodes takes the type with which fewer tensors are cast, half precision in a tie.
"""

from __future__ import annotations

from onnx import TensorProto

from qdq_workbench.export.half.kept import Kept
from qdq_workbench.graph.operators import CONTRACTIONS
from qdq_workbench.onnx_graph.element_types import typed_inputs
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE

_BETWEEN = "between tensors in float32: in half precision it would only add casts"
_ROUNDS = 2


class Labels:
    """The type of every computing node; `half` is True for half precision.

    Args:
        graph: The finished graph, all its floats in float32.
        types: From `element_types`.
        kept: The rules.
        ends: Whether the graph's inputs and outputs are in half precision.
    """

    def __init__(self, graph: Graph, types: dict[str, int], kept: Kept, *, ends: bool = False) -> None:
        self._graph, self._types, self._rules, self._ends = graph, types, kept, ends
        self.kept = kept.reasons()
        self._nodes = [node for node in graph.sorted_nodes() if kept.computes(node)]
        self.half: dict[Node, bool] = {node: node not in self.kept for node in self._nodes}
        self._movable = {node for node in self._nodes if node not in self.kept and node.op not in CONTRACTIONS}
        self._settle()
        self.kept |= {node: _BETWEEN for node in self._nodes if not self.half[node] and node not in self.kept}

    def given(self, tensor: str) -> bool | None:
        """Return whether a float tensor is written in half precision; None if it is constant or has either type."""
        if tensor in self._graph.inputs:
            return self._ends
        node = self._graph.producer(tensor)
        if node is None:
            return None
        if node.op == DEQUANTIZE:
            return None if self._rules.fits(node) else False
        return self.half.get(node)

    def wanted(self, tensor: str, node: Node) -> bool | None:
        """Return whether a node reads a float tensor in half precision; None where it takes either type."""
        if node.op == QUANTIZE:
            readers = self._graph.readers(node.output)
            return None if all(reader.op == DEQUANTIZE and self._rules.fits(reader) for reader in readers) else False
        if node not in self.half:
            return None
        typed = {node.inputs[i] for i in typed_inputs(node, self._graph.opset)}
        return self.half[node] and tensor in typed

    def _settle(self) -> None:
        # First whole groups, since flipping a single node of a group adds casts on both of its sides.
        for part in self._parts():
            half = self._casts(part)
            self.half.update(dict.fromkeys(part, False))
            if self._casts(part) >= half:
                self.half.update(dict.fromkeys(part, True))
        # Then single nodes: the boundary with the fewest casts may lie inside of a group.
        for _ in range(_ROUNDS):
            for node in (*self._nodes, *reversed(self._nodes)):
                if node in self._movable:
                    before = self._casts([node])
                    self.half[node] = not self.half[node]
                    if self._casts([node]) >= before:
                        self.half[node] = not self.half[node]

    def _parts(self) -> list[list[Node]]:
        """Return the movable nodes in connected groups."""
        parts, seen = [], set[Node]()
        for root in self._nodes:
            if root not in self._movable or root in seen:
                continue
            part, pending = [], [root]
            seen.add(root)
            while pending:
                node = pending.pop()
                part.append(node)
                near = [self._graph.producer(tensor) for tensor in node.inputs]
                near += [reader for tensor in node.outputs for reader in self._graph.readers(tensor)]
                new = [other for other in near if other in self._movable and other not in seen]
                seen.update(other for other in new if other is not None)
                pending += dict.fromkeys(other for other in new if other is not None)
            parts.append(part)
        return parts

    def _casts(self, nodes: list[Node]) -> int:
        """Return how many inputs and outputs of some nodes are cast."""
        tensors = dict.fromkeys(tensor for node in nodes for tensor in (*node.inputs, *node.outputs) if tensor)
        return sum(self._is_cast(tensor) for tensor in tensors)

    def _is_cast(self, tensor: str) -> bool:
        given = self.given(tensor)
        if given is None or self._types.get(tensor) != TensorProto.FLOAT:
            return False
        wanted = {self.wanted(tensor, reader) for reader in self._graph.readers(tensor)}
        return (not given) in wanted or (given is not self._ends and tensor in self._graph.outputs)
