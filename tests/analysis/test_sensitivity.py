"""The sweep's truth: against models built for one layer only, and on a model with a layer planted to be sensitive."""

import contextlib
import dataclasses
import math
import os

import joblib
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from small_models import flat, nested_net, residual_net, samples, two_headed_net

import qdq_workbench as qdq
from qdq_workbench.analysis import sweep as sweeps
from qdq_workbench.analysis.metrics import Metric, sqnr
from qdq_workbench.analysis.samples import read_samples
from qdq_workbench.errors import CheckpointError, DataError, ModeError, OutputPathError, UncalibratedError, WorkerError

QUIET = {"verbose": False}


def calibrated(model, data, **planning):
    q_model = qdq.quantize_model(model, **planning)
    qdq.calibrate(q_model, data, verbose=False)
    return q_model


def with_ranges_of(q_model, other):
    """Give a quantized model of the same network the very ranges that another one has."""
    ranges = {**q_model.recorded_ranges, **q_model.activation_ranges()}
    for layer in other.activation_quantizers:
        ends = [ranges[tensor] for tensor in q_model.tensors_of(layer)]
        layer.set_range(min(low for low, _ in ends), max(high for _, high in ends))
    return other


def value_of(model, float_model, data):
    reference, outputs = (flat(each.predict(data, batch_size=32, verbose=0)) for each in (float_model, model))
    return min(sqnr(r, q) for r, q in zip(reference, outputs, strict=True))


