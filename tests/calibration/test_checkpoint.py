import importlib
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.calibration.observers import Observer
from qdq_workbench.calibration.observers.observer import OBSERVERS
from qdq_workbench.errors import CheckpointError, DataError, OutputPathError

checkpoint_module = importlib.import_module("qdq_workbench.calibration.checkpoint")
DATA = np.random.default_rng(0).normal(size=(40, 6)).astype("float32")


def network(seed=0):
    keras.utils.set_random_seed(seed)
    x = keras.Input((6,), name="x")
    y = layers.BatchNormalization(name="norm")(layers.Dense(5, name="body")(x))
    return keras.Model(x, layers.Dense(2, name="head")(layers.ReLU(name="relu")(y)), name="network")


@pytest.fixture(scope="module")
def model():
    return network()


@pytest.fixture
def q_model(model):
    return qdq.quantize_model(model, target="onnxruntime")


@pytest.fixture
def written_at_once(monkeypatch):
    """Write the checkpoint after every batch."""
    monkeypatch.setattr(checkpoint_module, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint_module, "_SHARE", 0)


class StoppedError(Exception):
    """Ends a calibration in the middle."""


def killed_after(batches):
    def on_batch(number):
        if number == batches:
            raise StoppedError

    return on_batch


def calibrated(q_model, data=DATA, **how):
    return qdq.calibrate(q_model, data, batch_size=8, verbose=False, **how)


def counted(monkeypatch):
    """Count the batches that the float model computes."""
    probe = importlib.import_module("qdq_workbench.calibration.probe").Probe
    compute, seen = probe._compute, []
    monkeypatch.setattr(probe, "_compute", lambda self, inputs: seen.append(len(inputs[0])) or compute(self, inputs))
    return seen


@pytest.mark.parametrize("method", qdq.calibration.calibration_methods())
@pytest.mark.filterwarnings("ignore::qdq_workbench.errors.UnsettledStatisticsWarning")
def test_a_resumed_calibration_gives_the_ranges_of_one_pass(method, q_model, written_at_once, monkeypatch, tmp_path):
    whole = calibrated(q_model, method=method)
    ranges = q_model.activation_ranges()
    path = tmp_path / "calibration.json"
    for batches in (2, 4):
        with pytest.raises(StoppedError):
            calibrated(q_model, method=method, checkpoint=path, on_batch=killed_after(batches))
    computed = counted(monkeypatch)
    resumed = calibrated(q_model, method=method, checkpoint=path)
    assert len(computed) == 1  # the killed run had written the fourth of five
    assert resumed.to_dict() == whole.to_dict()
    assert q_model.activation_ranges() == ranges


@pytest.mark.filterwarnings("ignore::qdq_workbench.errors.UnsettledStatisticsWarning")
def test_histograms_and_powers_of_two_resume_too(q_model, written_at_once, tmp_path):
    how = {"histograms": True, "power_of_two": True}
    whole = calibrated(q_model, **how)
    with pytest.raises(StoppedError):
        calibrated(q_model, checkpoint=tmp_path / "c.json", on_batch=killed_after(3), **how)
    resumed = calibrated(q_model, checkpoint=tmp_path / "c.json", **how)
    assert resumed.to_dict() == whole.to_dict()


@pytest.mark.filterwarnings("ignore::qdq_workbench.errors.UnsettledStatisticsWarning")
def test_more_data_may_follow_and_a_finished_one_computes_nothing(q_model, monkeypatch, tmp_path):
    first = calibrated(q_model, DATA[:16], checkpoint=tmp_path / "c.json")
    computed = counted(monkeypatch)
    assert calibrated(q_model, DATA[:16], checkpoint=tmp_path / "c.json").to_dict() == first.to_dict()
    assert computed == []
    longer = calibrated(q_model, checkpoint=tmp_path / "c.json")
    assert len(computed) == 3
    assert longer.to_dict() == calibrated(q_model).to_dict()


