"""Grids of fewer than 8 bits in ONNX Runtime: the explanation must equal the kernels, layer by layer."""

import dataclasses
import itertools

import keras
import numpy as np
import onnx
import pytest
from agreement import statuses
from agreement.fast_export import FastExport
from agreement.networks import SMALL, build
from agreement.toggles import few_bits_plan
from keras import layers
from runtimes_agreement import compare
from small_models import samples

import qdq_workbench as qdq

PLANS = 4
NARROW = {"4 bits": {"num_bits": 4}, "7 bits": {"num_bits": 7}, "narrow range": {"narrow_range": True}}
#: A layer between a pair of 8 bits and a narrow one, with the rule that decides about it.
OPERATIONS = {
    "conv": (lambda x, n: layers.Conv2D(4, 3, activation="relu", name=n("x"))(x), "ORT-CLIP"),
    "dense": (lambda x, n: layers.Dense(4, name=n("x"))(layers.Flatten(name=n("flat"))(x)), "ORT-CLIP"),
    "sequence": (lambda x, n: layers.Dense(4, bias_initializer="normal", name=n("x"))(x), "ORT-INTEGER"),
    "add": (lambda x, n: layers.Add(name=n("x"))([x, layers.ReLU(name=n("relu"))(x)]), "ORT-CLIP"),
    "concat": (lambda x, n: layers.Concatenate(name=n("x"))([x, layers.ReLU(name=n("relu"))(x)]), "ORT-CLIP"),
    "mean": (lambda x, n: layers.AveragePooling2D(2, name=n("x"))(x), "ORT-CLIP"),
    "global": (lambda x, n: layers.GlobalAveragePooling2D(name=n("x"))(x), "ORT-CLIP"),
    "softmax": (lambda x, n: layers.Softmax(name=n("x"))(x), "ORT-CLIP"),
    "upsampling": (lambda x, n: layers.UpSampling2D(name=n("x"))(x), "ORT-CLIP"),
    "maximum": (lambda x, n: layers.MaxPooling2D(name=n("x"))(x), "ORT-INTEGER"),
}
CLIPPED = [
    *((kind, "4 bits") for kind in OPERATIONS),
    *itertools.product(("conv", "dense"), ("7 bits", "narrow range")),
]


def altered(weight_bits=8, activation_bits=8):
    """The target for ONNX Runtime with other widths."""
    target = qdq.targets.get_target("onnxruntime")
    return dataclasses.replace(
        target,
        weight=target.weight.replace(num_bits=weight_bits),
        activation=target.activation.replace(num_bits=activation_bits),
    )


