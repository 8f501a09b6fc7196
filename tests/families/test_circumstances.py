"""Layer families under unusual circumstances: training of special layers, precisions, XLA, layouts, odd classes."""

from __future__ import annotations

import keras
import numpy as np
import onnx
import pytest
from families.zoo import Mixing
from keras import layers
from small_models import dtype_policy, flat

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.rebuild import clone_operation
from qdq_workbench.graph_builder import layer_weights
from qdq_workbench.wrappers import QuantizeDequantize


def sample(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def shaken(model, seed=0):
    """Give all weights values: zero biases and unit gains would hide mistakes."""
    generator = np.random.default_rng(seed)
    for variable in model.weights:
        if "float" in variable.dtype and "variance" not in variable.path:
            variable.assign(generator.uniform(-1, 1, variable.shape))
    return model


def spec_of(*entries):
    spec = qdq.QuantizationSpec()
    for entry in entries:
        spec.add(**entry) if isinstance(entry, dict) else spec.add(entry)
    return spec


def exported(q_model, data, tmp_path, **options):
    """Export and verify; return the verification."""
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx", **options)
    verification = qdq.verify_onnx(report.path, q_model, data)
    assert verification.passed, verification.summary()
    return verification


def sequence_model():
    x = keras.Input((None, 4), name="x")
    hidden = layers.Bidirectional(layers.LSTM(3, return_sequences=True), name="both_ways")(x)
    hidden = layers.MultiHeadAttention(2, 3, name="attention")(hidden, hidden)
    hidden = layers.TimeDistributed(layers.Dense(4), name="each")(hidden)
    return shaken(keras.Model(x, layers.Dense(2, name="head")(layers.GRU(3, name="gru")(hidden))))


def loop_model():
    """A loop and a product per step, as in `sequence_model`."""
    x = keras.Input((None, 4), name="x")
    hidden = layers.TimeDistributed(layers.Dense(4), name="each")(layers.GRU(3, return_sequences=True, name="gru")(x))
    return shaken(keras.Model(x, layers.Dense(2, name="head")(hidden[:, -1])))


# Names


def test_weights_inside_layers_are_named_alike_in_every_copy():
    model = sequence_model()
    names = [name for name, _ in layer_weights(model.get_layer("both_ways"))]
    assert names[0] == "forward_layer/cell/kernel"
    assert names[-1] == "backward_layer/cell/bias"
    copy = keras.models.clone_model(model)
    for layer in model.layers:
        copied = layer_weights(copy.get_layer(layer.name))
        assert [name for name, _ in layer_weights(layer)] == [name for name, _ in copied]


def test_private_layers_of_a_users_layer_are_named_after_their_attributes():
    class Block(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self._first = layers.Dense(3)
            self.rest = [layers.Dense(3), layers.Dense(2)]

        def call(self, inputs):
            return self.rest[1](self.rest[0](self._first(inputs)))

    block = Block()
    block(sample(1, 4))
    names = [name for name, _ in layer_weights(block)]
    assert names == [f"{part}/{name}" for part in ("first", "rest/0", "rest/1") for name in ("kernel", "bias")]


# What a spec can say


def test_single_layers_of_sequences_can_stay_in_float():
    model = sequence_model()
    spec = spec_of({"name": "both_ways", "quantize_weight": False}, {"name": "attention", "quantize_input": False})
    plan = qdq.plan_placement(model, quantization_spec=spec)
    planned = {tensor.name for tensor in plan.tensors}
    assert not any(name.startswith("both_ways/") for name in planned)
    assert "both_ways" not in planned
    assert "attention/query/kernel" in planned
    left = {item.what: item.reason for item in plan.unquantized if item.layer == "both_ways"}
    assert "spec" in left["forward_layer/cell/kernel"] or "entry" in left["forward_layer/cell/kernel"]


def test_states_and_masks_have_no_pair_unless_an_index_asks_for_one():
    x, h, mask = keras.Input((5, 4), name="x"), keras.Input((3,), name="h"), keras.Input((5,), name="m", dtype="bool")
    model = keras.Model([x, h, mask], layers.GRU(3, name="gru")(x, initial_state=h, mask=mask))
    plan = qdq.plan_placement(model)
    assert [p.tensor for p in plan.placements if p.site == "input"] == ["x"]
    index = plan.graph.node("gru").arguments.index("initial_state")
    spec = spec_of({"name": "gru", "quantization_index": [index]})
    plan = qdq.plan_placement(model, quantization_spec=spec)
    assert [p.tensor for p in plan.placements if p.site == "input"] == ["h"]


# Classes of a user's own


@keras.saving.register_keras_serializable(package="test_circumstances")
class Gained(Mixing):
    """Like `Mixing`; the tests below define wrappers for subclasses of it."""


def serving(name, **body):
    """Define a layer class and the wrapper that serves it."""
    layer = keras.saving.register_keras_serializable(package="test_circumstances")(type(name, (Gained,), {}))
    type(f"{name}QuantizeWrapper", (qdq.WeightedBaseQuantizeWrapper,), body)
    return layer


def by_default(self, layer, kernel_type="mix", **kwargs):
    qdq.WeightedBaseQuantizeWrapper.__init__(self, layer, kernel_type, **kwargs)


def by_passing_on(self, layer, **kwargs):
    qdq.WeightedBaseQuantizeWrapper.__init__(self, layer, kernel_type="mix", **kwargs)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("GainedByDefault", {"__init__": by_default}),
        ("GainedByAttribute", {"kernel_type": "mix"}),
        ("GainedByPassingOn", {"__init__": by_passing_on}),
    ],
)
def test_a_wrapper_names_the_weight_of_a_users_layer(name, body, tmp_path):
    layer_class = serving(name, **body)
    x = keras.Input((4,), name="x")
    q_model = qdq.quantize_model(shaken(keras.Model(x, layer_class(name="gained")(x))))
    assert [tensor.name for tensor in q_model.plan.tensors] == ["x", "gained/mix"]
    assert q_model.plan.tensors[1].quantizer.axis == 1
    assert type(q_model.get_layer("quant_gained")).__name__ == f"{name}QuantizeWrapper"
    data = sample(8, 4)
    qdq.calibrate(q_model, data, verbose=False)
    exported(q_model, data, tmp_path)


