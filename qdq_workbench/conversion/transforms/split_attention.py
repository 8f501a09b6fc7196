"""`split_attention`: multi-head attention as the layers and products that it consists of.

A MultiHeadAttention is one Keras layer and six products. Four are projections with weights; the other two, queries
by keys and scores by values, read tensors inside the layer, where no Q/DQ pair can be placed. As layers and operations
of the graph they are quantized like any others:

    query, key, value -> projections -> Q K^T -> scale -> mask -> softmax -> dropout -> P V -> output projection
"""

from __future__ import annotations

import inspect
from typing import Any

import keras
from keras import layers, ops

from qdq_workbench.conversion.engine.rebuild import Rebuilder, clone_operation
from qdq_workbench.graph.kinds import MULTI_HEAD_ATTENTION
from qdq_workbench.graph_builder import BoundGraph, Call, bind_graph, carries_mask, keras_layers
from qdq_workbench.graph_builder.products import FAR_BELOW
from qdq_workbench.wrappers.attention_parts import AttentionMask, MaskedProjection, MaskOf

_PROJECTIONS = ("query", "key", "value", "gate", "output")


def split_attention(model: keras.Model) -> keras.Model:
    """Return a copy of a float model whose attention layers are projections, products and a softmax of the graph.

    The copy computes the same function, and Q/DQ pairs can be placed before both products, Q K^T and P V, and the
    output projection. Quantize the copy instead of the model, with `AutoQDQCase` or a specification that names the
    products. Subclasses of the attention layers, and those with flash attention, stay whole.

    Args:
        model: A built functional or sequential Keras model; it is only read. Nested models are flattened.

    Returns:
        The new model, not compiled. The parts of a layer `att` are called `att_query`, `att_key`, `att_value`,
        `att_scores` (the first product), `att_softmax`, `att_context` (the second product), `att_output`.

    Raises:
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> words = keras.Input((5, 4), name="words")
        >>> model = keras.Model(words, keras.layers.MultiHeadAttention(2, 3, name="att")(words, words))
        >>> [layer.name for layer in split_attention(model).layers]
        ['words', 'att_query', 'att_key', 'att_value', 'att_softmax', 'att_output']
    """
    return _Splitter(bind_graph(model)).rebuilt(model.name)