def small_net():
    """Convolutions, a mean and a product behind it."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, activation="relu", bias_initializer="normal", name="first")(image)
    x = layers.Conv2D(4, 3, bias_initializer="normal", name="second")(x)
    x = layers.GlobalAveragePooling2D(name="mean")(x)
    return keras.Model(image, layers.Dense(3, bias_initializer="normal", name="head")(x))


def quantized(model, **how):
    q_model = qdq.quantize_model(model, **how)
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


@pytest.mark.parametrize(
    ("name", "opset"), [*zip(SMALL, itertools.cycle((17, 21)), strict=False), ("sequence_net", 21)]
)
def test_random_plans(name, opset, tmp_path):
    export = FastExport(build(name), opset)
    rules = set()
    for number in range(PLANS):
        plan = few_bits_plan(export.graph, np.random.default_rng([12, number]))
        explanation = qdq.explain(plan, opset=opset)
        _, differing = statuses.compare(explanation, export.build(plan, seed=number), tmp_path)
        assert differing == [], (number, plan.summary())
        rules |= {entry.rule for entry in explanation.layers}
    assert rules >= {"ORT-CLIP", "ORT-INTEGER", *(["ORT-GRID"] if opset == 21 else [])}


@pytest.fixture(scope="module")
def clipped(tmp_path_factory):
    """The explanation of every operation in front of every kind of Clip, and the layers where the runtime disagrees."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 4), name="image")
    outputs, spec = [], qdq.QuantizationSpec()
    for kind, narrow in CLIPPED:
        n = f"{kind}.{narrow}.{{}}".format
        result = OPERATIONS[kind][0](layers.Conv2D(4, 3, padding="same", name=n("first"))(image), n)
        outputs.append(layers.Dense(3, name=n("last"))(result))
        spec.add(n("last"), quantize_config=qdq.LayerQuantizeConfig(activation=NARROW[narrow]))
    model = keras.Model(image, outputs)
    q_model = quantized(model, quantization_spec=spec, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    compared, differing = compare(q_model, tmp_path_factory.mktemp("clipped") / "model.onnx")
    assert compared >= 3 * len(CLIPPED)
    return qdq.explain(q_model), differing


@pytest.mark.parametrize(("kind", "narrow"), CLIPPED)
def test_what_stands_in_front_of_a_clip(kind, narrow, clipped):
    explanation, differing = clipped
    n = f"{kind}.{narrow}.{{}}".format
    found, rule = explanation.for_layer(n("x")), OPERATIONS[kind][1]
    assert [entry for entry in differing if entry[0].startswith(n(""))] == []
    assert found.rule == rule
    if rule == "ORT-CLIP":
        assert narrow in found.reason
        assert found.fix_text.startswith('set {"narrow_range": False}' if "range" in narrow else 'set {"num_bits": 8}')


@pytest.mark.parametrize(
    ("weights", "activations", "opset", "rules"),
    [
        (4, 4, None, ("ORT-CLIP", "ORT-CLIP", "ORT-CLIP", "ORT-INTEGER")),
        (4, 8, None, ("ORT-INTEGER", "ORT-INTEGER", "ORT-INTEGER", "ORT-INTEGER")),
        (4, 8, 21, ("ORT-GRID", "ORT-GRID", "ORT-INTEGER", "ORT-GRID")),
        (5, 8, 21, ("ORT-INTEGER", "ORT-INTEGER", "ORT-INTEGER", "ORT-INTEGER")),
    ],
)
def test_an_exported_file_is_explained_by_its_own_opset(weights, activations, opset, rules, tmp_path):
    target = altered(weights, activations)
    q_model = quantized(small_net(), custom_qdq_cases=[qdq.AutoQDQCase()], target=target)
    qdq.export_onnx(q_model, tmp_path / "model.onnx", opset=opset)
    explanation = qdq.explain(qdq.files.read_layers(tmp_path / "model.onnx"))
    assert tuple(entry.rule for entry in explanation.layers) == rules
    _, differing = statuses.compare(explanation, onnx.load(tmp_path / "model.onnx"), tmp_path)
    assert differing == []
    kernels = qdq.verify_onnx(tmp_path / "model.onnx", q_model).figures["integer_kernels"]
    integers = sum(found for found, _ in kernels.values())
    assert integers == explanation.counts["int8"] == rules.count("ORT-INTEGER")
    assert explanation.coverage["layers"] == integers / len(rules)
    assert qdq.explain(q_model, opset=opset).layers == explanation.layers


def test_the_opset_that_the_exporter_chooses_is_that_of_the_explanation():
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_config=qdq.LayerQuantizeConfig(activation={"num_bits": 16}))
    eight, sixteen = (
        qdq.explain(qdq.plan_placement(small_net(), quantization_spec=wanted, target=altered(weight_bits=4)))
        for wanted in (None, spec)
    )
    # A tensor of 16 bits needs opset 21, in which the weights of all layers are INT4.
    assert eight.for_layer("first").rule == "ORT-INTEGER"
    assert sixteen.for_layer("first").rule == "ORT-GRID"
    assert "opset below 21" in sixteen.for_layer("first").fix_text


def test_fixes_are_judged_at_the_opset_of_the_explanation():
    spec = qdq.QuantizationSpec()
    spec.add("mean", quantize_output=False)
    plan = qdq.plan_placement(small_net(), quantization_spec=spec, target=altered(weight_bits=4))
    fixed = qdq.explain(plan, opset=21).apply_fixes()
    after = qdq.explain(
        qdq.plan_placement(small_net(), quantization_spec=fixed, target=altered(weight_bits=4)), opset=21
    )
    assert after.counts == {"int8": 1, "partial": 0, "float": 3}


