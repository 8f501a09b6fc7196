"""A file that a model just gave is known; it is built again as soon as the model or the file is another one."""

import gc
import importlib
import weakref

import keras
import numpy as np
import onnx
import pytest
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.conversion.engine import float_view
from qdq_workbench.export import known_exports
from qdq_workbench.export.keras_side import float_graph


@pytest.fixture
def exported(tmp_path):
    """A quantized model and its file."""
    model = residual_net()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model, qdq.export_onnx(q_model, tmp_path / "model.onnx").path


@pytest.fixture
def conversions(monkeypatch):
    """The conversions by tf2onnx from here on."""
    done = []
    translate = float_graph._translate
    monkeypatch.setattr(float_graph, "_translate", lambda *given: done.append(1) or translate(*given))
    return done


@pytest.fixture
def readings(monkeypatch):
    """The quantized models whose graph was read from here on."""
    read = []
    bind = float_view.bind_graph
    monkeypatch.setattr(float_view, "bind_graph", lambda q_model: read.append(q_model) or bind(q_model))
    return read


HALF = ("float16", "bfloat16")


def structure(path, q_model):
    return next(check for check in qdq.verify_onnx(path, q_model).checks if check.name == "structure")


def test_a_certified_export_is_read_and_converted_once(conversions, readings, tmp_path):
    model = residual_net()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    assert qdq.verify_onnx(path, q_model).passed
    assert qdq.certify(path, q_model).passed
    assert len(conversions) == 1
    assert readings == [q_model]


@pytest.mark.parametrize("float_type", HALF)
@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_a_certified_export_in_half_precision_is_converted_once(exported, conversions, tmp_path, float_type, target):
    q_model, _ = exported
    path = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type=float_type, target=target).path
    assert qdq.verify_onnx(path, q_model).passed
    assert qdq.certify(path, q_model).passed
    assert len(conversions) == 1


def test_the_float32_form_of_a_model_in_mixed_precision_is_known(conversions, tmp_path):
    model = residual_net()
    for layer in model.layers:
        layer.dtype_policy = keras.DTypePolicy("mixed_float16")
    model = keras.models.clone_model(model)
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    assert "float16" in {layer.compute_dtype for layer in q_model.layers}
    path = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16", dynamic_batch=False).path
    assert qdq.verify_onnx(path, q_model).passed
    assert len(conversions) == 1


def test_a_half_file_of_another_program_is_converted_once_in_its_verification(exported, conversions, tmp_path):
    q_model, _ = exported
    path = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16").path
    q_model.save(tmp_path / "q_model.keras")
    del conversions[:]
    assert qdq.verify_onnx(path, qdq.load_model(tmp_path / "q_model.keras")).passed
    assert len(conversions) == 1


def test_an_export_never_takes_a_conversion_that_was_kept(exported, conversions, tmp_path):
    q_model, _ = exported
    files = [qdq.export_onnx(q_model, tmp_path / f"{n}.onnx", float_type="float16").path for n in range(2)]
    assert len(conversions) == 2
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_is_known_is_what_building_again_finds(exported, conversions, monkeypatch):
    q_model, path = exported
    known = structure(path, q_model)
    assert (known.passed, conversions) == (True, [])
    monkeypatch.setattr(known_exports.Exports, "hold", lambda *_: False)
    assert structure(path, q_model) == known
    assert len(conversions) == 1


def test_another_targets_file_and_one_with_a_fixed_batch_are_known_beside_it(exported, conversions, tmp_path):
    q_model, path = exported
    other = qdq.export_onnx(q_model, tmp_path / "other.onnx", target="tensorrt", dynamic_batch=False).path
    assert all(structure(file, q_model).passed for file in (path, other))
    assert len(conversions) == 1


def test_a_model_that_was_changed_is_built_again(exported, conversions):
    q_model, path = exported
    layer = next(layer for layer in q_model.layers if layer.name.startswith("quant_")).layer
    before = np.array(layer.kernel)
    layer.kernel.assign(before * np.float32(1.01))
    changed = structure(path, q_model)
    assert not changed.passed
    assert "scale" in changed.detail
    layer.kernel.assign(before)
    assert structure(path, q_model).passed
    assert len(conversions) == 1  # the file belongs to these very weights


def test_a_range_that_was_moved_is_built_again(exported, conversions):
    q_model, path = exported
    pair = q_model.activation_quantizers[0]
    low, high = pair.range
    pair.set_range(low, high * 1.01)
    assert "scale" in structure(path, q_model).detail
    assert len(conversions) == 1


def changed_bias(q_model):
    """Give a layer another bias, which a converted graph holds as it was."""
    layer = next(layer for layer in q_model.layers if layer.name == "quant_head").layer
    layer.bias.assign(layer.bias + 1.0)


def changed_range(q_model):
    """Widen the range of a pair."""
    pair = q_model.activation_quantizers[0]
    low, high = pair.range
    pair.set_range(low, high * 1.5)


