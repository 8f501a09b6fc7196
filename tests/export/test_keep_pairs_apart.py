"""Two pairs in a row stay two in ONNX Runtime, which would merge them and leave the bias behind them as it was."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from runtimes_agreement import compare

import qdq_workbench as qdq

GENERATOR = np.random.default_rng(0)
ROWS = {
    "overlap": ((-1.0, 3.0), (-2.0, 2.0)),
    "wider": ((-1.0, 3.0), (-2.0, 4.0)),
    "narrower": ((-4.0, 4.0), (-1.0, 1.0)),
}


def fixed(ends):
    return {"quantizer": "fixed", "init_min": ends[0], "init_max": ends[1]}


def quantized(product, shape, row):
    """A product with a large bias behind two pairs in a row, only a Dropout between them."""
    keras.utils.set_random_seed(0)
    x = keras.Input(shape, name="x")
    y = layers.Dropout(0.5, name="drop")(layers.LeakyReLU(0.5, name="leaky")(x))
    model = keras.Model(x, product(y))
    spec = qdq.QuantizationSpec()
    spec.add("leaky", quantize_output=True, quantize_config=qdq.LayerQuantizeConfig(output=fixed(row[0])))
    spec.add("product", quantize_config=qdq.LayerQuantizeConfig(activation=fixed(row[1])))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    data = GENERATOR.normal(size=(8, *shape)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    return q_model, data


def clips_between(path):
    return [node.name for node in onnx.load(path).graph.node if node.op_type == "Clip"]


@pytest.mark.parametrize("row", ROWS)
def test_a_product_behind_two_pairs_adds_its_bias(row, tmp_path):
    product = layers.Dense(3, bias_initializer=keras.initializers.RandomNormal(stddev=30.0), name="product")
    q_model, data = quantized(product, (7,), ROWS[row])
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert clips_between(tmp_path / "model.onnx") == ["drop/QuantizeLinear/in_float"]
    report = qdq.verify_onnx(tmp_path / "model.onnx", q_model, data)
    assert report.passed, report.summary()
    assert report.figures["integer_kernels"]["Gemm"] == [1, 1]


@pytest.mark.parametrize("row", ROWS)
def test_a_convolution_behind_two_pairs_runs_on_integers(row, tmp_path):
    product = layers.Conv2D(3, 3, bias_initializer="normal", name="product")
    q_model, _ = quantized(lambda x: layers.Conv2D(2, 1, name="last")(product(x)), (6, 6, 3), ROWS[row])
    assert qdq.explain(q_model).for_layer("product").status == "int8"
    compared, differing = compare(q_model, tmp_path / "model.onnx")
    assert (compared, differing) == (3, [])


def test_no_clip_stands_where_the_runtime_merges_nothing(tmp_path):
    product = layers.Dense(3, bias_initializer="normal", name="product")
    q_model, _ = quantized(product, (7,), (ROWS["wider"][0], ROWS["wider"][0]))
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert clips_between(tmp_path / "model.onnx") == []  # the two pairs are equal
    q_model, _ = quantized(product, (7,), ROWS["wider"])
    qdq.export_onnx(q_model, tmp_path / "other.onnx", target="openvino")
    assert clips_between(tmp_path / "other.onnx") == []