@pytest.mark.parametrize("opset", ["21", True, 21.0])
def test_an_opset_is_an_integer(opset):
    with pytest.raises(qdq.errors.SpecError, match="opset must be an integer"):
        qdq.explain(small_net(), opset=opset)


def test_a_reader_with_a_grid_of_its_own_is_not_served_by_the_pair_of_the_others(tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 4), name="image")
    x = layers.Conv2D(4, 3, padding="same", activation="relu", name="first")(image)
    model = keras.Model(image, [layers.Conv2D(2, 1, name="left")(x), layers.Conv2D(2, 1, name="right")(x)])
    spec = qdq.QuantizationSpec()
    spec.add("first", quantize_output=True)
    spec.add("left", quantize_config=qdq.LayerQuantizeConfig(activation={"symmetric": True}))
    q_model = quantized(model, quantization_spec=spec, target="onnxruntime")
    _, differing = compare(q_model, tmp_path / "model.onnx")
    assert differing == []
    assert qdq.explain(q_model).for_layer("first").rule == "ORT-OUTPUT"


@pytest.mark.parametrize(("target", "rule"), [("openvino", "OV-GRID"), ("tensorrt", "TRT-INT4")])
def test_other_runtimes_dequantize_int4_too_and_take_few_bits_in_8(target, rule):
    spec = qdq.QuantizationSpec()
    narrow = {"weight": {"num_bits": 4}, "activation": {"num_bits": 4}}
    spec.add(["first", "second", "head"], quantize_config=qdq.LayerQuantizeConfig(**narrow))
    plan = qdq.plan_placement(small_net(), quantization_spec=spec, target=target)
    assert {qdq.explain(plan).for_layer(name).status for name in ("first", "second", "head")} == {"int8"}
    packed = [qdq.explain(plan, opset=21).for_layer(name) for name in ("first", "second", "head")]
    assert {(entry.status, entry.rule) for entry in packed} == {("float", rule)}
    assert all("export at an opset below 21" in entry.advice for entry in packed)


def read_in_sixteen_bits(kind):
    """Return a model whose last convolution reads a tensor of 16 bits, behind a ReLU or a kernel with an own pair."""
    image = keras.Input((6, 6, 4), name="image")
    x = layers.Conv2D(4, 2, padding="same", name="first")(image)
    if kind == "einsum":
        x = layers.EinsumDense("abcd,de->abce", output_shape=(None, None, 4), activation="relu", name="middle")(x)
    elif kind == "held":
        x = layers.TimeDistributed(layers.Conv1D(4, 2, activation="relu"), name="middle")(x)
    elif kind == "sigmoid":
        x = layers.Activation("sigmoid", name="middle")(x)
    elif kind != "relu":
        x = (layers.MaxPooling2D(2, name="middle") if kind == "maximum" else layers.AveragePooling2D(2, name="middle"))(
            x
        )
    if kind in ("relu", "maximum", "average"):
        x = layers.ReLU(name="relu")(x)
    return keras.Model(image, layers.Conv2D(2, 1, name="last")(x))


@pytest.mark.parametrize("kind", ["relu", "einsum", "held", "sigmoid", "maximum", "average"])
def test_no_kernel_writes_more_than_8_bits_behind_a_relu_either(kind, tmp_path):
    keras.utils.set_random_seed(0)
    spec = qdq.QuantizationSpec()
    spec.add("last", quantize_config=qdq.LayerQuantizeConfig(activation={"num_bits": 16}))
    q_model = quantized(read_in_sixteen_bits(kind), quantization_spec=spec, target="onnxruntime")
    _, differing = compare(q_model, tmp_path / "model.onnx")
    # A maximum passes the integers of its input on, which a plan does not promise.
    assert [row for row in differing if row[2] == "int8"] == []
    explanation = qdq.explain(q_model)
    wide = "first" if kind == "relu" else "middle"
    assert (explanation.for_layer(wide).rule == "ORT-GRID") is (kind != "maximum")
