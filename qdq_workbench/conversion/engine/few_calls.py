"""Functions of a quantized model that are called only a few times: run eagerly where that is faster than tracing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras

from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.traced import traced
from qdq_workbench.graph.kinds import classes_of
from qdq_workbench.graph.model_graph import ModelGraph

#: Up to this number of calls, eager execution takes less time than tracing.
FEW_CALLS = 4
# Layers with a loop over time steps, which is slow when run eagerly.
_LOOPS = classes_of("recurrent", "wrapper")
_MOST_VALUES = 2**27  # eagerly, Keras keeps every tensor until the last is computed: half a gigabyte


def for_few_calls(q_model: QuantizedModel, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Return a function of tensors, traced unless a few eager calls of the model or its part take less time."""
    return function if runs_untraced(q_model, arguments) else traced(function, *arguments)


def runs_untraced(q_model: QuantizedModel, inputs: Any) -> bool:
    """Return whether a few eager calls take less time than tracing the model does.

    Tracing takes three to ten times as long as computing a few samples eagerly, with equal results; not if the model
    has loops, or if all its tensors at once would take too much memory.
    """
    few = computed_values(q_model, inputs) <= _MOST_VALUES
    return few and not any(node.is_a(*_LOOPS) for node in q_model.plan.graph.nodes)


def computed_values(q_model: QuantizedModel, inputs: Any) -> int:
    """Return about how many values all tensors of a model have for some inputs, of which only the shapes are read."""
    graph = q_model.plan.graph
    shapes = [tuple(array.shape) for array in keras.tree.flatten(inputs) if len(array.shape)]
    samples = max((shape[0] for shape in shapes), default=1)
    given = _open_sizes(graph, shapes)
    # No shape of the graph tells where an open size comes from: it is taken for that of the same axis of an input.
    most = max(given.values(), default=1)
    values = sum(
        math.prod(given.get(axis, most) if size is None else size for axis, size in enumerate(tensor.shape) if axis)
        for tensor in graph.tensors.values()
    )
    return int(samples * values)


def _open_sizes(graph: ModelGraph, shapes: list[tuple[int, ...]]) -> dict[int, int]:
    """Return, by axis, the largest size that arrays have where the model's inputs of such a shape are open."""
    found: dict[int, int] = {}
    for declared in (graph.tensors[name].shape for name in graph.inputs):
        for shape in shapes:
            if len(shape) == len(declared) and all(
                size in (None, ours) for ours, size in zip(shape[1:], declared[1:], strict=True)
            ):
                opened = {axis: ours for axis, ours in enumerate(shape) if axis and declared[axis] is None}
                found.update({axis: max(ours, found.get(axis, 1)) for axis, ours in opened.items()})
    return found
