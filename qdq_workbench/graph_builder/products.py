"""The products of attention as transpositions and matrix products.

`ops.einsum` and `ops.dot_product_attention` are one operation each, which no runtime computes on integers, and the two
products in the second one read tensors on which no Q/DQ pair can be placed. As matrix products they are quantized like
any other:

    einsum("btnh,bsnh->bnts", q, k) = matmul(q as [b, n, t, h], k as [b, n, h, s])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from qdq_workbench.graph.contractions import product_terms

FAR_BELOW = -0.7 * 3.38953e38  # Keras's value for a masked score


def in_parts(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the result of a call of one of these operations, computed in parts; None for other operations."""
    if isinstance(operation, keras.layers.Layer):
        return None
    kind = type(operation).__name__
    if kind == "Einsum" and len(args) == 2 and not kwargs:
        return _einsum(operation.subscripts, *args)
    if kind == "DotProductAttention":
        names = ("query", "key", "value", "bias", "mask", "scale")
        return _attention(operation, {**dict(zip(names, args, strict=False)), **kwargs})
    return None


def _einsum(equation: str, one: Any, other: Any) -> Any:
    """Return an einsum of two tensors as a matrix product; None if it is none."""
    left, right, result = given = product_terms(equation)
    # An axis that occurs twice in a term is a diagonal or a trace.
    if "..." in equation or not result or any(len(set(axes)) != len(axes) for axes in given):
        return None
    # An axis of one operand that the result lacks would be summed before the product.
    if not set(left) ^ set(right) <= set(result) or not set(result) <= set(left) | set(right):
        return None
    summed = [axis for axis in left if axis in right and axis not in result]
    rows, columns = ([axis for axis in result if axis in mine and axis not in theirs] for mine, theirs in
                     ((left, right), (right, left)))  # fmt: skip
    if len(summed) != 1 or not rows or not columns:
        return None
    # `matmul` returns rows before columns: the operands are swapped rather than the result turned.
    if result.index(columns[-1]) < result.index(rows[-1]):
        return _einsum(f"{right},{left}->{result}", other, one)
    shared = [axis for axis in result if axis in left and axis in right]
    around = [axis for axis in result if axis in [*shared, *rows[:-1], *columns[:-1]]]
    first = _ordered(one, left, [*around, rows[-1], summed[0]])
    second = _ordered(other, right, [*around, summed[0], columns[-1]])
    found = ops.matmul(first, second)
    return _ordered(found, "".join([*around, rows[-1], columns[-1]]), list(result))


def _ordered(tensor: Any, axes: str, wanted: list[str]) -> Any:
    """Return a tensor with its axes in another order, with an axis of size 1 for each that it lacks."""
    order = [axes.index(axis) for axis in wanted if axis in axes]
    found = tensor if order == sorted(order) else ops.transpose(tensor, order)
    for position, axis in enumerate(wanted):
        if axis not in axes:
            found = ops.expand_dims(found, position)
    return found


def _attention(operation: Any, given: Mapping[str, Any]) -> Any:
    """Return the result of `keras.ops.dot_product_attention` in parts; None for settings that are not supported.

    The parts round as Keras does: the scale is applied after the product, the softmax is in float32.
    """
    query, key, value = given["query"], given["key"], given["value"]
    if len({tensor.dtype for tensor in (query, key, value)}) > 1 or operation.flash_attention:
        return None
    if getattr(operation, "attn_logits_soft_cap", None) is not None or key.shape[-1] is None:
        return None
    groups = _groups(query.shape[2], key.shape[2])
    if groups > 1:
        key, value = (ops.repeat(tensor, groups, axis=2) for tensor in (key, value))
    scores = named(_einsum("btnh,bsnh->bnts", query, key), "scores")
    if scores.dtype != "float32" and "64" not in scores.dtype:
        scores = ops.cast(scores, "float32")
    scale = given.get("scale")
    scores = ops.multiply(scores, key.shape[-1] ** -0.5 if scale is None else scale)
    if given.get("bias") is not None:
        scores = ops.add(scores, ops.cast(given["bias"], scores.dtype))
    mask = _mask(scores, given.get("mask"), causal=operation.is_causal)
    if mask is not None:
        scores = ops.where(mask, scores, FAR_BELOW)
    found = named(ops.softmax(scores, axis=-1), "softmax")
    found = found if found.dtype == key.dtype else ops.cast(found, key.dtype)
    turned = _ordered(value, "bsnh", list("bnsh"))
    return _ordered(named(ops.matmul(found, turned), "context"), "bnth", list("btnh"))


def _groups(queries: int | None, keys: int | None) -> int:
    # A single head of keys broadcasts in the product; only several are repeated.
    return queries // keys if queries and keys and queries > keys > 1 else 1


def _mask(scores: Any, mask: Any, *, causal: bool) -> Any:
    if causal:
        steps, seen = ops.shape(scores)[2:]
        before = ops.expand_dims(ops.arange(steps), 1) >= ops.arange(seen)
        return before if mask is None else ops.logical_and(before, mask)
    return mask


def named(tensor: Any, part: str) -> Any:
    """Set the name of the part of an attention that the operation before a symbolic tensor computes."""
    tensor._keras_history.operation._qdq_part = part
    return tensor