def test_a_users_class_may_be_called_like_one_of_ours_or_of_keras():
    @keras.saving.register_keras_serializable(package="elsewhere")
    class Dense(layers.Layer):
        def build(self, input_shape):
            self.kernel = self.add_weight(name="kernel", shape=(input_shape[-1],))

        def call(self, inputs):
            return inputs * self.kernel

    theirs = type("QuantizeDequantize", (Dense,), {})
    x = keras.Input((4,), name="x")
    hidden = theirs(name="second")(Dense(name="first")(x))
    model = keras.Model(x, layers.Dense(2, name="head")(hidden))
    plan = qdq.plan_placement(model)
    assert [tensor.name for tensor in plan.tensors] == ["second", "head/kernel"]
    assert "own" in plan.for_layer("first").reason
    q_model = qdq.quantize_model(model)
    assert [type(layer) is QuantizeDequantize for layer in q_model.layers] == [False, False, False, True, False]
    assert [layer.name for layer in qdq.strip(q_model).layers] == ["x", "first", "second", "head"]


# Training


def test_spectral_normalization_trains_its_float_kernel():
    x = keras.Input((4,), name="x")
    model = shaken(keras.Model(x, layers.SpectralNormalization(layers.Dense(3), name="spectral")(x)))
    q_model = qdq.quantize_model(model)
    data = sample(8, 4)
    for either in (model, q_model):
        either(data, training=True)
    theirs, ours = model.get_layer("spectral"), q_model.get_layer("quant_spectral").layer
    np.testing.assert_array_equal(np.asarray(ours.layer.kernel), np.asarray(theirs.layer.kernel))
    np.testing.assert_array_equal(np.asarray(ours.vector_u), np.asarray(theirs.vector_u))


@pytest.mark.parametrize(("policy", "make"), [("mixed_float16", sequence_model), ("mixed_bfloat16", loop_model)])
def test_half_precision_trains_and_exports(policy, make, tmp_path):
    with dtype_policy(policy):
        model = make()
    q_model = qdq.quantize_model(model)
    data = sample(8, 5, 4)
    q_model.compile("sgd", "mse")
    q_model.fit(data, sample(8, 2), epochs=1, verbose=0)
    assert all(np.isfinite(np.asarray(weight, "float32")).all() for weight in q_model.weights)
    qdq.calibrate(q_model, data, batch_size=3, verbose=False)
    exported(q_model, data, tmp_path)


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
def test_a_copy_keeps_the_policy_that_its_configuration_leaves_out(policy, tmp_path):
    x = keras.Input((4, 4, 3), name="x", dtype="float32")
    dropped = layers.SpatialDropout2D(0.2, dtype=policy, name="dropped")(x)
    model = keras.Model(x, layers.Conv2D(2, 1, dtype=policy, name="conv")(dropped))
    q_model = qdq.quantize_model(model)
    assert q_model.get_layer("dropped").dtype_policy.name == policy
    q_model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("dropped").dtype_policy.name == policy
    clone = clone_operation(model.get_layer("dropped"), "copy", float32=True)
    assert clone.dtype_policy.name == "float32"


