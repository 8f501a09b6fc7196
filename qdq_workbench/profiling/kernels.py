"""Which nodes of a file each kernel computes: ONNX Runtime's optimized graph, matched with the file.

The runtime fuses nodes into kernels, changes layouts, and names the kernels in several ways: after the node
(`conv/Conv`, `conv/Conv_token_3`), after its output tensor (`relu/Relu_nchwc`), or with a new name. The tensors
between the kernels keep their names only if the layout does not change. So each kernel is first anchored at one node,
by its output or its name, and then takes the nodes around it that the kernel's operator computes too.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import onnx

from qdq_workbench.graph.operators import HEAVY, MATRIX_PRODUCTS
from qdq_workbench.onnx_graph.qdq_graph import PAIR_OPERATORS

_SUFFIX = re.compile(r"(_token_\d+|_nhwc|_nchwc|_quant|/MatMulAddFusion|/MatmulTransposeFusion/?)+$")
# Q alone is a prefix only before Gemm: QuantizeLinear is an operator of the file as well.
_PREFIX = re.compile(r"^(QLinear|Nhwc|Fused|Q(?=Gemm))+")
# Kernels that are not named after their operator; a MatMul with a bias becomes a Gemm.
_OTHER_NAMES = {
    "BiasSoftmax": frozenset({"Softmax"}),
    "ConvInteger": frozenset({"Conv"}),
    "ConvTransposeWithDynamicPads": frozenset({"ConvTranspose"}),
    "DynamicQuantizeMatMul": MATRIX_PRODUCTS,
    "Gemm": MATRIX_PRODUCTS,
    "MatMul": MATRIX_PRODUCTS,
    "MatMulInteger": MATRIX_PRODUCTS,
    "MatMulIntegerToFloat": MATRIX_PRODUCTS,
    "MatMulNBits": MATRIX_PRODUCTS,
}
# Operators that are computed by the kernel behind them; all others by the kernel before them.
_PROLOGUE = frozenset({"Cast", "DequantizeLinear", "Identity", "Pad", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_COPY = re.compile(r"(/duplicated|_token_\d+)+$")
_MOVERS = frozenset({*_PROLOGUE, "QuantizeLinear", "ReorderInput", "ReorderOutput"}) - {"Pad"}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One node of the graph that a runtime executes.

    Args:
        name: Its name in a profile.
        operator: Its operator, such as "QLinearConv".
        leader: The node of the file that it mainly computes; None for a node that the runtime inserted.
        nodes: All nodes of the file that it computes, in the file's order.
        inputs: Number of its inputs.
        kind: "pair" or "layout" for a conversion that the runner has recognized; None to decide by the operator.
        pair: For a conversion, the QuantizeLinear or DequantizeLinear of the file that it computes, also if the
            runtime copied or moved that node; empty if none is known.
    """

    name: str
    operator: str
    leader: str | None
    nodes: tuple[str, ...]
    inputs: int
    kind: Literal["pair", "layout"] | None = None
    pair: str = ""


def match_kernels(file: onnx.ModelProto, optimized: onnx.ModelProto) -> list[Kernel]:
    """Return the kernels that ONNX Runtime executes for a file, in their order."""
    conversions = _Conversions(file)
    kernels = _Match(file, list(optimized.graph.node)).kernels()
    return [
        dataclasses.replace(kernel, pair=conversions.pair(node))
        for kernel, node in zip(kernels, optimized.graph.node, strict=True)
    ]


class _Conversions:
    """Finds the Q/DQ nodes of a file that the conversions of an optimized graph were made from.

    The runtime copies nodes and inserts pairs around operations that it moves, under new names but with the same
    scale.
    """

    def __init__(self, file: onnx.ModelProto) -> None:
        pairs = [node for node in file.graph.node if node.op_type in PAIR_OPERATORS]
        self._by_name = {name: node.name for node in pairs for name in (node.output[0], node.name)}
        # Pairs of one scale group share their scale, which then does not tell them apart.
        users = Counter(node.input[1] for node in pairs if node.op_type == "DequantizeLinear")
        self._by_scale = {(node.op_type, node.input[1]): node.name for node in pairs if users[node.input[1]] == 1}

    def pair(self, node: onnx.NodeProto) -> str:
        """Return the name of the node of the file, empty where none is known or the node is no conversion."""
        if node.op_type not in PAIR_OPERATORS:
            return ""
        names = (_COPY.sub("", name) for name in (node.output[0], node.name))
        named = next((self._by_name[name] for name in names if name in self._by_name), "")
        return named or self._by_scale.get((node.op_type, node.input[1]), "")


