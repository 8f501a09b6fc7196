"""One compiled function that reads every tensor: what it counts, how often it is traced, what it leaves alone."""

import copy
import gc
import threading
import types
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from small_models import residual_net

import qdq_workbench as qdq
from qdq_workbench.calibration import reader as reader_module
from qdq_workbench.calibration.observers import Histogram, MinMaxObserver
from qdq_workbench.calibration.observers.observer import OBSERVERS
from qdq_workbench.calibration.reader import reader_for
from qdq_workbench.errors import DataError
from qdq_workbench.wrappers.float_only import computes_float, float_only


def identity_net():
    value = keras.Input((None,), name="value")
    return qdq.quantize_model(keras.Model(value, layers.Activation("linear", name="same")(value)))


@pytest.fixture(scope="module")
def identity():
    return identity_net()


@pytest.fixture(scope="module")
def q_model():
    return qdq.quantize_model(residual_net())


def images(count=16, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 8, 8, 2)).astype("float32")


def one_by_one(batches, bins):
    histogram = Histogram(bins)
    for batch in batches:
        histogram.add(batch)
    return histogram


BATCHES = {
    "growing": lambda r: [r.normal(size=(4, 50)) * scale for scale in (1e-3, 1.0, 80.0, 0.1)],
    "shifted": lambda r: [r.normal(size=(4, 50)) * 0.01 + 1e4, r.normal(size=(4, 50)) - 1e4],
    "tiny and huge": lambda r: [r.normal(size=(4, 50)) * 1e-36, r.normal(size=(4, 50)) * 1e37, r.normal(size=(4, 9))],
    "zeros": lambda r: [np.zeros((4, 50)), np.zeros((3, 50)), r.normal(size=(4, 50))],
    "one value": lambda r: [np.full((4, 50), 7.25), np.full((2, 5), -1e30), r.normal(size=(4, 50))],
    "next to edges": lambda r: [np.nextafter(r.integers(-99, 99, (4, 500)) + np.float32(0.5), np.float32(-1e9))],
    "nearly zero": lambda r: [np.append(r.normal(size=(1, 50)), [[-1e-30, 1e-30, -0.0]], axis=1)],
    "relu": lambda r: [np.maximum(r.normal(size=(4, 50)), 0), np.maximum(r.normal(size=(2, 70)), 0)],
}


@pytest.mark.parametrize("method", ["percentile", "entropy"])
@pytest.mark.parametrize("kind", BATCHES)
def test_histograms_are_those_of_counting_one_by_one(identity, kind, method):
    batches = [batch.astype("float32") for batch in BATCHES[kind](np.random.default_rng(0))]
    result = qdq.calibrate(identity, iter(batches), method, verbose=False)
    expected = one_by_one(batches, 4096 if method == "percentile" else 2048 * 16).state()
    assert result.states["value"]["histogram"] == expected
    assert result.states["same"]["histogram"] == expected


def test_values_of_a_network_are_counted_like_its_own(q_model):
    x = images()
    result = qdq.calibrate(q_model, x, histograms=True, batch_size=6, verbose=False)
    model = residual_net()
    inside = keras.Model(model.inputs, model.get_layer("norm").output)
    counts, edges = result.histograms["norm"]
    expected, _ = np.histogram(inside.predict(x, verbose=0).astype("float64"), edges)
    assert counts.sum() == expected.sum()
    assert np.abs(np.cumsum(counts - expected)).max() <= 2  # rounding errors of other graphs move values next to edges


