import base64
import os
import zlib

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from exact_runs import run_file_exactly
from keras import layers
from small_models import flat, residual_net, samples, two_headed_net

import qdq_workbench as qdq
from qdq_workbench.errors import (
    ExportError,
    NotQuantizedError,
    OutputPathError,
    TargetError,
    UncalibratedError,
    UnverifiableFileError,
)
from qdq_workbench.export.metadata import read_metadata


@pytest.fixture(scope="module")
def q_model():
    model = residual_net()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model, 64), verbose=False)
    return q_model


def ops(proto):
    return [node.op_type for node in proto.graph.node]


def test_the_file_holds_what_the_plan_says(q_model, tmp_path):
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    planned = [tensor.kind for tensor in q_model.plan.tensors]
    assert ops(proto).count("QuantizeLinear") == report.activations == planned.count("activation")
    assert report.weights == planned.count("weight") == 3
    assert report.pairs == len(q_model.plan.tensors)
    assert report.folded == 2
    assert "BatchNormalization" not in ops(proto)
    assert report.bytes == (tmp_path / "model.onnx").stat().st_size
    assert [i.name for i in proto.graph.input] == ["image"]
    assert [o.name for o in proto.graph.output] == ["head"]
    assert str(report.path) in report.summary()
    assert report.to_dict()["pairs"] == report.pairs


def test_weights_are_int8_and_biases_as_the_target_wants(q_model, tmp_path):
    for target, bias_type in (("onnxruntime", np.int32), ("tensorrt", np.float32)):
        qdq.export_onnx(q_model, tmp_path / "model.onnx", target=target)
        arrays = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "model.onnx").graph.initializer}
        assert arrays["conv/kernel/quantized"].dtype == np.int8
        zero_points = {name: a.dtype for name, a in arrays.items() if name.endswith("relu/zero_point")}
        assert set(zero_points.values()) == {np.dtype(np.uint8 if target == "onnxruntime" else np.int8)}
        assert not any(a.dtype == np.float32 and a.ndim == 4 for a in arrays.values())
        assert [a.dtype for n, a in arrays.items() if a.shape == (4,) and a.dtype == bias_type and "scale" not in n]


def test_the_file_computes_what_the_model_computes(q_model, tmp_path):
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    x = samples(q_model, 32)
    theirs = run_file_exactly(tmp_path / "model.onnx", {"image": x})[0]
    ours = flat(q_model(x))[0]
    assert np.abs(theirs - ours).max() < 0.02 * np.abs(ours).max()


def test_dictionaries_keep_their_names(tmp_path):
    model = two_headed_net()
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, samples(model), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    assert sorted(i.name for i in proto.graph.input) == ["left", "right"]
    assert sorted(o.name for o in proto.graph.output) == ["first", "second"]


def test_a_saved_and_loaded_model_gives_the_same_file(q_model, tmp_path):
    import keras

    qdq.export_onnx(q_model, tmp_path / "one.onnx")
    q_model.save(tmp_path / "q.keras")
    qdq.export_onnx(keras.models.load_model(tmp_path / "q.keras"), tmp_path / "two.onnx")
    one, two = (onnx.load(tmp_path / name).graph for name in ("one.onnx", "two.onnx"))
    assert {t.name: t.raw_data for t in one.initializer} == {t.name: t.raw_data for t in two.initializer}


def test_exporting_changes_nothing_in_the_model(q_model, tmp_path):
    before = [np.copy(w) for w in q_model.get_weights()]
    nodes = {layer.name: len(layer._inbound_nodes) for layer in q_model.layers}
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert all(np.array_equal(x, y) for x, y in zip(q_model.get_weights(), before, strict=True))
    assert {layer.name: len(layer._inbound_nodes) for layer in q_model.layers} == nodes


def test_plan_and_versions_are_in_the_metadata(q_model, tmp_path):
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    noted = read_metadata(onnx.load(tmp_path / "model.onnx"))
    assert qdq.PlacementPlan.from_dict(noted["plan"]) == q_model.plan
    assert {"keras", "tf2onnx", "onnx"} <= set(noted["versions"])
    assert noted["encodings"]["stem_relu"]["zero_point"] == 0


@pytest.mark.parametrize(
    "packed",
    [
        zlib.compress(bytes(1 << 28) + b"x", 9),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b'{"plan": {}}'),
        zlib.compress(b'{"plan": {"target": "tensorrt"}, "graph_sha256": "", "encodings": {"x": {"scale": []}}}'),
        zlib.compress(b'{"plan": {"target": "tensorrt"}, "graph_sha256": "", "encodings": []}'),
        zlib.compress(b'{"plan": {"target": "tensorrt"}, "graph_sha256": "", "encodings": {}, "versions": []}'),
        zlib.compress(b"{}")[:-2],
        b"no zip",
    ],
    ids=["bomb", "deep", "no target", "no grid", "no encodings", "no versions", "cut off", "other"],
)
def test_hostile_metadata_are_a_named_error(packed):
    proto = onnx.ModelProto()
    proto.metadata_props.add(key="qdq_workbench", value=base64.b85encode(packed).decode())
    with pytest.raises(UnverifiableFileError, match="metadata are damaged"):
        read_metadata(proto)


