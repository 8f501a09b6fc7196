"""Layers that TensorFlow computes in many steps are one operator in the file, or the steps that runtimes fuse."""

import dataclasses
import importlib

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.verification.integer_kernels import optimized_graph

SHAPE = (4, 6, 8)
WHOLE = ("restore_layer_normalizations", "restore_rms_normalizations", "restore_gelus")


def exported(layer, path, *, opset=None, target="onnxruntime"):
    """Quantize and export a layer between two others; return its operators in the file, which was verified."""
    keras.utils.set_random_seed(1)
    image = keras.Input(SHAPE, name="image")
    hidden = layer(layers.Dense(8, name="first")(image))
    model = keras.Model(image, layers.Dense(3, name="last")(hidden))
    for weight in layer.trainable_weights:
        weight.assign(np.random.default_rng(0).uniform(0.2, 1.5, weight.shape))
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, samples(model), verbose=False)
    qdq.export_onnx(q_model, path, opset=opset)
    qdq.verify_onnx(path, q_model, data=samples(model)).raise_if_failed()
    return [n.op_type for n in onnx.load(path).graph.node if n.name.startswith("x/") and "Linear" not in n.op_type]


NORMALIZATIONS = {
    "last": {},
    "no factor": {"scale": False},
    "nothing added": {"center": False},
    "plain": {"center": False, "scale": False, "epsilon": 0.1},
    "two axes": {"axis": (2, 3)},
    "all": {"axis": (1, 2, 3)},
}


@pytest.mark.parametrize("which", NORMALIZATIONS)
def test_a_layer_normalization_is_one_operator(which, tmp_path):
    layer = layers.LayerNormalization(name="x", **NORMALIZATIONS[which])
    assert exported(layer, tmp_path / "model.onnx") == ["LayerNormalization"]


@pytest.mark.parametrize(
    ("settings", "opset"),
    [({"axis": 1}, None), ({"axis": (1, 3)}, None), ({}, 16)],
    ids=["axis 1", "apart", "opset 16"],
)
def test_what_the_operator_does_not_compute_stays_in_steps(settings, opset, tmp_path):
    found = exported(layers.LayerNormalization(name="x", **settings), tmp_path / "model.onnx", opset=opset)
    assert "LayerNormalization" not in found
    assert found.count("ReduceMean") == 2


def test_openvino_gets_images_in_steps_and_sequences_whole(tmp_path):
    path = tmp_path / "model.onnx"
    assert "LayerNormalization" not in exported(layers.LayerNormalization(name="x"), path, target="openvino")
    rows = layers.TimeDistributed(layers.LayerNormalization(name="inner"), name="x")
    assert "LayerNormalization" in exported(rows, path, target="openvino")


def test_a_gelu_is_fused(tmp_path):
    layer = layers.Activation("gelu", name="x")
    assert exported(layer, tmp_path / "model.onnx") == ["Div", "Erf", "Add", "Mul", "Mul"]
    kernels = optimized_graph(str(tmp_path / "model.onnx"), tmp_path / "optimized.onnx").graph.node
    assert [node.op_type for node in kernels].count("Gelu") == 1
    assert exported(layer, tmp_path / "model.onnx", opset=20) == ["Gelu"]


def test_a_root_mean_square_normalization_is_fused(tmp_path):
    found = exported(layers.RMSNormalization(name="x"), tmp_path / "model.onnx")
    assert found == ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]
    kernels = optimized_graph(str(tmp_path / "model.onnx"), tmp_path / "optimized.onnx").graph.node
    assert [node.op_type for node in kernels].count("SimplifiedLayerNormalization") == 1


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("middle", ["gelu", "normalization"])
def test_between_convolutions_all_steps_stand_in_their_layout(middle, opset, tmp_path):
    keras.utils.set_random_seed(1)
    image = keras.Input((6, 6, 4), name="image")
    x = layers.Conv2D(4, 3, name="first")(image)
    x = layers.Activation("gelu")(x) if middle == "gelu" else layers.RMSNormalization()(x)
    model = keras.Model(image, layers.Conv2D(2, 3, name="last")(x))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx", opset=opset).path
    qdq.verify_onnx(path, q_model, data=samples(model)).raise_if_failed()
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert kinds.count("Transpose") == 2  # of the image, and of the result


def test_a_projection_of_whole_samples_to_rows_is_a_gemm(tmp_path):
    keras.utils.set_random_seed(1)
    image = keras.Input((5, 6), name="image")
    x = layers.EinsumDense("abc,bcd->ad", 4, bias_axes="d", bias_initializer="random_normal", name="rows")(image)
    model = keras.Model(image, layers.Dense(3, name="last")(x))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    qdq.verify_onnx(path, q_model, data=samples(model)).raise_if_failed()
    assert "Gemm" in [node.op_type for node in onnx.load(path).graph.node]


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """A model with all three, quantized, and its file."""
    keras.utils.set_random_seed(1)
    tokens = keras.Input((4, 8), name="tokens")
    x = layers.LayerNormalization(name="norm")(layers.Dense(8, activation="gelu", name="first")(tokens))
    rms = layers.RMSNormalization(name="rms")
    model = keras.Model(tokens, layers.Dense(3, name="last")(rms(layers.Dense(8, name="middle")(x))))
    rms.scale.assign(np.linspace(0.5, 1.5, 8))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return model, q_model, qdq.export_onnx(q_model, tmp_path_factory.mktemp("whole") / "ours.onnx").path


@pytest.mark.parametrize("in_steps", [False, True])
@pytest.mark.parametrize("opset", [16, 17, 20])
def test_files_of_either_form_are_recognised(opset, in_steps, ours, tmp_path, monkeypatch):
    """The importer knows a layer by what it computes, whichever form the exporter wrote."""
    model, q_model, whole = ours
    with monkeypatch.context() as patched:
        if in_steps:
            building = importlib.import_module("qdq_workbench.export.build_onnx")  # its own name is the function
            left = tuple(p for p in building.FLOAT.passes if p.name not in WHOLE)
            assert len(left) == len(building.FLOAT.passes) - len(WHOLE)
            patched.setattr(building, "FLOAT", dataclasses.replace(building.FLOAT, passes=left))
        path = qdq.export_onnx(q_model, tmp_path / "model.onnx", opset=opset).path
    imported = qdq.import_qdq(path, model)
    assert imported.unmatched == ()
    again = qdq.plan_placement(model, "partial", imported.spec, target="onnxruntime")
    assert {tensor.name for tensor in again.tensors} == {tensor.name for tensor in q_model.plan.tensors}
    found = qdq.compare(path, whole)
    assert (found.placement_differences, found.first_divergence) == ((), None)