@contextlib.contextmanager
def operation_by_operation():
    """Without graphs, TensorFlow cannot fuse operations differently in two models."""
    tf.config.run_functions_eagerly(run_eagerly=True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(run_eagerly=False)


@pytest.fixture(scope="module")
def residual():
    """A calibrated residual network for TensorRT, with data."""
    model = residual_net()
    data = samples(model, 40)
    return model, data, calibrated(model, data)


def planted():
    """A network in which `planted` has one channel of huge weights that the next layer ignores."""
    keras.utils.set_random_seed(5)
    image = keras.Input((8, 8, 3), name="image")
    hidden = layers.Conv2D(6, 3, padding="same", name="before")(image)
    hidden = layers.Conv2D(6, 3, padding="same", activation="relu", name="wide")(hidden)
    hidden = layers.Conv2D(6, 3, padding="same", activation="relu", name="planted")(hidden)
    hidden = layers.GlobalAveragePooling2D(name="pool")(hidden)
    model = keras.Model(image, layers.Dense(3, name="head")(hidden), name="planted_net")
    kernel, bias = model.get_layer("wide").get_weights()
    kernel[..., 0] *= 1000.0
    model.get_layer("wide").set_weights([kernel, bias])
    kernel, bias = model.get_layer("planted").get_weights()
    kernel[:, :, 0, :] = 0.0
    model.get_layer("planted").set_weights([kernel, bias])
    return model


@pytest.mark.parametrize("mode", ["one_on", "one_off"])
def test_the_layer_planted_to_be_sensitive_is_ranked_first(mode):
    model = planted()

    report = qdq.sensitivity(model, samples(model, 32), mode=mode, **QUIET)

    assert report.ranked()[0].layer == "planted"
    assert [entry.layer for entry in report.entries] == ["before", "wide", "planted", "pool", "head"]


def test_the_planted_layer_is_sensitive_by_its_input_not_by_its_weights():
    model = planted()
    data = samples(model, 32)

    by_input = qdq.sensitivity(model, data, sites="input", **QUIET)
    by_weight = qdq.sensitivity(model, data, sites=["weight"], **QUIET)

    of_input, of_weight = ({entry.layer: entry.value for entry in each.entries} for each in (by_input, by_weight))
    assert by_input.ranked()[0].layer == "planted"
    assert of_weight["planted"] > of_input["planted"] + 20  # dB: its own weights have no outlier
    assert "pool" not in [entry.layer for entry in by_weight.entries]


def test_one_on_equals_a_model_with_a_spec_for_that_layer_bit_for_bit(residual):
    model, data, q_model = residual

    report = qdq.sensitivity(q_model, data, **QUIET)

    for entry in report.entries:
        spec = qdq.QuantizationSpec()
        spec.add(entry.layer)
        only = with_ranges_of(q_model, qdq.quantize_model(model, "partial", spec))
        assert entry.value == value_of(only, model, data)


def test_one_off_equals_a_model_with_that_layer_in_float_bit_for_bit(residual):
    model, data, q_model = residual

    report = qdq.sensitivity(q_model, data, mode="one_off", **QUIET)

    for entry in report.entries:
        spec = qdq.QuantizationSpec()
        spec.add(entry.layer, quantize_input=False, quantize_weight=False)
        others = with_ranges_of(q_model, qdq.quantize_model(model, quantization_spec=spec))
        assert entry.value == value_of(others, model, data)


@pytest.mark.parametrize("mode", ["one_on", "one_off"])
@pytest.mark.parametrize("make", [residual_net, nested_net, two_headed_net], ids=lambda make: make.__name__)
def test_every_site_of_a_plan_with_output_pairs_counts_for_its_own_layer(make, mode):
    model = make()
    data = samples(model, 8)
    q_model = calibrated(model, data, target="onnxruntime", custom_qdq_cases=[qdq.ResNetV1QDQCase()])

    with operation_by_operation():
        everywhere = {placement.layer for placement in q_model.plan.placements}
        report = qdq.sensitivity(q_model, data, mode=mode, layers=everywhere, **QUIET)
        assert {entry.layer for entry in report.entries} == everywhere
        for entry in report.entries:
            own = [p for p in q_model.plan.placements if (p.layer == entry.layer) == (mode == "one_on")]
            plan = dataclasses.replace(q_model.plan, placements=tuple(own))
            other = with_ranges_of(q_model, qdq.quantize_model(model, plan=plan))
            reference, outputs = flat(model(data)), flat(other(data))
            assert entry.value == min(sqnr(r, q) for r, q in zip(reference, outputs, strict=True)), entry.layer


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_a_tensor_may_have_a_pair_for_each_setting(target):
    model = residual_net()
    data = samples(model, 8)
    own = qdq.LayerQuantizeConfig(weight={"num_bits": 4, "quantizer": "lsq"}, activation={"num_bits": 6})
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_config=own)
    spec.add("add", quantization_index=[1])
    q_model = calibrated(model, data, quantization_spec=spec, target=target)
    assert len([tensor for tensor in q_model.plan.tensors if tensor.name.startswith("stem_relu")]) == 2

    sweep = sweeps.Sweep(q_model, read_samples(q_model, data))
    sweep.keep(frozenset())
    (everything,) = sweep.outputs(sweep.switches)

    np.testing.assert_array_equal(everything, flat(q_model.predict(data, verbose=0))[0])
    assert qdq.sensitivity(q_model, data, **QUIET).ranked()[0].layer == "conv"


def test_pairs_that_only_the_target_needs_are_no_layers_of_their_own():
    model = residual_net()
    data = samples(model, 8)

    report = qdq.sensitivity(model, data, plan=qdq.plan_placement(model, target="onnxruntime"), **QUIET)

    assert [entry.layer for entry in report.entries] == ["stem", "conv", "pool", "head"]


def test_readers_of_one_tensor_are_switched_apart():
    image = keras.Input((4,), name="image")
    # Not summed up: the errors of the two could cancel out.
    scores = layers.Concatenate()([layers.Dense(2, name="left")(image), layers.Dense(2, name="right")(image)])
    model = keras.Model(image, scores)
    data = samples(model, 32)
    q_model = calibrated(model, data)
    assert len(q_model.activation_quantizers) == 1

    report = qdq.sensitivity(q_model, data, sites="input", **QUIET)

    left, right = report.entries
    assert left.value != right.value
    assert min(left.value, right.value) > report.quantized_value


