"""The float model inside a quantized one: the same graph, with the source's names."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras import tree

from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import UnsupportedModelError
from qdq_workbench.graph_builder import BoundGraph, Call, TensorRef, bind_graph
from qdq_workbench.wrappers import BaseQuantizeWrapper, QuantizeDequantize


def float_view(q_model: QuantizedModel) -> BoundGraph:
    """Return the graph of the float model in a quantized one, bound to the quantized model's layers.

    Q/DQ layers vanish, wrappers are replaced by the layers inside them, and nodes and tensors have the names that they
    have in the plan. `tensors` holds the quantized model's own symbolic tensors, before their Q/DQ pairs.

    It is made once per model, whose graph never changes; it must not be changed.
    """
    view: BoundGraph = q_model.kept("float view", lambda: _made(q_model))
    return view


def _made(q_model: QuantizedModel) -> BoundGraph:
    bound = bind_graph(q_model)
    names = _NodeNames(q_model, bound)
    renamed: dict[str, str] = {}
    tensors: dict[str, Any] = {}
    calls = []
    for name in bound.input_tensors:
        renamed[name] = names.path(name)
        tensors[renamed[name]] = bound.tensors[name]
    for call in bound.calls:
        if isinstance(call.operation, QuantizeDequantize):
            renamed[call.node.outputs[0]] = renamed[call.node.inputs[0]]
            continue
        node = q_model.plan.graph.node(names.of(call))
        for theirs, ours in zip(call.node.outputs, node.outputs, strict=True):
            renamed[theirs] = ours
            tensors[ours] = bound.tensors[theirs]
        operation = call.operation.layer if isinstance(call.operation, BaseQuantizeWrapper) else call.operation
        args, kwargs = _rename((call.args, _unpacked(call.kwargs)), renamed)
        calls.append(dataclasses.replace(call, node=node, operation=operation, args=args, kwargs=kwargs))
    return BoundGraph(
        graph=q_model.plan.graph,
        calls=tuple(calls),
        input_tensors={renamed[name]: tensor for name, tensor in bound.input_tensors.items()},
        tensors=tensors,
        input_structure=_rename(bound.input_structure, renamed),
        output_structure=_rename(bound.output_structure, renamed),
    )


class _NodeNames:
    """Finds the plan's node for a call of the quantized model, by the layer and the position among its calls."""

    def __init__(self, q_model: QuantizedModel, bound: BoundGraph) -> None:
        self._graph = q_model.plan.graph
        self._paths = q_model.layer_paths
        self._order: dict[int, list[int]] = {}
        for call in bound.calls:
            self._order.setdefault(id(call.operation), []).append(call.position)
        # The conversion calls a shared layer in the plan's order, and positions count the calls in creation order.
        for positions in self._order.values():
            positions.sort()

    def path(self, name: str) -> str:
        return self._paths[name]

    def of(self, call: Call) -> str:
        inner = call.operation.layer if isinstance(call.operation, BaseQuantizeWrapper) else call.operation
        path = self._paths.get(inner.name)
        if path is None:
            raise UnsupportedModelError(
                f"The quantized model has a layer that its plan does not know: {inner.name!r}. A saved model keeps the "
                f"names of its layers only if their classes do: let {type(inner).__name__}.get_config() return "
                '"name", and quantize again. A layer added to a quantized model is not possible either. '
                f"Received: layer {inner.name!r} of class {type(inner).__name__}"
            )
        which = self._order[id(call.operation)].index(call.position)
        return self._graph.calls(path)[which].name


def _unpacked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a layer's call; those without tensors reach its wrapper in `plain_arguments`."""
    rest = {key: value for key, value in kwargs.items() if key != "plain_arguments"}
    return {**rest, **dict(kwargs.get("plain_arguments", ()))}


def _rename(structure: Any, renamed: dict[str, str]) -> Any:
    return tree.map_structure(
        lambda leaf: TensorRef(renamed[leaf.name]) if isinstance(leaf, TensorRef) else leaf, structure
    )
