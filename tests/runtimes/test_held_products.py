"""A convolution or product inside `TimeDistributed`: as ONNX Runtime has it, and what makes it INT8."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from runtimes_agreement import compare

import qdq_workbench as qdq
from qdq_workbench.runtimes.inner_layers import held_product

BIASED = {"bias_initializer": "normal"}


def dense(name):
    return layers.Dense(2, name=name, **BIASED)


CASES = {
    "a Gemm in front of an output": (layers.Dense(4, **BIASED), (5, 3), None, "ORT-OUTPUT"),
    "a Gemm with a ReLU": (layers.Dense(4, activation="relu", **BIASED), (5, 3), dense, "ORT-INTEGER"),
    "a Gemm with a tanh": (layers.Dense(4, activation="tanh", **BIASED), (5, 3), dense, "ORT-ACTIVATION"),
    "a MatMul": (layers.Dense(4, use_bias=False), (5, 3), None, "ORT-INTEGER"),
    "a MatMul with a ReLU": (layers.Dense(4, use_bias=False, activation="relu"), (5, 3), None, "ORT-OUTPUT"),
    "a MatMul with a tanh": (layers.Dense(4, use_bias=False, activation="tanh"), (5, 3), None, "ORT-INTEGER"),
    "a MatMul of rank 3": (layers.Dense(4, activation="relu", **BIASED), (5, 4, 3), None, "ORT-INTEGER"),
    "steps of steps": (layers.TimeDistributed(layers.Dense(4, **BIASED)), (2, 5, 3), dense, "ORT-INTEGER"),
    "an einsum": (layers.EinsumDense("ab,bc->ac", 4, bias_axes="c", **BIASED), (5, 3), dense, "ORT-INTEGER"),
    "a convolution": (
        layers.Conv2D(4, 3, activation="relu", **BIASED),
        (3, 6, 6, 2),
        lambda name: layers.TimeDistributed(layers.Conv2D(3, 3), name=name),
        "ORT-INTEGER",
    ),
    "steps of convolutions": (
        layers.TimeDistributed(layers.Conv2D(4, 3, **BIASED)),
        (2, 3, 6, 6, 2),
        None,
        "ORT-OUTPUT",
    ),
    "a convolution in front of an output": (layers.Conv2D(4, 3, **BIASED), (3, 6, 6, 2), None, "ORT-OUTPUT"),
    "a convolution with an activation": (
        layers.Conv2D(4, 3, activation="gelu", **BIASED),
        (3, 6, 6, 2),
        None,
        "ORT-ACTIVATION",
    ),
}


def of_steps(inner):
    return layers.TimeDistributed(layers.SpectralNormalization(inner))


NORMALIZED = {
    "a normalized Gemm": (layers.SpectralNormalization(layers.Dense(4, **BIASED)), (5, 3), dense, "ORT-INTEGER"),
    "steps of normalized Gemms of any number": (
        of_steps(layers.Dense(4, **BIASED)),
        (3, None, 3),
        dense,
        "ORT-INTEGER",
    ),
    "normalized rows of any number with a ReLU": (
        layers.SpectralNormalization(layers.Dense(4, activation="relu", use_bias=False)),
        (3, None, 3),
        None,
        "ORT-OUTPUT",
    ),
    "a normalized convolution": (
        layers.SpectralNormalization(layers.Conv2D(4, 3, activation="relu", **BIASED)),
        (3, 6, 6, 2),
        lambda name: layers.TimeDistributed(layers.Conv2D(3, 3), name=name),
        "ORT-INTEGER",
    ),
}

EINSUMS = {
    "an einsum with a ReLU": (
        layers.EinsumDense("abc,cd->abd", (None, 4), activation="relu"),
        (3, 5, 3),
        None,
        "ORT-OUTPUT",
    ),
    "an einsum to heads": (
        layers.EinsumDense("abc,cde->abde", (None, 2, 4), activation="relu"),
        (3, 5, 3),
        None,
        "ORT-INTEGER",
    ),
    "an einsum of rows to heads": (
        layers.EinsumDense("ab,bcd->acd", (2, 4), bias_axes="cd", **BIASED),
        (3, 5),
        None,
        "ORT-INTEGER",
    ),
    "a ReLU whose sizes are read": (
        layers.EinsumDense("abc,cd->abd", (None, 4), activation="relu"),
        (3, None, 3),
        None,
        "ORT-INTEGER",
    ),
    "sizes that are read behind a ReLU": (
        of_steps(layers.EinsumDense("abc,cd->abd", (None, 4), activation="relu")),
        (3, None, 5, 3),
        dense,
        "ORT-OUTPUT",
    ),
}

OPEN = {
    "a Gemm of any number of steps": (layers.Dense(4, activation="relu", **BIASED), (None, 3), dense, "ORT-INTEGER"),
    "a MatMul of any rows": (layers.Dense(4, activation="relu", use_bias=False), (4, None, 3), dense, "ORT-INTEGER"),
    "steps of steps of any number": (
        layers.TimeDistributed(layers.Dense(4, activation="relu", use_bias=False)),
        (None, None, 3),
        dense,
        "ORT-INTEGER",
    ),
    "convolutions of any number": (
        layers.Conv2D(4, 3, **BIASED),
        (None, 6, 6, 2),
        lambda name: layers.TimeDistributed(layers.Conv2D(3, 3), name=name),
        "ORT-INTEGER",
    ),
    "convolutions of images of any size": (
        layers.Conv2D(4, 3, activation="relu", **BIASED),
        (3, None, None, 2),
        lambda name: layers.TimeDistributed(layers.Conv2D(3, 3), name=name),
        "ORT-INTEGER",
    ),
    "any number of convolutions of images of any size": (
        layers.Conv2D(4, 3, activation="relu", **BIASED),
        (None, None, None, 2),
        lambda name: layers.TimeDistributed(layers.Conv2D(3, 3), name=name),
        "ORT-OUTPUT",
    ),
    "convolutions of images of any width": (
        layers.Conv2D(4, 3, activation="relu", **BIASED),
        (3, 6, None, 2),
        lambda name: layers.TimeDistributed(layers.Conv2D(3, 3), name=name),
        "ORT-OUTPUT",
    ),
}


def model_of(inner, shape, head):
    keras.utils.set_random_seed(0)
    steps = keras.Input(shape, name="steps")
    x = layers.TimeDistributed(type(inner).from_config(inner.get_config()), name="held")(steps)
    return keras.Model(steps, x if head is None else head("head")(x))


def agreed(q_model, path):
    """Return what is said of the layer; ONNX Runtime does it."""
    sizes = [6 if size is None else size for size in q_model.inputs[0].shape[1:]]
    data = np.random.default_rng(0).normal(size=(8, *sizes)).astype(np.float32)
    qdq.calibrate(q_model, data, verbose=False)
    compared, differing = compare(q_model, path)
    assert compared
    assert differing == []
    return qdq.explain(q_model).for_layer("held")


EVERY = {**CASES, **NORMALIZED, **EINSUMS, **OPEN}


@pytest.mark.parametrize("case", EVERY)
def test_onnx_runtime_computes_what_is_said(case, tmp_path):
    *parts, rule = EVERY[case]
    found = agreed(qdq.quantize_model(model_of(*parts), target="onnxruntime"), tmp_path / "model.onnx")
    assert (found.rule, found.status) == (rule, "int8" if rule == "ORT-INTEGER" else "float")


@pytest.mark.parametrize("case", [name for name, row in CASES.items() if row[-1] == "ORT-OUTPUT"])
def test_its_fix_makes_it_int8(case, tmp_path):
    *parts, _ = CASES[case]
    model = model_of(*parts)
    spec = qdq.explain(qdq.plan_placement(model, target="onnxruntime")).apply_fixes()
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    assert agreed(q_model, tmp_path / "model.onnx").status == "int8"


@pytest.mark.parametrize(
    ("entry", "rule"),
    [
        ({"quantize_input": False}, "ORT-INPUT"),
        ({"quantize_weight": False}, "ORT-WEIGHT"),
        ({"quantize_input": False, "quantize_weight": False}, "ORT-WEIGHT"),
    ],
)
def test_what_the_user_left_in_float_is_named(entry, rule, tmp_path):
    *parts, _ = CASES["a convolution"]
    spec = qdq.QuantizationSpec()
    spec.add("held", **entry)
    q_model = qdq.quantize_model(model_of(*parts), quantization_spec=spec, target="onnxruntime")
    assert agreed(q_model, tmp_path / "model.onnx").rule == rule


def test_a_product_of_floats_is_read_as_integers_at_best(tmp_path):
    *parts, _ = CASES["a MatMul"]
    spec = qdq.QuantizationSpec()
    spec.add("held", quantize_input=False)
    plan = qdq.plan_placement(model_of(*parts), quantization_spec=spec, target="onnxruntime")
    assert qdq.explain(plan).for_layer("held").rule == "ORT-WEIGHT-ONLY"


PLAIN = {"use_bias": False}
FLAT, OPEN_ROWS, PER_STEP = (5, 6), (None, 6), layers.TimeDistributed
BEHIND = {
    "known sizes": (PER_STEP(layers.Dense(4, **PLAIN)), FLAT, "ORT-OUTPUT"),
    "known sizes and a bias": (PER_STEP(layers.Dense(4, **BIASED)), (3, *FLAT), "ORT-INTEGER"),
    "any number of steps": (PER_STEP(layers.Dense(4, **PLAIN)), OPEN_ROWS, "ORT-INTEGER"),
    "normalized": (layers.SpectralNormalization(layers.Dense(4, **PLAIN)), FLAT, "ORT-OUTPUT"),
    "normalized steps": (of_steps(layers.Dense(4, **PLAIN)), FLAT, "ORT-OUTPUT"),
    "heads": (layers.EinsumDense("abc,cde->abde", (None, 2, 4)), FLAT, "ORT-INTEGER"),
    "turned": (layers.EinsumDense("abc,cd->adb", (4, 5)), FLAT, "ORT-INTEGER"),
    "summed twice": (layers.EinsumDense("abcd,cde->abe", (None, 4)), (5, 2, 6), "ORT-OUTPUT"),
}


@pytest.mark.parametrize("case", BEHIND)
def test_a_relu_behind_a_product_without_a_pair(case, tmp_path):
    """It is float; and where it stands directly behind the product in the file, the product is float, too."""
    inner, shape, rule = BEHIND[case]
    keras.utils.set_random_seed(0)
    rows = keras.Input(shape, name="rows")
    x = type(inner).from_config({**inner.get_config(), "name": "held"})(rows)
    model = keras.Model(rows, layers.Activation("tanh", name="tanh")(layers.ReLU(name="relu")(x)))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    assert agreed(q_model, tmp_path / "model.onnx").rule == rule
    assert qdq.explain(q_model).for_layer("relu").status == "float"


@pytest.mark.parametrize(
    ("inner", "shape", "rule"),
    [
        (layers.Dense(4, **BIASED), (6,), "ORT-INTEGER"),
        (layers.Dense(4, **BIASED), (5, 6), "ORT-INTEGER"),
        (layers.Dense(4, activation="relu", **BIASED), (6,), "ORT-INTEGER"),  # an output of the model counts as two
        (layers.Dense(4, activation="relu", use_bias=False), (5, 6), "ORT-INTEGER"),
        (layers.Conv2D(3, 3, **BIASED), (6, 6, 2), "ORT-OUTPUT"),
    ],
)
def test_what_is_no_step_of_several_has_its_pair_in_front_of_it(inner, shape, rule, tmp_path):
    keras.utils.set_random_seed(0)
    row = keras.Input(shape, name="row")
    q_model = qdq.quantize_model(
        keras.Model(row, layers.SpectralNormalization(inner, name="held")(row)), target="onnxruntime"
    )
    assert agreed(q_model, tmp_path / "model.onnx").rule == rule


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt", "openvino", "litert"])
def test_a_mask_that_the_layer_inside_does_not_take_changes_nothing(target):
    verdicts = {}
    for masked in (False, True):
        words = keras.Input((5,), dtype="int32", name="words")
        x = layers.Embedding(20, 4, mask_zero=masked, name="embedded")(words)
        x = layers.TimeDistributed(dense("inner"), name="held")(x)
        plan = qdq.plan_placement(
            keras.Model(words, layers.TimeDistributed(dense("inner_head"), name="head")(x)), target=target
        )
        verdicts[masked] = qdq.explain(plan).for_layer("held")
    assert (verdicts[True].rule, verdicts[True].status) == (verdicts[False].rule, "int8")


def test_a_masked_sequence_in_onnx_runtime(tmp_path):
    words = keras.Input((5,), dtype="int32", name="words")
    x = layers.Embedding(20, 4, mask_zero=True, name="embedded")(words)
    x = layers.TimeDistributed(dense("inner"), name="held")(x)
    model = keras.Model(words, dense("head")(x))
    spec = qdq.QuantizationSpec()
    spec.add("held", quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    assert agreed(q_model, tmp_path / "model.onnx").status == "int8"


@keras.saving.register_keras_serializable(package="held_products")
class TakesMask(layers.Dense):
    """A Dense of the user that takes a mask."""

    def call(self, inputs, training=None, mask=None):
        return super().call(inputs)


def test_a_layer_of_the_user_that_takes_the_mask_is_not_called_int8(tmp_path):
    words = keras.Input((5,), dtype="int32", name="words")
    x = layers.Embedding(20, 4, mask_zero=True, name="embedded")(words)
    x = layers.TimeDistributed(TakesMask(3, **BIASED), name="held")(x)
    spec = qdq.QuantizationSpec()
    spec.add("held", quantize_output=True)
    q_model = qdq.quantize_model(keras.Model(words, x), quantization_spec=spec, target="onnxruntime")
    data = np.random.default_rng(0).integers(0, 20, (8, 5)).astype(np.int32)
    qdq.calibrate(q_model, data, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert sum(node.op_type == "Gemm" for node in onnx.load(report.path).graph.node) == 5
    assert qdq.explain(q_model).for_layer("held").status == "float"


def test_more_than_one_layer_inside_is_not_seen_through():
    steps = keras.Input((3, 6, 6, 2), name="steps")
    inner = keras.Sequential([keras.Input((6, 6, 2)), layers.Conv2D(3, 3, name="conv"), layers.ReLU()])
    model = keras.Model(steps, layers.TimeDistributed(inner, name="held")(steps))
    found = qdq.explain(qdq.plan_placement(model, target="onnxruntime")).for_layer("held")
    assert (found.rule, found.status) == ("ORT-OPAQUE", "float")
    assert "Conv2D 'layer/conv'" in found.reason


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (layers.TimeDistributed(layers.Conv2D(2, 3)), "Conv2D"),
        (layers.SpectralNormalization(layers.Dense(2)), "Dense"),
        (layers.TimeDistributed(layers.SpectralNormalization(layers.Dense(2))), "Dense"),
        (layers.TimeDistributed(layers.Conv2DTranspose(2, 3)), None),
        (layers.TimeDistributed(layers.SeparableConv2D(2, 3)), None),
        (layers.TimeDistributed(layers.MaxPooling2D()), None),
        (layers.Dense(2), None),
    ],
)
def test_which_product_is_all_that_a_layer_holds(make, expected):
    steps = keras.Input((3, 6, 6, 2), name="steps")
    node = qdq.build_graph(keras.Model(steps, make(steps))).nodes[-1]
    found = held_product(node)
    assert (found and found.class_name) == expected
