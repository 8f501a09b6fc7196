"""The multiply-accumulate operations of a call for one sample, from shapes only; the only counter of the library.

With K the elements of a kernel:

    convolution              K * positions of the output (of the input for a transposed one)
    dense                    K * rows that it is applied to
    einsum                   the product of the sizes of all axes that take part, from its equation
    recurrent layer          (K of the input + K of the state) * time steps, for both directions
    attention                the projections, and scores and weighted sum: queries * keys * width each
    matrix product           elements of the output * length of the contracted axis
    TimeDistributed          the layer inside, at every step

Biases, normalizations, activations, elementwise products and pooling count 0. A size that the graph does not know (any
height, any length) counts as 1. Inside a custom layer, every kernel counts as applied to all rows of its input.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qdq_workbench.graph.contractions import count_products
from qdq_workbench.graph.kinds import KINDS, MULTI_HEAD_ATTENTION, PRODUCT_OPERATIONS, WINDOWED_OPERATIONS, classes_of
from qdq_workbench.graph.model_graph import ModelGraph, Node, Part, Shape
from qdq_workbench.graph.op_kinds import multiplies_with_table

# Weights that multiply inputs; the rows of an embedding are looked up.
_KERNELS = {name for kind in KINDS.values() if kind.default == "input and weight" for name in kind.weights}


@dataclasses.dataclass(frozen=True)
class _Layer:
    """A call of a layer, or of a layer inside one, with all names below that layer."""

    classes: tuple[str, ...]
    settings: Mapping[str, Any]
    kernels: Mapping[str, tuple[int, ...]]
    parts: tuple[Part, ...]
    sources: tuple[Shape, ...]
    result: Shape

    def is_a(self, *names: str) -> bool:
        return not set(names).isdisjoint(self.classes)

    def part(self, name: str) -> _Layer | None:
        """Return a layer inside, as if it were called in place of this one."""
        found = next((part for part in self.parts if part.name == name), None)
        if found is None:
            return None
        start = f"{name}/"
        below = [part for part in self.parts if part.name.startswith(start)]
        return dataclasses.replace(
            self,
            classes=found.bases if found.opaque else found.classes,
            settings=found.settings,
            kernels={path[len(start) :]: shape for path, shape in self.kernels.items() if path.startswith(start)},
            parts=tuple(dataclasses.replace(part, name=part.name[len(start) :]) for part in below),
        )


def count_macs(graph: ModelGraph, node: Node) -> int:
    """Return the multiply-accumulate operations of one call for one sample.

    Returns:
        The count; 0 for nodes without products of values and weights or of two tensors.

    Example:
        >>> from qdq_workbench.graph.model_graph import Tensor, Weight
        >>> dense = Node("d", "d", "Dense", inputs=("x",), outputs=("d",), weights=(Weight("kernel", (4, 3)),))
        >>> tensors = {"x": Tensor("x", (None, 4), "float32", "x"), "d": Tensor("d", (None, 3), "float32", "d")}
        >>> graph = ModelGraph("net", (Node("x", "x", "InputLayer", outputs=("x",)), dense), tensors, ("x",), ("d",))
        >>> count_macs(graph, dense)
        12
    """
    if not node.outputs or not node.inputs:
        return 0
    result = graph.tensors[node.outputs[0]].shape
    if multiplies_with_table(node):
        return _size(graph.tensors[node.inputs[0]].shape[1:]) * _size(result[-1:])
    if node.is_operation:
        return _of_operation(node, _operands(graph, node), result)
    if node.class_name == "OwnWeight":
        return 0  # it hands a weight on; what multiplies with it is counted
    values = [index for index in range(len(node.inputs)) if not _is_mask(node, index)]
    return _of_layer(
        _Layer(
            classes=node.bases if node.opaque else node.classes,
            settings=node.settings,
            kernels={weight.name: weight.shape for weight in node.weights if _multiplies(weight.name)},
            parts=node.parts,
            sources=tuple(graph.tensors[node.inputs[index]].shape for index in values),
            result=result,
        )
    )


def macs_by_node(graph: ModelGraph) -> Mapping[str, int]:
    """Return the multiply-accumulate operations of every call for one sample, by its name."""
    return graph.once(_macs_by_node)


def _macs_by_node(graph: ModelGraph) -> dict[str, int]:
    return {node.name: count_macs(graph, node) for node in graph.nodes}


def _multiplies(weight: str) -> bool:
    return weight.rpartition("/")[2] in _KERNELS


def _is_mask(node: Node, index: int) -> bool:
    return bool(node.arguments) and node.arguments[index].endswith("mask")


def _of_layer(layer: _Layer) -> int:
    for classes, count in _RULES:
        if layer.is_a(*classes):
            return count(layer)
    return _unknown(layer)


def _sum(kernels: Mapping[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in kernels.values())


def _unknown(layer: _Layer) -> int:
    """Count every kernel as a matrix that multiplies all rows, plus the products of rows by rows in attention."""
    if "macs_inside" in layer.settings:
        return int(layer.settings["macs_inside"])
    rows = _size(layer.sources[0][1:-1])
    inside = [layer.part(part.name) for part in layer.parts]
    products = [_scores(part, rows, rows) for part in inside if part is not None and part.is_a(*MULTI_HEAD_ATTENTION)]
    return rows * _sum(layer.kernels) + sum(products)


def _dense(layer: _Layer) -> int:
    return _size(layer.sources[0][1:-1]) * _sum(layer.kernels)


def _einsum_dense(layer: _Layer) -> int:
    equation, kernel = layer.settings.get("equation"), layer.kernels.get("kernel")
    if not equation or kernel is None:
        return _dense(layer)
    return count_products(str(equation), [layer.sources[0], kernel])


def _convolution(layer: _Layer) -> int:
    return _positions(layer.settings, layer.result) * _sum(layer.kernels)


def _transposed(layer: _Layer) -> int:
    return _positions(layer.settings, layer.sources[0]) * _sum(layer.kernels)


def _positions(settings: Mapping[str, Any], shape: Shape) -> int:
    """Return the number of spatial positions of a tensor."""
    return _size(shape[2:] if settings.get("data_format") == "channels_first" else shape[1:-1])


def _recurrent(layer: _Layer) -> int:
    """Count all kernels at every step, and for a ConvLSTM at every spatial position of its result."""
    shape, steps = layer.sources[0], 1
    if len(shape) > 2:
        steps = shape[1] or 1
    places = 1
    if layer.is_a("ConvLSTM"):
        # A kernel has the spatial axes, and behind them input and output channels.
        axes = max((len(kernel) - 2 for kernel in layer.kernels.values()), default=0)
        first = any(part.settings.get("data_format") == "channels_first" for part in layer.parts)
        places = _size(layer.result[-axes:] if first else layer.result[-axes - 1 : -1])
    return steps * places * _sum(layer.kernels)


def _per_step(layer: _Layer) -> int:
    """Count the layer inside at every step; a model inside is counted beforehand, as its shapes are not known here."""
    source, result = layer.sources[0], layer.result
    steps, inside = source[1] or 1, layer.settings.get("macs_inside")
    if inside is not None:
        return steps * int(inside)
    part = layer.part("layer")
    if part is None:
        return _unknown(layer)
    return steps * _of_layer(
        dataclasses.replace(part, sources=((source[0], *source[2:]),), result=(result[0], *result[2:]))
    )


def _of_inner(layer: _Layer) -> int:
    part = layer.part("layer")
    return _unknown(layer) if part is None else _of_layer(part)


def _both_ways(layer: _Layer) -> int:
    ways = [layer.part(name) for name in ("forward_layer", "backward_layer")]
    return sum(_of_layer(way) for way in ways if way is not None) if any(ways) else _recurrent(layer)


def _multi_head(layer: _Layer) -> int:
    """Count projections and products along the attention axes (by default all), times the sizes of the other axes."""
    query, value = layer.sources[0], layer.sources[min(1, len(layer.sources) - 1)]
    axes = layer.settings.get("attention_axes") or range(1, len(query) - 1)
    shared = _size([size for axis, size in enumerate(query[:-1]) if axis and axis not in axes])
    queries, keys = _size([query[axis] for axis in axes]), _size([value[axis] for axis in axes])
    total = 0
    for name, kernel in layer.kernels.items():
        # Keys and values are projected at the positions of the second input, queries and results at those of the first.
        total += math.prod(kernel) * (keys if name.startswith(("key", "value")) else queries)
    return shared * (total + _scores(layer, queries, keys))


def _scores(layer: _Layer, queries: int, keys: int) -> int:
    """Return the products of queries by keys and of scores by values, over all heads."""
    # The kernel of the queries is (features, heads, width), that of the output (heads, width, features).
    query = layer.kernels.get("query/kernel", ())
    value = layer.kernels.get("attention_output/kernel", query[1:])
    return queries * keys * (math.prod(query[1:]) + math.prod(value[:2]))


def _attention(layer: _Layer) -> int:
    query, value = layer.sources[0], layer.sources[min(1, len(layer.sources) - 1)]
    return _size(query[1:-1]) * _size(value[1:-1]) * (_size(query[-1:]) + _size(value[-1:]))


def _dot(layer: _Layer) -> int:
    """Count a product over one axis of each: the product of all three sizes contains the size of every axis twice."""
    shapes = (*layer.sources, layer.result)
    return math.isqrt(math.prod(_size(shape[1:]) for shape in shapes)) if len(layer.sources) == 2 else 0


_RULES: tuple[tuple[Sequence[str], Callable[[_Layer], int]], ...] = (
    (("TimeDistributed",), _per_step),
    (("SpectralNormalization",), _of_inner),
    (("Bidirectional",), _both_ways),
    (classes_of("recurrent"), _recurrent),
    (MULTI_HEAD_ATTENTION, _multi_head),
    (classes_of("attention"), _attention),
    (classes_of("transposed convolution"), _transposed),
    (classes_of("convolution", "depthwise convolution", "separable convolution"), _convolution),
    (classes_of("einsum"), _einsum_dense),
    (classes_of("dense"), _dense),
    (("Dot",), _dot),
)


def _operands(graph: ModelGraph, node: Node) -> list[tuple[Shape, bool]]:
    """Return the shape of every operand of an operation, constants included, and whether it is a tensor."""
    tensors = [graph.tensors[name].shape for name in node.inputs]
    noted = node.settings.get("operands")
    if noted is None:
        constant = node.settings.get("constant_shape")
        return [(shape, True) for shape in tensors] + ([] if constant is None else [(tuple(constant), False)])
    rest = iter(tensors)
    return [(next(rest, ()), True) if shape is None else (tuple(shape), False) for shape in noted]


def _of_operation(node: Node, operands: list[tuple[Shape, bool]], result: Shape) -> int:
    if node.class_name not in PRODUCT_OPERATIONS or len(operands) < 2:
        return 0
    shapes = [shape for shape, _ in operands]
    batched = next((index for index, (_, is_tensor) in enumerate(operands) if is_tensor), 0)
    # Counts are for one sample, but a fixed batch size is a part of the shapes.
    batch = (shapes[batched][0] or 1) if shapes[batched] else 1
    settings, name = node.settings, node.class_name
    if name == "Einsum":
        equation = settings.get("subscripts")
        return count_products(str(equation), shapes, batched) if equation else 0
    if name in WINDOWED_OPERATIONS:
        places = _positions(settings, shapes[0] if name == "ConvTranspose" else result)
        return places * sum(_size(shape) for shape in shapes[1:])
    if name == "DotProductAttention":
        query, key = shapes[:2]
        return 2 * _size(query[1:]) * _size(key[1:2])
    if not all(shapes[:2]):
        return 0  # a product with a single number
    if name == "Vdot":
        return _size(shapes[0]) // batch
    if name == "Tensordot":
        # Every axis occurs in two of the three, as in `_dot`.
        return math.isqrt(_size(shapes[0]) * _size(shapes[1]) * _size(result)) // batch
    return _size(result) * _size(shapes[0][-1:]) // batch


def _size(shape: Sequence[int | None]) -> int:
    return math.prod(size or 1 for size in shape)
