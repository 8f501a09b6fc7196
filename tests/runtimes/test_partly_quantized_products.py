"""A matrix product that a pair reads beside something else: ONNX Runtime computes it in float."""

import keras
import numpy as np
import onnx
import pytest
from agreement.statuses import compare
from keras import layers, ops

import qdq_workbench as qdq

PRODUCTS = {
    "gemm": ((4,), lambda: layers.EinsumDense("ab,bc->ac", output_shape=4, bias_axes="c", name="product")),
    "matmul": ((3, 4), lambda: layers.EinsumDense("abc,cd->abd", output_shape=(3, 4), name="product")),
    "inside": ((3, 4), lambda: layers.TimeDistributed(layers.Dense(4, use_bias=False), name="product")),
    "with a bias inside": ((3, 4), lambda: layers.TimeDistributed(layers.Dense(4), name="product")),
    "normalized": ((4,), lambda: layers.SpectralNormalization(layers.Dense(4), name="product")),
}
#: By readers: whether the product runs on integers.
READERS = {
    "a pair": (lambda y: [_dense(y)], True),
    "floats": (lambda y: [ops.sin(y), ops.cos(y)], True),
    "a pair and floats": (lambda y: [_dense(y), ops.sin(y)], False),
    "a pair and an output": (lambda y: [_dense(y), y], False),
    "a pair and a ReLU": (lambda y: [_dense(y), layers.ReLU()(y)], False),
    "a pair behind a Dropout and floats": (lambda y: [_dense(layers.Dropout(0.1)(y)), ops.sin(y)], False),
    "two grids": (lambda y: [_dense(y), _dense(y, "symmetric")], False),
    "a grid of few bits and floats": (lambda y: [_dense(y, "few"), ops.sin(y)], True),
}
GRIDS = {"symmetric": {"symmetric": True}, "few": {"num_bits": 4}}


def _dense(tensor, name=None):
    return layers.Dense(2, name=name)(tensor)


def _quantized(product, readers):
    shape, make = PRODUCTS[product]
    keras.utils.set_random_seed(0)
    x = keras.Input(shape)
    model = keras.Model(x, READERS[readers][0](make()(x)))
    generator = np.random.default_rng(0)
    for variable in model.variables:
        variable.assign(generator.normal(size=variable.shape))
    spec = qdq.QuantizationSpec()
    for name in GRIDS.keys() & {layer.name for layer in model.layers}:
        spec.add(name, quantize_config=qdq.LayerQuantizeConfig(activation=GRIDS[name]))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, generator.normal(size=(8, *shape)).astype("float32"), verbose=False, freeze=True)
    return q_model


@pytest.mark.parametrize("readers", READERS)
@pytest.mark.parametrize("product", [name for name in PRODUCTS if name != "with a bias inside"])
def test_the_file_runs_as_explained(product, readers, tmp_path):
    q_model = _quantized(product, readers)
    explanation, is_int8 = qdq.explain(q_model), READERS[readers][1]
    entry = explanation.for_layer("product")
    assert (entry.status, entry.rule) == (("int8", "ORT-INTEGER") if is_int8 else ("float", "ORT-OUTPUT"))
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    compared, differing = compare(explanation, onnx.load(tmp_path / "model.onnx"), tmp_path)
    assert compared
    assert not differing


@pytest.mark.parametrize("product", ["gemm", "with a bias inside"])
@pytest.mark.parametrize(("readers", "helps"), [("a pair and floats", True), ("two grids", False)])
def test_a_fix_is_named_where_one_helps(product, readers, helps):
    plan = _quantized(product, readers).plan
    explanation = qdq.explain(plan)
    entry = explanation.for_layer("product")
    assert bool(entry.fix) == helps
    assert ("let all readers of 'product' have one grid" in entry.advice) != helps
    fixed = qdq.plan_placement(plan.graph, quantization_spec=explanation.apply_fixes(), target="onnxruntime")
    assert qdq.explain(fixed).for_layer("product").status == ("int8" if helps else "float")
    assert not [each for each in qdq.explain(fixed).layers if each.fix]


def test_a_flatten_that_changes_no_shape_is_no_reader(tmp_path):
    x = keras.Input((4,))
    y = layers.Dense(4, name="product")(x)
    model = keras.Model(x, [_dense(layers.Flatten()(y)), ops.sin(y)])
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, np.random.default_rng(0).normal(size=(8, 4)).astype("float32"), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    explanation = qdq.explain(q_model)
    assert explanation.for_layer("product").rule == "ORT-OUTPUT"
    _, differing = compare(explanation, onnx.load(tmp_path / "model.onnx"), tmp_path)
    assert not [entry for entry in differing if entry[0] == "product"]
