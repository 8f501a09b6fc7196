"""Layers inside a composite layer that Keras cannot record as one call, and other code of composite layers."""

import keras
import numpy as np
import pytest
from composite_layers import STEPS, shaken
from keras import layers, ops
from small_models import flat

import qdq_workbench as qdq
from qdq_workbench.graph.macs import count_macs


@keras.saving.register_keras_serializable("inlined")
class Attention(layers.Layer):
    """As GPTNeoXAttention and T5MultiHeadAttention: a result beside another that is None without a cache."""

    def build(self, shape):
        self.query, self.value = layers.Dense(8), layers.Dense(8)
        self.bias = self.add_weight(shape=(8,), initializer="zeros", name="bias")
        self.query.build(shape)
        self.value.build(shape)

    def call(self, x, cache=None):
        scores = ops.softmax(ops.einsum("BTC,BSC->BTS", self.query(x), x))
        return ops.einsum("BTS,BSC->BTC", scores, self.value(x)) + self.bias, cache


@keras.saving.register_keras_serializable("inlined")
class ShapesWithoutTraining(layers.Layer):
    """As QFormerAttention: `compute_output_spec` does not take every argument of `call`."""

    def build(self, shape):
        self.dense, self.dropout = layers.Dense(8), layers.Dropout(0.1)
        self.dense.build(shape)

    def call(self, x, training=None):
        return self.dropout(self.dense(x), training=training)

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, dtype=x.dtype)


@keras.saving.register_keras_serializable("inlined")
class Block(layers.Layer):
    """Calls a layer as it is, and takes the first of its results."""

    inside: type = Attention

    def build(self, shape):
        self.part, self.last = self.inside(autocast=self.autocasts), layers.Dense(8)
        self.part.build(shape)
        self.last.build(shape)

    autocasts = True

    def call(self, x, training=None):
        arguments = {"training": training} if self.inside is ShapesWithoutTraining else {}
        found = self.part(x, **arguments)
        return x + self.last(found[0] if isinstance(found, tuple) else found)

    def compute_output_shape(self, shape):
        return shape


@keras.saving.register_keras_serializable("inlined")
class OverShapes(Block):
    inside = ShapesWithoutTraining


@keras.saving.register_keras_serializable("inlined")
class WithoutCasts(Block):
    autocasts = False


@keras.saving.register_keras_serializable("inlined")
class Empty(layers.Layer):
    """As DeiTEncoder: returns an empty tensor for what was not asked for."""

    def build(self, shape):
        self.dense = layers.Dense(8)
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x), ops.zeros((0, 8))


@keras.saving.register_keras_serializable("inlined")
class MadeInCall(layers.Layer):
    """As the blocks of EfficientNetV2: `call` makes layers without weights."""

    def build(self, shape):
        self.dense, self.dropout = layers.Dense(8), layers.Dropout(0.1)
        self.dense.build(shape)

    def call(self, x, training=None):
        y = layers.Activation("relu", name="made")(self.dropout(self.dense(x), training=training))
        return layers.Add(name="sum")([y, layers.Reshape((-1, 8))(x)])


@keras.saving.register_keras_serializable("inlined")
class Merged(layers.Layer):
    """As RoformerAttention: merges the heads of a product, with the sizes of one of its factors."""

    def build(self, shape):
        self.query, self.out = layers.Dense(8), layers.Dense(8)
        self.query.build(shape)
        self.out.build(shape)

    def call(self, x):
        query = self.query(x)
        batch, steps = ops.shape(query)[:2]
        heads = ops.reshape(query, (batch, steps, 2, 4)) * ops.reshape(x, (batch, steps, 2, 4))
        return self.out(ops.reshape(heads, [batch, steps, -1]))


@keras.saving.register_keras_serializable("inlined")
class WithoutTraining(layers.Layer):
    """Calls a composite layer with `training`, which it does not take; Keras keeps that argument from it."""

    def build(self, shape):
        self.part = Merged(name="part")
        self.part.build(shape)

    def call(self, x, training=None):
        return self.part(x, training=training)


@keras.saving.register_keras_serializable("inlined")
class Clipped(layers.Layer):
    def build(self, shape):
        self.dense = layers.Dense(8)
        self.dense.build(shape)

    def call(self, x):
        return ops.clip(self.dense(x), np.zeros(8, "float32"), np.ones(8, "float32"))