@pytest.mark.parametrize("change", [changed_bias, changed_range])
def test_a_changed_model_in_half_precision_is_converted_anew(exported, conversions, tmp_path, change):
    q_model, _ = exported
    before = qdq.export_onnx(q_model, tmp_path / "before.onnx", float_type="float16").path
    assert qdq.verify_onnx(before, q_model).passed
    change(q_model)
    assert not qdq.verify_onnx(before, q_model).passed
    assert len(conversions) == 2
    after = qdq.export_onnx(q_model, tmp_path / "after.onnx", float_type="float16").path
    assert qdq.verify_onnx(after, q_model).passed
    assert len(conversions) == 3


@pytest.mark.parametrize("float_type", ["float32", "float16"])
def test_a_file_from_before_a_change_is_not_known_after_the_next_export(exported, conversions, tmp_path, float_type):
    q_model, _ = exported
    before = qdq.export_onnx(q_model, tmp_path / "before.onnx", float_type=float_type).path
    changed_bias(q_model)
    changed_range(q_model)
    after = qdq.export_onnx(q_model, tmp_path / "after.onnx", float_type=float_type).path
    assert len(conversions) == 2
    assert not structure(before, q_model).passed
    assert qdq.verify_onnx(after, q_model).passed


def test_a_model_changed_and_changed_back_is_converted_again_for_its_file(exported, conversions, tmp_path):
    q_model, _ = exported
    path = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16").path
    before = q_model.get_weights()
    changed_bias(q_model)
    structure(path, q_model)
    q_model.set_weights(before)
    del conversions[:]
    assert qdq.verify_onnx(path, q_model).passed
    assert len(conversions) == 1  # for its float32 form; that the file is the model's is known


def test_a_file_is_compared_with_a_layer_that_computes_something_else_now(exported, tmp_path):
    q_model, _ = exported
    path = qdq.export_onnx(q_model, tmp_path / "half.onnx", float_type="float16").path
    # What a layer computes besides its weights is no part of the state that is compared.
    next(layer for layer in q_model.layers if layer.name == "quant_head").layer.activation = keras.activations.softplus
    assert not qdq.verify_onnx(path, q_model).passed


@pytest.mark.parametrize("what", ["constant", "opset", "output"])
def test_a_file_that_was_changed_is_compared(exported, conversions, what, tmp_path):
    q_model, path = exported
    proto = onnx.load(path)
    if what == "constant":
        scale = next(tensor for tensor in proto.graph.initializer if tensor.name.endswith("/scale"))
        scale.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(scale) * np.float32(1.01), scale.name))
    elif what == "opset":
        proto.opset_import[0].version = 18
    else:
        proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    onnx.save(proto, tmp_path / "changed.onnx")
    structure(tmp_path / "changed.onnx", q_model)
    assert len(conversions) == 1


@pytest.mark.parametrize("float_type", ["float32", "float16"])
def test_models_are_not_kept_alive(tmp_path, float_type):
    q_model = qdq.quantize_model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="head")]))
    qdq.calibrate(q_model, np.ones((2, 2), np.float32), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx", float_type=float_type).path
    assert qdq.verify_onnx(path, q_model).passed
    assert q_model in known_exports._EXPORTS
    gone = weakref.ref(q_model)
    del q_model
    keras.backend.clear_session()
    gc.collect()
    assert gone() is None


@pytest.fixture
def litert_conversions(monkeypatch):
    """The conversions by verification of LiteRT files from here on."""
    module = importlib.import_module("qdq_workbench.verification.verify_tflite")
    done, convert = [], module.converted
    monkeypatch.setattr(module, "converted", lambda *given: done.append(1) or convert(*given))
    return done


def constants(path, q_model):
    return next(check for check in qdq.verify_tflite(path, q_model).checks if check.name == "constants and grids")


def test_a_litert_file_is_known_until_the_model_or_the_file_is_another(exported, litert_conversions, tmp_path):
    """The model is planned for ONNX Runtime: what is known is known of the model that was given."""
    q_model, _ = exported
    path = qdq.export_tflite(q_model, tmp_path / "model.tflite").path
    known = constants(path, q_model)
    assert (known.passed, litert_conversions) == (True, [])

    open_batch = qdq.export_tflite(q_model, tmp_path / "open.tflite", batch=None).path
    assert constants(open_batch, q_model).passed
    assert constants(path, q_model) == known
    assert not litert_conversions

    changed_bias(q_model)
    assert not constants(path, q_model).passed
    assert len(litert_conversions) == 1
    after = qdq.export_tflite(q_model, tmp_path / "after.tflite").path
    assert constants(after, q_model).passed
    assert not constants(path, q_model).passed
    assert len(litert_conversions) == 2


def test_what_is_known_of_a_litert_file_is_what_a_conversion_finds(exported, litert_conversions, tmp_path):
    q_model, _ = exported
    path = qdq.export_tflite(q_model, tmp_path / "model.tflite").path
    known = constants(path, q_model)
    path.write_bytes(path.read_bytes() + b"\0")  # the interpreter reads it as before
    assert constants(path, q_model) == known
    assert len(litert_conversions) == 1
