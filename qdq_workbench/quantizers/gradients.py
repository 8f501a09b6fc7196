"""Custom gradients that are released together with their graph.

`tf.custom_gradient` registers the gradient of every call in a graph by name, for the lifetime of the process. The
gradient refers to the tensors of its graph, so every graph ever traced stays in memory, with all its operations: 3,000
objects per `predict` of a network with two convolutions.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, MutableMapping
from typing import Any

import tensorflow as tf

_HOME = "_qdq_gradients"


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with a custom gradient, as `tf.custom_gradient`, but release it together with its graph.

    Example:
        >>> @custom_gradient
        ... def rounded(x):
        ...     return tf.round(x), lambda upstream: upstream
        >>> x = tf.Variable(0.7)
        >>> with tf.GradientTape() as tape:
        ...     y = rounded(x)
        >>> float(tape.gradient(y, x))
        1.0
    """
    registering = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*tensors: Any) -> Any:
        result = registering(*tensors)
        if not tf.executing_eagerly():
            _tie_to_graph(result)
        return result

    return call


def _tie_to_graph(result: Any) -> None:
    """Move the registered gradient of a tensor to an attribute of its graph, and register a weak reference to it."""
    registry = _registry()
    try:
        name = result.op.get_attr("_gradient_op_type").decode()
        entry = registry[name]
        gradient = entry["type"]
    except (AttributeError, KeyError, TypeError, ValueError):
        return  # other versions of TensorFlow: the gradient stays registered
    if not hasattr(result.graph, _HOME):
        setattr(result.graph, _HOME, {})
    getattr(result.graph, _HOME)[name] = gradient
    # `of_graph` keeps this reference alive: the callback of a reference that is gone is never called.
    graph = weakref.ref(result.graph, lambda _: registry.pop(name, None))

    def of_graph(operation: Any, *upstream: Any) -> Any:
        return getattr(graph(), _HOME)[name](operation, *upstream)

    entry["type"] = of_graph


def _registry() -> MutableMapping[str, Any]:
    """Return TensorFlow's registered gradients by name, from a private attribute: there is no public one."""
    try:
        from tensorflow.python.framework import ops
    except ImportError:
        return {}
    return getattr(getattr(ops, "gradient_registry", None), "_registry", {})
