"""Models too large for one file: two files, written whole or not at all, and everything that reads them."""

import shutil
from unittest import mock

import keras
import numpy as np
import onnx
import onnxruntime
import pytest

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError, OutputPathError
from qdq_workbench.export import finish, metadata, onnx_export
from qdq_workbench.export.keras_side import large_variables
from qdq_workbench.export.keras_side.cut_model import CutModel
from qdq_workbench.export.metadata import graph_digest
from qdq_workbench.onnx_graph import model_files, sessions
from qdq_workbench.onnx_graph.model_files import data_files, file_digest

IMAGES = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype(np.float32)


def net() -> keras.Model:
    """A network with a convolution, a normalization and a dense layer of some kilobytes."""
    image = keras.Input((8, 8, 3), name="image")
    x = keras.layers.BatchNormalization(name="bn")(keras.layers.Conv2D(8, 3, name="conv")(image))
    x = keras.layers.Flatten(name="flat")(keras.layers.ReLU(name="relu")(x))
    return keras.Model(image, keras.layers.Dense(16, name="head")(x))


@pytest.fixture
def small_limits(monkeypatch):
    """Let kilobytes count as gigabytes."""
    for module in (finish, metadata, model_files, sessions):
        monkeypatch.setattr(module, "SINGLE_FILE_LIMIT", 1000)
    monkeypatch.setattr(large_variables, "GRAPH_LIMIT", 1000)
    for module in (large_variables, model_files):
        monkeypatch.setattr(module, "_LARGE", 500)


def calibrated(target: str = "onnxruntime"):
    q_model = qdq.quantize_model(net(), target=target)
    qdq.calibrate(q_model, IMAGES, verbose=False)
    return q_model


def run(path):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: IMAGES})[0]


def test_a_constant_that_no_file_holds_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(finish, "TENSOR_LIMIT", 8 * 3 * 9 * 4 - 1)
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_weight=False)
    spec.add("head", quantize_weight=False)
    q_model = qdq.quantize_model(net(), quantization_spec=spec)
    qdq.calibrate(q_model, IMAGES, verbose=False)
    with pytest.raises(ExportError, match=r"'head.* 18,432 bytes.*divide its layer in two.*shape \(288, 16\), float32"):
        qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_two_files_compute_what_one_does(tmp_path, small_limits):
    q_model = calibrated()
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    (data,) = data_files(report.path)
    assert data.parent == tmp_path
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["model.onnx", data.name])
    assert report.bytes == report.path.stat().st_size + data.stat().st_size
    again = onnx.load(str(report.path))
    onnx.save(again, str(tmp_path / "one.onnx"))
    np.testing.assert_array_equal(run(report.path), run(tmp_path / "one.onnx"))
    assert qdq.verify_onnx(report.path, q_model, IMAGES).passed
    assert qdq.lint_onnx(report.path).findings == qdq.lint_onnx(tmp_path / "one.onnx").findings
    assert not qdq.compare(report.path, tmp_path / "one.onnx", data={"image": IMAGES}).placement_differences


def test_what_protobuf_cannot_hold_is_verified_from_files(tmp_path, request, monkeypatch):
    q_model = calibrated()
    small = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "small.onnx").path, q_model, IMAGES)
    request.getfixturevalue("small_limits")
    path = qdq.export_onnx(q_model, tmp_path / "large.onnx").path
    opened, open_it = [], sessions._open
    monkeypatch.setattr(sessions, "_open", lambda model, *rest: opened.append(model) or open_it(model, *rest))
    checker = mock.Mock(wraps=onnx.checker.check_model)
    monkeypatch.setattr(onnx.checker, "check_model", checker)
    large = qdq.verify_onnx(path, q_model, IMAGES)
    assert large.passed
    assert large.figures == small.figures
    assert len(opened) > 3
    assert all(isinstance(model, str) for model in [*opened, *(call.args[0] for call in checker.call_args_list)])
    assert qdq.verify_onnx(path).passed


def test_float_constants_stay_out_of_tensorflows_graph(tmp_path, small_limits, monkeypatch):
    ids = keras.Input((4,), dtype="int32", name="ids")
    table = keras.layers.Embedding(100, 8, name="table")(ids)  # stays in float
    states = keras.layers.LSTM(8, name="lstm")(table)
    model = keras.Model(ids, keras.layers.Dense(6, name="head")(states))
    spec = qdq.QuantizationSpec()
    spec.add("head")
    q_model = qdq.quantize_model(model, "partial", spec, target="onnxruntime")
    data = np.random.default_rng(0).integers(0, 100, (8, 4)).astype(np.int32)
    qdq.calibrate(q_model, data, verbose=False)
    split = []
    monkeypatch.setattr(onnx_export, "CutModel", lambda *parts: split.append(parts) or CutModel(*parts))
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    assert list(split[0][5]) == ["table/embeddings"]  # the quantized kernel and the LSTM's are kept out anyway
    report = qdq.verify_onnx(path, q_model, data)
    assert report.passed, report


