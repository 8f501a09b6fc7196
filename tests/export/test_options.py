"""What callers can choose: opsets, batch sizes, bit widths, names; and what they are told when they choose wrongly."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import onnx
import pytest
from keras import layers

from qdq_workbench.errors import ExportError
from qdq_workbench.export import CutModel, build_onnx
from qdq_workbench.export.build_onnx import MAX_OPSET
from qdq_workbench.export.keras_side.float_graph import MIN_OPSET
from qdq_workbench.placement.targets import get_target
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.verification.integer_kernels import count_integer_kernels
from tests.export.cutting import Cutter
from tests.export.running import build, exported, needs_opset, ops, random_data, run

FLOAT_BIAS = dataclasses.replace(get_target("onnxruntime"), bias="float")


@pytest.fixture(autouse=True)
def _seed():
    keras.utils.set_random_seed(0)


def small(cut: Cutter, spec: QuantizerSpec | None = None):
    x = keras.Input((8, 8, 3))
    h = cut.layer(layers.Conv2D(4, 3, activation="relu"), cut.pair(x, spec=spec))
    h = layers.GlobalAveragePooling2D()(layers.MaxPooling2D()(cut.pair(h, spec=spec)))
    return x, cut.layer(layers.Dense(5), cut.pair(h, spec=spec))


@pytest.mark.parametrize("opset", range(MIN_OPSET, MAX_OPSET + 1))
def test_every_opset_gives_the_same_values(opset):
    needs_opset(opset)
    cut = Cutter(FLOAT_BIAS)
    model, differences = exported(cut, *small(cut), opset=opset)
    assert [entry.version for entry in model.opset_import if not entry.domain] == [opset]
    assert max(differences) < 1e-5
    assert not any(a.name == "output_dtype" for node in model.graph.node for a in node.attribute)
    assert (ops(model)["QuantizeLinear"], ops(model)["Gemm"], ops(model)["GlobalAveragePool"]) == (3, 1, 1)


@pytest.mark.parametrize("opset", [12, 99, "17", True])
def test_other_opsets_are_refused_with_the_supported_ones(opset):
    cut = Cutter(FLOAT_BIAS)
    with pytest.raises(ExportError, match=f"Supported opsets are 13 to {MAX_OPSET}"):
        exported(cut, *small(cut), opset=opset)


def test_fixed_batch_size():
    cut = Cutter(FLOAT_BIAS)
    net = cut.finish(*small(cut))
    net.calibrate(random_data(net))
    fixed, dynamic = build(net, dynamic_batch=False), build(net)
    batches = [
        [value.type.tensor_type.shape.dim[0] for value in (*model.graph.input, *model.graph.output)]
        for model in (fixed, dynamic)
    ]
    assert [dim.dim_value for dim in batches[0]] == [1, 1]
    assert [dim.dim_param for dim in batches[1]] == ["batch", "batch"]
    one = {"x": random_data(net)["x"][:1]}
    np.testing.assert_allclose(run(fixed, one)[0], run(dynamic, one)[0], atol=1e-6)


@pytest.mark.parametrize("activation", ["gelu", "relu", None])
def test_products_of_sequences_run_on_integers_with_any_batch_size(activation):
    cut = Cutter(get_target("onnxruntime"))
    x = keras.Input((6, 8))
    h = cut.layer(layers.Dense(16, activation=activation, bias_initializer="normal"), cut.pair(x))
    net = cut.finish(x, layers.LayerNormalization()(h))
    net.calibrate(random_data(net))
    fixed, dynamic = build(net, dynamic_batch=False), build(net)
    assert count_integer_kernels(fixed).counts["MatMul"] == count_integer_kernels(dynamic).counts["MatMul"] == (1, 1)
    one = {"x": random_data(net)["x"][:1]}
    np.testing.assert_allclose(run(fixed, one)[0], run(dynamic, one)[0], atol=1e-6)


@pytest.mark.parametrize(
    "spec",
    [
        QuantizerSpec(num_bits=4, signed=False, symmetric=False),
        QuantizerSpec(num_bits=4),
        QuantizerSpec(num_bits=2),
        QuantizerSpec(narrow_range=True),
        QuantizerSpec(num_bits=7, signed=False, symmetric=False, narrow_range=True),
    ],
    ids=lambda spec: spec.label,
)
def test_grids_smaller_than_their_integer_type_are_clipped(spec):
    cut = Cutter(FLOAT_BIAS)
    net = cut.finish(*small(cut, spec))
    data = random_data(net)
    net.calibrate(data)
    wide = {"x": data["x"] * 4}
    expected = net.simulate(wide)["y"]
    model = build(net)
    assert ops(model)["Clip"] == 3
    np.testing.assert_allclose(run(model, wide)[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    "spec", [QuantizerSpec(num_bits=16), QuantizerSpec(num_bits=16, signed=False, symmetric=False)]
)
def test_sixteen_bits_raise_the_opset(spec):
    cut = Cutter(FLOAT_BIAS)
    model, differences = exported(cut, *small(cut, spec))
    assert model.opset_import[0].version == 21
    assert max(differences) < 1e-4


def test_sixteen_bits_at_an_old_opset_are_refused():
    cut = Cutter(FLOAT_BIAS)
    with pytest.raises(ExportError, match="opset 21"):
        exported(cut, *small(cut, QuantizerSpec(num_bits=16)), opset=17)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_few_bits_are_stored_in_int8(bits):
    target = dataclasses.replace(FLOAT_BIAS, weight=QuantizerSpec(num_bits=bits, narrow_range=True))
    cut = Cutter(target)
    model, differences = exported(cut, *small(cut))
    codes = [t for t in model.graph.initializer if t.name.endswith("kernel/quantized")]
    assert {t.data_type for t in codes} == {onnx.TensorProto.INT8}
    assert max(np.abs(onnx.numpy_helper.to_array(t)).max() for t in codes) == 2 ** (bits - 1) - 1
    assert max(differences) < 1e-5


def test_inputs_and_outputs_keep_names_and_order():
    cut = Cutter(FLOAT_BIAS)
    b, a = keras.Input((4,), name="b"), keras.Input((6, 6, 3), name="a")
    h = layers.GlobalAveragePooling2D()(cut.layer(layers.Conv2D(4, 3), cut.pair(a)))
    joined = cut.pair(layers.Concatenate()([h, b]))
    inputs = {"zeta/input": b, "alpha input": a}
    outputs = {
        "second out": cut.layer(layers.Dense(2), joined),
        "<first>": cut.layer(layers.Dense(3), joined),
        "raw": h,
    }
    model, differences = exported(cut, inputs, outputs)
    assert [value.name for value in model.graph.input] == list(inputs)
    assert [value.name for value in model.graph.output] == list(outputs)
    assert max(differences) < 1e-5


def test_an_output_may_be_a_pair_source_a_placeholder_or_an_input():
    cut = Cutter(FLOAT_BIAS)
    x = keras.Input((6, 6, 3))
    source = cut.layer(layers.Conv2D(4, 3, activation="relu"), cut.pair(x))
    behind = cut.pair(source)
    y = cut.layer(layers.Conv2D(4, 3), behind)
    outputs = {"source": source, "behind": behind, "y": y, "again": y, "input again": x}
    model, differences = exported(cut, {"x": x}, outputs)
    assert [value.name for value in model.graph.output] == list(outputs)
    assert max(differences) < 1e-5


def test_one_tensor_may_have_two_pairs():
    cut = Cutter(FLOAT_BIAS)
    x = keras.Input((6, 6, 3))
    a = cut.layer(layers.Conv2D(4, 3), cut.pair(x, "eight"))
    b = cut.layer(layers.Conv2D(4, 3), cut.pair(x, "four", QuantizerSpec(num_bits=4)))
    model, differences = exported(cut, {"x": x}, {"a": a, "b": b})
    assert ops(model)["QuantizeLinear"] == 2
    assert max(differences) < 1e-5


def test_equal_parameters_are_shared_by_name():
    cut = Cutter(FLOAT_BIAS)
    x = keras.Input((6, 6, 3))
    net = cut.finish(x, layers.Add()([cut.pair(x, "a"), cut.pair(layers.ReLU()(x), "b")]))
    net.calibrate_by_hand(-1.0, 1.0)
    model = build(net)
    assert len({node.input[1] for node in model.graph.node if node.op_type == "QuantizeLinear"}) == 1


def test_scales_of_activations_have_rank_zero():
    cut = Cutter(FLOAT_BIAS)
    model, _ = exported(cut, *small(cut))
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            assert [list(constants[name].dims) for name in node.input[1:]] == [[], []]


def test_the_same_model_gives_the_same_file():
    cut = Cutter("onnxruntime")
    net = cut.finish(*small(cut))
    net.calibrate(random_data(net))
    assert build(net).SerializeToString(deterministic=True) == build(net).SerializeToString(deterministic=True)


def test_nodes_are_named_after_keras_operations():
    cut = Cutter("onnxruntime")
    x = keras.Input((6, 6, 3))
    h = cut.layer(layers.Conv2D(4, 3, name="stem_1"), cut.pair(x))
    model, _ = exported(cut, x, cut.layer(layers.Conv2D(4, 3, name="stem"), cut.pair(h)))
    named = {node.op_type + " " + node.name.partition("/")[0] for node in model.graph.node}
    assert {"Conv stem_1", "Conv stem"} <= named


@pytest.mark.parametrize("missing", ["activation", "weight"])
def test_missing_and_unknown_encodings_are_named(missing):
    cut = Cutter(FLOAT_BIAS)
    net = cut.finish(*small(cut))
    net.calibrate(random_data(net))
    encodings = net.activations if missing == "activation" else net.weights
    name, encoding = encodings.popitem()
    with pytest.raises(ExportError, match=f"without encoding=.'{name}'"):
        build(net)
    encodings[name] = encoding
    encodings["ghost"] = encoding
    with pytest.raises(ExportError, match=r"unknown=.'ghost'"):
        build(net)


def test_ends_of_a_pair_must_fit_together():
    x, wrong = keras.Input((6, 6, 3)), keras.Input((6, 3))
    cut = CutModel({"x": x}, {"y": layers.ReLU()(x)}, {"p": (x, wrong)})
    with pytest.raises(ExportError, match="same rank and type"):
        build_onnx(cut, {}, {}, target=FLOAT_BIAS)


def test_one_name_cannot_be_input_and_output():
    x = keras.Input((6, 6, 3))
    with pytest.raises(ExportError, match="different names"):
        build_onnx(CutModel({"x": x}, {"x": layers.ReLU()(x)}), {}, {}, target=FLOAT_BIAS)


def test_codes_of_another_shape_are_refused():
    cut = Cutter(FLOAT_BIAS)
    net = cut.finish(*small(cut))
    net.calibrate(random_data(net))
    name = next(iter(net.weights))
    broken = dataclasses.replace(net.weights[name], codes=np.asarray(net.weights[name].codes)[:2])
    with pytest.raises(ExportError, match="weight's shape"):
        build_onnx(net.cut, net.activations, {**net.weights, name: broken}, target=FLOAT_BIAS)


def test_a_model_without_pairs_is_a_float_model():
    x = keras.Input((6, 6, 3))
    model = build_onnx(CutModel({"x": x}, {"y": layers.Conv2D(2, 3)(x)}), {}, {}, target=FLOAT_BIAS)
    assert ops(model)["QuantizeLinear"] == 0