def test_the_model_and_its_switches_stay_as_they_were(residual):
    _, data, q_model = residual
    q_model.wrappers[0].enabled.assign(value=False)
    before = [keras.ops.convert_to_numpy(variable) for variable in q_model.variables]
    layers_before = [layer.name for layer in q_model.layers]

    def broken(reference, outputs):
        raise ZeroDivisionError("the user's mistake")

    qdq.sensitivity(q_model, data, **QUIET)
    qdq.sensitivity(q_model, data, stop=lambda: True, **QUIET)
    with pytest.raises(ZeroDivisionError):
        qdq.sensitivity(q_model, data, metric=broken, **QUIET)

    after = [keras.ops.convert_to_numpy(variable) for variable in q_model.variables]
    q_model.wrappers[0].enabled.assign(value=True)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert [layer.name for layer in q_model.layers] == layers_before


def test_a_float_model_is_quantized_and_calibrated_inside(residual):
    model, data, q_model = residual
    before = model.get_weights()

    report = qdq.sensitivity(model, data, **QUIET)

    assert report.to_dict()["entries"] == qdq.sensitivity(q_model, data, **QUIET).to_dict()["entries"]
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


def test_other_data_may_calibrate(residual):
    model, data, _ = residual

    narrow = qdq.sensitivity(model, data, calibration_data=data / 100, sites="input", **QUIET)

    assert narrow.quantized_value < qdq.sensitivity(model, data, sites="input", **QUIET).quantized_value


def test_segments_change_no_value(residual):
    _, data, q_model = residual
    read = read_samples(q_model, data)
    cut, whole = sweeps.Sweep(q_model, read), sweeps.Sweep(q_model, read, cache_bytes=0)
    assert len(cut.cuts) >= 2
    assert whole.cuts == []

    for base in (frozenset(), frozenset(cut.switches)):
        cut.keep(base)
        whole.keep(base)
        for switch in cut.switches:
            changed = base ^ {switch}
            assert all(np.array_equal(a, b) for a, b in zip(cut.outputs(changed), whole.outputs(changed), strict=True))


def test_nothing_is_traced_per_layer(residual, monkeypatch):
    _, data, q_model = residual
    traced = []
    trace = sweeps.concrete
    monkeypatch.setattr(sweeps, "concrete", lambda model: traced.append(model) or trace(model))
    sweep = sweeps.Sweep(q_model, read_samples(q_model, data))
    segments = len(traced)
    assert segments == len(sweep.cuts) + 1

    for mode in ("one_on", "one_off"):
        traced.clear()
        qdq.sensitivity(q_model, data, mode=mode, **QUIET)
        assert len(traced) == segments


def test_progress_and_stop(residual):
    _, data, q_model = residual
    seen = []

    report = qdq.sensitivity(
        q_model, data, progress=lambda *step: seen.append(step), stop=lambda: len(seen) > 2, **QUIET
    )

    assert seen == [(0, 4, ""), (1, 4, "stem"), (2, 4, "conv")]
    assert [entry.layer for entry in report.entries] == ["stem", "conv"]
    assert not report.complete
    assert "stopped" in report.summary()


def test_a_sweep_goes_on_from_its_checkpoint(residual, tmp_path):
    _, data, q_model = residual
    path = tmp_path / "sweep.json"
    seen = []
    asked = iter([False, False, True])

    qdq.sensitivity(q_model, data, checkpoint=path, stop=lambda: next(asked), **QUIET)
    assert len(qdq.SensitivityReport.load(path).entries) == 2
    report = qdq.sensitivity(q_model, data, checkpoint=path, progress=lambda *step: seen.append(step[2]))

    assert seen == ["", "pool", "head"]
    assert report == qdq.sensitivity(q_model, data, **QUIET)
    assert qdq.SensitivityReport.load(path) == report


def test_a_checkpoint_of_another_sweep_is_refused(residual, tmp_path):
    model, data, q_model = residual
    path = tmp_path / "sweep.json"
    qdq.sensitivity(q_model, data, checkpoint=path, **QUIET)
    other = residual_net(seed=2)

    for arguments in (
        {"model": other, "data": data},
        {"model": q_model, "data": data + 1},
        {"model": q_model, "data": data, "mode": "one_off"},
        {"model": q_model, "data": data, "metric": "mse"},
        {"model": calibrated(model, data, target="onnxruntime"), "data": data},
    ):
        with pytest.raises(CheckpointError, match="another sweep"):
            qdq.sensitivity(**arguments, checkpoint=path, **QUIET)
    path.write_text("[]")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        qdq.sensitivity(q_model, data, checkpoint=path, **QUIET)


