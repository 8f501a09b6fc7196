"""The score of a file in its runtime: on arrays, batches, fixed batches and LiteRT; and what is refused."""

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import DataError, FileAccessError, UnbuiltModelError, UnverifiableFileError
from qdq_workbench.files import score_file


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A quantized model of three classes, its float model, samples and labels, and its files."""
    keras.utils.set_random_seed(1)
    image = keras.Input((6,), name="image")
    x = layers.Dense(8, activation="relu", name="hidden")(image)
    model = keras.Model(image, layers.Dense(3, activation="softmax", name="head")(x), name="scored")
    samples = np.random.default_rng(0).normal(size=(50, 6)).astype("float32")
    labels = np.argmax(model.predict(samples, verbose=0), axis=-1)
    labels[::5] = (labels[::5] + 1) % 3  # ten wrong ones
    folder = tmp_path_factory.mktemp("files")
    spec = qdq.QuantizationSpec()
    spec.add("*", match="glob", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 3}))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples, verbose=False)
    paths = {
        "float": qdq.files.export_float_onnx(model, folder / "float.onnx"),
        "int8": qdq.export_onnx(q_model, folder / "int8.onnx").path,
        "batches of one": qdq.export_onnx(q_model, folder / "fixed.onnx", dynamic_batch=False).path,
    }
    return model, q_model, samples, labels, paths


def predicted(path, samples):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (outputs,) = session.run(None, {"image": samples})
    return outputs.argmax(axis=-1)


def test_the_accuracy_is_that_of_the_runtime(made):
    model, q_model, samples, labels, paths = made
    exact = score_file(paths["float"], (samples, labels), model=model)
    assert (exact.value, exact.model, exact.samples, exact.runtime) == (0.8, 0.8, 50, "ONNX Runtime")
    assert exact.summary() == "accuracy of 50 samples: 0.8000 in ONNX Runtime, 0.8000 in Keras"

    found = score_file(paths["int8"], (samples, labels), model=q_model)
    assert found.value == np.mean(predicted(paths["int8"], samples) == labels)
    assert found.model == np.mean(q_model.predict(samples, verbose=0).argmax(axis=-1) == labels)
    assert found.value < 0.8  # three bits cost something, so the file is not the float model
    alone = score_file(str(paths["int8"]), (samples, labels))
    assert (alone.value, alone.model) == (found.value, None)
    assert alone.to_dict()["path"] == str(paths["int8"])


def test_batches_of_any_form_and_files_of_a_fixed_batch_give_the_same(made):
    _, _, samples, labels, paths = made
    expected = score_file(paths["int8"], (samples, labels)).value
    batches = tf.data.Dataset.from_tensor_slices((samples, labels)).batch(7)
    assert score_file(paths["int8"], batches).value == expected
    assert score_file(paths["int8"], [({"image": samples}, np.eye(3)[labels])]).value == expected
    assert score_file(paths["batches of one"], (samples, labels)).value == expected
    assert score_file(paths["batches of one"], batches).samples == 50


def test_other_metrics_compare_with_the_model(made):
    model, _, samples, labels, paths = made
    noise = score_file(paths["int8"], samples, "sqnr", model=model)
    assert (noise.unit, noise.model) == ("dB", None)
    assert 0 < noise.value < 40
    assert score_file(paths["float"], samples, "sqnr", model=model).value > 100

    def wrong(reference, outputs, labels):
        return int((outputs.argmax(-1) != labels).sum())

    assert score_file(paths["float"], (samples, labels), wrong, model=model).value == 10


def two_ends(target):
    """A quantized model whose inputs and outputs are not in the order of the alphabet."""
    keras.utils.set_random_seed(0)
    second, first = keras.Input((4,), name="zebra"), keras.Input((3,), name="ant")
    both = layers.Concatenate(name="both")([second, first])
    outputs = [layers.Dense(5, name="yak")(both), layers.Dense(2, name="bee")(both)]
    q_model = qdq.quantize_model(keras.Model([second, first], outputs), target=target)
    data = [np.random.default_rng(0).normal(size=(20, n)).astype("float32") for n in (4, 3)]
    qdq.calibrate(q_model, data, verbose=False)
    return q_model, data


def test_litert_files_are_scored_by_the_interpreter(tmp_path):
    q_model, data = two_ends("litert")
    path = qdq.export_tflite(q_model, tmp_path / "two.tflite").path
    labels = [value.argmax(axis=-1) for value in q_model.predict(data, verbose=0)]
    found = score_file(path, (data, labels), model=q_model)
    assert (found.runtime, found.model, found.samples) == ("LiteRT", 1.0, 20)
    assert found.value >= 0.9
    with pytest.raises(UnverifiableFileError, match="in which order"):
        score_file(path, (data, labels))


def test_onnx_files_keep_the_order_of_inputs_and_outputs(tmp_path):
    q_model, data = two_ends("onnxruntime")
    path = qdq.export_onnx(q_model, tmp_path / "two.onnx").path
    labels = [value.argmax(axis=-1) for value in q_model.predict(data, verbose=0)]
    assert score_file(path, (data, labels)).value >= 0.9


def test_what_cannot_be_scored_is_refused_by_name(made, tmp_path):
    _, _, samples, labels, paths = made
    with pytest.raises(DataError, match="compares with labels"):
        score_file(paths["int8"], samples)
    with pytest.raises(DataError, match="pass it as model="):
        score_file(paths["int8"], samples, "sqnr")
    with pytest.raises(DataError, match="not whole numbers"):
        score_file(paths["int8"], (samples, labels + 0.5))
    with pytest.raises(DataError, match="does not fit input 'image'"):
        score_file(paths["int8"], (samples[:, :3], labels))
    with pytest.raises(FileAccessError):
        score_file(tmp_path / "none.onnx", (samples, labels))
    (tmp_path / "text.onnx").write_text("text")
    with pytest.raises(UnverifiableFileError):
        score_file(tmp_path / "text.onnx", (samples, labels))
    (tmp_path / "damaged.tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(40))
    with pytest.raises(UnverifiableFileError):
        score_file(tmp_path / "damaged.tflite", (samples, labels))
    sequential = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
    assert 0 <= score_file(paths["int8"], (samples, labels), model=sequential).model <= 1
    other = keras.Sequential([keras.Input((6,)), layers.Dense(4)])
    with pytest.raises(DataError, match="other outputs than the file"):
        score_file(paths["int8"], (samples, labels), model=other)
    other = keras.Sequential([keras.Input((5,)), layers.Dense(3)])
    with pytest.raises(DataError, match="other inputs than the file"):
        score_file(paths["int8"], (samples, labels), model=other)
    with pytest.raises(UnbuiltModelError):
        score_file(paths["int8"], (samples, labels), model=keras.Sequential([layers.Dense(3)]))
