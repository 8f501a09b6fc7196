"""Composite layers of all kinds: which are entered, that they compute the same, and why others stay one layer."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
from composite_layers import IMAGES, REACH, STEPS, WORDS, Decoder, Encoder, Llama, shaken
from keras import layers, ops
from own_configs import FourBits
from small_models import flat

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.rebuild import Rebuilder
from qdq_workbench.errors import LowCoverageWarning, SpecError
from qdq_workbench.export.onnx_export import build_proto
from qdq_workbench.graph_builder import bind_graph
from qdq_workbench.placement.targets import get_target


class Own(layers.Layer):
    """A layer with a Dense inside, and whatever its subclasses do with it."""

    def build(self, shape):
        self.dense = layers.Dense(8, name="dense", dtype=self.dtype_policy)
        self.dense.build(shape)
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")
        self.down = self.add_weight(shape=(8, 2), name="down")
        self.up = self.add_weight(shape=(2, 8), name="up")
        self.seed = keras.random.SeedGenerator(1)
        self.dropout = layers.Dropout(0.5, name="dropout")

    def get_config(self):
        return super().get_config()

    def compute_output_shape(self, shape):
        return shape


class TwoResults(Own):
    def call(self, x):
        y = self.dense(x)
        return {"plus": ops.relu(y), "minus": (x - y, y)}

    def compute_output_shape(self, shape):
        return {"plus": shape, "minus": (shape, shape)}


class Arguments(Own):
    def call(self, x, scale=1.0, other=None, way="straight"):
        y = self.dense(x) * scale
        y = ops.tanh(y) if way == "bent" else y
        return y if other is None else y + other


class LowRank(Own):
    def call(self, x):
        return self.dense(x) + ops.matmul(ops.matmul(x, self.down), self.up) * 0.5


class DropPath(Own):
    def call(self, x, training=None):
        y = self.dense(x)
        if training:
            y = self.dropout(y, training=training)
        return x + y


class Inner(Own):
    """Two composite layers that are one object, in a composite layer."""

    def build(self, shape):
        self.low = LowRank(name="low", dtype=self.dtype_policy)
        self.low.build(shape)

    def call(self, x):
        return self.low(ops.tanh(self.low(x)))


class Random(Own):
    def call(self, x):
        return self.dense(x) + keras.random.normal(ops.shape(x), seed=self.seed)


class Counting(Own):
    def call(self, x):
        self.count.assign_add(1.0)
        return self.dense(x)


class Deciding(Own):
    def call(self, x):
        return self.dense(x) if ops.max(x) > 0 else x


class OfTensorFlow(Own):
    def call(self, x):
        return tf.identity(self.dense(x))


class TrainedDifferently(Own):
    def call(self, x, training=None):
        return self.dense(x) * 2.0 if training else self.dense(x)


class ByBatch(Own):
    """A normalization by the statistics of the batch, whether the model trains or not."""

    def build(self, shape):
        super().build(shape)
        self.norm = layers.BatchNormalization(name="norm")
        self.noise = layers.GaussianNoise(0.5, name="noise")
        self.norm.build(shape)

    def call(self, x):
        return self.norm(self.dense(x), training=True)


class OtherWayRound(ByBatch):
    def call(self, x, training=None):
        return self.norm(self.dense(x), training=not training)


class AlwaysNoisy(ByBatch):
    def call(self, x, training=None):
        return self.noise(self.dense(x), training=1 if training is None else True)


class AlwaysDropping(Own):
    def call(self, x):
        return self.dropout(self.dense(x), training=True)


class Following(ByBatch):
    """Follows the model: it says nothing, or nothing where the model does not train."""

    def call(self, x, training=True):
        return self.noise(self.norm(self.dense(x), training=training or None))


class Holding(Own):
    def build(self, shape):
        self.inner = Following(name="inner")
        self.inner.build(shape)

    def call(self, x):
        return self.inner(x)


class HoldingOn(Holding):
    def call(self, x):
        return self.inner(x, training=True)


class NeverDropping(ByBatch):
    """Calls what does nothing at inference, as at inference."""

    def call(self, x, training=None):
        return self.dense(self.noise(self.dropout(x, training=False), training=0))


class NeverByBatch(ByBatch):
    def call(self, x):
        return self.norm(self.dense(x), training=False)


class Frozen(NeverByBatch):
    """The same in both modes, because its normalization is frozen."""

    def build(self, shape):
        super().build(shape)
        self.norm.trainable = False


class OverAModel(Own):
    """Calls a model as at inference, as for the features of a backbone; the mode is that of its normalization."""

    def build(self, shape):
        self.inner = keras.Sequential([layers.Dense(8), layers.BatchNormalization(trainable=not self.frozen)])
        self.inner.build(shape)

    frozen = False

    def call(self, x):
        return self.inner(x, training=False)


class OverAFrozenModel(OverAModel):
    frozen = True


def sequence(*calls, dtype=None):
    x = keras.Input((None, 8), name="x")
    y = x
    for call in calls:
        y = call(y)
    return shaken(keras.Model(x, layers.Dense(3, name="head", dtype=dtype)(y)))


def with_results():
    x = keras.Input((6, 8), name="x")
    found = TwoResults(name="own")(x)
    return shaken(keras.Model(x, [found["plus"], *found["minus"]]))


def with_arguments():
    x, other = keras.Input((6, 8), name="x"), keras.Input((6, 8), name="other")
    own = Arguments(name="own")
    return shaken(keras.Model([x, other], own(own(x, scale=0.5, other=other), way="bent")))


def nested():
    x = keras.Input((6, 8), name="x")
    inner = keras.Model(x, Encoder(12, name="block")(x), name="inner")
    return shaken(keras.Model(x, layers.Dense(3, name="head")(inner(x))))


ENTERED = {
    "two results": (with_results, STEPS),
    "arguments, and called twice": (with_arguments, [STEPS, STEPS[::-1]]),
    "low rank": (lambda: sequence(LowRank(name="own")), STEPS),
    "drop path": (lambda: sequence(DropPath(name="own")), STEPS),
    "nothing that drops": (lambda: sequence(NeverDropping(name="own")), STEPS),
    "a frozen normalization": (lambda: sequence(Frozen(name="own")), STEPS),
    "a model with a frozen normalization": (lambda: sequence(OverAFrozenModel(name="own")), STEPS),
    "an inner layer that trains by default": (lambda: sequence(Holding(name="own")), STEPS),
    "one in another": (lambda: sequence(Inner(name="own")), STEPS),
    "in a nested model": (nested, STEPS),
    "half precision": (lambda: sequence(Llama(name="own", dtype="mixed_bfloat16"), dtype="float32"), STEPS),
    "any number of steps": (lambda: sequence(Decoder(12, name="own"), Decoder(12, name="other")), STEPS),
}


@pytest.mark.parametrize("name", ENTERED)
def test_it_is_entered_and_computes_the_same_bit_for_bit(name):
    make, data = ENTERED[name]
    model = make()
    graph = qdq.build_graph(model)
    assert graph.blocks
    assert not [node.opaque for node in graph.nodes if "not entered" in node.opaque]
    q_model = qdq.quantize_model(model, target="onnxruntime")
    copy = qdq.strip(q_model)
    for training in (False, True):
        keras.utils.set_random_seed(0)
        for ours, theirs in zip(flat(copy(data, training=training)), flat(model(data, training=training)), strict=True):
            np.testing.assert_array_equal(ours, theirs)


CLOSED = {
    Random: "changes variables by itself, as for random numbers",
    Counting: "changes variables by itself",
    Deciding: "cannot be followed without values",
    OfTensorFlow: "cannot be used as input to a TensorFlow function",
    TrainedDifferently: "computes something else in training",
    ByBatch: "it calls 'norm' (BatchNormalization) with training=True at inference too",
    OtherWayRound: "it calls 'norm' (BatchNormalization) with training=True at inference too",
    AlwaysNoisy: "it calls 'noise' (GaussianNoise) with training=True at inference too",
    AlwaysDropping: "it calls 'dropout' (Dropout) with training=True at inference too",
    HoldingOn: "it calls 'inner' (Following) with training=True at inference too",
    NeverByBatch: "it calls 'norm' (BatchNormalization) with training=False in training too",
    OverAModel: "it calls 'inner' (Sequential) with training=False in training too",
}


@pytest.mark.parametrize("kind", CLOSED)
def test_what_cannot_be_entered_stays_one_float_layer_and_the_reason_is_read(kind):
    model = sequence(kind(name="own"))
    graph = qdq.build_graph(model)
    assert [node.name for node in graph.nodes] == ["x", "own", "head"]
    _, entered, reason = graph.node("own").opaque.partition("it is not entered: ")
    assert entered
    assert CLOSED[kind] in reason
    with pytest.warns(UserWarning, match="of 'own', it is not entered"):
        qdq.quantize_model(model)
    assert "it is not entered" in qdq.explain(model, "onnxruntime").for_layer("own").reason


@pytest.mark.parametrize("kind", [ByBatch, OtherWayRound, HoldingOn])
def test_what_is_computed_as_in_training_is_computed_so_by_the_copy(kind):
    model = sequence(kind(name="own"))
    with pytest.warns(LowCoverageWarning):
        copy = qdq.strip(qdq.quantize_model(model))
    data = STEPS * np.arange(1, 9)
    keras.utils.set_random_seed(0)
    expected = model(data, training=False)
    keras.utils.set_random_seed(0)
    np.testing.assert_array_equal(copy(data, training=False), expected)


@pytest.mark.parametrize("kind", [NeverDropping, NeverByBatch, Frozen, OverAModel, OverAFrozenModel])
def test_what_is_computed_as_at_inference_is_computed_so_in_training(kind):
    model = sequence(kind(name="own"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowCoverageWarning)
        copy = qdq.strip(qdq.quantize_model(model))
    data = STEPS * np.arange(1, 9)
    expected = model(data, training=False)
    for training in (False, True):
        np.testing.assert_array_equal(model(data, training=training), expected)
        np.testing.assert_array_equal(copy(data, training=training), expected)


def test_a_propagated_mask_keeps_a_layer_whole():
    words = keras.Input((None,), dtype="int32", name="words")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras: the layer destroys the mask
        x = Encoder(12, name="block")(layers.Embedding(30, 8, mask_zero=True, name="embedding")(words))
        model = shaken(keras.Model(words, layers.GlobalAveragePooling1D(name="mean")(x)))
        q_model = qdq.quantize_model(model)
        copy = qdq.strip(q_model)
        np.testing.assert_array_equal(copy(WORDS), model(WORDS))
    assert "give the mask as an argument of the call" in q_model.plan.graph.node("block").opaque


def test_a_specification_may_name_the_layer_or_its_class():
    model = sequence(Encoder(12, name="block"))

    def weights(**entry):
        spec = qdq.QuantizationSpec()
        spec.add(**entry)
        plan = qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")
        return {placement.layer for placement in plan.placements if placement.weight}

    everything = weights(name="head")
    inside = {layer for layer in everything if layer.startswith("block/")}
    assert len(inside) == 6
    off = {"quantize_input": False, "quantize_weight": False}
    assert weights(name="block", **off) == weights(name="Encoder", is_keras_class=True, **off) == {"head"}
    assert weights(name="block") == everything
    with pytest.raises(SpecError, match="block"):
        weights(name="blokc")


@pytest.mark.parametrize("config", [FourBits(), qdq.LayerQuantizeConfig(weight={"num_bits": 4})])
def test_a_configuration_of_a_composite_layer_is_that_of_every_layer_inside(config, tmp_path):
    model = sequence(Encoder(12, name="block"))
    spec = qdq.QuantizationSpec()
    spec.add("block", quantize_config=config)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    bits = {tensor.name: tensor.quantizer.num_bits for tensor in q_model.plan.tensors if tensor.kind == "weight"}
    assert len(bits) == 7
    assert {name for name, width in bits.items() if width == 4} == set(bits) - {"head/kernel"}
    qdq.calibrate(q_model, STEPS, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "q.onnx")
    assert qdq.verify_onnx(report.path, q_model, STEPS).passed


def test_a_weight_of_a_layer_inside_is_named_by_an_entry_of_that_layer():
    model = sequence(Encoder(12, name="block"))
    spec = qdq.QuantizationSpec()
    spec.add("block", quantize_config=qdq.LayerQuantizeConfig(weight={"wide_dense/kernel": {"num_bits": 4}}))
    with pytest.raises(SpecError, match=r"none of the layers .* has an entry of its own, by its path"):
        qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")


def test_half_precision_inside_is_float32_in_the_file():
    model = sequence(Llama(name="own", dtype="mixed_float16"), dtype="float32")
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    qdq.calibrate(q_model, STEPS, verbose=False)
    proto, _ = build_proto(q_model, get_target("onnxruntime"), opset=None, dynamic_batch=True)
    assert not [node.name for node in proto.graph.node if node.op_type == "Cast" and node.attribute[0].i == 10]


def test_threads_may_read_one_model():
    model = sequence(Encoder(12, name="block"))
    with ThreadPoolExecutor(4) as pool:
        graphs = list(pool.map(qdq.build_graph, [model] * 8))
    assert graphs[0].blocks
    assert all(graph == graphs[0] for graph in graphs)


def test_a_plan_made_before_layers_were_entered_still_holds():
    model = sequence(LowRank(name="own"))
    old = qdq.plan_placement(qdq.build_graph(model, enter_layers=False), target="onnxruntime")
    assert old.graph.node("own").opaque
    with pytest.warns(LowCoverageWarning):
        q_model = qdq.quantize_model(model, plan=old)
    assert q_model.plan == old
    np.testing.assert_array_equal(qdq.strip(q_model)(STEPS), model(STEPS))


def test_transformers_of_keras_hub_are_entered():
    models = pytest.importorskip("keras_hub", reason="KerasHub is no dependency of the tests").models
    sizes = {"vocabulary_size": 30, "num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12}
    heads = {"num_query_heads": 2, "num_key_value_heads": 1}
    words = {"token_ids": WORDS, "padding_mask": REACH}
    backbones = [
        (models.BertBackbone(num_heads=2, max_sequence_length=6, **sizes), {**words, "segment_ids": 0 * WORDS}),
        (models.GPT2Backbone(num_heads=2, max_sequence_length=6, **sizes), words),
        (models.LlamaBackbone(**heads, **sizes), words),
        (models.ViTBackbone((8, 8, 3), (4, 4), 1, 2, 8, 12), IMAGES),
    ]
    for model, data in backbones:
        graph = qdq.build_graph(shaken(model))
        assert graph.blocks
        assert not [node.name for node in graph.nodes if node.opaque and node.parts]
        np.testing.assert_array_equal(
            flat(Rebuilder(bind_graph(model)).rebuilt("copy")(data))[0], flat(model(data))[0], err_msg=model.name
        )
