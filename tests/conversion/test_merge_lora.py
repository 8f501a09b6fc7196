"""Layers with low-rank updates become plain ones that compute the same, and run on integers."""

import keras
import numpy as np
import pytest
from keras import layers
from small_models import flat

import qdq_workbench as qdq


def adapted_model():
    """Every kind of layer that Keras gives updates to, at the top, nested, and inside another layer."""
    keras.utils.set_random_seed(2)
    image, words = keras.Input((6, 6, 2), name="image"), keras.Input((5,), name="words", dtype="int32")
    part = keras.Sequential([layers.Conv2D(3, 3, name="conv"), layers.ReLU(name="relu")], name="part")
    flat_image = layers.Flatten(name="flat")(part(image))
    embedded = layers.Embedding(7, 4, name="embedding")(words)
    seen = layers.MultiHeadAttention(2, 3, name="attention")(embedded, embedded)
    seen = layers.EinsumDense("abc,cd->abd", (None, 4), bias_axes="d", name="einsum")(seen)
    model = keras.Model([image, words], [layers.Dense(3, name="head")(flat_image), seen], name="adapted")
    for layer in (part.get_layer("conv"), *(model.get_layer(name) for name in ("embedding", "einsum", "head"))):
        layer.enable_lora(2)
    model.get_layer("attention").value_dense.enable_lora(1)
    generator = np.random.default_rng(0)
    for variable in model.weights:
        variable.assign(generator.normal(0, 0.3, variable.shape))
    return model


def samples():
    generator = np.random.default_rng(1)
    return [generator.normal(size=(8, 6, 6, 2)).astype("float32"), generator.integers(0, 7, (8, 5)).astype("int32")]


def test_the_merged_model_computes_the_same():
    model = adapted_model()
    before = [np.array(variable) for variable in model.weights]
    merged = qdq.merge_lora(model)
    for ours, theirs in zip(flat(merged(samples())), flat(model(samples())), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert not [variable.path for variable in merged.weights if "lora" in variable.path]
    assert len(merged.trainable_weights) == len(merged.weights)
    for variable, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(np.asarray(variable), value)


def test_an_update_inside_a_wrapper_is_added_once():
    steps = keras.Input((5, 4), name="steps")
    inner = keras.Sequential([layers.Dense(4, name="first"), layers.Dense(3, name="second")], name="inner")
    wrapped = layers.TimeDistributed(layers.Dense(4, name="dense"), name="wrapped")
    model = keras.Model(steps, layers.TimeDistributed(inner, name="pair")(wrapped(steps)))
    for layer in (wrapped.layer, inner.get_layer("second")):
        layer.enable_lora(2, lora_alpha=3)
    generator = np.random.default_rng(0)
    for variable in model.weights:
        variable.assign(generator.normal(0, 0.3, variable.shape))
    merged = qdq.merge_lora(model)
    assert not [variable.path for variable in merged.weights if "lora" in variable.path]
    x = generator.normal(size=(2, 5, 4)).astype("float32")
    np.testing.assert_allclose(merged(x), model(x), rtol=1e-5, atol=1e-5)


def test_the_merged_model_runs_on_integers(tmp_path):
    merged = qdq.merge_lora(adapted_model())
    q_model = qdq.quantize_model(merged, target="onnxruntime")
    qdq.calibrate(q_model, samples(), verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    verification = qdq.verify_onnx(report.path, q_model, samples())
    assert verification.passed, verification.summary()
    assert verification.figures["integer_kernels"]["Conv"] == [1, 1]
    assert not any("lora" in note.lower() for note in report.notes)


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime", "openvino", "litert"])
def test_plan_and_explanation_name_the_way_out(target):
    model = adapted_model()
    plan = qdq.plan_placement(model, target=target)
    explanation = qdq.explain(plan, target)
    for name in ("part/conv", "embedding", "einsum", "head", "attention"):
        assert "merge_lora(model)" in plan.for_layer(name).reason
        assert explanation.for_layer(name).status == "float"
        assert "merge_lora(model)" in explanation.for_layer(name).advice
    assert "merge_lora" not in plan.for_layer("flat").reason


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime", "openvino", "litert"])
def test_plan_and_explanation_name_the_way_to_split_separable_convolutions(target):
    image = keras.Input((8, 8, 3), name="image")
    plan = qdq.plan_placement(keras.Model(image, layers.SeparableConv2D(4, 3, name="sep")(image)), target=target)
    explained = qdq.explain(plan, target).for_layer("sep")
    assert "split_separable_convolutions(model)" in plan.for_layer("sep").reason
    assert explained.status == "float"
    assert "split_separable_convolutions(model)" in explained.advice


def test_an_update_inside_another_layer_is_refused_by_name():
    x = keras.Input((5, 4), name="x")
    model = keras.Model(x, layers.MultiHeadAttention(2, 3, name="attention")(x, x))
    model.get_layer("attention").query_dense.enable_lora(1)
    with pytest.raises(qdq.errors.UnsupportedModelError, match="merge_lora"):
        qdq.quantize_model(model)
