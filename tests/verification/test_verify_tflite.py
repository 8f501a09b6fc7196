"""`verify_tflite` on files as they were exported, and with planted faults; what other readers say of LiteRT."""

import importlib

import keras
import numpy as np
import pytest
from litert_models import mixed_net, quantized, weights_alone
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.errors import DataScaleWarning, FileAccessError, OutputPathError, UnverifiableFileError
from qdq_workbench.export.litert.tflite_file import INT8, TFLiteFile
from qdq_workbench.files import read_layers, verify_tflite


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    q_model = quantized(residual_net)
    path = tmp_path_factory.mktemp("verified") / "model.tflite"
    qdq.export_tflite(q_model, path, batch=None)
    return q_model, path


_CONVERTED = {}


@pytest.fixture
def converted_once(monkeypatch):
    """Let a model that nobody changes be converted once for the comparison with changed files."""
    module = importlib.import_module("qdq_workbench.verification.verify_tflite")
    convert = module.converted

    def once(q_model, batch):
        if (id(q_model), batch) not in _CONVERTED:
            _CONVERTED[id(q_model), batch] = (q_model, convert(q_model, batch))
        return _CONVERTED[id(q_model), batch][1]

    monkeypatch.setattr(module, "converted", once)


def failed(report):
    return [check.name for check in report.checks if not check.passed]


def test_a_file_as_it_was_exported_is_verified(exported):
    q_model, path = exported
    report = verify_tflite(path, q_model, samples(q_model, seed=5))
    assert failed(report) == []
    assert report.figures["operators"]["CONV_2D"] == [2, 2]
    assert report.figures["top1_agreement"] > 0.9
    assert report.figures["mean_difference"] < 0.05 * report.figures["mean_size"]
    assert "verified" in report.summary()


def test_hybrid_kernels_are_verified_too(tmp_path):
    q_model = weights_alone(mixed_net(), 8)
    path = qdq.export_tflite(q_model, tmp_path / "model.tflite", dynamic_range=True).path
    assert failed(verify_tflite(path, q_model)) == []


def test_one_number_has_no_answer_that_could_agree(tmp_path):
    x = keras.Input((3,), name="x")
    q_model = quantized(lambda: keras.Model(x, keras.layers.Dense(1, name="head")(x)))
    report = verify_tflite(qdq.export_tflite(q_model, tmp_path / "model.tflite").path, q_model)
    assert report.passed
    assert report.figures["top1_agreement"] is None
    assert "the same one" not in report.summary()


def test_data_of_another_scale_are_remarked(exported, converted_once):
    q_model, path = exported
    with pytest.warns(DataScaleWarning, match="nearly all of them saturate") as caught:
        verify_tflite(path, q_model, 255.0 * samples(q_model, 8))
    assert [each.filename for each in caught if each.category is DataScaleWarning] == [__file__]


def one_code(file):
    tensor = next(t for t in file.graphs[0].tensors if t.type == INT8 and file.values(t) is not None)
    codes = file.values(tensor).copy()
    codes.flat[0] = -codes.flat[0] or 1
    file.set_values(tensor, codes, INT8)


def one_scale(file):
    tensor = next(t for t in file.graphs[0].tensors if t.type == INT8 and file.values(t) is None)
    tensor.quantization.scale = np.asarray(tensor.quantization.scale, np.float32) * np.float32(1.01)


def one_zero_point(file):
    tensor = next(t for t in file.graphs[0].tensors if t.type == INT8 and file.values(t) is None)
    tensor.quantization.zeroPoint = np.asarray(tensor.quantization.zeroPoint) + 1


@pytest.mark.parametrize("change", [one_code, one_scale, one_zero_point])
def test_a_planted_fault_is_found(exported, change, converted_once, tmp_path):
    q_model, path = exported
    file = TFLiteFile(path.read_bytes())
    change(file)
    (tmp_path / "changed.tflite").write_bytes(file.content())
    report = verify_tflite(tmp_path / "changed.tflite", q_model)
    assert failed(report)[:2] == ["constants and grids", "integers"]
    assert "from another model" in report.summary()


def test_a_file_of_another_model_and_a_damaged_one_fail(exported, tmp_path):
    q_model, path = exported
    other = residual_net()
    for variable in other.trainable_variables:
        variable.assign(variable * 1.5 + 0.1)
    assert failed(verify_tflite(path, quantized(lambda: other))) == ["constants and grids", "integers", "outputs"]
    content = path.read_bytes()
    (tmp_path / "short.tflite").write_bytes(content[: len(content) // 2])
    assert failed(verify_tflite(tmp_path / "short.tflite", q_model)) == ["opens in TensorFlow's interpreter"]


def test_what_is_no_litert_file_is_refused(exported, tmp_path):
    q_model, _ = exported
    (tmp_path / "text.tflite").write_text("not a model at all")
    with pytest.raises(UnverifiableFileError, match="not a LiteRT file"):
        verify_tflite(tmp_path / "text.tflite", q_model)
    with pytest.raises(FileAccessError, match="Cannot read"):
        verify_tflite(tmp_path / "nothing.tflite", q_model)


def test_readers_of_onnx_name_what_is_for_litert(exported, tmp_path):
    q_model, path = exported
    with pytest.raises(UnverifiableFileError, match=r"is a LiteRT file(.|\n)*verify_tflite"):
        qdq.verify_onnx(path, q_model)
    for read in (qdq.profiling.profile_onnx, qdq.foreign.lint_onnx, read_layers):
        with pytest.raises(FileAccessError, match=r"is a LiteRT file(.|\n)*benchmark_model"):
            read(path)
    with pytest.raises(OutputPathError, match=r"export_tflite\(q_model, path\) writes LiteRT files"):
        qdq.export_onnx(q_model, tmp_path / "model.tflite")
    with pytest.raises(OutputPathError, match="save_firmware"):
        qdq.export_onnx(q_model, tmp_path / "model.npz")
