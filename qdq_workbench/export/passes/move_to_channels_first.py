"""Moving channels-last operations into the channels-first layout that ONNX convolutions use.

tf2onnx wraps every convolution and pool in two Transposes. Between two convolutions there are other operations, Q/DQ
pairs above all, and an inference runtime fuses nothing through a Transpose. So operations that work in both layouts
are *flipped*: they get channels-first inputs, and their outputs are transposed back. The inserted Transposes cancel
against those already there.

With `P` the permutation to channels-last and `f` an elementwise operation: `f(P x) = P f(x)`. Operations with an
axis get axis `P[axis]`. Each node is flipped at most once, so the pass ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.flips import FLIPS
from qdq_workbench.graph.operators import BROADCASTING, CHANNELS_FIRST
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.qdq_graph import PAIR_OPERATORS
from qdq_workbench.onnx_graph.transposes import (
    merge_transposes,
    permutation,
    to_channels_first,
    to_channels_last,
    transpose_output,
)


def move_to_channels_first(graph: Graph) -> None:
    """Flip operations around convolutions to channels-first until no more Transposes can be cancelled.

    The flipped nodes are added to the graph's `channels_first`.
    """
    layout = _LayoutPass(graph)
    layout.run()
    graph.channels_first.update(layout.flipped)


class _LayoutPass:
    """The state of one run: which nodes work in the channels-first layout already."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.flipped: dict[Node, None] = {}

    def run(self) -> None:
        changed = True
        while changed:
            merge_transposes(self.graph)
            changed = False
            for node in self.graph.sorted_nodes():
                if node in self.graph and node not in self.flipped and self._worthwhile(node):
                    changed = self._flip(node) or changed
        merge_transposes(self.graph)

    # What to flip

    def _is_first(self, node: Node | None) -> bool:
        return node is not None and (node.op in CHANNELS_FIRST or node in self.flipped)

    def _from_first(self, tensor: str) -> bool:
        """Return whether a tensor is a channels-first result, transposed to channels-last."""
        node = self.graph.producer(tensor)
        perm = permutation(node)
        return (
            node is not None
            and perm is not None
            and len(perm) > 2
            and perm == to_channels_last(len(perm))
            and self._is_first(self.graph.producer(node.inputs[0]))
        )

    def _leads_to_channels_first(self, node: Node) -> bool:
        """Return whether a node transposes to channels-first, for readers that all work in that layout."""
        perm = permutation(node)
        if perm is None or len(perm) < 3 or perm != to_channels_first(len(perm)):
            return False
        readers = self.graph.readers(node.output)
        return bool(readers) and all(self._is_first(reader) for reader in readers)

    def _worthwhile(self, node: Node) -> bool:
        graph = self.graph
        if node.domain or node.op not in FLIPS or not node.inputs:
            return False
        # The halves of a pair move together, because a Transpose between them keeps runtimes from fusing the pair.
        if node.op == "QuantizeLinear":
            return self._pair_worthwhile(node)
        if node.op == "DequantizeLinear":
            return self._from_flipped_q(node)
        if any(self._from_first(tensor) for tensor in node.inputs if tensor):
            return True
        readers = graph.readers(node.output)
        # With one computed input the Transposes behind the node become one in front of it; with two there would be two.
        lone = sum(graph.constant(tensor) is None for tensor in node.inputs if tensor) == 1
        ends_here = node.output not in graph.outputs and len(node.outputs) == 1
        return lone and ends_here and bool(readers) and all(self._leads_to_channels_first(reader) for reader in readers)

    def _pair_worthwhile(self, quantize: Node) -> bool:
        """Return whether flipping a whole pair cancels a Transpose; of pairs in sequence, the last decides."""
        found: bool | Node = quantize
        while isinstance(found, Node):
            found = self._removes_transposes(found)
        return found

    def _removes_transposes(self, quantize: Node) -> bool | Node:
        """Return whether flipping one pair cancels a Transpose, or the next QuantizeLinear if that pair decides."""
        for dequantize in self.graph.readers(quantize.output):
            for reader in self.graph.readers(dequantize.output):
                if self._leads_to_channels_first(reader):
                    return True
                if self._from_first(quantize.inputs[0]) and reader.op in FLIPS and reader.op not in PAIR_OPERATORS:
                    return True
                if self._from_first(quantize.inputs[0]) and reader.op == "QuantizeLinear":
                    return reader
        return False

    def _from_flipped_q(self, dequantize: Node) -> bool:
        return self._from_first(dequantize.inputs[0])

    # Flipping

    def _flip(self, node: Node) -> bool:
        rank = self._flip_rank(node)
        if rank is None or rank < 3:
            return False
        outputs = FLIPS[node.op](self.graph, node, rank)
        if outputs is None:
            return False
        self.flipped[node] = None
        for index, perm in enumerate(outputs):
            transpose_output(self.graph, node, index, perm)
        return True

    def _flip_rank(self, node: Node) -> int | None:
        ranks = [self.graph.rank(tensor) for tensor in node.inputs if tensor]
        # A broadcast operand may have fewer axes than the result, whose layout counts.
        if node.op in BROADCASTING or node.op == "Concat":
            return None if any(rank is None for rank in ranks) else max(rank for rank in ranks if rank is not None)
        return ranks[0]


def _mergeable(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        perm = permutation(node)
        if perm is None:
            continue
        does_nothing = perm == tuple(range(len(perm))) and node.output not in graph.outputs
        if does_nothing or permutation(graph.producer(node.inputs[0])) is not None or _parts_a_pair(graph, node):
            yield node


def _parts_a_pair(graph: Graph, node: Node) -> bool:
    """Return whether a Transpose is between a pair and a channels-first node, and its inverse before the pair.

    A pair that others read as it is stays in their layout.
    """
    dequantize = graph.producer(node.inputs[0])
    if dequantize is None or dequantize.op != "DequantizeLinear":
        return False
    quantize = graph.producer(dequantize.inputs[0])
    before = graph.producer(quantize.inputs[0]) if quantize is not None else None
    perm, inner = permutation(node), permutation(before)
    if (
        before is None
        or perm is None
        or inner is None
        or tuple(inner[axis] for axis in perm) != tuple(range(len(perm)))
        or any(permutation(reader) != perm for reader in graph.readers(dequantize.output))
    ):
        return False
    ends = (graph.producer(before.inputs[0]), *graph.readers(node.output))
    return all(end is not None and end.op in CHANNELS_FIRST for end in ends)


PASS = GraphPass(
    move_to_channels_first,
    needs="Pairs joined, so that they are flipped with the operations around them.",
    holds="Pairs between convolutions work in their layout; no Transpose reads another one or does nothing.",
    refuses="Operations whose axes are not known, and those where flipping would cancel no Transpose.",
    denied_by=_mergeable,
)