def test_the_certificate_covers_the_second_file(tmp_path, small_limits):
    q_model = calibrated()
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    certificate = qdq.certify(path, q_model, IMAGES)
    assert certificate.passed
    assert certificate.sha256 == file_digest(path)
    (data,) = data_files(path)
    content = bytearray(data.read_bytes())
    content[10] ^= 1
    data.write_bytes(bytes(content))
    assert file_digest(path) != certificate.sha256
    assert qdq.certify(path).graph_sha256 != certificate.graph_sha256


def test_a_later_export_replaces_both_files(tmp_path, small_limits):
    first = qdq.export_onnx(calibrated(), tmp_path / "model.onnx").path
    (before,) = data_files(first)
    second = qdq.export_onnx(calibrated(), tmp_path / "model.onnx").path
    (after,) = data_files(second)
    assert before != after
    assert not before.exists()
    assert run(second).shape == (4, 16)


def test_a_failure_leaves_the_earlier_export_whole(tmp_path, small_limits, monkeypatch):
    path = qdq.export_onnx(calibrated(), tmp_path / "model.onnx").path
    before = run(path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_files, "_write_checked", full)
    with pytest.raises(OutputPathError, match="No space left"):
        qdq.export_onnx(calibrated(), path)
    np.testing.assert_array_equal(run(path), before)


def test_large_float_weights_stay_out_of_the_translation(tmp_path, small_limits, monkeypatch):
    model = net()
    two = qdq.export_float_onnx(model, tmp_path / "two.onnx")
    assert data_files(two)
    np.testing.assert_allclose(run(two), model(IMAGES), rtol=1e-4, atol=1e-5)
    assert [node.op_type for node in onnx.load(str(two)).graph.node].count("Conv") == 1
    names = {tensor.name for tensor in onnx.load(str(two)).graph.initializer}
    assert "head/kernel" in names
    monkeypatch.undo()
    one = qdq.export_float_onnx(model, tmp_path / "one.onnx")
    assert not data_files(one)
    np.testing.assert_allclose(run(one), run(two), rtol=1e-5, atol=1e-6)


def test_no_data_files_beside_what_is_no_model(tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    assert data_files(tmp_path / "text.onnx") == []
    assert data_files(tmp_path / "missing.onnx") == []


def test_a_smaller_model_in_its_place_takes_the_second_file_away(tmp_path, small_limits, monkeypatch):
    path = qdq.export_onnx(calibrated(), tmp_path / "model.onnx").path
    (data,) = data_files(path)
    monkeypatch.setattr(model_files, "SINGLE_FILE_LIMIT", 10**9)
    model_files.write_model(onnx.load(str(path)), path)
    assert not data.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("name", ["copy.onnx", "copy.ONNX"])
def test_data_that_a_copy_refers_to_stay(tmp_path, small_limits, name):
    path = qdq.export_onnx(calibrated(), tmp_path / "model.onnx").path
    before, (data,) = run(path), data_files(path)
    copy = shutil.copy(path, tmp_path / name)
    qdq.export_float_onnx(net(), path)
    assert data_files(path) != [data]
    np.testing.assert_array_equal(run(copy), before)


def test_files_of_other_folders_are_never_removed(tmp_path, small_limits):
    path = qdq.export_onnx(calibrated(), tmp_path / "model.onnx").path
    (tmp_path / "other").mkdir()
    theirs = tmp_path / "other" / "model.onnx.1.data"
    theirs.write_bytes(b"theirs")
    proto = onnx.load(str(path), load_external_data=False)
    for entry in (entry for tensor in proto.graph.initializer for entry in tensor.external_data):
        entry.value = f"other/{theirs.name}" if entry.key == "location" else entry.value
    path.write_bytes(proto.SerializeToString())
    qdq.export_onnx(calibrated(), path)
    assert theirs.read_bytes() == b"theirs"


def test_hashing_a_model_leaves_it_as_it_is():
    held = onnx.numpy_helper.from_array(np.ones(3, np.float32), "held")
    held.data_location = onnx.TensorProto.DEFAULT  # as loading external data leaves it
    proto = onnx.helper.make_model(onnx.helper.make_graph([], "graph", [], [], [held]))
    before = proto.SerializeToString()
    digest = graph_digest(proto)
    assert proto.SerializeToString() == before
    proto.graph.initializer[0].ClearField("data_location")
    assert graph_digest(proto) == digest