class _Match:
    """Assigns nodes of a file to the nodes of an optimized graph; both are identified by their positions."""

    def __init__(self, file: onnx.ModelProto, optimized: Sequence[onnx.NodeProto]) -> None:
        self._optimized = optimized
        self._nodes = list(_computed(file))
        self._producer = {output: place for place, node in enumerate(self._nodes) for output in node.output if output}
        self._readers: dict[int, list[int]] = {}
        for place in range(len(self._nodes)):
            for before in self._before(place):
                self._readers.setdefault(before, []).append(place)
        self._operators = {node.op_type for node in self._nodes}
        self._owner: dict[int, int] = {}

    def kernels(self) -> list[Kernel]:
        # All anchors first: no kernel may take a node that another one is named after.
        leaders = self._anchor()
        for kernel, anchor in leaders.items():
            leaders[kernel] = self._take_above(kernel, anchor)
        self._join_the_kernel_before()
        self._join_the_kernel_behind()
        owned: dict[int, list[str]] = {}
        for place, kernel in sorted(self._owner.items()):
            owned.setdefault(kernel, []).append(self._nodes[place].name)
        return [
            Kernel(
                node.name or node.op_type,
                node.op_type,
                self._nodes[leaders[kernel]].name if kernel in leaders else None,
                tuple(owned.get(kernel, ())),
                sum(1 for name in node.input if name),
            )
            for kernel, node in enumerate(self._optimized)
        ]

    def _before(self, place: int) -> Iterator[int]:
        for name in self._nodes[place].input:
            if name in self._producer:
                yield self._producer[name]

    def _anchor(self) -> dict[int, int]:
        """Return the anchor of each kernel: a node of the file that it computes."""
        by_name = {node.name: place for place, node in enumerate(self._nodes)}
        found = {}
        for kernel, node in enumerate(self._optimized):
            written = [self._producer[name] for name in node.output if name in self._producer]
            plain = _SUFFIX.sub("", node.name)
            candidates = [*written, by_name.get(node.name), by_name.get(plain), self._producer.get(plain)]
            free = [place for place in candidates if place is not None and place not in self._owner]
            if node.op_type in _MOVERS:  # an inserted one writes the tensor of the node before it under the same name
                free = [place for place in free if self._nodes[place].op_type == node.op_type]
            anchor = next(iter(free), None)
            if anchor is not None:
                found[kernel] = anchor
                self._owner[anchor] = kernel
        return found

    def _take_above(self, kernel: int, anchor: int) -> int:
        """Take the nodes in front of the anchor that the kernel computes too; return the kernel's main node."""
        wanted = _plain_operators(self._optimized[kernel].op_type)
        if self._nodes[anchor].op_type in wanted:
            return anchor
        if not wanted & self._operators:  # a fusion of many, such as Gelu
            if self._optimized[kernel].op_type not in _MOVERS:
                self._take_all_above(kernel, anchor)
            return anchor
        path = self._path_up(anchor, wanted)
        for place in path:
            self._owner[place] = kernel
        return path[-1] if path else anchor

    def _path_up(self, anchor: int, wanted: frozenset[str]) -> list[int]:
        """Return the shortest path from the anchor up to an unassigned node whose operator is wanted."""
        ways = [[anchor]]
        seen = {anchor}
        for way in ways:
            for place in self._before(way[-1]):
                if place in self._owner or place in seen or self._nodes[place].op_type == "QuantizeLinear":
                    continue
                if self._nodes[place].op_type in wanted:
                    return [*way[1:], place]
                seen.add(place)
                ways.append([*way, place])
        return []

    def _take_all_above(self, kernel: int, anchor: int) -> None:
        waiting = [anchor]
        while waiting:
            for place in self._before(waiting.pop()):
                operator = self._nodes[place].op_type
                if place not in self._owner and operator not in HEAVY and operator != "QuantizeLinear":
                    self._owner[place] = kernel
                    waiting.append(place)

    def _join_the_kernel_before(self) -> None:
        """Assign remaining nodes to the last kernel before them, the only one that can have computed them."""
        reached: dict[int, int] = {}  # the last kernel at or before each node
        for place, node in enumerate(self._nodes):
            before = [reached[other] for other in self._before(place) if other in reached]
            last = self._owner.get(place, max(before, default=-1))
            if last >= 0:
                reached[place] = last
            free = place not in self._owner and node.op_type not in _PROLOGUE
            # A kernel that only moves values computes nothing behind it.
            if free and before and self._optimized[last].op_type not in _MOVERS:
                self._owner[place] = last

    def _join_the_kernel_behind(self) -> None:
        # Backwards, so that a chain of nodes reaches the kernel behind its last one.
        for place in reversed(range(len(self._nodes))):
            behind = (self._owner[reader] for reader in self._readers.get(place, ()) if reader in self._owner)
            kernel = self._owner.get(place, next(behind, None))
            if kernel is not None:
                self._owner[place] = kernel


def _plain_operators(operator: str) -> frozenset[str]:
    """Return the operators of a file that a kernel of the given name computes."""
    plain = _PREFIX.sub("", operator)
    return _OTHER_NAMES.get(plain, frozenset({plain}))


def _computed(file: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that depend on an input; the runtime folds all others when it loads the file."""
    constants = {tensor.name for tensor in file.graph.initializer}
    reached = {value.name for value in file.graph.input if value.name not in constants}
    for node in file.graph.node:
        if reached.intersection(node.input):
            reached.update(node.output)
            yield node