def test_a_checkpoint_knows_what_the_model_was_calibrated_on(residual, tmp_path):
    model, data, _ = residual
    path = tmp_path / "sweep.json"
    first = qdq.sensitivity(model, data, calibration_data=data[:32], checkpoint=path, **QUIET)

    shuffled = tf.data.Dataset.from_tensor_slices(data[:32]).shuffle(32, seed=5).batch(32)
    assert qdq.sensitivity(model, data, calibration_data=shuffled, checkpoint=path, **QUIET) == first
    for other in (data[:31], data[:32] * 2, None):
        with pytest.raises(CheckpointError, match="calibration data"):
            qdq.sensitivity(model, data, calibration_data=other, checkpoint=path, **QUIET)


class Unregistered(layers.Dense):
    """A layer class that Keras cannot find by its name."""


def test_classes_need_not_be_registered():
    source = keras.Input((4,), name="source")
    model = keras.Model(source, Unregistered(2, name="head")(source))
    data = samples(model, 8)

    report = qdq.sensitivity(model, data, **QUIET)

    assert [entry.layer for entry in report.entries] == ["head"]
    assert report.entries[0].value == report.quantized_value


@keras.saving.register_keras_serializable(package="test_sensitivity")
class Doubled(layers.Dense):
    """A layer class that no other process knows of its own accord."""

    def call(self, inputs, training=None):
        return 2.0 * super().call(inputs)


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_workers_measure_the_same(backend):
    keras.utils.set_random_seed(3)
    image = keras.Input((4,), name="image")
    hidden = layers.Dense(4, activation="relu", name="a")(image)
    model = keras.Model(image, Doubled(2, name="c")(layers.Dense(4, name="b")(hidden)))
    data = samples(model, 32)
    q_model = calibrated(model, data)

    with joblib.parallel_config(backend=backend, n_jobs=2):
        report = qdq.sensitivity(q_model, data, **QUIET)

    assert report == qdq.sensitivity(q_model, data, n_jobs=1, **QUIET)


@pytest.mark.skipif(
    tuple(map(int, joblib.__version__.split(".")[:2])) < (1, 5), reason="older joblib starts workers without a function"
)
def test_a_worker_that_dies_is_named_and_a_later_sweep_goes_as_if_nothing_had_been(residual, tmp_path):
    _, data, q_model = residual
    path = tmp_path / "sweep.json"
    asked = iter([False, True])
    qdq.sensitivity(q_model, data, checkpoint=path, stop=lambda: next(asked), **QUIET)

    dying = joblib.parallel_config(backend="loky", n_jobs=2, initializer=os._exit, initargs=(3,))
    with dying, pytest.raises(WorkerError, match="n_jobs=2"):
        qdq.sensitivity(q_model, data, checkpoint=path, **QUIET)

    seen = []
    report = qdq.sensitivity(q_model, data, checkpoint=path, progress=lambda *step: seen.append(step[2]))
    assert len(seen) == len(report.entries)  # the first is told without a name, one layer is known
    assert report == qdq.sensitivity(q_model, data, **QUIET)


def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_work(residual, tmp_path):
    _, data, q_model = residual
    for path in (tmp_path, tmp_path / "missing" / "sweep.json"):
        with pytest.raises(OutputPathError):
            qdq.sensitivity(q_model, data, checkpoint=path, progress=lambda *_: pytest.fail("measured"))


def test_labels_come_from_tuples_datasets_and_batches(residual):
    _, data, q_model = residual
    labels = np.arange(len(data)) % 3
    forms = [
        (data, labels),
        tf.data.Dataset.from_tensor_slices((data, labels)).batch(32),
        [(data[:32], labels[:32]), (data[32:], labels[32:])],
        [[data[:32], labels[:32]], [data[32:], labels[32:]]],
        lambda: iter([(data[:32], labels[:32]), (data[32:], labels[32:])]),
    ]

    report, again = (qdq.sensitivity(q_model, form, metric="accuracy", layers=["head"], **QUIET) for form in forms[:2])

    predicted = np.argmax(flat(q_model.predict(data, verbose=0))[0], axis=-1)
    assert report.quantized_value == np.mean(predicted == labels)
    assert again == report
    digests = [read_samples(q_model, form).digest() for form in forms]
    assert set(digests) == {digests[0]}
    assert read_samples(q_model, (data, labels + 1)).digest() != digests[0]


