"""A mean between scales that ONNX Runtime's integer kernel refuses is computed in float, so that its file runs."""

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from keras import layers
from pass_graphs import opened, saved

import qdq_workbench as qdq
from qdq_workbench.export.passes.keep_means_in_float import PASS, keep_means_in_float
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.qdq_graph import keeps_in_float

TARGETS = ("onnxruntime", "tensorrt", "openvino")


def mean_between(before, behind, shape, moved=(), after=()):
    """A mean between a pair of one scale and a pair of another, perhaps with operators between pair and mean."""
    constants = {"first": np.float32(before), "second": np.float32(behind), "zero": np.uint8(0)}
    rows = [("QuantizeLinear", "x,first,zero", "q"), ("DequantizeLinear", "q,first,zero", "d"), *moved]
    rows += [("GlobalAveragePool", rows[-1][2], "mean"), *after]
    rows += [("QuantizeLinear", f"{rows[-1][2]},second,zero", "r"), ("DequantizeLinear", "r,second,zero", "y")]
    return opened(rows, {"x": shape}, "y", constants)


def runs(model, shape):
    """Whether ONNX Runtime runs a model with its default options."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    try:
        session.run(None, {"x": np.ones(shape, np.float32)})
    except onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException as error:
        return "out of computation range" not in str(error)
    return True


@pytest.mark.parametrize("shape", [(1, 2, 1, 1), (1, 2, 3, 5), (2, 3, 9), (1, 2, 2, 2, 2)])
@pytest.mark.parametrize("edge", [2.0**-32, 2.0**8])
@pytest.mark.parametrize("share", [0.5, 1 - 2e-7, 1.0, 1 + 2e-7, 2.0])
def test_a_clip_stands_where_onnx_runtime_fails_and_nowhere_else(shape, edge, share):
    before = np.float32(0.02) * np.prod(shape[2:]) * edge * share
    graph = mean_between(before, 0.02, shape)
    ran = runs(saved(graph), shape)
    for _ in range(2):
        keep_means_in_float(graph)
        assert sum(node.op == "Clip" for node in graph.nodes) == (not ran)
    assert not list(PASS.denied_by(graph))
    assert runs(saved(graph), shape)


TRANSPOSE, SQUEEZE = ("Transpose", "d", "turned", {"perm": [0, 3, 1, 2]}), ("Flatten", "mean", "flat")


@pytest.mark.parametrize(
    ("moved", "after", "clips"),
    [
        ([TRANSPOSE], [], 1),
        ([], [("Relu", "mean", "cut")], 1),
        ([], [("Transpose", "mean", "turned", {"perm": [0, 2, 3, 1]})], 1),
        ([("Tanh", "d", "bent")], [], 0),
        ([], [("Tanh", "mean", "bent")], 0),
    ],
)
def test_movements_may_stand_between_and_floats_may_not(moved, after, clips):
    graph = mean_between(1.0, 1e-6, (1, 4, 4, 4), moved, after)
    assert runs(saved(graph), (1, 4, 4, 4)) == (not clips)
    keep_means_in_float(graph)
    assert sum(node.op == "Clip" for node in graph.nodes) == clips
    assert runs(saved(graph), (1, 4, 4, 4))


@pytest.mark.parametrize(("ratio", "clips"), [(1.0, 0), (255.0, 0), (256.0, 1), (2.0**-11, 0), (2.0**-13, 1)])
def test_of_open_sizes_all_must_run(ratio, clips):
    graph = mean_between(np.float32(0.02) * ratio, 0.02, (1, 2, "height", "width"))
    keep_means_in_float(graph)
    assert sum(node.op == "Clip" for node in graph.nodes) == clips


def means_of_zero(pool):
    """Means of images that were normalized one by one, which are 0 but for rounding."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 4), name="image")
    x = layers.Conv2D(4, 3, name="conv")(image)
    x = layers.GroupNormalization(groups=-1, name="norm")(x)
    return keras.Model(image, layers.Dense(3, name="head")(layers.Flatten(name="flat")(pool(x))))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("keepdims", [False, True])
def test_a_file_of_means_of_nearly_zero_runs_and_verifies(target, keepdims, tmp_path):
    spec = qdq.QuantizationSpec()
    spec.add("pool", quantize_input=True, quantize_output=True)
    model = means_of_zero(layers.GlobalAveragePooling2D(keepdims=keepdims, name="pool"))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    data = np.random.default_rng(0).normal(size=(8, 8, 8, 4)).astype(np.float32)
    qdq.calibrate(q_model, data, verbose=False)
    exported = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    (note,), path = exported.notes, exported.path
    assert "in float, though they are between pairs: pool. " in note
    clips = [node for node in onnx.load(path).graph.node if keeps_in_float(node)]
    assert [clip.name.partition("/")[0] for clip in clips] == ["pool"]
    report = qdq.verify_onnx(path, q_model, data)
    assert report.passed, report.summary()
    assert not report.form_remark


def test_other_means_get_no_clip(tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 4), name="image")
    model = keras.Model(image, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D(name="pool")(image)))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, np.random.default_rng(0).normal(size=(8, 8, 8, 4)), verbose=False)
    exported = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    path = exported.path
    assert not exported.notes
    graph = Graph(onnx.shape_inference.infer_shapes(onnx.load(path)))
    assert any(node.op == "GlobalAveragePool" for node in graph.nodes)
    assert not any(keeps_in_float(node) for node in onnx.load(path).graph.node)
