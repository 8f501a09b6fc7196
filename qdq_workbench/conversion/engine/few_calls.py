"""Functions of a quantized model that are called a few times."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras

from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.traced import traced
from qdq_workbench.graph.kinds import classes_of

#: So many calls take less time operation by operation than tracing does.
FEW_CALLS = 4
# Layers that compute step by step. Every step of a loop takes as long operation by operation as a whole graph does.
_LOOPS = classes_of("recurrent", "wrapper")
_MOST_VALUES = 2**27  # operation by operation, Keras keeps every tensor until the last is there: half a gigabyte


def for_few_calls(q_model: QuantizedModel, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Return a function of tensors in the form that takes least time for a few calls.

    Args:
        q_model: The model that the function computes or is a part of.
        function: The function.
        *arguments: What it will be called with, in structures of arrays or tensors.
    """
    return function if runs_untraced(q_model, arguments) else traced(function, *arguments)


def runs_untraced(q_model: QuantizedModel, inputs: Any) -> bool:
    """Return whether a few calls take less time operation by operation than tracing the model does.

    Tracing takes three to ten times as long as computing a few samples, with equal results; not where the model has
    loops, or where all its tensors at once would take too much memory.

    Args:
        q_model: The model.
        inputs: Arrays or tensors in any structure.
    """
    graph = q_model.plan.graph
    samples = max((len(array) for array in keras.tree.flatten(inputs) if len(array.shape)), default=1)
    values = sum(math.prod(size or 1 for size in tensor.shape[1:]) for tensor in graph.tensors.values())
    return samples * values <= _MOST_VALUES and not any(node.is_a(*_LOOPS) for node in graph.nodes)
