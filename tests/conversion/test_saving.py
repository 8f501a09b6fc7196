"""Saving a quantized model replaces the file in one step, and does whatever else Keras does."""

import inspect
import os

import keras
import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_workbench.conversion.engine import saving
from qdq_workbench.errors import OutputPathError

pytestmark = pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")


def quantized():
    image = keras.Input((3,), name="image")
    q_model = qdq.quantize_model(keras.Model(image, keras.layers.Dense(2, name="head")(image)))
    qdq.calibrate(q_model, np.ones((2, 3), "float32"), verbose=False)
    return q_model


@pytest.fixture(scope="module")
def q_model():
    return quantized()


def set_bias(q_model, value):
    q_model.get_layer("quant_head").layer.bias.assign([value, value])


def bias_in(path, way):
    if way == "weights":
        other = quantized()
        other.load_weights(path)
    elif way == "h5":
        other = qdq.load_model(path)
    else:
        other = keras.models.load_model(path)
    return float(other.get_layer("quant_head").layer.bias[0])


WAYS = {
    "keras": ("q.keras", lambda q_model, path: q_model.save(path)),
    "h5": ("q.h5", lambda q_model, path: q_model.save(path)),
    "weights": ("q.weights.h5", lambda q_model, path: q_model.save_weights(path)),
    "folder": ("q_folder", lambda q_model, path: q_model.save(path, zipped=False)),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_fails_in_the_middle_leaves_the_file_that_was_there(q_model, tmp_path, way, monkeypatch):
    name, save = WAYS[way]
    path = tmp_path / name
    set_bias(q_model, 1.0)
    save(q_model, path)
    assert bias_in(path, way) == 1.0
    set_bias(q_model, 2.0)
    import h5py

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(h5py.Group, "create_dataset", full)
        with pytest.raises(OSError, match="No space left"):
            save(q_model, path)
    assert bias_in(path, way) == 1.0
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    save(q_model, str(path))
    assert bias_in(path, way) == 2.0
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_link_stays_and_the_file_behind_it_is_replaced(q_model, tmp_path):
    (tmp_path / "run5").mkdir()
    link = tmp_path / "latest.keras"
    link.symlink_to("run5/q.keras")
    q_model.save(link)
    assert link.is_symlink()
    assert bias_in(tmp_path / "run5" / "q.keras", "keras") == bias_in(link, "keras")


def test_it_asks_before_it_replaces_a_file_as_keras_does(q_model, tmp_path, monkeypatch):
    path, weights, asked = tmp_path / "q.keras", tmp_path / "q.weights.h5", []
    set_bias(q_model, 1.0)
    q_model.save(path, overwrite=False)  # nothing there: nothing asked
    q_model.save_weights(weights, overwrite=False)
    set_bias(q_model, 3.0)
    for answers, expected in ((["n"], 1.0), (["what?", "Y"], 3.0)):
        left = 2 * answers

        def answer(question, left=left):
            asked.append(question)
            return left.pop(0)

        monkeypatch.setattr("builtins.input", answer)
        q_model.save(path, overwrite=False)
        q_model.save_weights(weights, overwrite=False)
        assert not left
        assert (bias_in(path, "keras"), bias_in(weights, "weights")) == (expected, expected)
    assert str(path) in asked[0]


def test_a_write_protected_file_is_refused(q_model, tmp_path, monkeypatch):
    path = tmp_path / "q.keras"
    q_model.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "access", lambda *_: False)  # the superuser may write everywhere
    with pytest.raises(OutputPathError, match="write-protected"):
        q_model.save(path)
    assert path.read_bytes() == before


