"""Layers for the masks of an attention that is split into products and softmax."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="qdq_workbench")
class AttentionMask(keras.layers.Layer):
    """Combines the masks of tensors, the causal mask and the sliding window into one attention mask.

    Called with a query (batch, steps, ...) and a value, like the attention; returns booleans (batch or 1, 1, query
    steps, value steps), True where a position may be attended to, with as many axes of size 1 as the scores need.

    Args:
        causal: Whether a position attends to no later position.
        sliding_window: To how many positions a position attends in each direction, itself included; None for all.
        rank: Number of axes of the scores.
        expanded_at: Where axes of size 1 are inserted until there are `rank` axes; negative.
    """

    def __init__(
        self, *, causal: bool, sliding_window: int | None, rank: int = 4, expanded_at: int = -3, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self._form: dict[str, Any] = {
            "causal": causal,
            "sliding_window": sliding_window,
            "rank": rank,
            "expanded_at": expanded_at,
        }

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), **self._form}

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,  # noqa: ARG002 - Keras takes `key_mask` from the tensor
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
    ) -> Any:
        """Combine the masks; Keras passes those that tensors carry."""
        steps, seen = ops.shape(query)[1], ops.shape(value)[1]
        # Gives the result both axes where only the query, or only the value, has a mask.
        masks = [ops.ones((1, steps, seen), "bool")]
        if query_mask is not None:
            masks.append(ops.expand_dims(ops.cast(query_mask, "bool"), -1))
        masks += [ops.expand_dims(ops.cast(mask, "bool"), -2) for mask in (value_mask, key_mask) if mask is not None]
        row, column = ops.reshape(ops.arange(steps), (1, -1, 1)), ops.reshape(ops.arange(seen), (1, 1, -1))
        if self._form["causal"]:
            masks.append(row >= column)
        if self._form["sliding_window"] is not None:
            masks.append(ops.abs(row - column) < self._form["sliding_window"])
        if attention_mask is not None:
            masks.append(ops.cast(attention_mask, "bool"))
        found = masks[0]
        for mask in masks[1:]:
            found = ops.logical_and(found, mask)
        while len(found.shape) < self._form["rank"]:
            found = ops.expand_dims(found, self._form["expanded_at"])
        return found

    def compute_mask(self, *_: Any, **__: Any) -> None:
        """Return None: a mask carries no mask."""
        return


@keras.saving.register_keras_serializable(package="qdq_workbench")
class MaskOf(keras.layers.Layer):
    """Returns a tensor with the mask of another one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # the tensor keeps its dtype
        self.supports_masking = True

    def call(self, carrier: Any, inputs: Any) -> Any:  # noqa: ARG002 - only its mask is used
        """Return the second tensor."""
        return inputs

    def compute_mask(self, carrier: Any, previous_mask: Any = None) -> Any:  # noqa: ARG002
        """Return the mask of the first tensor of the call."""
        return previous_mask


@keras.saving.register_keras_serializable(package="qdq_workbench")
class MaskedProjection(keras.layers.EinsumDense):
    """An EinsumDense of a tensor with a mask, which it does not propagate; a plain EinsumDense would warn."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.supports_masking = True

    def compute_mask(self, *_: Any, **__: Any) -> None:
        """Return None: the result carries no mask."""
        return