@pytest.mark.parametrize("place", [0, 3, 51, 67])
@pytest.mark.parametrize(("bad", "what"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_one_bad_value_anywhere_is_found(identity, method, bad, what, place):
    x = np.ones((4, 17), "float32")
    x.reshape(-1)[place] = bad
    with pytest.raises(DataError, match=f"'value' holds {what} on calibration batch 1"):
        qdq.calibrate(identity, [np.ones((4, 17), "float32"), x], method, verbose=False)


class NoTracing:
    """TensorFlow without `tf.function`."""

    function = None

    def __getattr__(self, name):
        return getattr(tf, name)


def test_calibrating_again_traces_nothing_and_sees_new_weights(monkeypatch):
    q_model = qdq.quantize_model(residual_net())
    first = qdq.calibrate(q_model, images(), verbose=False).ranges["stem"]
    kernel = q_model.get_layer("quant_stem").layer.kernel
    kernel.assign(2.0 * kernel)
    bias = q_model.get_layer("quant_stem").layer.bias
    if bias is not None:
        bias.assign(2.0 * bias)
    monkeypatch.setattr(reader_module, "traced", None)
    monkeypatch.setattr(reader_module, "tf", NoTracing())  # Keras may trace its convolutions, the reader may not
    second = qdq.calibrate(q_model, images(), batch_size=5, verbose=False).ranges["stem"]
    np.testing.assert_allclose(second, 2.0 * np.array(first), rtol=1e-5)


def test_every_question_has_a_function_of_its_own(q_model):
    names = list(q_model.plan.graph.tensors)
    assert reader_for(q_model, names, 64) is reader_for(q_model, names, 64)
    assert reader_for(q_model, names, 64) is not reader_for(q_model, names, 32)
    assert reader_for(q_model, names[:1]).read([images()])[0].counts.size == 0


def test_ranges_are_those_of_the_float_model_however_the_switches_are_set(q_model):
    x = images()
    expected = qdq.calibrate(q_model, x, verbose=False).ranges
    switches = [layer.enabled for layer in q_model.quantizing_layers]
    switches[0].assign(value=False)
    assert qdq.calibrate(q_model, x, verbose=False).ranges == expected
    assert [bool(switch.numpy()) for switch in switches] == [False] + [True] * (len(switches) - 1)
    switches[0].assign(value=True)


def test_the_model_itself_stays_quantized(q_model):
    """What calibration traces must not be what `predict` runs, in this thread or another."""
    qdq.calibrate(q_model, images(), verbose=False)
    quantized = q_model(images())
    seen = []
    with float_only():
        thread = threading.Thread(target=lambda: seen.append(computes_float()))
        thread.start()
        thread.join()
        plain = q_model(images())
    np.testing.assert_allclose(plain, residual_net()(images()), atol=1e-5)
    assert seen == [False]
    assert not computes_float()
    assert np.abs(quantized - plain).max() > 1e-4
    np.testing.assert_array_equal(q_model(images()), quantized)


def test_what_is_compiled_travels_neither_with_copies_nor_with_files(q_model, tmp_path):
    qdq.calibrate(q_model, images(), verbose=False)
    weights = len(q_model.weights)
    q_model.save(tmp_path / "q.keras")
    assert keras.models.load_model(tmp_path / "q.keras")._memo is None
    assert len(keras.models.clone_model(q_model).weights) == weights
    assert [layer.name for layer in q_model.layers if "calibration" in layer.name] == []


@pytest.mark.parametrize("on_batch", [None, lambda count: count < 2])
def test_no_batch_is_taken_that_is_not_read(q_model, on_batch):
    batches = iter([images(4)] * 5)
    result = qdq.calibrate(q_model, batches, steps=2, on_batch=on_batch, verbose=False)
    assert result.batches == 2
    assert len(list(batches)) == 3


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_one_array_may_be_filled_with_batch_after_batch(identity, method):
    def batches(scales=(1.0, 1e37, 1.0, 2.0)):  # the histogram of the second one is not counted in the function
        array = np.empty((4, 50), "float32")
        for scale in scales:
            array[:] = np.linspace(-scale, scale, 200).reshape(4, 50)
            yield array
        array[:] = 0

    expected = qdq.calibrate(identity, [batch.copy() for batch in batches()], method, verbose=False)
    assert qdq.calibrate(identity, batches(), method, verbose=False).ranges == expected.ranges


def test_an_observer_of_the_users_own_gets_the_values(q_model, monkeypatch):
    seen = []

    class Mine(MinMaxObserver):
        def observe(self, values, low, high):
            seen.append(values.shape)
            super().observe(values, low / 2, high / 2)

    monkeypatch.setitem(OBSERVERS._entries, "mine", Mine)
    x = images()
    found = qdq.calibrate(q_model, x, "mine", histograms=True, verbose=False)
    assert seen[0] == x.shape
    assert found.ranges["image"] == pytest.approx((x.min() / 2, x.max() / 2))
    assert found.histograms["image"][0].sum() == x.size


def test_states_are_written_when_asked_for(q_model, monkeypatch):
    def refuse(self):
        raise AssertionError("packed")

    with monkeypatch.context() as patch:
        patch.setattr(Histogram, "state", refuse)
        result = qdq.calibrate(q_model, images(), "percentile", verbose=False)
        assert "image" in result.states
        with pytest.raises(AssertionError, match="packed"):
            result.to_dict()
    again = copy.deepcopy(result)  # as pickling does it
    assert again == result == qdq.CalibrationResult.from_dict(result.to_dict())
    assert again.ranges == result.ranges


def test_a_layer_changed_by_hand_is_read_anew():
    image = keras.Input((4,), name="image")
    x = keras.layers.Dense(3, activation="relu", name="dense")(image)
    q_model = qdq.quantize_model(keras.Model(image, keras.layers.Dense(2, name="head")(x)))
    data = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    first = qdq.calibrate(q_model, data, verbose=False).ranges["dense"]
    assert qdq.calibrate(q_model, data, verbose=False).ranges["dense"] == first
    q_model.wrappers[0].layer.activation = keras.activations.tanh
    changed = qdq.calibrate(q_model, data, verbose=False).ranges["dense"]
    assert first[0] == 0.0
    assert -1.0 <= changed[0] < 0.0 < changed[1] <= 1.0


def test_what_a_reader_is_found_by_keeps_the_layers_that_it_is_of():
    """Else a layer made later could have the identity of one that is gone, and be read by its function."""
    model = types.SimpleNamespace(layers=[layers.Dense(2, name="dense")])
    key, layer = reader_module._configurations(model), weakref.ref(model.layers[0])
    assert key == reader_module._configurations(model)
    model.layers = [layers.Dense.from_config(model.layers[0].get_config())]
    gc.collect()
    assert layer() is not None
    assert key != reader_module._configurations(model)
