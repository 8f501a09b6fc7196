"""Attention in parts computes the same, up to the order of sums, and its two products can run on integers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from exact_runs import assert_same_sums
from keras import layers
from small_models import dtype_policy, flat, shaken

import qdq_workbench as qdq

GENERATOR = np.random.default_rng(0)
STEPS = GENERATOR.normal(size=(8, 6, 8)).astype("float32")
OTHERS = GENERATOR.normal(size=(8, 9, 8)).astype("float32")
GRIDS = GENERATOR.normal(size=(4, 5, 6, 8)).astype("float32")
REACH = GENERATOR.random((8, 6, 6)) > 0.5
WORDS = GENERATOR.integers(0, 7, (8, 6)).astype("int32")
BFLOAT16_STEP = 2.0**-10  # of which the comparison allows eight: the last bit of the largest value
WORDS[0] = 0  # nothing but masked positions


def heads(**settings):
    return layers.MultiHeadAttention(2, 4, name="att", **settings)


def groups(**settings):
    return layers.GroupQueryAttention(4, 4, 2, name="att", **settings)


@dataclasses.dataclass(frozen=True)
class Way:
    """One way of calling attention.

    Args:
        id: What is special about it.
        make: Computes the outputs from the inputs.
        data: Its samples, one array per input.
    """

    id: str
    make: Callable[..., Any]
    data: tuple[np.ndarray, ...] = (STEPS,)


WAYS = [
    Way("plain", lambda x: heads()(x, x)),
    Way("causal", lambda x: heads(use_bias=False)(x, x, use_causal_mask=True)),
    Way("sizes", lambda x, y: heads(value_dim=3, output_shape=5)(x, y, key=y), (STEPS, OTHERS)),
    Way("scores", lambda x, y: heads()(x, y, return_attention_scores=True), (STEPS, OTHERS)),
    Way("dropout", lambda x, y: heads(dropout=0.3)(x, y, use_causal_mask=True), (STEPS, OTHERS)),
    Way("mask given", lambda x, m: heads()(x, x, attention_mask=m), (STEPS, REACH)),
    Way("several axes", lambda x: heads()(x, x), (GRIDS,)),
    Way("one of two axes", lambda x: heads(attention_axes=2)(x, x), (GRIDS,)),
    Way("grouped", groups(), (STEPS, OTHERS)),
    Way("grouped and causal", lambda x: groups()(x, x, use_causal_mask=True)),
    Way("grouped with scores", lambda x: groups(dropout=0.1)(x, x, return_attention_scores=True)),
]
if "use_gate" in heads().get_config():  # newer releases of Keras
    WAYS += [
        Way("gate", lambda x: heads(use_gate=True)(x, x)),
        Way("window", lambda x: heads(sliding_window=2)(x, x, use_causal_mask=True)),
        Way("grouped with a window", lambda x: groups(sliding_window=3, use_gate=True)(x, x)),
    ]


def model_of(way):
    inputs = [
        keras.Input(array.shape[1:], name=f"x{index}", dtype=str(array.dtype)) for index, array in enumerate(way.data)
    ]
    return shaken(keras.Model(inputs, way.make(*inputs)))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.id)
def test_the_parts_compute_the_same(way):
    model = model_of(way)
    split = qdq.split_attention(model)
    assert not [layer for layer in split.layers if type(layer).__name__.endswith("Attention")]
    data = [np.asarray(array) for array in way.data]
    for ours, theirs in zip(flat(split(data)), flat(model(data)), strict=True):
        assert_same_sums(ours, theirs)


@pytest.mark.parametrize("settings", [{}, {"use_causal_mask": True}, {"return_attention_scores": True}], ids=str)
def test_masks_reach_attention_and_what_is_behind_it(settings, tmp_path):
    ids = keras.Input((6,), name="ids", dtype="int32")
    words = layers.Embedding(7, 8, mask_zero=True, name="words")(ids)
    seen = keras.tree.flatten(heads()(words, words, **settings))
    model = shaken(keras.Model(ids, [layers.LSTM(3, name="lstm")(seen[0]), *seen[1:]]))
    split = qdq.split_attention(model)
    for ours, theirs in zip(flat(split(WORDS)), flat(model(WORDS)), strict=True):
        assert_same_sums(ours, theirs)
    split.save(tmp_path / "split.keras")
    loaded = keras.models.load_model(tmp_path / "split.keras")
    assert_same_sums(flat(loaded(WORDS))[0], flat(model(WORDS))[0])


def test_the_query_s_mask_travels_through_attention_to_attention_and_to_the_loss():
    ids = keras.Input((6,), name="ids", dtype="int32")
    words = layers.Embedding(7, 8, mask_zero=True, name="words")(ids)
    first = heads()(words, words)
    second = layers.MultiHeadAttention(2, 4, name="second")(first, first)
    model = shaken(keras.Model(ids, [second, layers.Dense(3, name="classes")(second)]))
    split = qdq.split_attention(model)
    wanted = [np.ones(array.shape, np.float32) for array in model(WORDS)]
    losses = []
    for one in (model, split):
        one.compile("sgd", ["mse", "mse"])
        losses.append(one.evaluate(WORDS, wanted, verbose=0)[0])
    for ours, theirs in zip(split(WORDS), model(WORDS), strict=True):
        assert_same_sums(ours, theirs)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_shared_frozen_and_nested_attention():
    x = keras.Input((6, 8), name="x")
    shared = heads()
    inside = keras.Model(x, layers.Dense(8)(shared(x, x)), name="inside")
    y = keras.Input((6, 8), name="y")
    model = shaken(keras.Model(y, inside(inside(y))))
    shared.trainable = False
    split = qdq.split_attention(model)
    assert_same_sums(flat(split(STEPS))[0], flat(model(STEPS))[0])
    projections = [layer for layer in split.layers if isinstance(layer, layers.EinsumDense)]
    assert [layer.name.rpartition("_")[2] for layer in projections] == ["query", "key", "value", "output"]
    assert not any(layer.trainable for layer in projections)
    assert shared.trainable is False
    assert len(split.trainable_weights) == len(model.trainable_weights)


def test_half_precision_is_computed_in_the_same_precisions():
    with dtype_policy("mixed_bfloat16"):
        model = model_of(WAYS[1])
    split = qdq.split_attention(model)
    found, expected = (flat(m([STEPS]))[0] for m in (split, model))
    assert found.dtype == expected.dtype == "bfloat16"
    assert_same_sums(np.asarray(found, "float32"), np.asarray(expected, "float32"), BFLOAT16_STEP)


@pytest.mark.parametrize(("dtype", "casts"), [("float32", 0), ("float64", 0), ("float16", 2)])
def test_the_softmax_is_computed_in_at_least_float32(dtype, casts):
    x = keras.Input((6, 8), dtype=dtype, name="x")
    split = qdq.split_attention(keras.Model(x, layers.MultiHeadAttention(2, 4, name="att", dtype=dtype)(x, x)))

    assert sum(type(operation).__name__ == "Cast" for operation in split.operations) == casts
    assert split.get_layer("att_softmax").compute_dtype == ("float64" if dtype == "float64" else "float32")
    assert split.outputs[0].dtype == dtype


def test_subclasses_stay_whole():
    class Special(layers.MultiHeadAttention):
        pass

    x = keras.Input((6, 8), name="x")
    split = qdq.split_attention(keras.Model(x, Special(2, 4, name="special")(x, x)))
    assert [type(layer).__name__ for layer in split.layers] == ["InputLayer", "Special"]


# Quantized


def block(x, number, **settings):
    hidden = layers.LayerNormalization(name=f"norm{number}")(x)
    hidden = layers.MultiHeadAttention(2, 4, name=f"att{number}")(hidden, hidden, **settings)
    x = layers.Add(name=f"sum{number}")([x, hidden])
    return layers.Add(name=f"out{number}")([x, layers.Dense(8, activation="gelu", name=f"dense{number}")(x)])


def picture_model():
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Reshape((16, 8), name="tokens")(layers.Conv2D(8, 2, 2, name="patches")(image))
    x = block(block(x, 0), 1)
    return shaken(keras.Model(image, layers.Dense(3, name="head")(layers.GlobalAveragePooling1D(name="pool")(x))))


def text_model():
    ids = keras.Input((None,), name="ids", dtype="int32")
    x = block(layers.Embedding(7, 8, name="words")(ids), 0, use_causal_mask=True)
    return shaken(keras.Model(ids, layers.Dense(7, name="head")(x)))


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
@pytest.mark.parametrize("make", [picture_model, text_model], ids=["pictures", "texts"])
def test_products_are_quantized_exported_and_verified(make, target, tmp_path):
    model = qdq.split_attention(make())
    data = WORDS if make is text_model else GENERATOR.normal(size=(8, 8, 8, 3)).astype("float32")
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase(target)], target=target)
    planned = {placement.tensor for placement in q_model.plan.placements if placement.site == "input"}
    parts = ("query_turned", "key_turned", "softmax", "value_turned", "context_turned")
    assert {f"att0_{part}" for part in parts} <= planned
    explanation = qdq.explain(q_model.plan, target)
    assert {explanation.for_layer(f"att0_{part}").status for part in ("scores", "context", "output")} == {"int8"}
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert report.pairs == len(q_model.plan.tensors)
    verification = qdq.verify_onnx(report.path, q_model, data)
    assert verification.passed, verification.summary()
    assert qdq.lint_onnx(report.path).findings == ()


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_plan_and_explanation_of_whole_attention_name_the_way_out(target):
    plan = qdq.plan_placement(text_model(), target=target)
    assert "split_attention(model)" in plan.for_layer("att0").reason
    told = qdq.explain(plan, target).for_layer("att0")
    assert told.status == "float"
    assert "split_attention(model)" in told.advice


def test_what_a_product_lacks_is_told_and_fixed():
    plan = qdq.plan_placement(qdq.split_attention(text_model()))
    explanation = qdq.explain(plan, "tensorrt")
    assert explanation.for_layer("att0_scores").rule == "TRT-INPUT"
    fixed = qdq.plan_placement(plan.graph, quantization_spec=explanation.apply_fixes())
    assert qdq.explain(fixed, "tensorrt").for_layer("att0_scores").status == "int8"


@pytest.mark.parametrize("grouped", [False, True])
def test_the_parts_know_the_sequence_so_their_products_are_counted(grouped):
    words = keras.Input((16, 32), name="words")
    other = keras.Input((7, 32), name="other")
    attention = (
        layers.GroupQueryAttention(8, 4, 2, name="att") if grouped else layers.MultiHeadAttention(2, 16, name="att")
    )
    model = keras.Model([words, other], layers.Dense(64, name="wide")(attention(words, other)))
    split = qdq.split_attention(model)
    assert split.outputs[0].shape == (None, 16, 64)
    assert all(None not in tensor.shape[1:] for tensor in qdq.build_graph(split).tensors.values())
    whole, parts = (
        sum(cost.macs for cost in qdq.analysis.layer_costs(qdq.build_graph(each)).values()) for each in (model, split)
    )
    assert parts == whole


def test_a_layer_that_is_called_on_two_lengths_leaves_them_open():
    inputs = [keras.Input((length, 8), name=f"of_{length}") for length in (5, 9)]
    attention = layers.MultiHeadAttention(2, 4, name="att")
    model = keras.Model(inputs, [attention(x, x) for x in inputs])
    split = qdq.split_attention(model)
    x = [np.random.default_rng(0).normal(size=(2, length, 8)).astype("float32") for length in (5, 9)]
    for ours, theirs in zip(split.predict(x, verbose=0), model.predict(x, verbose=0), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
