"""Insertion of Q/DQ pairs between the cut ends, and of weights as integers followed by DequantizeLinear.

Names in the finished graph: the nodes of a pair are `<pair>/QuantizeLinear` and `<pair>/DequantizeLinear`, its
tensors `<pair>/quantized` and `<pair>/dequantized`; a weight is the initializer `<weight>/quantized` read by the
node `<weight>/DequantizeLinear`. Scales and zero points are `<pair or weight>/scale` and `/zero_point`; pairs
with equal ones share them, because ONNX Runtime merges two Qs of one tensor only if they name the same constants.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from qdq_workbench.errors import ExportError
from qdq_workbench.export.encodings import Encoding, clip_bounds
from qdq_workbench.export.moved_scales import MovedScales, Movement, moved_encoding, moved_scales
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.qdq_graph import NARROWING


class QDQWriter:
    """Writes Q and DQ nodes into a graph, sharing equal scales and zero points of activations.

    Args:
        graph: The graph to write into.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._shared: dict[tuple[bytes, bytes, str], tuple[str, str]] = {}

    def join_pair(self, name: str, encoding: Encoding, source: str, placeholder: str) -> None:
        """Insert a per-tensor Q/DQ pair between `source` and the readers of `placeholder`, an input that is removed."""
        graph = self._graph
        bounds = clip_bounds(encoding)
        if bounds is not None:
            limits = [
                graph.add_constant(f"{name}/clip_{end}", np.array(bound))
                for end, bound in zip(("min", "max"), bounds, strict=True)
            ]
            source = graph.add("Clip", [source, *limits], f"{name}{NARROWING}", output=f"{name}/clipped").output
        scale, zero = self._shared_parameters(name, encoding)
        quantize = graph.add(
            "QuantizeLinear", [source, scale, zero], f"{name}/QuantizeLinear", output=f"{name}/quantized"
        )
        dequantize = graph.add(
            "DequantizeLinear",
            [quantize.output, scale, zero],
            f"{name}/DequantizeLinear",
            output=f"{name}/dequantized",
        )
        # Shapes were inferred on the cut graph, and the passes that follow read ranks on both sides of a pair.
        shape = graph.shapes.get(placeholder)
        if shape is not None:
            for tensor in (quantize.inputs[0], quantize.output, dequantize.output):
                graph.shapes.setdefault(tensor, shape)
        graph.replace_reads(placeholder, dequantize.output)
        del graph.inputs[placeholder]

    def write_weight(self, name: str, encoding: Encoding, source: str) -> None:
        """Replace a weight input by an integer initializer and a DequantizeLinear directly before its readers.

        All readers share one initializer. Movements of data between the input and a reader (transposes, reshapes) are
        applied to the integers, which have the layout of `source`, unless the readers need several layouts.
        """
        graph = self._graph
        if encoding.codes is None or encoding.codes.shape != graph.shapes.get(source, encoding.codes.shape):
            received = None if encoding.codes is None else encoding.codes.shape
            raise ExportError(
                f"The codes of the weight {name!r} must have the weight's shape {graph.shapes.get(source)}. "
                f"Received: codes.shape={received}"
            )
        ends = _ends_of_movements(graph, source, encoding)
        if len(ends) > 1 and len({_layout(encoding, end.movements) for end in ends}) > 1:
            ends = [_End(source, [], list(graph.readers(source)))]
        # A weight that no node reads is left out of the file (`left_out`).
        if ends:
            constant = self._dequantized_constant(name, *moved_encoding(encoding, ends[0].movements))
            for end in ends:
                graph.replace_reads(end.tensor, constant, end.readers)
        del graph.inputs[source]

    def _dequantized_constant(
        self, name: str, codes: np.ndarray, scale: np.ndarray, zero: np.ndarray, place: MovedScales
    ) -> str:
        graph = self._graph
        inputs = [
            graph.add_constant(f"{name}/quantized", codes),
            graph.add_constant(f"{name}/scale", scale),
            graph.add_constant(f"{name}/zero_point", zero.astype(codes.dtype)),
        ]
        node = graph.add(
            "DequantizeLinear",
            inputs,
            f"{name}/DequantizeLinear",
            output=f"{name}/dequantized",
            axis=place.axis,
            block_size=place.block_size,
        )
        graph.shapes[node.output] = codes.shape
        return node.output

    def _shared_parameters(self, name: str, encoding: Encoding) -> tuple[str, str]:
        zero = encoding.zero_point.astype(encoding.dtype)
        # The type too: 0 has equal bytes in int8 and in uint8.
        key = (encoding.scale.tobytes(), zero.tobytes(), str(zero.dtype))
        if key not in self._shared:
            scale = self._graph.add_constant(f"{name}/scale", encoding.scale)
            self._shared[key] = (scale, self._graph.add_constant(f"{name}/zero_point", zero))
        return self._shared[key]


