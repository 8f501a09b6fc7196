"""What each layer of a model costs: multiply-accumulate operations, bytes of weights, bytes of its outputs.

Counted from the graph alone, for one sample. With K the elements of a kernel:

    convolution              K * positions of the output (of the input, where it is transposed)
    dense, einsum            K * rows that it is applied to
    recurrent layer          (K of the input + K of the state) * time steps
    attention                the projections, and scores and weighted sum: 2 * queries * keys * width
    matrix product           elements of the output * length of the contracted axis

Biases, normalizations, activations, additions and pooling count as no multiply-accumulate operations. A size that the
graph does not know (any height, any length) counts as 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from qdq_workbench.graph.model_graph import ModelGraph, Node, Weight
from qdq_workbench.placement.plan import PlacementPlan

_BYTES = {"float64": 8, "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2}
_ONE_BYTE = ("bool", "int8", "uint8")
_RECURRENT = ("RNN", "LSTM", "GRU", "SimpleRNN", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
_ATTENTION = ("MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention")
_PRODUCTS = ("Matmul", "MatMul", "Dot", "Einsum")


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """What one layer costs for one sample.

    Args:
        layer: Path of the layer.
        macs: Multiply-accumulate operations, over all its calls.
        float_macs: Those that are computed in float: all, unless every input and a weight are quantized.
        parameters: How many numbers its weights hold.
        weight_bytes: Bytes of its weights: those of the plan's integers where they are quantized.
        activation_bytes: Bytes of its outputs: one per element and byte of the grid where they are quantized.
    """

    layer: str
    macs: int
    float_macs: int
    parameters: int
    weight_bytes: int
    activation_bytes: int


def layer_costs(plan_or_graph: PlacementPlan | ModelGraph) -> dict[str, LayerCost]:
    """Count what every layer costs for one sample.

    Args:
        plan_or_graph: A plan, or a graph, which counts as all float.

    Returns:
        The cost by the layer's path, in computing order.

    Example:
        >>> import keras
        >>> from qdq_workbench import plan_placement
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, use_bias=False, name="conv")(image))
        >>> cost = layer_costs(plan_placement(model))["conv"]
        >>> cost.macs, cost.float_macs, cost.weight_bytes
        (3888, 0, 108)
    """
    plan = plan_or_graph if isinstance(plan_or_graph, PlacementPlan) else None
    graph = plan_or_graph.graph if isinstance(plan_or_graph, PlacementPlan) else plan_or_graph
    weight_bits = {p.tensor: p.quantizer.num_bits for p in plan.placements if p.site == "weight"} if plan else {}
    tensor_bits = {t.name: t.quantizer.num_bits for t in plan.tensors if t.kind == "activation"} if plan else {}
    costs = {}
    for layer in graph.layers:
        calls = graph.calls(layer)
        macs = [_macs(graph, call) for call in calls]
        in_float = [count for call, count in zip(calls, macs, strict=True) if not _is_integer(plan, call, weight_bits)]
        weights = calls[0].weights
        costs[layer] = LayerCost(
            layer=layer,
            macs=sum(macs),
            float_macs=sum(in_float),
            parameters=sum(math.prod(weight.shape) for weight in weights),
            weight_bytes=sum(_weight_bytes(weight, weight_bits.get(f"{layer}/{weight.name}")) for weight in weights),
            activation_bytes=sum(_tensor_bytes(graph, name, tensor_bits.get(name)) for name in _outputs(calls)),
        )
    return costs


def _is_integer(plan: PlacementPlan | None, call: Node, weight_bits: dict[str, int]) -> bool:
    """Whether a call multiplies quantized inputs, and quantized weights if it has kernels."""
    if plan is None or not call.inputs:
        return False
    if any(plan.input_placement(call.name, index) is None for index in range(len(call.inputs))):
        return False
    kernels = list(_kernels(call))
    return not kernels or any(f"{call.layer}/{weight.name}" in weight_bits for weight in kernels)


def _outputs(calls: list[Node]) -> list[str]:
    return [name for call in calls for name in call.outputs]


def _weight_bytes(weight: Weight, bits: int | None) -> int:
    elements = math.prod(weight.shape)
    return elements * _width(weight.dtype) if bits is None else -(-elements * bits // 8)


def _tensor_bytes(graph: ModelGraph, name: str, bits: int | None) -> int:
    tensor = graph.tensors[name]
    elements = _size(tensor.shape[1:])
    return elements * _width(tensor.dtype) if bits is None else elements * (1 if bits <= 8 else 2)


def _width(dtype: str) -> int:
    return 1 if dtype in _ONE_BYTE else _BYTES.get(dtype, 4)


def _size(shape: tuple[int | None, ...]) -> int:
    return math.prod(size if size is not None else 1 for size in shape)


def _macs(graph: ModelGraph, node: Node) -> int:
    """Return the multiply-accumulate operations of one call."""
    for classes, count in _COUNTERS:
        if node.is_a(*classes):
            return count(graph, node)
    return 0


def _kernels(node: Node) -> Iterator[Weight]:
    """Yield the weights that inputs are multiplied by; biases of recurrent layers and of heads have two axes too."""
    return (weight for weight in node.weights if len(weight.shape) > 1 and not weight.name.endswith("bias"))


def _positions(graph: ModelGraph, node: Node, tensor: str) -> int:
    """Return the number of places in the image, volume or sequence that a tensor holds."""
    shape = graph.tensors[tensor].shape
    channels_first = node.settings.get("data_format") == "channels_first"
    return _size(shape[2:] if channels_first else shape[1:-1])


def _convolution(graph: ModelGraph, node: Node) -> int:
    source = node.inputs[0] if "Transpose" in "".join(node.classes) else node.outputs[0]
    return _positions(graph, node, source) * sum(math.prod(weight.shape) for weight in _kernels(node))


def _rows(graph: ModelGraph, node: Node) -> int:
    """A kernel is applied to every row of the output that is not made of the kernel's own last axes."""
    total = 0
    shape = tuple(size or 1 for size in graph.tensors[node.outputs[0]].shape[1:])
    for weight in _kernels(node):
        own = 0
        while own < min(len(shape), len(weight.shape) - 1) and shape[-1 - own] == weight.shape[-1 - own]:
            own += 1
        total += math.prod(weight.shape) * math.prod(shape[: len(shape) - own])
    return total