def test_uncalibrated_models_are_refused_with_the_tensors(tmp_path):
    q_model = qdq.quantize_model(residual_net())
    with pytest.raises(UncalibratedError, match=r"calibrate.*image"):
        qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_bad_arguments_leave_nothing_behind(q_model, tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(NotQuantizedError, match="quantize_model"):
        qdq.export_onnx(residual_net(), path)
    with pytest.raises(TargetError, match="Did you mean 'tensorrt'"):
        qdq.export_onnx(q_model, path, target="tensor_rt")
    with pytest.raises(ExportError, match="opset"):
        qdq.export_onnx(q_model, path, opset=7)
    with pytest.raises(OutputPathError, match="folder that does not exist"):
        qdq.export_onnx(q_model, tmp_path / "missing" / "model.onnx")
    with pytest.raises(OutputPathError, match="is a folder"):
        qdq.export_onnx(q_model, tmp_path)
    for export, model in ((qdq.export_onnx, q_model), (qdq.export_float_onnx, residual_net())):
        with pytest.raises(OutputPathError, match=r"must end in \.onnx"):
            export(model, tmp_path / "model.tflite")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_earlier_file(q_model, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"earlier")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OutputPathError, match="No space left"):
        qdq.export_onnx(q_model, path)
    assert path.read_bytes() == b"earlier"
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_folding_keeps_the_integers(q_model, tmp_path):
    """A negative gain only flips signs: the multiset of |codes| per channel stays."""
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    codes = next(
        onnx.numpy_helper.to_array(t)
        for t in onnx.load(tmp_path / "model.onnx").graph.initializer
        if t.name == "conv/kernel/quantized"
    )
    ours = qdq.integer_weights(q_model)["conv/kernel"].codes.transpose(3, 2, 0, 1)
    gain = np.sign(q_model.get_layer("norm").gamma.numpy())
    assert (gain < 0).any()
    np.testing.assert_array_equal(codes, ours * gain[:, None, None, None].astype(np.int8))


def test_dead_channels_and_large_biases(tmp_path):
    import keras

    image = keras.Input((8, 8, 2), name="image")
    hidden = layers.Conv2D(3, 3, name="conv", activation="relu")(image)
    model = keras.Model(image, layers.Conv2D(2, 3, name="next")(hidden))
    kernel = model.get_layer("conv").kernel.numpy()
    kernel[..., 0] = 0.0
    kernel[..., 1] *= 1e-12
    model.get_layer("conv").kernel.assign(kernel)
    model.get_layer("conv").bias.assign([5.0, 3.0, -1.0])
    for target in ("onnxruntime", "tensorrt"):
        q_model = qdq.quantize_model(model, target=target)
        qdq.calibrate(q_model, samples(model, 32), verbose=False)
        qdq.export_onnx(q_model, tmp_path / "model.onnx")
        qdq.verify_onnx(tmp_path / "model.onnx", q_model, samples(model, 32)).raise_if_failed()


def test_a_trained_model_exported_for_another_target_says_how_much_it_differs(tmp_path):
    model = residual_net()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    q_model.compile("sgd", "mse")
    untrained = qdq.export_onnx(q_model, tmp_path / "model.onnx", target="tensorrt")
    assert len(untrained.notes) == 1
    q_model.fit(samples(model), np.zeros((16, 3)), verbose=0)
    trained = qdq.export_onnx(q_model, tmp_path / "model.onnx", target="tensorrt")
    percent = float(trained.notes[1].split("differ by ")[1].split(" %")[0])
    assert 0.0 < percent < 20.0
    assert not qdq.export_onnx(q_model, tmp_path / "model.onnx").notes


def test_the_float_baseline(tmp_path):
    model = residual_net()
    path = qdq.export_float_onnx(model, tmp_path / "float.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = samples(model)
    np.testing.assert_allclose(session.run(None, {"image": x})[0], flat(model(x))[0], atol=1e-5)
    assert "QuantizeLinear" not in ops(onnx.load(path))


def test_a_shape_that_keras_says_wrongly_is_refused_by_name(tmp_path):
    x = keras.Input((4, 5, 5), name="x")
    _, scores = layers.MultiHeadAttention(3, 4, name="attention")(x, x, return_attention_scores=True)
    spec = qdq.QuantizationSpec()
    spec.add("attention", quantize_output=True)
    q_model = qdq.quantize_model(keras.Model(x, scores), quantization_spec=spec)
    qdq.calibrate(q_model, np.zeros((2, 4, 5, 5), np.float32), verbose=False)
    with pytest.raises(
        ExportError, match=r"'attention:1' has another shape than Keras says.*\(1, 3, 4, 5, 4, 5\), by Keras"
    ):
        qdq.export_onnx(q_model, tmp_path / "model.onnx", dynamic_batch=False)
    assert list(tmp_path.iterdir()) == []
