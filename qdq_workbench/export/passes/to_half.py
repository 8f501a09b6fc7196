"""The floats of a graph are written in half precision, except for the nodes that a rule keeps in float32.

Convolutions, products and the nodes between them compute in half precision; a Cast is inserted where the type changes.
A pair needs no Cast: its QuantizeLinear has the type of its input, each DequantizeLinear that of its readers, and all
have the same value of the scale. A pair between float32 tensors keeps its exact scale.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto

from qdq_workbench.export.half.kept import Kept
from qdq_workbench.export.half.labels import Labels
from qdq_workbench.export.half.rounding import element_type, rounded, rounded_scale
from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.graph.half_precision import HALF_TYPES, HalfRequest
from qdq_workbench.onnx_graph.element_types import element_types, typed_inputs
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE

_HALVES = frozenset(element_type(kind) for kind in HALF_TYPES.values())
_FLOATS = _HALVES | {TensorProto.FLOAT}


def to_half(graph: Graph) -> None:
    """Rewrite a graph in the type of its request; without a request it stays as it is."""
    types = element_types(graph)
    if graph.half is None or _HALVES.intersection(types.values()):
        return
    graph.prune()
    writer = _Writer(graph, types, graph.half)
    writer.write_pairs()
    writer.write_weights()
    writer.write_tensors()
    writer.write_constants()
    writer.write_ends()
    graph.prune()


class _Writer:
    """Rewrites one graph by the labels of its nodes."""

    def __init__(self, graph: Graph, types: dict[str, int], request: HalfRequest) -> None:
        self._graph, self._types, self._kind = graph, types, request.kind
        self._rules = Kept(graph, types, request)
        self._ends = request.ends
        self._labels = Labels(graph, types, self._rules, ends=request.ends)
        self._written: dict[tuple[str, bool, bool], str] = {}
        request.half = [node.name for node, half in self._labels.half.items() if half]
        request.kept = {node.name: reason for node, reason in self._labels.kept.items()}

    def write_pairs(self) -> None:
        """Set the float types of the QuantizeLinear and the DequantizeLinear nodes of every pair."""
        for quantize in [node for node in self._graph.nodes if node.op == QUANTIZE]:
            readers = self._graph.readers(quantize.output)
            source = bool(self._labels.given(quantize.inputs[0]))
            if not all(node.op == DEQUANTIZE and self._rules.fits(node) for node in readers):
                continue  # `write_tensors` casts its source
            wanted = {node: self._half_readers(node) for node in readers}
            # A DequantizeLinear changes its type if all of its readers take half precision; else these get their own.
            half = {node: bool(found) and len(found) == self._count(node) for node, found in wanted.items()}
            # Between float32 tensors the scale is not rounded.
            if not source and not any(wanted.values()):
                continue
            self._set_scale(quantize, half=source)
            for node in readers:
                if wanted[node] and not half[node]:
                    self._split(node, wanted[node])
                self._set_scale(node, half=half[node])

    def write_weights(self) -> None:
        """Dequantize weights to the type of their readers."""
        for node in [node for node in self._graph.nodes if node.op == DEQUANTIZE]:
            if self._graph.constant(node.inputs[0]) is None or not self._rules.fits(node):
                continue
            found = self._half_readers(node)
            if found and len(found) == self._count(node):
                self._set_scale(node, half=True)

    def write_tensors(self) -> None:
        """Insert a Cast where a tensor is read in another float type; copy Casts from integers in the new type."""
        for node in [node for node in self._graph.sorted_nodes() if node.op == "Cast"]:
            if self._types.get(node.output) == TensorProto.FLOAT and self._rules.is_free(node):
                self._retype(node)
        tensors = [*self._graph.inputs, *(tensor for node in self._graph.sorted_nodes() for tensor in node.outputs)]
        for tensor in tensors:
            if self._types.get(tensor) == TensorProto.FLOAT:
                self._cast(tensor)

    def write_constants(self) -> None:
        """Convert the constants of nodes in half precision."""
        for node, half in self._labels.half.items():
            if not half:
                continue
            inputs = list(node.inputs)
            for index in typed_inputs(node, self._graph.opset):
                value = self._graph.constant(inputs[index])
                if value is not None and value.dtype == np.float32:
                    inputs[index] = self._constant(inputs[index], rounded(value, self._kind))
            self._graph.set_inputs(node, inputs)

    def write_ends(self) -> None:
        """Declare the graph's inputs and outputs in half precision, if asked for."""
        for ends in (self._graph.inputs, self._graph.outputs) if self._ends else ():
            for name, value in ends.items():
                if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                    ends[name] = _retyped(value, element_type(self._kind))

    def _count(self, dequantize: Node) -> int:
        """Return how many readers a dequantized tensor has, graph outputs included."""
        tensor = dequantize.output
        return len(self._graph.readers(tensor)) + (tensor in self._graph.outputs)

    def _half_readers(self, dequantize: Node) -> list[Node]:
        """Return the readers that take a dequantized tensor in half precision; none unless one of them needs it."""
        tensor = dequantize.output
        wanted = {reader: self._labels.wanted(tensor, reader) for reader in self._graph.readers(tensor)}
        if not any(wanted.values()):
            return []
        return [reader for reader, half in wanted.items() if half is not False and reader.op != QUANTIZE]

    def _split(self, dequantize: Node, readers: list[Node]) -> None:
        """Add a DequantizeLinear for the readers in half precision."""
        base = dequantize.name.removesuffix(f"/{DEQUANTIZE}")
        own = self._graph.add(
            DEQUANTIZE,
            dequantize.inputs,
            f"{base}/{self._kind.name}/{DEQUANTIZE}",
            output=f"{base}/{self._kind.name}/dequantized",
            axis=dequantize.get("axis"),
            block_size=dequantize.get("block_size"),
        )
        self._graph.shapes[own.output] = self._graph.shapes.get(dequantize.output, ())
        self._graph.replace_reads(dequantize.output, own.output, readers)
        self._set_scale(own, half=True)

    def _set_scale(self, node: Node, *, half: bool) -> None:
        """Set the scale of a Q or DQ node to its value rounded to half precision, in half precision or in float32."""
        name = node.inputs[1]
        value = rounded_scale(self._graph.constants[name], self._kind)
        typed = value if half else value.astype(np.float32)
        new = self._constant(name, typed, "" if half else "/rounded")
        self._graph.set_inputs(node, [node.inputs[0], new, *node.inputs[2:]])
        for tensor in node.outputs if node.op == DEQUANTIZE else ():
            self._types[tensor] = element_type(self._kind) if half else TensorProto.FLOAT

    def _constant(self, name: str, value: np.ndarray, suffix: str = "") -> str:
        key = (name, value.dtype == np.float32, bool(suffix))
        if key not in self._written:
            self._written[key] = self._graph.add_constant(f"{name}{suffix or '/' + self._kind.name}", value)
        return self._written[key]

    def _retype(self, cast: Node) -> None:
        """Add a copy of a Cast from integers or booleans, to half precision, for the readers in that type."""
        tensor = cast.output
        wanting = [r for r in self._graph.readers(tensor) if self._labels.wanted(tensor, r)]
        if not wanting:
            return
        new = self._graph.add("Cast", cast.inputs, f"{cast.name}/{self._kind.name}", to=element_type(self._kind))
        self._graph.replace_reads(tensor, new.output, wanting)

    def _cast(self, tensor: str) -> None:
        """Cast a tensor for its readers of the other type, and for a graph output of the other type."""
        graph, producer = self._graph, self._graph.producer(tensor)
        # `given` leaves a DequantizeLinear open; `write_pairs` has decided, and only those in float32 come here.
        half = False if producer is not None and producer.op == DEQUANTIZE else self._labels.given(tensor)
        if half is None:
            return
        readers = graph.readers(tensor)
        given, other = (self._kind.name, "float32") if half else ("float32", self._kind.name)
        if half is not self._ends and producer is not None and tensor in graph.outputs:
            # The output of the graph keeps its name, so the tensor in the other type gets a new one.
            inner = graph.fresh(f"{tensor.removesuffix(':0')}/{given}")
            graph.set_output(producer, inner, producer.outputs.index(tensor))
            graph.replace_reads(tensor, inner, readers)
            others = [reader for reader in readers if self._labels.wanted(inner, reader) is (not half)]
            self._add_cast(inner, f"{inner}/to_{other}", others, half=not half, output=tensor)
            return
        others = [reader for reader in readers if self._labels.wanted(tensor, reader) is (not half)]
        if others:
            self._add_cast(tensor, f"{tensor.removesuffix(':0')}/to_{other}", others, half=not half)

    def _add_cast(self, tensor: str, name: str, readers: list[Node], *, half: bool, output: str | None = None) -> None:
        kind = element_type(self._kind) if half else TensorProto.FLOAT
        cast = self._graph.add("Cast", [tensor], name, output=output, to=kind)
        for old, new in ((tensor, cast.output), (cast.output, tensor)):
            if old in self._graph.shapes:
                self._graph.shapes.setdefault(new, self._graph.shapes[old])
        self._graph.replace_reads(tensor, cast.output, readers)


