"""Layers declare their compute dtype; the graph has the dtype that they return."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.graph_builder import build_graph


def _called(layer, x):
    return layer(x)


INTEGERS_STAY = {
    "repeated": lambda x: layers.RepeatVector(3)(layers.Flatten()(x)),
    "padded": lambda x: _called(layers.ZeroPadding2D(1), x),
    "cropped": lambda x: _called(layers.Cropping2D(1), x),
    "enlarged": lambda x: _called(layers.UpSampling2D(2), x),
    "added": lambda x: layers.Add()([x, x]),
    "joined": lambda x: layers.Concatenate()([x, x]),
    "dropped": lambda x: _called(layers.Dropout(0.5), x),
    "twice": lambda x: layers.Cropping2D(1)(layers.ZeroPadding2D(1)(x)),
}
BECOME_FLOATS = {
    "rescaled": lambda x: _called(layers.Rescaling(0.5), x),
    "looked_up": lambda x: _called(layers.Embedding(10, 2), x),
    "with_floats": lambda x: layers.Add()([x, keras.ops.cast(x, "float32")]),
}


def _model(build, dtype="int32"):
    x = keras.Input((4, 4, 2), dtype=dtype)
    return keras.Model(x, build(x))


@pytest.mark.parametrize("name", INTEGERS_STAY)
def test_integers_stay_integers(name):
    model = _model(INTEGERS_STAY[name])
    graph = build_graph(model)
    assert {tensor.dtype for tensor in graph.tensors.values()} == {"int32"}
    assert keras.backend.standardize_dtype(model(np.ones((1, 4, 4, 2), "int32")).dtype) == "int32"


@pytest.mark.parametrize("name", BECOME_FLOATS)
def test_what_computes_floats_returns_floats(name):
    graph = build_graph(_model(BECOME_FLOATS[name]))
    assert graph.tensors[graph.outputs[0]].dtype == "float32"


@pytest.mark.parametrize("name", INTEGERS_STAY)
def test_floats_keep_the_declared_dtype(name):
    graph = build_graph(_model(INTEGERS_STAY[name], dtype="float32"))
    assert {tensor.dtype for tensor in graph.tensors.values()} == {"float32"}


class Counted(layers.Layer):
    """Cannot be run without values."""

    def compute_output_shape(self, input_shape):
        return input_shape

    def call(self, inputs):
        return inputs * int(inputs[0, 0, 0, 0])


def test_the_declaration_stands_where_the_code_cannot_be_followed():
    assert build_graph(_model(Counted())).tensors[Counted.__name__.lower()].dtype == "float32"


def test_a_layer_of_integers_gets_no_pair():
    model = _model(lambda x: layers.Dense(2)(layers.RepeatVector(3, name="repeat")(layers.Flatten()(x))))
    spec = qdq.QuantizationSpec()
    spec.add("repeat", quantize_output=True)
    with pytest.raises(qdq.SpecError, match=r"'repeat'.*holds int32 values"):
        qdq.plan_placement(model, quantization_spec=spec)
    plan = qdq.plan_placement(model)
    assert [placement.weight for placement in plan.placements] == ["kernel"]


@pytest.mark.parametrize("given", ["uint8", "repeated"])
@pytest.mark.parametrize("target", ["onnxruntime", "litert"])
def test_a_nested_model_casts_the_integers_that_it_is_given(given, target, tmp_path):
    backbone = keras.Sequential([keras.Input((4, 3)), layers.Conv1D(2, 2, name="conv")], name="backbone")
    x = keras.Input((4, 3) if given == "uint8" else (3,), dtype="uint8" if given == "uint8" else "int32", name="x")
    read = x if given == "uint8" else layers.RepeatVector(4, name="repeated")(x)
    model = keras.Model(x, backbone(read))
    graph = build_graph(model)
    assert graph == build_graph(model)
    assert [node.class_name for node in graph.nodes][-2:] == ["Cast", "Conv1D"]
    q_model = qdq.quantize_model(model, target=target)
    assert "backbone/cast" in {tensor.name for tensor in q_model.plan.tensors}
    data = np.random.default_rng(0).integers(0, 200, (8, *x.shape[1:])).astype(x.dtype)
    qdq.calibrate(q_model, data, verbose=False)
    np.testing.assert_array_equal(qdq.strip(q_model)(data), model(data))
    if target == "litert":
        report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
        assert qdq.verify_tflite(report.path, q_model, data).passed
    else:
        report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
        assert qdq.verify_onnx(report.path, q_model, data).passed


def test_a_nested_model_casts_no_floats():
    inner = keras.Sequential([keras.Input((3,)), layers.Dense(2)], name="inner")
    x = keras.Input((3,), dtype="float16")
    assert "Cast" not in {node.class_name for node in build_graph(keras.Model(x, inner(x))).nodes}
