"""Two pairs with only a Dropout between them are one in the file, so the plan has one."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from small_models import samples, shake

import qdq_workbench as qdq


def wake_word():
    """Convolutions, each with a Dropout behind it, pooling, a Dropout, a classifier."""
    keras.utils.set_random_seed(0)
    hidden = image = keras.Input((12, 8, 1), name="image")
    for index, padding in enumerate(("valid", "same")):
        hidden = layers.Conv2D(4, 3, padding=padding, name=f"conv{index}")(hidden)
        hidden = layers.BatchNormalization(name=f"norm{index}")(hidden)
        hidden = layers.ReLU(name=f"relu{index}")(hidden)
        hidden = layers.SpatialDropout2D(0.2, name="drop")(hidden) if index == 0 else hidden
    hidden = layers.MaxPooling2D(name="maximum")(hidden)
    hidden = layers.Conv2D(4, 1, activation="relu", name="last")(layers.Dropout(0.1, name="third")(hidden))
    hidden = layers.Activation("linear", name="linear")(layers.Identity(name="same")(hidden))
    hidden = layers.GlobalAveragePooling2D(name="pool")(hidden)
    return shake(keras.Model(image, layers.Dense(3, name="head")(layers.Dropout(0.5, name="fourth")(hidden))))


@pytest.mark.parametrize("target", qdq.target_names())
def test_one_pair_stands_where_two_stood(target, tmp_path):
    model = wake_word()
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target=target)
    qdq.calibrate(q_model, samples(model, 32), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    qdq.verify_onnx(path, q_model, samples(model, 16)).raise_if_failed()
    assert qdq.lint_onnx(path).findings == ()
    graph = onnx.load(path).graph
    made = {output: node.op_type for node in graph.node for output in node.output}
    pairs = [node for node in graph.node if node.op_type == "QuantizeLinear"]
    assert [node.name for node in pairs if made.get(node.input[0]) == "DequantizeLinear"] == []
    assert len(pairs) == sum(pair.kind == "activation" for pair in q_model.plan.tensors)


def test_kernels_stay_integer_and_are_explained_so(tmp_path):
    model = wake_word()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    planned = [pair.name for pair in q_model.plan.tensors if pair.kind == "activation"]
    assert planned == ["image", "drop", "relu1", "third", "linear", "fourth"]
    assert q_model.plan.for_layer("head").quantize_input
    qdq.calibrate(q_model, samples(model, 32), verbose=False)
    report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "m.onnx").path, q_model, samples(model, 16))
    kernels = report.figures["integer_kernels"]
    assert {op: integer for op, (integer, total) in kernels.items()} == {
        op: total for op, (_, total) in kernels.items()
    }
    explained = qdq.explain(q_model)
    for name in ("conv0", "conv1", "last", "pool", "head"):
        assert explained.for_layer(name).status == "int8", explained.for_layer(name)


def test_litert_sees_the_pair_behind_the_dropout():
    plan = qdq.plan_placement(wake_word(), target="litert")
    explained = qdq.explain(plan)
    for name in ("conv0", "conv1", "last", "pool", "head"):
        assert explained.for_layer(name).status == "int8", explained.for_layer(name)


def test_a_pair_that_moves_keeps_its_scale_group():
    image = keras.Input((8, 8, 2), name="image")
    branches = [layers.Conv2D(2, 1, activation="relu", name=name)(image) for name in ("left", "right")]
    joined = layers.Dropout(0.2, name="drop")(layers.Concatenate(name="concat")(branches))
    model = keras.Model(image, layers.Conv2D(2, 1, name="last")(joined))
    plan = qdq.plan_placement(model, custom_qdq_cases=[qdq.ConcatQDQCase()], target="onnxruntime")
    groups = {pair.name: pair.scale_group for pair in plan.tensors if pair.kind == "activation"}
    assert list(groups) == ["image", "left", "right", "drop", "last"]
    assert groups["left"] == groups["right"] == groups["drop"] is not None


@pytest.mark.parametrize("kept", ["output", "reader", "bits"])
def test_pairs_that_are_needed_twice_stay_two(kept):
    image = keras.Input((8, 8, 2), name="image")
    hidden = layers.Conv2D(4, 3, activation="relu", name="conv")(image)
    dropped = layers.Dropout(0.2, name="drop")(hidden)
    result = layers.Conv2D(2, 1, name="last")(dropped)
    outputs = [result, hidden] if kept == "output" else [result, hidden + 1.0] if kept == "reader" else [result]
    spec = qdq.QuantizationSpec()
    if kept == "bits":
        spec.add("last", quantize_config=qdq.LayerQuantizeConfig(activation={"num_bits": 4}))
    plan = qdq.plan_placement(keras.Model(image, outputs), quantization_spec=spec, target="onnxruntime")
    names = [pair.name for pair in plan.tensors if pair.kind == "activation"]
    assert {"conv", "drop"} <= set(names)


def test_training_keeps_the_pair_behind_the_dropout():
    q_model = qdq.quantize_model(wake_word(), target="onnxruntime")
    qdq.calibrate(q_model, samples(q_model, 32), verbose=False)
    q_model.compile("sgd", "mse")
    x = samples(q_model, 8)
    assert np.isfinite(q_model.train_on_batch(x, np.zeros((8, 3), "float32")))