class _Splitter(Rebuilder):
    """Rebuilds a float graph with attention in parts."""

    def __init__(self, bound: BoundGraph) -> None:
        super().__init__(bound)
        self._parts: dict[str, tuple[Any, dict[str, Any]]] = {}

    def compute(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        layer = call.operation
        if type(layer) not in keras_layers(MULTI_HEAD_ATTENTION) or getattr(layer, "_flash_attention", False):
            return super().compute(call, args, kwargs)
        name = self.names[call.node.layer]
        given = inspect.signature(type(layer).call).bind(layer, *args, **kwargs).arguments
        if call.node.layer not in self._parts:
            masked = any(carries_mask(value) for value in keras.tree.flatten((args, kwargs)))
            # A shared layer may be called with sequences of several lengths.
            sizes = _sizes(given) if len(self.bound.graph.calls(call.node.layer)) == 1 else {}
            self._parts[call.node.layer] = layer, self._make_parts(layer, name, sizes, masked=masked)
        computed = _Attention(self, layer, self._parts[call.node.layer][1], name).compute(given)
        # Keras before 3.15 declares the output of GroupQueryAttention alone where it returns its scores, too.
        return computed[: len(call.node.outputs)] if isinstance(computed, tuple) else computed

    def _make_parts(
        self, layer: Any, name: str, sizes: dict[str, tuple[int | None, ...]], *, masked: bool
    ) -> dict[str, Any]:
        found = {}
        for part in (*_PROJECTIONS, "dropout"):
            source, own_name = _part(layer, part), f"{name}_{part}"
            if source is None:
                continue
            found[part] = _sized(clone_operation(source, self.free_name(own_name)), sizes.get(part, ()))
            if masked and part not in ("output", "dropout"):
                found[part] = MaskedProjection.from_config(found[part].get_config())
        return found

    def copy_weights(self) -> None:
        super().copy_weights()
        for layer, parts in self._parts.values():
            for name, part in parts.items():
                if part.built and name != "dropout":
                    self.copy_state(_part(layer, name), part)
                    part.trainable = layer.trainable and part.trainable


def _sizes(given: dict[str, Any]) -> dict[str, tuple[int | None, ...]]:
    """Return the sizes of the axes of every projection's result between the batch axis and its own axes."""
    query, value = given["query"], given["value"]
    key = value if given.get("key") is None else given["key"]
    sources = {"query": query, "key": key, "value": value, "gate": query, "output": query}
    return {part: tuple(tensor.shape[1:-1]) for part, tensor in sources.items()}


def _sized(projection: Any, sizes: tuple[int | None, ...]) -> Any:
    """Return a projection with the sizes of its result set; attention layers leave those of the sequence open."""
    config = projection.get_config()
    shape = tuple(config.get("output_shape", ()))
    if not sizes or shape[: len(sizes)] != (None,) * len(sizes) or None in shape[len(sizes) :]:
        return projection
    return type(projection).from_config({**config, "output_shape": (*sizes, *shape[len(sizes) :])})


def _part(layer: Any, name: str) -> Any:
    """Return an inner layer of an attention layer: a projection, or its dropout if the rate is not 0; else None."""
    found: Any = getattr(layer, "_dropout_layer" if name == "dropout" else f"_{name}_dense", None)
    return None if name == "dropout" and not found.rate else found


class _Attention:
    """One call of an attention layer, computed with separate layers and operations."""

    def __init__(self, builder: _Splitter, layer: Any, parts: dict[str, Any], name: str) -> None:
        self._builder = builder
        self._layer = layer
        self._parts = parts
        self._name = name

    def compute(self, given: dict[str, Any]) -> Any:
        """Return the outputs for the arguments of the call, by name."""
        query, value = given["query"], given["value"]
        key = value if given.get("key") is None else given["key"]
        projected = {name: self._projected(name, tensor) for name, tensor in (("query", query), ("key", key))}
        projected["value"] = self._projected("value", value)
        mask = self._mask(given)
        # Keras has two code paths, which round differently, and mask differently if all positions are masked
        fused = not (self._parts.get("dropout") or given.get("return_attention_scores"))
        if fused and len(projected["query"].shape) == 4:
            probabilities = self._fused_scores(projected["query"], projected["key"], mask)
        else:
            probabilities = self._scores(projected["query"], projected["key"], mask)
        seen = probabilities
        if "dropout" in self._parts:
            seen = self._parts["dropout"](probabilities, **_training(given))
        context = self._context(seen, projected["value"])
        if "gate" in self._parts:
            context = self._named(ops.multiply(context, self._parts["gate"](query)), "gated")
        output = self._parts["output"](context)
        # An attention layer passes on the mask of its query, to further attention and to the loss.
        if carries_mask(query):
            output = MaskOf(name=self._free("mask_of"))(query, output)
        return (output, probabilities) if given.get("return_attention_scores") else output

    def _projected(self, name: str, tensor: Any) -> Any:
        result = self._parts[name](tensor)
        groups = getattr(self._layer, "num_repeats", 1) if name != "query" else 1
        return self._named(ops.repeat(result, groups, axis=2), f"{name}_repeated") if groups > 1 else result

    def _mask(self, given: dict[str, Any]) -> Any:
        window = getattr(self._layer, "sliding_window", getattr(self._layer, "_sliding_window", None))
        names = ("query", "value", "key", "query_mask", "value_mask", "key_mask", "attention_mask")
        arguments = {name: given[name] for name in names if given.get(name) is not None}
        masked = any(carries_mask(tensor) or name.endswith("mask") for name, tensor in arguments.items())
        causal = bool(given.get("use_causal_mask"))
        if not (masked or causal or window is not None):
            return None
        axes = len(self._axes())
        rank = len(given["query"].shape) + axes
        # As Keras's `_masked_softmax`, which inserts the axes before those of the queries and keys.
        return AttentionMask(
            causal=causal, sliding_window=window, rank=rank, expanded_at=-2 * axes - 1, name=self._free("mask")
        )(**arguments)

    def _axes(self) -> tuple[int, ...]:
        axes = getattr(self._layer, "_attention_axes", None)
        return (1,) if axes is None else tuple(axes)

    def _fused_scores(self, query: Any, key: Any, mask: Any) -> Any:
        """Return the probabilities like `dot_product_attention`: scaled after the product, float32 softmax."""
        turned = self._named(ops.transpose(query, (0, 2, 1, 3)), "query_turned")
        other = self._named(ops.transpose(key, (0, 2, 3, 1)), "key_turned")
        scores = self._named(ops.matmul(turned, other), "scores")
        if scores.dtype != "float32" and "64" not in scores.dtype:
            scores = self._named(ops.cast(scores, "float32"), "scores_float32")
        scores = self._named(ops.multiply(scores, self._scale()), "scaled")
        if mask is not None:
            scores = self._named(ops.where(mask, scores, FAR_BELOW), "masked")
        found = layers.Softmax(axis=-1, dtype=scores.dtype, name=self._free("softmax"))(scores)
        return found if found.dtype == key.dtype else self._named(ops.cast(found, key.dtype), "probabilities")

    def _scores(self, query: Any, key: Any, mask: Any) -> Any:
        """Return the probabilities as the layers do with dropout, returned scores or several attention axes."""
        grouped = isinstance(self._layer, layers.GroupQueryAttention)
        equation = self._layer._dot_product_equation  # noqa: SLF001 - made by the layer when it was built
        query = self._named(ops.multiply(query, self._scale()), "query_scaled")
        if len(query.shape) == 4:
            turned = self._named(ops.transpose(query, (0, 2, 1, 3)), "query_turned")
            scores = ops.matmul(turned, self._named(ops.transpose(key, (0, 2, 3, 1)), "key_turned"))
        else:
            # The equation of MultiHeadAttention begins with the key, that of GroupQueryAttention with the query.
            scores = ops.einsum(equation, *((query, key) if grouped else (key, query)))
        softmax = clone_operation(self._layer._softmax, self._free("softmax"))  # noqa: SLF001 - as above
        scores = self._named(scores, "scores")
        return softmax(scores) if mask is None else softmax(scores, mask=mask)

    def _context(self, probabilities: Any, value: Any) -> Any:
        if len(value.shape) != 4:
            equation = self._layer._combine_equation  # noqa: SLF001 - made by the layer when it was built
            return self._named(ops.einsum(equation, probabilities, value), "context")
        turned = self._named(ops.transpose(value, (0, 2, 1, 3)), "value_turned")
        context = self._named(ops.matmul(probabilities, turned), "context")
        return self._named(ops.transpose(context, (0, 2, 1, 3)), "context_turned")

    def _scale(self) -> float:
        layer = self._layer
        return float(getattr(layer, "_inverse_sqrt_key_dim", None) or layer._inverse_sqrt_head_dim)  # noqa: SLF001

    def _free(self, part: str) -> str:
        return self._builder.free_name(f"{self._name}_{part}")

    def _named(self, tensor: Any, part: str) -> Any:
        return self._builder.named(tensor, f"{self._name}_{part}")


def _training(given: dict[str, Any]) -> dict[str, Any]:
    return {} if given.get("training") is None else {"training": given["training"]}
