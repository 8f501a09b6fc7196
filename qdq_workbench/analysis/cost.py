"""The cost of each layer of a model: multiply-accumulate operations, bytes of weights, bytes of its outputs.

Counted from the graph alone, for one sample. Operations are counted by `graph.macs`; the rules of `explain` for the
plan's target decide which calls are computed in float, so that costs, explanations and searches agree.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

from qdq_workbench.graph.macs import count_macs
from qdq_workbench.graph.model_graph import ModelGraph, Node, Weight
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.runtimes.rule_sets import integer_calls

# All other types, such as float32 and int32, have 4 bytes.
_BYTES = {"float64": 8, "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2}
_ONE_BYTE = ("bool", "int8", "uint8")


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """The cost of one layer for one sample.

    Args:
        layer: Path of the layer.
        macs: Multiply-accumulate operations, over all its calls.
        float_macs: Those of the calls that `explain` reports as float for the plan's target; all of a graph.
        parameters: Number of elements of its weights.
        weight_bytes: Bytes of its weights; quantized ones count with the plan's number of bits per element.
        activation_bytes: Bytes of its outputs; quantized ones count one byte per element up to 8 bits, else two.
    """

    layer: str
    macs: int
    float_macs: int
    parameters: int
    weight_bytes: int
    activation_bytes: int


def layer_costs(plan_or_graph: PlacementPlan | ModelGraph) -> dict[str, LayerCost]:
    """Count the cost of every layer for one sample.

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
    integer: Collection[str] = integer_calls(plan) if plan else ()
    costs = {}
    for layer in graph.layers:
        calls = graph.calls(layer)
        macs = {call.name: count_macs(graph, call) for call in calls}
        # All calls of a layer share its weights.
        weights = calls[0].weights
        costs[layer] = LayerCost(
            layer=layer,
            macs=sum(macs.values()),
            float_macs=sum(count for name, count in macs.items() if name not in integer),
            parameters=sum(math.prod(weight.shape) for weight in weights),
            weight_bytes=sum(_weight_bytes(weight, weight_bits.get(f"{layer}/{weight.name}")) for weight in weights),
            activation_bytes=sum(_tensor_bytes(graph, name, tensor_bits.get(name)) for name in _outputs(calls)),
        )
    return costs


def _outputs(calls: list[Node]) -> list[str]:
    return [name for call in calls for name in call.outputs]


def _weight_bytes(weight: Weight, bits: int | None) -> int:
    elements = math.prod(weight.shape)
    # Narrow integers are packed into bytes; the last byte may be filled in part.
    return elements * bytes_of(weight.dtype) if bits is None else -(-elements * bits // 8)


def _tensor_bytes(graph: ModelGraph, name: str, bits: int | None) -> int:
    tensor = graph.tensors[name]
    elements = _size(tensor.shape[1:])
    return elements * bytes_of(tensor.dtype) if bits is None else elements * (1 if bits <= 8 else 2)


def bytes_of(dtype: str) -> int:
    """Return the bytes of one value of a type, such as "float32"."""
    return 1 if dtype in _ONE_BYTE else _BYTES.get(dtype, 4)


def _size(shape: tuple[int | None, ...]) -> int:
    # An open size counts as 1.
    return math.prod(size if size is not None else 1 for size in shape)