def test_xla_compiles_a_training_step():
    x = keras.Input((5, 4), name="x")
    hidden = layers.MultiHeadAttention(2, 3, name="attention")(x, x)
    hidden = layers.TimeDistributed(layers.Dense(4), name="each")(hidden)
    model = shaken(keras.Model(x, layers.LSTM(3, use_cudnn=False, name="lstm")(hidden)))
    data, target = sample(8, 5, 4), sample(8, 3)
    losses = []
    for jit in (True, False):
        q_model = qdq.quantize_model(model)
        q_model.compile("sgd", "mse", jit_compile=jit)
        losses.append(q_model.fit(data, target, epochs=2, verbose=0).history["loss"])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)


def test_frozen_layers_stay_frozen():
    model = sequence_model()
    model.get_layer("both_ways").trainable = False
    model.get_layer("attention").trainable = False
    q_model = qdq.quantize_model(model)
    before = {v.path: np.asarray(v) for v in q_model.weights}
    q_model.compile("sgd", "mse", run_eagerly=True)
    q_model.fit(sample(8, 5, 4), sample(8, 2), epochs=1, verbose=0)
    changed = {v.path.split("/")[0] for v in q_model.weights if not np.array_equal(before[v.path], np.asarray(v))}
    assert not changed & {"quant_both_ways", "quant_attention"}
    assert {"quant_gru", "quant_head"} <= changed


# Files


@pytest.mark.parametrize("norm", [False, True])
def test_lora_is_trained_beside_the_quantized_kernel_and_exported(norm, tmp_path):
    x = keras.Input((4,), name="x")
    hidden = layers.Dense(3, name="adapted")(x)
    # Nothing is folded into a kernel that is a sum.
    model = keras.Model(x, layers.BatchNormalization(name="norm")(hidden) if norm else hidden)
    model.get_layer("adapted").enable_lora(2)
    model = shaken(model)
    q_model = qdq.quantize_model(model)
    data = sample(8, 4)
    q_model.quantization_enabled = False
    np.testing.assert_array_equal(flat(q_model(data))[0], flat(model(data))[0])
    q_model.quantization_enabled = True
    qdq.calibrate(q_model, data, verbose=False)
    assert [tensor.name for tensor in q_model.plan.tensors] == ["x", "adapted/kernel"]
    exported(q_model, data, tmp_path)


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_channels_first(target, tmp_path):
    x = keras.Input((3, 8, 8), name="x")
    hidden = layers.Conv2D(4, 3, padding="same", data_format="channels_first", name="conv")(x)
    hidden = layers.BatchNormalization(axis=1, name="norm")(hidden)
    hidden = layers.ReLU(name="relu")(hidden)
    hidden = layers.DepthwiseConv2D(3, data_format="channels_first", name="depthwise")(hidden)
    hidden = layers.GlobalAveragePooling2D(data_format="channels_first", name="pool")(hidden)
    q_model = qdq.quantize_model(shaken(keras.Model(x, layers.Dense(2, name="head")(hidden))), target=target)
    data = sample(8, 3, 8, 8)
    qdq.calibrate(q_model, data, verbose=False)
    exported(q_model, data, tmp_path)


