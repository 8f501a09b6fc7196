"""Models that Keras quantized by itself: their integers become ours, bit for bit."""

import functools
import warnings

import keras
import numpy as np
import pytest
from keras import layers
from keras.src.quantizers.gptq import GPTQ
from releases import KERAS

import qdq_workbench as qdq
from qdq_workbench.errors import SpecError, UnsupportedModelError
from qdq_workbench.graph_builder import bind_graph, integers_of
from qdq_workbench.verification import count_integer_kernels

X = np.random.default_rng(0).integers(0, 20, (8, 6))
CONFIGS = {"int8": "int8", "int4, per channel": "int4"}
if KERAS >= (3, 14):  # from which on int4 has groups, one of 128 if nothing else is said
    from keras.quantizers import Int4QuantizationConfig

    CONFIGS["int4, groups"] = Int4QuantizationConfig(block_size=16)
    CONFIGS["int4, one group"] = Int4QuantizationConfig(block_size=128)
    CONFIGS["int4, per channel"] = Int4QuantizationConfig(block_size=None)


def words():
    """Every layer that Keras quantizes: a table, attention, an einsum and Dense, one of them called twice."""
    keras.utils.set_random_seed(1)
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    x = layers.Embedding(20, 48, name="table")(tokens)
    x = x + layers.MultiHeadAttention(2, 24, name="attention")(x, x)
    x = layers.EinsumDense("abc,cd->abd", output_shape=(6, 35), activation="relu", name="einsum")(x)
    twice = layers.Dense(35, activation="relu", name="twice")
    return keras.Model(tokens, layers.Dense(3, name="head")(layers.Flatten(name="flat")(twice(twice(x)))))


