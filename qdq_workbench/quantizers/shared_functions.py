"""The functions of all pairs and quantized weights of a model, traced once and called by each of them.

TensorFlow takes some 50 ms to trace a condition with its gradient, and a model has hundreds of them. It inlines the
function calls before execution, so a training step runs the same operations as without them.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from qdq_workbench._interrupts import interrupts_held
from qdq_workbench.quantizers._xla import chosen, traced_for_xla
from qdq_workbench.quantizers.fake_quantize import fake_quantize_weight, gradient_of_grid, nearest_on_grid
from qdq_workbench.quantizers.gradients import custom_gradient
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_FLAG = tf.TensorSpec([], tf.bool)


def fake_quantize_if(active: Any, x: Any, minimum: Any, maximum: Any, spec: QuantizerSpec) -> Any:
    """Fake-quantize a tensor of a graph if `active`, a scalar bool tensor; else return its values unchanged.

    The tensor has a known rank. Both ends of the range have shape `()`, or `(C,)` for one per slice along `spec.axis`.
    """
    minimum, maximum = tf.stop_gradient(minimum), tf.stop_gradient(maximum)
    forward, backward = _pair_functions(spec, x.shape.rank, x.dtype, traced_for_xla())

    @custom_gradient
    def quantized(values: Any) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(upstream: Any) -> Any:
            # The shared functions are traced for open sizes, so their results lack the static shape.
            return tf.ensure_shape(backward(upstream, values, minimum, maximum, active), values.shape)

        return forward(values, minimum, maximum, active), gradient

    result = quantized(x)
    result.set_shape(x.shape)
    return result


def fake_quantize_weight_if(active: Any, w: Any, spec: QuantizerSpec) -> Any:
    """Fake-quantize a weight in a graph if `active`, a scalar bool tensor; else return its values unchanged.

    The weight has a known rank. The gradient passes unchanged in both cases, so it needs no condition.
    """
    forward = _weight_function(spec, w.shape.rank, w.dtype, traced_for_xla())

    @custom_gradient
    def quantized(values: Any) -> tuple[Any, Callable[[Any], Any]]:
        return forward(values, active), lambda upstream: upstream

    result = quantized(w)
    result.set_shape(w.shape)
    return result


def update_if(when: Any, x: Any, low: Any, high: Any, quantizer: Any) -> tuple[Any, Any]:
    """Return a quantizer's range after a batch of a graph if `when`, a scalar bool tensor; else the current range.

    The batch has a known rank. The quantizer is one of the library's own: equal settings share a function.
    """
    # A copy, because a key of the cache must not change, and the grid of a quantizer may be replaced.
    update = _update_function(copy.copy(quantizer), x.shape.rank, x.dtype, traced_for_xla())
    new_low, new_high = update(when, x, low, high)
    for new, old in ((new_low, low), (new_high, high)):
        new.set_shape(old.shape)
    return new_low, new_high


@functools.lru_cache(maxsize=256)
def _pair_functions(spec: QuantizerSpec, rank: int, dtype: Any, xla: bool) -> tuple[Any, Any]:
    """Return the forward function of a pair and its gradient function."""
    values, ends = tf.TensorSpec([None] * rank, dtype), _range_spec(spec, rank)

    def forward(x: Any, minimum: Any, maximum: Any, active: Any) -> Any:
        return chosen(active, lambda: nearest_on_grid(x, minimum, maximum, spec), lambda: tf.identity(x), xla=xla)

    def backward(upstream: Any, x: Any, minimum: Any, maximum: Any, active: Any) -> Any:
        return chosen(
            active,
            lambda: gradient_of_grid(upstream, x, minimum, maximum, spec, xla=xla),
            lambda: tf.identity(upstream),
            xla=xla,
        )

    rest = [ends, ends, _FLAG]
    return _traced(forward, [values, *rest]), _traced(backward, [values, values, *rest])


@functools.lru_cache(maxsize=256)
def _weight_function(spec: QuantizerSpec, rank: int, dtype: Any, xla: bool) -> Any:
    """Return the function of a weight."""

    def forward(w: Any, active: Any) -> Any:
        return chosen(active, lambda: fake_quantize_weight(w, spec), lambda: tf.identity(w), xla=xla)

    return _traced(forward, [tf.TensorSpec([None] * rank, dtype), _FLAG])


@functools.lru_cache(maxsize=256)
def _update_function(quantizer: Any, rank: int, dtype: Any, xla: bool) -> Any:
    """Return the function that merges the range of a batch into a range."""

    def update(when: Any, x: Any, low: Any, high: Any) -> tuple[Any, Any]:
        return chosen(when, lambda: quantizer.merged(low, high, *quantizer.observe(x)), lambda: (low, high), xla=xla)

    ends = _range_spec(quantizer.spec, rank)
    return _traced(update, [_FLAG, tf.TensorSpec([None] * rank, dtype), ends, ends])


def _range_spec(spec: QuantizerSpec, rank: int) -> Any:
    along = 0 if spec.axis is None else 1 if spec.block_size is None else rank
    return tf.TensorSpec([None] * along, tf.float32)


@interrupts_held()
def _traced(function: Callable[..., Any], signature: Sequence[Any]) -> Any:
    """Trace a function outside of the calling graph, with interrupts held: a partial trace would never be released."""
    with tf.init_scope():
        return tf.function(function, input_signature=signature, autograph=False).get_concrete_function()