@pytest.mark.filterwarnings("ignore::qdq_workbench.errors.UnsettledStatisticsWarning")
def test_data_of_any_kind_resume(q_model, written_at_once, tmp_path):
    def dataset():
        return tf.data.Dataset.from_tensor_slices(DATA).batch(8)

    whole = calibrated(q_model, dataset())
    with pytest.raises(StoppedError):
        calibrated(q_model, dataset(), checkpoint=tmp_path / "c.json", on_batch=killed_after(2))
    told = []
    resumed = calibrated(q_model, dataset(), checkpoint=tmp_path / "c.json", on_batch=told.append)
    assert resumed.to_dict() == whole.to_dict()
    assert told == [3, 4, 5]


@pytest.mark.filterwarnings("ignore::qdq_workbench.errors.UnsettledStatisticsWarning")
@pytest.mark.parametrize("what", ["data", "order", "fewer", "batches", "method", "setting", "weights", "grid", "model"])
def test_a_checkpoint_of_something_else_is_refused(what, model, q_model, tmp_path):
    path = tmp_path / "c.json"
    given = {"method": "percentile", "percentile": 99.0}
    calibrated(q_model, checkpoint=path, **given)
    ranges, before = q_model.activation_ranges(), path.read_bytes()
    data, batch_size = DATA, 8
    if what == "data":
        data = DATA.copy()
        data[9, 3] += 1e-3
    elif what == "order":
        data = DATA[::-1]
    elif what == "fewer":
        data = DATA[:32]
    elif what == "batches":
        batch_size = 10
    elif what == "method":
        given = {"method": "minmax"}
    elif what == "setting":
        given = {"method": "percentile", "percentile": 98.0}
    elif what == "weights":
        kernel = q_model.get_layer("quant_body").layer.kernel
        kernel.assign(kernel * 2.0)
    elif what == "grid":
        q_model = qdq.quantize_model(model, target="tensorrt")
    else:
        q_model = qdq.quantize_model(network(seed=1), target="onnxruntime")
    with pytest.raises(CheckpointError, match=r"Delete the file, or give another path\. Received: checkpoint="):
        qdq.calibrate(q_model, data, batch_size=batch_size, checkpoint=path, verbose=False, **given)
    assert path.read_bytes() == before
    if what not in ("grid", "model"):
        assert q_model.activation_ranges() == ranges


@pytest.mark.parametrize("text", ["", "{}", '{"format": "another"}', "[1]", "\x00"])
def test_a_damaged_file_is_refused(text, q_model, tmp_path):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match="calibration checkpoint"):
        calibrated(q_model, checkpoint=path)
    assert path.read_text() == text


@pytest.mark.filterwarnings("ignore::qdq_workbench.errors.UnsettledStatisticsWarning")
def test_a_file_that_lacks_a_tensor_is_refused(q_model, tmp_path):
    path = tmp_path / "c.json"
    calibrated(q_model, checkpoint=path)
    held = json.loads(path.read_text())
    del held["states"]["relu"]
    path.write_text(json.dumps(held))
    with pytest.raises(CheckpointError, match="damaged"):
        calibrated(q_model, checkpoint=path)


def test_a_place_where_no_file_can_be_is_refused_before_the_data_are_read(q_model, tmp_path):
    def batches():
        raise AssertionError("read")
        yield

    with pytest.raises(OutputPathError):
        qdq.calibrate(q_model, batches(), checkpoint=tmp_path / "missing" / "c.json", verbose=False)


def test_a_method_whose_statistics_cannot_be_saved_is_refused(q_model, monkeypatch, tmp_path):
    class Forgetful(Observer):
        def observe(self, values, low, high):
            self.ends = low, high

        def result(self):
            return self.ends

    monkeypatch.setitem(OBSERVERS._entries, "forgetful", Forgetful)
    with pytest.raises(DataError, match="implement `state` and `absorb`"):
        calibrated(q_model, method="forgetful", checkpoint=tmp_path / "c.json")
    assert not (tmp_path / "c.json").exists()
