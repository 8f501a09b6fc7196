"""Functions of a quantized model that are called only a few times: run eagerly where that is faster than tracing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras

from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.traced import traced
from qdq_workbench.graph.kinds import classes_of

#: Up to this number of calls, eager execution takes less time than tracing.
FEW_CALLS = 4
# Layers with a loop over time steps, which is slow when run eagerly.
_LOOPS = classes_of("recurrent", "wrapper")
_MOST_VALUES = 2**27  # eagerly, Keras keeps every tensor until the last is computed: half a gigabyte


def for_few_calls(q_model: QuantizedModel, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Return a function of tensors, traced unless a few eager calls take less time.

    Args:
        q_model: The model that the function computes or is a part of.
        function: The function.
        *arguments: Its future arguments, in structures of arrays or tensors.
    """
    return function if runs_untraced(q_model, arguments) else traced(function, *arguments)


def runs_untraced(q_model: QuantizedModel, inputs: Any) -> bool:
    """Return whether a few eager calls take less time than tracing the model does.

    Tracing takes three to ten times as long as computing a few samples eagerly, with equal results; not if the model
    has loops, or if all its tensors at once would take too much memory.
    """
    graph = q_model.plan.graph
    samples = max((len(array) for array in keras.tree.flatten(inputs) if len(array.shape)), default=1)
    values = sum(math.prod(size or 1 for size in tensor.shape[1:]) for tensor in graph.tensors.values())
    return samples * values <= _MOST_VALUES and not any(node.is_a(*_LOOPS) for node in graph.nodes)