def test_a_metric_of_ones_own(residual):
    _, data, q_model = residual

    def largest_error(reference, outputs):
        return float(np.abs(reference - outputs).max())

    largest_error.higher_is_better = False
    report = qdq.sensitivity(q_model, data, metric=largest_error, **QUIET)

    assert "largest_error" in report.metric
    assert report.float_value == 0.0
    values = [entry.value for entry in report.ranked()]
    assert values == sorted(values, reverse=True)


@pytest.fixture(scope="module")
def small():
    """Data and a calibrated model of one layer."""
    image = keras.Input((8, 8, 2), name="image")
    head = layers.Dense(3, kernel_initializer="ones", name="head")
    model = keras.Model(image, head(layers.Flatten(name="flat")(image)))
    data = samples(model, 8)
    return data, calibrated(model, data)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"mode": "one"}, ModeError, "one_on"),
        ({"metric": "sqrn"}, DataError, "sqnr"),
        ({"metric": 3}, DataError, "Received: metric=3"),
        ({"metric": "accuracy"}, DataError, "labels"),
        ({"metric": lambda reference, outputs: reference - outputs}, DataError, "one number.*ndarray of shape"),
        ({"metric": lambda reference, outputs: None}, DataError, "one number.*NoneType"),
        ({"metric": lambda reference, outputs: "0.5"}, DataError, "one number.*str"),
        ({"metric": Metric("several", "", lambda r, q, _: [1.0, 2.0])}, DataError, "'several' must return one number"),
        ({"sites": ["inputs"]}, qdq.SpecError, "sites must be"),
        ({"layers": ["hed"]}, qdq.SpecError, "Did you mean 'head'"),
        ({"data": np.zeros((0, 8, 8, 2))}, DataError, "no data"),
        ({"data": np.full((4, 8, 8, 2), np.nan, "float32")}, DataError, "data are not finite.*512 values"),
        ({"data": np.full((4, 8, 8, 2), 3e38, "float32")}, DataError, "outputs on these data are not finite"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else str(value),
)
def test_mistakes_are_named(small, arguments, error, says):
    data, q_model = small

    with pytest.raises(error, match=says):
        qdq.sensitivity(q_model, **{"data": data, **arguments}, **QUIET)


def test_models_that_cannot_be_measured(residual):
    model, data, q_model = residual
    off = qdq.QuantizationSpec()
    off.add("*", match="glob", quantize_input=False, quantize_weight=False)
    nothing = qdq.quantize_model(model, quantization_spec=off)

    with pytest.raises(UncalibratedError, match="calibrate"):
        qdq.sensitivity(qdq.quantize_model(model), data, **QUIET)
    with pytest.raises(qdq.SpecError, match="another plan"):
        qdq.sensitivity(q_model, data, plan=qdq.plan_placement(model, target="onnxruntime"), **QUIET)
    with pytest.raises(qdq.SpecError, match="quantizes nothing"):
        qdq.sensitivity(nothing, data, **QUIET)


def test_masks_pass_through_the_switches():
    words = keras.Input((6, 3), name="words")
    hidden = layers.Masking(name="mask")(words)
    hidden = layers.LSTM(4, name="lstm")(layers.Dense(4, name="dense")(hidden))
    model = keras.Model(words, layers.Dense(2, name="head")(hidden))
    data = samples(model, 8)
    data[:, 3:] = 0.0
    q_model = calibrated(model, data)

    report = qdq.sensitivity(q_model, data, **QUIET)

    assert report.quantized_value == pytest.approx(value_of(q_model, model, data), abs=1e-3)
    assert math.isfinite(report.quantized_value)