@functools.cache
def quantized_by_keras(name):
    """Return the model quantized in a way of `CONFIGS`, or in one that Keras knows by name; tests only read it."""
    model, how = words(), CONFIGS.get(name, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers without weights, that they have nothing to quantize
        if isinstance(how, str):
            model.quantize(how)
        else:
            model.quantize(config=how)
    return model


@functools.cache
def quantized_by_both(name):
    """Return our model of one that Keras quantized; tests only read it."""
    return qdq.quantize_model(quantized_by_keras(name), "partial", target="onnxruntime")


def codes_of(model, name):
    """Return Keras's own unpacked integers."""
    return np.asarray(model.get_layer(name).kernel).astype(int)


@pytest.mark.parametrize("how", CONFIGS)
def test_integers_and_values_are_those_of_keras(how):
    model = quantized_by_keras(how)
    before = np.asarray(model(X))
    q_model = quantized_by_both(how)
    integers = qdq.integer_weights(q_model)
    for name in ("einsum", "twice", "head"):
        np.testing.assert_array_equal(integers[f"{name}/kernel"].codes, codes_of(model, name))
    expected = ["table/embeddings", *(f"attention/{part}/kernel" for part in ("query", "key", "value"))]
    expected += ["attention/attention_output/kernel", "einsum/kernel", "twice/kernel", "head/kernel"]
    assert {name for name, found in integers.items() if hasattr(found, "codes")} == set(expected)
    for call in bind_graph(model).calls:
        for name, held in integers_of(call.operation).items():
            found = integers[f"{call.node.layer}/{name}"]
            np.testing.assert_array_equal(found.codes, held.codes)
            np.testing.assert_array_equal(found.zero_point, held.zero_point)
            np.testing.assert_allclose(found.scale, held.scale, rtol=1.2e-7)
            np.testing.assert_allclose(found.dequantize(), held.values, rtol=3e-7, atol=0)
    after = np.asarray(q_model(X))
    if how != "int8" and KERAS >= (3, 14):  # the layers of the others round their inputs too
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(model(X), before)  # the user's model is only read


def test_int8_behind_quantized_inputs_runs_on_integers(tmp_path):
    """Heads have a scale for each of their outputs: one block of all inputs, which a file has as a scale per output."""
    keras.utils.set_random_seed(0)
    rows = keras.Input((3, 40), name="rows")
    x = layers.EinsumDense("abc,cde->abde", output_shape=(3, 2, 8), name="heads")(rows)
    model = keras.Model(rows, layers.EinsumDense("abde,dec->abc", output_shape=(3, 5), name="joined")(x))
    for layer in model.layers[1:]:
        layer.quantize("int8")
    q_model = qdq.quantize_model(model, target="onnxruntime")
    assert q_model.plan.tensors[1].quantizer.label == "int8/blocks of 40 on axis 0"
    samples = np.random.default_rng(0).normal(size=(8, 3, 40)).astype("float32")
    qdq.calibrate(q_model, samples, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(report.path, q_model, samples).raise_if_failed()
    assert count_integer_kernels(str(report.path)).counts == {"MatMul": (2, 2)}
    assert {entry.rule for entry in qdq.explain(q_model).layers} == {"ORT-INTEGER"}


@pytest.mark.parametrize("how", [how for how in CONFIGS if how != "int4, one group"])
def test_files_hold_what_keras_chose(how, tmp_path):
    q_model = quantized_by_both(how)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(report.path, q_model, X).raise_if_failed()
    q_model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(X), q_model(X))


def test_training_and_other_targets_leave_the_grid_as_it_is():
    q_model = qdq.quantize_model(quantized_by_keras("int8"), target="tensorrt")
    qdq.calibrate(q_model, X, verbose=False)
    before = qdq.integer_weights(q_model)["head/kernel"]
    other = qdq.retarget(q_model, "onnxruntime")
    np.testing.assert_array_equal(qdq.integer_weights(other)["head/kernel"].codes, before.codes)
    q_model.compile("sgd", "mse", run_eagerly=True)
    q_model.fit(X, np.zeros((8, 3)), epochs=2, verbose=0)
    after = qdq.integer_weights(q_model)["head/kernel"]
    np.testing.assert_array_equal(after.scale, before.scale)
    assert not np.array_equal(qdq.weight_values(q_model)["head/kernel"], before.dequantize())


def test_an_entry_may_ask_for_another_grid_or_for_floats():
    model = quantized_by_keras("int8")
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_input=False, quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
    spec.add("twice", quantize_input=False, quantize_weight=False)
    plan = qdq.plan_placement(model, "partial", spec)
    labels = {placement.tensor: placement.quantizer.label for placement in plan.placements}
    assert labels["head/kernel"] == "int4/axis 1"
    assert "twice/kernel" not in labels
    assert labels["einsum/kernel"] == "int8/axis 1"


def gptq_layer(layer, shape, **settings):
    """Return a layer that Keras's GPTQ has quantized."""
    source = keras.Input(shape, name="rows")
    model = keras.Model(source, layer(source))
    config = keras.quantizers.GPTQConfig(dataset=None, tokenizer=None, **settings)
    layer.quantize("gptq", config=config)
    run = GPTQ(layer, config)
    run.update_hessian_with_batch(np.random.default_rng(0).normal(size=(64, run.rows)).astype("float32"))
    run.quantize_and_correct_layer()
    return model


# 24 rows in groups of 16: the last group is smaller, which Keras before 3.14 cannot compute.
ROWS = 24 if KERAS >= (3, 14) else 32
GPTQ_LAYERS = {
    "4 bits, groups": (lambda: layers.Dense(10, name="rows_to"), (ROWS,), {"weight_bits": 4, "group_size": 16}),
    "8 bits, one group": (lambda: layers.Dense(10, name="rows_to"), (ROWS,), {"weight_bits": 8, "group_size": -1}),
    "einsum": (
        lambda: layers.EinsumDense("abc,cde->abde", output_shape=(3, 2, 8), name="rows_to"),
        (3, ROWS),
        {"weight_bits": 4, "group_size": 16},
    ),
    "order, one group": (
        lambda: layers.Dense(9, name="rows_to"),
        (ROWS,),
        {"weight_bits": 4, "group_size": -1, "activation_order": True},
    ),
}


@pytest.mark.parametrize(("make", "shape", "settings"), GPTQ_LAYERS.values(), ids=GPTQ_LAYERS)
def test_what_gptq_chose_is_read(make, shape, settings, tmp_path):
    keras.utils.set_random_seed(2)
    model = gptq_layer(make(), shape, **settings)
    rows = np.random.default_rng(1).normal(size=(5, *shape)).astype("float32")
    before = np.asarray(model(rows))
    q_model = qdq.quantize_model(model, "partial", target="onnxruntime")
    np.testing.assert_allclose(q_model(rows), before, rtol=1e-5, atol=1e-6)
    found = qdq.integer_weights(q_model)["rows_to/kernel"]
    matrix = np.asarray(model.layers[-1].kernel)
    np.testing.assert_array_equal(found.codes.reshape(matrix.shape[1], -1).T, matrix)
    assert not found.signed
    if settings["group_size"] > 0:
        report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
        qdq.verify_onnx(report.path, q_model, rows).raise_if_failed()


def float8():
    return quantized_by_keras("float8")


REFUSED = {
    "activation order": (
        lambda: gptq_layer(layers.Dense(9), (ROWS,), weight_bits=4, group_size=16, activation_order=True),
        "with activation order the inputs of a group are not neighbours",
    ),
    "float8": (float8, "'float8' scales inputs, or stores floats"),
}


@pytest.mark.parametrize(("make", "words_"), REFUSED.values(), ids=REFUSED)
def test_what_no_pair_stands_for_is_refused(make, words_):
    with pytest.raises(UnsupportedModelError, match=f"{words_}.*qdq-workbench docs four_bits"):
        qdq.build_graph(make())


def test_litert_says_which_weights_it_cannot_hold():
    model = gptq_layer(layers.Dense(10), (ROWS,), weight_bits=4, group_size=16)
    with pytest.raises(SpecError, match="'litert' takes no weights in blocks"):
        qdq.plan_placement(model, "partial", target="litert")