def test_one_file_computes_sequences_of_any_length(tmp_path):
    x = keras.Input((None, 4), name="x")
    hidden = layers.Add(name="sum")([x, layers.MultiHeadAttention(2, 3, name="attention")(x, x)])
    hidden = layers.Conv1D(4, 3, padding="same", activation="relu", name="conv")(hidden)
    hidden = layers.LSTM(3, return_sequences=True, name="lstm")(hidden)
    q_model = qdq.quantize_model(shaken(keras.Model(x, hidden)), target="onnxruntime")
    qdq.calibrate(q_model, sample(8, 6, 4), verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    for length in (6, 11):
        verification = qdq.verify_onnx(report.path, q_model, sample(8, length, 4, seed=1))
        assert verification.passed, verification.summary()


def test_masks_reach_layers_behind_pairs(tmp_path):
    ids = keras.Input((6,), name="ids", dtype="int32")
    words = layers.Embedding(7, 4, mask_zero=True, name="words")(ids)
    seen = layers.MultiHeadAttention(2, 3, name="attention")(words, words, use_causal_mask=True)
    q_model = qdq.quantize_model(shaken(keras.Model(ids, layers.LSTM(3, name="lstm")(seen))))
    data = np.random.default_rng(0).integers(0, 7, (16, 6)).astype("int32")
    qdq.calibrate(q_model, data, verbose=False)
    exported(q_model, data, tmp_path)
    zeros, ones = np.where(data == 0, 0, data), np.where(data == 0, 1, data)
    assert not np.array_equal(flat(q_model(zeros))[0], flat(q_model(ones))[0])


def test_the_report_says_which_integer_weights_are_computed_in_float(tmp_path):
    q_model = qdq.quantize_model(sequence_model())
    data = sample(8, 5, 4)
    qdq.calibrate(q_model, data, verbose=False)
    (note,) = qdq.export_onnx(q_model, tmp_path / "model.onnx").notes
    assert "both_ways/forward_layer/cell/kernel (LSTM)" in note
    assert "attention" not in note
    assert "and 2 more" in note


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_nobody_is_told_that_recurrent_layers_run_on_integers(target):
    explanation = qdq.explain(qdq.plan_placement(sequence_model(), target=target), target)
    assert {explanation.for_layer(name).status for name in ("both_ways", "gru")} == {"float"}


def test_loops_read_moved_tensors_in_a_way_that_onnx_runtime_survives(tmp_path):
    x = keras.Input((4, 6, 6, 2), name="x")
    model = shaken(keras.Model(x, layers.ConvLSTM2D(2, 3, name="conv_lstm")(x)))
    q_model = qdq.quantize_model(model)
    data = sample(2, 4, 6, 6, 2)
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    graph = onnx.load(report.path).graph
    (loop,) = (node for node in graph.node if node.op_type == "Loop")
    produced = {node.output[0]: node.op_type for node in graph.node}
    body = next(attribute.g for attribute in loop.attribute if attribute.name == "body")
    around = {name for node in body.node for name in node.input} & set(produced)
    assert "Transpose" not in {produced[name] for name in around}
    assert "Transpose" in {produced.get(name) for name in loop.input}


def test_every_call_of_a_shared_layer_has_a_bias_of_its_own():
    x, y = keras.Input((4,), name="x"), keras.Input((4,), name="y")
    shared = layers.Dense(3, name="shared")
    q_model = qdq.quantize_model(shaken(keras.Model([x, y], [shared(x), shared(y)])))
    qdq.calibrate(q_model, [sample(8, 4), 5 * sample(8, 4)], verbose=False)
    found = qdq.integer_weights(q_model)
    first, second = found["shared/bias"], found["shared#1/bias"]
    inputs = [q_model.plan.graph.node(name).inputs[0] for name in ("shared", "shared#1")]
    largest = [max(np.abs(q_model.activation_ranges()[name])) for name in inputs]
    assert sorted(inputs) == ["x", "y"]
    np.testing.assert_allclose(second.scale / first.scale, largest[1] / largest[0], rtol=1e-5)
    np.testing.assert_allclose(second.dequantize(), first.dequantize(), atol=max(first.scale.max(), second.scale.max()))


def test_a_wrapper_by_itself_quantizes_all_its_tensor_arguments():
    wrapper = qdq.WeightedBaseQuantizeWrapper(layers.MultiHeadAttention(2, 3, name="attention"))
    query, value = sample(2, 5, 4), sample(2, 6, 4, seed=1)
    output, scores = wrapper(query, value, return_attention_scores=True, training=True)
    assert output.shape == (2, 5, 4)
    assert scores.shape == (2, 2, 5, 6)
    assert [pair.range is not None for pair in wrapper._input_quantizers] == [True, True]
    assert set(wrapper.weight_quantizers) == {
        "query/kernel",
        "key/kernel",
        "value/kernel",
        "attention_output/kernel",
    }