@keras.saving.register_keras_serializable("inlined")
class ClippedByTensor(Clipped):
    def call(self, x):
        return ops.clip(self.dense(x), ops.min(x), 1.0)


def model_of(kind):
    x = keras.Input((None, 8), name="x")
    found = kind(name="own")(x)
    first = found[0] if isinstance(found, (list, tuple)) else found
    return shaken(keras.Model(x, layers.Dense(3, name="head")(first)))


KINDS = (Block, OverShapes, Empty, MadeInCall, Merged, WithoutTraining)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_entered_and_computes_the_same(kind, tmp_path):
    model = model_of(kind)
    graph = qdq.build_graph(model)
    assert graph.blocks
    assert not [node.opaque for node in graph.nodes if "not entered" in node.opaque]
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    qdq.calibrate(q_model, STEPS, verbose=False)
    copy = qdq.strip(q_model)
    for training in (False, True):
        keras.utils.set_random_seed(0)
        for ours, theirs in zip(
            flat(copy(STEPS, training=training)), flat(model(STEPS, training=training)), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)  # einsum and matmul may sum in another order
    q_model.save(tmp_path / "q.keras")
    loaded = keras.models.load_model(tmp_path / "q.keras")
    for ours, theirs in zip(flat(loaded(STEPS)), flat(q_model(STEPS)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    report = qdq.export_onnx(q_model, tmp_path / "q.onnx")
    assert qdq.verify_onnx(report.path, q_model, STEPS).passed


def test_layers_inside_have_the_paths_of_their_attributes():
    graph = qdq.build_graph(model_of(Block))
    assert {"own/part/query", "own/part/value", "own/last"} <= set(graph.layers)
    assert graph.blocks == {"own": ("Block",)}


def test_the_layer_inside_is_left_as_it_was():
    model = model_of(Block)
    part = model.get_layer("own").part
    before = sorted(vars(part))
    qdq.build_graph(model)
    assert sorted(vars(part)) == before
    assert not part._inbound_nodes
    assert part(STEPS)[1] is None


REASONS = {
    WithoutCasts: "must be tensors",
    Clipped: "Clip has settings that are no numbers of Python",
    ClippedByTensor: "Clip depends on a tensor that is no operand",
}


@pytest.mark.parametrize("kind", REASONS)
def test_what_stays_whole_says_why(kind):
    model = model_of(kind)
    assert REASONS[kind] in qdq.build_graph(model).node("own").opaque
    with pytest.warns(UserWarning, match="it is not entered"):
        q_model = qdq.quantize_model(model)
    np.testing.assert_array_equal(flat(qdq.strip(q_model)(STEPS))[0], flat(model(STEPS))[0])


@keras.saving.register_keras_serializable("inlined")
class OwnKernel(layers.Layer):
    """Multiplies with a weight by itself, and adds another, as the head of a masked language model."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(8, 8), initializer="random_normal", name="kernel")
        self.bias = self.add_weight(shape=(8,), initializer="random_normal", name="bias")
        self.dense = layers.Dense(8)
        self.dense.build(shape)

    def call(self, x):
        return ops.matmul(self.dense(x), self.kernel) + self.bias


def test_a_quantized_weight_of_its_own_is_trained():
    model = model_of(OwnKernel)
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    assert "own/bias" in {placement.tensor for placement in q_model.plan.placements}
    qdq.calibrate(q_model, STEPS, verbose=False)
    before = [np.asarray(variable) for variable in q_model.trainable_variables]
    q_model.compile("sgd", "mse")
    q_model.fit(STEPS, np.zeros((8, 6, 3), np.float32), verbose=0)
    after = [np.asarray(variable) for variable in q_model.trainable_variables]
    assert not any(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_weight_of_its_own_is_no_product():
    graph = qdq.build_graph(model_of(OwnKernel))
    found = {node.name: count_macs(graph, node) for node in graph.nodes}
    assert (found["own/kernel"], found["own/matmul"]) == (0, 64)
    assert qdq.explain(model_of(OwnKernel), "onnxruntime").coverage["macs"] < 1.0