def _recurrent(graph: ModelGraph, node: Node) -> int:
    shape = graph.tensors[node.inputs[0]].shape
    steps = shape[1] if len(shape) > 2 else 1
    places = _size(shape[2:-1])  # of a ConvLSTM: its output is at most this large
    return (steps or 1) * places * sum(math.prod(weight.shape) for weight in _kernels(node))


def _attention(graph: ModelGraph, node: Node) -> int:
    queries = _positions(graph, node, node.inputs[0])
    keys = _positions(graph, node, node.inputs[1 if len(node.inputs) > 1 else 0])
    total, width = 0, 0
    for weight in _kernels(node):
        of_keys = weight.name.startswith(("key", "value"))
        total += math.prod(weight.shape) * (keys if of_keys else queries)
        if weight.name.startswith("query"):
            width = math.prod(weight.shape[1:])
    return total + 2 * queries * keys * width


def _product(graph: ModelGraph, node: Node) -> int:
    if len(node.inputs) < 2:
        return 0
    first = graph.tensors[node.inputs[0]].shape
    return _size(graph.tensors[node.outputs[0]].shape[1:]) * (first[-1] or 1)


_COUNTERS: tuple[tuple[tuple[str, ...], Callable[[ModelGraph, Node], int]], ...] = (
    (_RECURRENT, _recurrent),
    (_ATTENTION, _attention),
    (("BaseConv", "BaseDepthwiseConv", "BaseSeparableConv", "BaseConvTranspose"), _convolution),
    (("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D"), _convolution),
    (("Dense", "EinsumDense"), _rows),
    (_PRODUCTS, _product),
)