def _retyped(value: onnx.ValueInfoProto, kind: int) -> onnx.ValueInfoProto:
    copied = onnx.ValueInfoProto()
    copied.CopyFrom(value)
    copied.type.tensor_type.elem_type = kind
    return copied


def _denied(graph: Graph) -> Iterator[Node]:
    """Yield nodes that the pass never writes: a Cast of a Cast, a Q or other node with floats of two types."""
    types = element_types(graph)
    if not _HALVES.intersection(types.values()):
        return
    for node in graph.nodes:
        before = graph.producer(node.inputs[0]) if node.inputs else None
        if node.op == "Cast" and before is not None and types[node.output] in _FLOATS:
            if before.op == "Cast" and types[before.output] in _FLOATS:
                yield node
        elif node.op in (QUANTIZE, DEQUANTIZE):
            if node.op == QUANTIZE and types[node.inputs[0]] != types[node.inputs[1]]:
                yield node
        else:
            floats = {types.get(node.inputs[i]) for i in typed_inputs(node, graph.opset)} & _FLOATS
            if len(floats) > 1:
                yield node


PASS = GraphPass(
    to_half,
    needs="The graph in its final form, all its floats in float32, at an opset that takes scales in half precision.",
    holds="Every node has floats of one type, no cast is cast again, and the ends of the graph are as asked for.",
    refuses="What a rule keeps in float32: sums, normalizations, exponentials, states, what overflows, coarse scales.",
    denied_by=_denied,
)
