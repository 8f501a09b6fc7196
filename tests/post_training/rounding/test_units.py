"""What learns together: layers, residual blocks, everything."""

import keras
import pytest
from keras import layers, ops

import qdq_workbench as qdq
from qdq_workbench.graph_builder import bind_graph
from qdq_workbench.post_training.rounding import units
from qdq_workbench.post_training.rounding.units import find_units
from qdq_workbench.wrappers import BaseQuantizeWrapper


def learns(call):
    return isinstance(call.operation, BaseQuantizeWrapper) and bool(call.operation.weight_quantizers)


def found(model, granularity, **wishes):
    q_model = qdq.quantize_model(model, **wishes)
    bound = bind_graph(q_model)
    made = find_units(bound, learns, granularity)
    order = [call.node.name for unit in made for call in unit.calls]
    assert sorted(order) == sorted(call.node.name for call in bound.calls)
    known = set(bound.input_tensors)
    for unit in made:  # everything that a unit reads was made before, and everything read later is handed over
        assert known >= set(unit.inputs)
        known |= set(unit.outputs)
        assert set(unit.compared) <= set(unit.outputs)
    assert known >= set(bound.graph.outputs)
    return made


def names(made):
    return [[call.operation.layer.name for call in unit.learned] for unit in made if unit.learned]


def resnet(shortcut=True):
    """A stem, a block with a plain shortcut, a block with a convolution beside, a head."""
    image = keras.Input((8, 8, 3), name="image")
    stem = layers.Conv2D(4, 3, padding="same", name="stem")(image)
    stem = layers.ReLU(name="stem_relu")(layers.BatchNormalization(name="stem_norm")(stem))
    first = layers.ReLU(name="first_relu")(layers.Conv2D(4, 3, padding="same", name="a1")(stem))
    first = layers.Conv2D(4, 3, padding="same", name="a2")(first)
    joined = layers.Activation("relu", name="joined")(
        layers.Add(name="first_sum")([first, stem]) if shortcut else first
    )
    second = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu", name="b1")(joined)
    second = layers.Conv2D(8, 3, padding="same", name="b2")(second)
    beside = layers.Conv2D(8, 1, strides=2, name="beside")(joined)
    second = ops.relu(second + beside)
    pooled = layers.GlobalAveragePooling2D(name="pool")(second)
    return keras.Model(image, layers.Dense(3, activation="softmax", name="head")(pooled))


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_residual_blocks(target):
    made = found(resnet(), "block", target=target)
    assert [sorted(unit) for unit in names(made)] == [["stem"], ["a1", "a2"], ["b1", "b2", "beside"], ["head"]]
    ends = [unit.compared for unit in made if unit.learned]
    assert all(len(end) == 1 for end in ends)
    assert [end[0].split(":")[0] for end in ends][:2] == ["stem_relu", "joined"]


def test_layers_by_themselves_and_everything():
    made = found(resnet(), "layer")
    assert all(len(unit) == 1 for unit in names(made))
    assert sorted(name for (name,) in names(made)) == ["a1", "a2", "b1", "b2", "beside", "head", "stem"]
    assert made[0].compared == ("stem_relu",)  # behind the normalization and the activation
    (unit,) = found(resnet(), "model")
    assert len(unit.learned) == 7


def test_a_chain_has_blocks_of_one_layer():
    made = found(resnet(shortcut=False), "block")
    assert names(made)[:3] == [["stem"], ["a1"], ["a2"]]


def test_blocks_that_are_too_large_are_learned_by_layers(monkeypatch):
    monkeypatch.setattr(units, "LARGEST_BLOCK", 2)
    made = found(resnet(), "block")
    assert [len(unit) for unit in names(made)] == [1, 2, 1, 1, 1, 1]


def test_calls_of_one_layer_stay_together():
    image = keras.Input((6,), name="image")
    shared = layers.Dense(6, name="shared")
    hidden = shared(layers.ReLU(name="relu")(layers.Dense(6, name="between")(shared(image))))
    made = found(keras.Model(image, layers.Dense(2, name="head")(hidden)), "layer")
    assert [sorted(set(unit)) for unit in names(made)] == [["between", "shared"], ["head"]]


def test_a_mask_is_not_handed_over():
    words = keras.Input((5,), dtype="int32", name="words")
    hidden = layers.Embedding(7, 6, mask_zero=True, name="table")(words)
    hidden = layers.Dense(4, name="between")(hidden)
    hidden = layers.LSTM(4, name="lstm")(hidden)
    made = found(keras.Model(words, layers.Dense(2, name="head")(hidden)), "layer")
    assert [sorted(unit) for unit in names(made)] == [["between", "lstm", "table"], ["head"]]


def test_several_outputs():
    image = keras.Input((6,), name="image")
    hidden = layers.Dense(5, name="hidden")(image)
    outputs = [layers.Dense(2, name="left")(hidden), layers.Dense(2, name="right")(hidden), hidden]
    model = keras.Model(image, outputs)
    assert len(found(model, "layer")) == 3
    (unit,) = found(model, "model")
    assert len(unit.compared) == 3


def test_nothing_to_learn():
    image = keras.Input((6,), name="image")
    model = keras.Model(image, layers.GlobalAveragePooling1D(name="pool")(layers.Reshape((3, 2), name="shape")(image)))
    bound = bind_graph(qdq.quantize_model(model))
    assert find_units(bound, learns, "layer") == []