def test_what_keras_refuses_or_keeps_elsewhere_is_left_to_it(q_model, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="Invalid filepath extension"):
        q_model.save(tmp_path / "q.tf")
    with pytest.raises(ValueError, match=r"should not end in `\.keras`"):
        q_model.save(tmp_path / "q.keras", zipped=False)
    with pytest.raises(ValueError, match=r"must end in `\.weights\.h5`"):
        q_model.save_weights(tmp_path / "q.h5")
    with pytest.raises(ValueError, match="not supported"):
        q_model.save(tmp_path / "q.keras", unknown=1)
    given = []
    monkeypatch.setattr(keras.Model, "save", lambda self, path, **arguments: given.append((path, arguments)))
    q_model.save("hf://someone/model", zipped=False)
    assert given == [("hf://someone/model", {"overwrite": True, "zipped": False})]
    assert list(tmp_path.iterdir()) == []


def test_weights_in_several_files_are_written_by_keras(q_model, tmp_path):
    q_model.save_weights(tmp_path / "q.weights.json", max_shard_size=0.001)
    other = quantized()
    other.load_weights(tmp_path / "q.weights.json")
    assert bias_in_model(other) == bias_in_model(q_model)


def bias_in_model(q_model):
    return float(q_model.get_layer("quant_head").layer.bias[0])


@keras.saving.register_keras_serializable("test_saving")
class SavesTwice(keras.Model):
    """A class of the user's own that trains and saves in its own way."""

    def train_step(self, data):
        return super().train_step(data)

    def save(self, filepath, **kwargs):
        super().save(filepath, **kwargs)
        super().save(f"{filepath}.again.keras", **kwargs)


def test_a_class_with_its_own_save_keeps_it(tmp_path):
    image = keras.Input((3,), name="image")
    q_model = qdq.quantize_model(SavesTwice(image, keras.layers.Dense(2, name="head")(image)))
    assert isinstance(q_model, SavesTwice)
    q_model.save(tmp_path / "q.keras")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.keras", "q.keras.again.keras"]


def test_every_keras_takes_it_for_a_functional_model():
    """Keras 3.10 to 3.14 save and load one only if its constructor has the arguments of their own, decorated one."""
    image = keras.Input((3,), name="image")
    own = qdq.quantize_model(SavesTwice(image, keras.layers.Dense(2, name="head")(image)))
    for kind in (qdq.results.QuantizedModel, type(own)):
        found = inspect.getfullargspec(kind.__init__)
        assert (found.args[1:], found.varargs, found.varkw) == ([], "args", "kwargs")


def test_hdf5_is_refused_where_the_disk_may_not_hold_it(q_model, tmp_path, monkeypatch):
    asked = []

    def no_room(folder, size):
        asked.append(size)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving, "check_room", no_room)
    for way in ("h5", "weights", "folder"):
        name, save = WAYS[way]
        with pytest.raises(OutputPathError, match="No space left"):
            save(q_model, tmp_path / name)
    assert min(asked) > sum(np.asarray(weight).nbytes for weight in q_model.weights)
    assert list(tmp_path.iterdir()) == []
    q_model.save(tmp_path / "q.keras")


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_a_model_that_was_quantized_under_a_policy_for_all_layers_is_loaded(policy, tmp_path):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        image = keras.Input((4, 3), name="image", dtype="float32")
        x = keras.layers.SpatialDropout1D(0.2, name="drop")(keras.layers.Dense(2, name="dense")(image))
        spec = qdq.QuantizationSpec()
        spec.add("drop", quantize_input=True, quantize_output=True)
        q_model = qdq.quantize_model(keras.Model(image, x), quantization_spec=spec)
        data = np.random.default_rng(0).normal(size=(4, 4, 3)).astype("float32")
        qdq.calibrate(q_model, data, verbose=False)
        q_model.save(tmp_path / "model.keras")
        loaded = [qdq.load_model(tmp_path / "model.keras"), keras.models.load_model(tmp_path / "model.keras")]
    finally:
        keras.config.set_dtype_policy(before)
    for other in (*loaded, keras.models.load_model(tmp_path / "model.keras")):
        assert other.output.dtype == q_model.output.dtype == policy.removeprefix("mixed_")
        np.testing.assert_array_equal(other(data), q_model(data))