def narrows(graph: Graph, node: Node) -> bool:
    """Return whether a node is the Clip of a pair whose grid leaves out values of its integer type."""
    pair = node.name.removesuffix(NARROWING)
    return node.op == "Clip" and [reader.name for reader in graph.readers(node.output)] == [f"{pair}/QuantizeLinear"]


@dataclasses.dataclass
class _End:
    """A tensor at the end of the movements of a weight, and its readers that do more than move it."""

    tensor: str
    movements: list[Movement]
    readers: list[Node]


def _ends_of_movements(graph: Graph, source: str, encoding: Encoding) -> list[_End]:
    """Follow the movements of a weight from `source` to the tensors that other nodes read.

    A movement after which the scales would no longer lie along one axis, or in blocks of one, is not followed.
    """
    ends: list[_End] = []
    todo: list[tuple[str, list[Movement]]] = [(source, [])]
    while todo:
        tensor, moved = todo.pop()
        end = _End(tensor, moved, [])
        for node in graph.readers(tensor):
            movement = _movement(graph, node)
            if movement is not None and moved_scales(encoding, [*moved, movement]) is not None:
                todo.append((node.output, [*moved, movement]))
            else:
                end.readers.append(node)
        if end.readers:
            ends.append(end)
    return ends


def _layout(encoding: Encoding, movements: list[Movement]) -> tuple[object, ...]:
    """Return a key that is equal for movements with the same result: codes, scales, axis and block size."""
    codes, scale, _, place = moved_encoding(encoding, movements)
    return codes.shape, codes.tobytes(), place.axis, place.block_size, scale.tobytes()


def _movement(graph: Graph, node: Node) -> Movement | None:
    """Return the numpy function of a node that only moves the elements of its first input, else None."""
    rest = [graph.constant(tensor) for tensor in node.inputs[1:]]
    if any(value is None for value in rest) or node.domain or node.output in graph.outputs:
        return None
    values = [value for value in rest if value is not None]
    if node.op == "Identity":
        return lambda array: array
    if node.op == "Gather":
        return lambda array: np.take(array, values[0], int(node.get("axis", 0)))
    if node.op == "Transpose":
        return lambda array: np.transpose(array, node.get("perm"))
    # `_reshape` reads a size of 0 as a copy of the input's; `allowzero` means it literally.
    if node.op == "Reshape" and not node.get("allowzero", 0):
        return lambda array: _reshape(array, values[0])
    if node.op in ("Squeeze", "Unsqueeze"):
        axes = tuple(int(axis) for axis in (values[0] if values else node.get("axes", ())))
        return lambda array: np.squeeze(array, axes or None) if node.op == "Squeeze" else np.expand_dims(array, axes)
    if node.op == "Flatten":
        axis = int(node.get("axis", 1))
        return lambda array: array.reshape(int(np.prod(array.shape[:axis])), -1)
    return None


def _reshape(array: np.ndarray, shape: np.ndarray) -> np.ndarray:
    sizes = [array.shape[index] if size == 0 else int(size) for index, size in enumerate(shape)]
    return array.reshape(sizes)
