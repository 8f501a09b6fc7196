"""Learned rounding: better than nearest, on the same scales, exact in files, whole or not at all."""

import contextlib
import dataclasses
import itertools
import json
import signal

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
from keras import layers
from onnx import numpy_helper
from own_configs import KernelConfig
from small_models import nested_net, residual_net, samples, two_headed_net

import qdq_workbench as qdq
from qdq_workbench.correction import clip_weights, fold_batch_norm, learn_rounding
from qdq_workbench.errors import (
    CheckpointError,
    DataError,
    NotQuantizedError,
    OutputPathError,
    SpecError,
    UncalibratedError,
)
from qdq_workbench.placement.targets import get_target
from qdq_workbench.results import RoundingReport

QUICK = {"steps": 40, "batch_size": 16, "learning_rate": 0.1, "verbose": False}


def target_of(name="tensorrt", weights=4, activations=8):
    target = get_target(name)
    return dataclasses.replace(
        target,
        weight=target.weight.replace(num_bits=weights),
        activation=target.activation.replace(num_bits=activations),
    )


def quantized(model, data, target=None, spec=None, **settings):
    plan = qdq.plan_placement(model, quantization_spec=spec, target=target or target_of())
    q_model = qdq.quantize_model(model, plan=plan, **settings)
    qdq.calibrate(q_model, data, verbose=False)
    return q_model


def of_few_bits(bits=4, *layer_names, **config):
    spec = qdq.QuantizationSpec()
    for name in layer_names:
        spec.add(name, quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": bits, **config}))
    return spec


def dense_net(units=3, inputs=6, seed=0):
    keras.utils.set_random_seed(seed)
    image = keras.Input((inputs,), name="image")
    return keras.Model(image, layers.Dense(units, name="head")(image), name="net")


def correlated(count=256, size=6, seed=0):
    """Inputs that move together, for which nearest rounding is far from the best."""
    generator = np.random.default_rng(seed)
    common = generator.normal(size=(count, 1))
    return (1.0 + common + 0.3 * generator.normal(size=(count, size))).astype("float32")


def state_of(q_model):
    return [np.array(keras.ops.convert_to_numpy(variable)) for variable in q_model.variables]


def error_against(model, q_model, x):
    return float(np.mean((np.asarray(model(x)) - np.asarray(q_model(x))) ** 2))


@pytest.fixture(scope="module")
def taught():
    """A float model, its data, its quantized model that learned, which nobody changes, and the report."""
    model, x = dense_net(), correlated()
    q_model = quantized(model, x)
    return model, x, q_model, learn_rounding(q_model, x, **QUICK)


def codes_of(q_model):
    found = qdq.integer_weights(q_model)
    return {
        name: weight for name, weight in found.items() if not isinstance(weight, np.ndarray) and weight.num_bits < 32
    }


def test_it_comes_near_the_best_of_all_roundings():
    model, x = dense_net(units=1, inputs=8), correlated(size=8)
    model.get_layer("head").kernel.assign(np.array([3.0, 0.4, 1.45, -1.6, 0.42, 2.4, -0.6, 1.4])[:, None])  # steps of 1
    q_model = quantized(model, x, target_of(weights=3))
    qparams = q_model.weight_qparams()["head/kernel"]
    kernel = model.get_layer("head").kernel.numpy()
    nearest = error_against(model, q_model, x)
    report = learn_rounding(q_model, x, steps=400, biases=False, verbose=False)
    learned = error_against(model, q_model, x)

    place = kernel / qparams.scale
    ends = np.abs(kernel) == np.abs(kernel).max()
    choices = [
        (np.rint(p),) if end else (np.floor(p), np.ceil(p)) for p, end in zip(place[:, 0], ends[:, 0], strict=True)
    ]
    best = np.inf
    scale = q_model.activation_quantizers[0]
    seen = np.asarray(scale(x))
    for codes in itertools.product(*choices):
        error = seen @ (np.array(codes)[:, None] * qparams.scale).astype("float32") - x @ kernel
        best = min(best, float(np.mean(error**2)))
    assert best < 0.2 * nearest
    assert learned < 1.5 * best
    (unit,) = report.units
    assert unit.layers == ("head",)
    assert unit.kept
    assert unit.learned_error < 0.3 * unit.nearest_error
    assert 0 < report.changed < 1


@pytest.mark.parametrize("granularity", ["layer", "model"])
def test_a_network_gets_better_and_its_scales_stay(granularity):
    model = fold_batch_norm(residual_net())
    x = samples(model, 64)
    q_model = quantized(model, x)
    before, nearest = q_model.weight_qparams(), error_against(model, q_model, x)
    ranges = q_model.activation_ranges()
    report = learn_rounding(q_model, x, granularity=granularity, **{**QUICK, "steps": 80})

    assert q_model.weight_qparams() == before
    assert q_model.activation_ranges() == ranges
    assert error_against(model, q_model, x) < nearest
    assert report.granularity == granularity
    assert report.complete
    weights = {layer.name for layer in model.layers if hasattr(layer, "kernel")}
    assert {layer for unit in report.units for layer in unit.layers} == weights
    assert report.left_out == {}
    assert len(report.units) == (1 if granularity == "model" else len(weights))


def in_file(codes, arrays):
    """Return whether a file holds the integers; normalizations with negative gains turn the signs of channels."""
    ours = np.moveaxis(codes.astype(int), -1, 0).reshape(codes.shape[-1], -1)
    for array in arrays:
        if array.ndim < 2 or array.dtype not in (np.int8, np.uint8, np.int32):
            continue
        by_input = [np.moveaxis(array, 1, -1), array] if array.ndim == 4 else [array, array.T]
        for theirs in by_input:
            rows = theirs.astype(int).reshape(len(theirs), -1)
            if rows.shape == ours.shape and ((rows == ours).all(axis=1) | (rows == -ours).all(axis=1)).all():
                return True
    return False


@pytest.mark.parametrize(("target", "folded"), [("onnxruntime", False), ("tensorrt", True), ("openvino", False)])
def test_the_file_holds_the_learned_integers(tmp_path, target, folded):
    model = residual_net()
    model = fold_batch_norm(model) if folded else model
    x = samples(model, 32)
    q_model = quantized(model, x, target_of(target))
    before = {name: weight.scale for name, weight in codes_of(q_model).items()}
    nearest = {name: weight.codes for name, weight in codes_of(q_model).items()}
    report = learn_rounding(q_model, x, **QUICK)
    assert report.changed > 0
    learned = codes_of(q_model)
    assert all(np.array_equal(learned[name].scale, before[name]) for name in before)
    assert any((learned[name].codes != nearest[name]).any() for name in nearest)

    path = tmp_path / "model.onnx"
    qdq.export_onnx(q_model, path)
    assert qdq.verify_onnx(path, q_model, data=x).passed
    arrays = [numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
    for name, weight in learned.items():
        assert in_file(weight.codes, arrays), name
        assert not in_file(weight.codes + 1, arrays), name


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter")
def test_a_litert_file_holds_them_too(tmp_path):
    model = fold_batch_norm(residual_net())
    x = samples(model, 32)
    q_model = quantized(model, x, "litert")
    nearest = {name: weight.codes for name, weight in codes_of(q_model).items()}
    assert learn_rounding(q_model, x, **QUICK).changed > 0
    path = tmp_path / "model.tflite"
    qdq.export_tflite(q_model, path)
    interpreter = tf.lite.Interpreter(str(path))
    interpreter.allocate_tensors()
    arrays = []
    for each in interpreter.get_tensor_details():
        with contextlib.suppress(ValueError):  # what is no constant has no values before a run
            arrays.append(interpreter.get_tensor(each["index"]))
    learned = {name: weight.codes for name, weight in codes_of(q_model).items()}
    assert any((learned[name] != nearest[name]).any() for name in learned)
    for name, codes in learned.items():
        assert in_file(codes, arrays), name
        assert in_file(nearest[name], arrays) == (codes == nearest[name]).all(), name


def test_a_saved_model_has_learned(taught, tmp_path):
    _, x, q_model, _ = taught
    q_model.save(tmp_path / "q.keras")
    loaded = keras.models.load_model(tmp_path / "q.keras")
    assert np.array_equal(loaded(x), q_model(x))
    assert (codes_of(loaded)["head/kernel"].codes == codes_of(q_model)["head/kernel"].codes).all()


@pytest.mark.parametrize(
    "config",
    [
        {"weight": {"num_bits": 2}},
        {"weight": {"num_bits": 4, "per_axis": False}},
        {"weight": {"num_bits": 4, "symmetric": False}},
        {"weight": {"num_bits": 4, "narrow_range": False}},
        {"weight": {"num_bits": 4, "quantizer": "lsq"}},
        {"weight": {"num_bits": 4, "quantizer": "fixed", "init_min": -0.5, "init_max": 0.5}},
        {"weight": {"num_bits": 4, "quantizer": "moving_average"}},
    ],
    ids=str,
)
def test_every_kind_of_range_stays(config):
    model, x = dense_net(units=5), correlated()
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_config=qdq.LayerQuantizeConfig(**config))
    q_model = quantized(model, x, "tensorrt", spec)
    before = q_model.weight_qparams()
    report = learn_rounding(q_model, x, biases=False, **QUICK)
    assert q_model.weight_qparams() == before
    assert error_against(model, q_model, x) <= report.units[0].nearest_error * 1.5
    kernel = model.get_layer("head").kernel.numpy()
    grid = before["head/kernel"]
    step = np.abs(codes_of(q_model)["head/kernel"].codes.astype(int) - qdq.numerics.quantize(kernel, grid).astype(int))
    assert step.max() <= 1


def test_the_same_seed_gives_the_same():
    def once(seed):
        q_model = quantized(*arguments)
        learn_rounding(q_model, arguments[1], seed=seed, drop=0.5, **QUICK)
        return codes_of(q_model)["head/kernel"].codes

    arguments = dense_net(units=16, inputs=32), correlated(size=32)
    first = once(0)
    assert (first == once(0)).all()
    assert (first != once(1)).any()


@pytest.mark.parametrize(("bits", "expected"), [(8, 0.0), (4, 0.0), (3, 0.5)])
def test_activations_of_very_few_bits_are_dropped(bits, expected):
    model, x = dense_net(), correlated(16)
    report = learn_rounding(quantized(model, x, target_of(activations=bits)), x, **{**QUICK, "steps": 1})
    assert report.settings["drop"] == expected


def test_biases_stay_if_asked(taught):
    model, x, other, other_report = taught
    q_model = quantized(model, x)
    report = learn_rounding(q_model, x, biases=False, **QUICK)
    assert "biases" not in report.summary()
    assert (q_model.wrappers[0].layer.bias.numpy() == model.get_layer("head").bias.numpy()).all()
    q_model, report = other, other_report
    assert report.units[0].biases == ("head/bias",)
    assert "biases that learned too: head/bias" in report.summary()
    assert RoundingReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    assert (q_model.wrappers[0].layer.bias.numpy() != model.get_layer("head").bias.numpy()).any()
    assert (model.get_layer("head").bias.numpy() == 0).all()


def test_the_source_model_stays(taught):
    model, *_ = taught
    assert (model.get_layer("head").kernel.numpy() == dense_net().get_layer("head").kernel.numpy()).all()


def test_the_original_of_clipped_weights_is_matched():
    model, x = dense_net(units=8, inputs=32), correlated(size=32)
    target = target_of(weights=3)
    clipped = clip_weights(model, target=target)

    def learned(reference):
        q_model = quantized(clipped, x, target)
        learn_rounding(q_model, x, reference=reference, steps=300, verbose=False)
        return error_against(model, q_model, x)

    assert learned(model) < 0.7 * learned(None)


def test_a_reference_of_other_layers_is_refused():
    model, x = dense_net(), correlated()
    folded = fold_batch_norm(residual_net())
    images = samples(folded, 16)
    for q_model, data, other in (
        (quantized(model, x), x, dense_net(inputs=6, units=4)),
        (quantized(model, x), x, quantized_free()),
        (quantized(folded, images), images, residual_net()),
    ):
        state = state_of(q_model)
        with pytest.raises(SpecError, match="layers of the model that was quantized"):
            learn_rounding(q_model, data, reference=other, **QUICK)
        assert all((a == b).all() for a, b in zip(state, state_of(q_model), strict=True))


def quantized_free():
    """A model without any weights."""
    image = keras.Input((6,), name="image")
    return keras.Model(image, layers.ReLU(name="head")(image))


def test_a_nested_reference_fits_the_flat_copy_of_a_correction():
    model = nested_net()
    x = samples(model, 16)
    q_model = quantized(clip_weights(model, target=target_of()), x)
    report = learn_rounding(q_model, x, reference=model, **{**QUICK, "steps": 2})
    assert report.units


def test_a_shared_layer_learns_once_for_all_its_calls():
    keras.utils.set_random_seed(0)
    left, right = keras.Input((6,), name="left"), keras.Input((6,), name="right")
    tower = layers.Dense(4, activation="relu", name="tower")
    joined = layers.Concatenate(name="joined")([tower(left), tower(right)])
    model = keras.Model([left, right], layers.Dense(2, name="head")(joined))
    x = [correlated(64), -correlated(64, seed=1)]
    q_model = quantized(model, x)
    before = q_model.weight_qparams()
    report = learn_rounding(q_model, x, granularity="layer", **{**QUICK, "steps": 5})
    assert [unit.layers for unit in report.units] == [("tower",), ("head",)]
    assert q_model.weight_qparams() == before


def test_nested_models_and_several_outputs():
    for model in (nested_net(), two_headed_net()):
        x = samples(model, 32)
        q_model = quantized(model, x)
        before = q_model.weight_qparams()
        report = learn_rounding(q_model, x, **{**QUICK, "steps": 5})
        assert q_model.weight_qparams() == before
        told = {f"{layer}/kernel" for unit in report.units for layer in unit.layers}
        assert told | set(report.left_out) >= {name for name in before if name.endswith("/kernel")}


def test_layers_with_several_weights_and_masks():
    keras.utils.set_random_seed(0)
    words = keras.Input((5,), dtype="int32", name="words")
    hidden = layers.Embedding(7, 6, mask_zero=True, name="table")(words)
    hidden = layers.LSTM(4, name="lstm")(hidden)
    hidden = layers.Reshape((4, 1), name="steps")(hidden)
    hidden = layers.MultiHeadAttention(2, 3, name="attention")(hidden, hidden)
    hidden = layers.SeparableConv1D(4, 3, name="separable")(hidden)
    hidden = layers.EinsumDense("abc,cd->abd", output_shape=(2, 3), name="einsum")(hidden)
    model = keras.Model(words, layers.Dense(2, name="head")(layers.Flatten(name="flat")(hidden)))
    x = np.random.default_rng(0).integers(0, 7, (32, 5))
    q_model = quantized(model, x)
    before = q_model.weight_qparams()
    report = learn_rounding(q_model, x, steps=3, verbose=False)
    assert q_model.weight_qparams() == before
    layer_names = {layer for unit in report.units for layer in unit.layers}
    assert {"table", "lstm", "attention", "separable", "einsum", "head"} <= layer_names | {
        name.split("/")[0] for name in report.left_out
    }


def test_what_has_learned_before_is_left_out(taught):
    _, x, q_model, _ = taught
    state = state_of(q_model)
    report = learn_rounding(q_model, x, **QUICK)
    assert report.units == ()
    assert "on the grid already" in report.left_out["head/kernel"]
    assert all((a == b).all() for a, b in zip(state, state_of(q_model), strict=True))


def test_a_quantizer_of_the_users_own_is_left_out():
    class Sign(qdq.LastValueQuantizer):
        def __call__(self, inputs, training=None, weights=None, **kwargs):
            return keras.ops.sign(inputs)

    class Config(KernelConfig):
        def kernel_quantizer(self):
            return Sign()

    model, x = dense_net(), correlated()
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_config=Config())
    q_model = qdq.quantize_model(model, quantization_spec=spec)
    qdq.calibrate(q_model, x, verbose=False)
    report = learn_rounding(q_model, x, **QUICK)
    assert report.units == ()
    assert "function of the user's own" in report.left_out["head/kernel"]


def chain():
    """Three layers in a row, and data."""
    keras.utils.set_random_seed(0)
    image = hidden = keras.Input((16,), name="image")
    for index in range(3):
        hidden = layers.Dense(12, activation="relu", name=f"dense_{index}")(hidden)
    return keras.Model(image, hidden), correlated(64, 16)


def test_progress_and_stop():
    model, x = chain()
    q_model = quantized(model, x)
    seen, state = [], state_of(q_model)
    report = learn_rounding(
        q_model, x, granularity="layer", progress=lambda *step: seen.append(step), stop=lambda: len(seen) > 2, **QUICK
    )
    assert not report.complete
    assert len(report.units) == 2
    assert [step[0] for step in seen] == [0, 1, 2]
    assert "stopped" in report.summary()
    changed = [not (a == b).all() for a, b in zip(state, state_of(q_model), strict=True)]
    assert 0 < sum(changed) <= 4


def test_an_interrupt_puts_everything_back_and_a_checkpoint_goes_on(tmp_path):
    model, x = chain()
    whole, broken = quantized(model, x), quantized(model, x)
    expected = learn_rounding(whole, x, granularity="layer", **QUICK)

    def press(done, total, text):
        if done == 2:
            signal.raise_signal(signal.SIGINT)

    state, path = state_of(broken), tmp_path / "rounding.npz"
    with pytest.raises(KeyboardInterrupt):
        learn_rounding(broken, x, granularity="layer", checkpoint=path, progress=press, **QUICK)
    assert all((a == b).all() for a, b in zip(state, state_of(broken), strict=True))

    report = learn_rounding(broken, x, granularity="layer", checkpoint=path, **QUICK)
    assert all((a == b).all() for a, b in zip(state_of(whole), state_of(broken), strict=True))
    assert [unit.layers for unit in report.units] == [unit.layers for unit in expected.units]
    assert [unit.changed for unit in report.units] == [unit.changed for unit in expected.units]


def test_checkpoints_of_another_run_or_damaged_ones_are_refused(tmp_path):
    model, x = dense_net(), correlated()
    path = tmp_path / "rounding.npz"
    learn_rounding(quantized(model, x), x, checkpoint=path, **QUICK)
    with pytest.raises(CheckpointError, match="another run"):
        learn_rounding(quantized(model, x), x, checkpoint=path, seed=1, **QUICK)
    with pytest.raises(OutputPathError):
        learn_rounding(quantized(model, x), x, checkpoint=tmp_path / "missing" / "rounding.npz", **QUICK)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="damaged"):
        learn_rounding(quantized(model, x), x, checkpoint=path, **QUICK)


def test_a_checkpoint_belongs_to_what_its_model_computes_and_to_its_target(tmp_path):
    def with_slope(slope):
        keras.utils.set_random_seed(0)
        image = keras.Input((6,), name="image")
        hidden = layers.LeakyReLU(negative_slope=slope, name="act")(layers.Dense(4, name="first")(image))
        return keras.Model(image, layers.Dense(3, name="head")(hidden))

    x, path = correlated(), tmp_path / "rounding.npz"

    def learned(slope=0.1, target=None):
        q_model = qdq.quantize_model(with_slope(slope), target=target or target_of())
        for layer in q_model.activation_quantizers:
            layer.set_range(-4.0, 4.0)
        learn_rounding(q_model, x, checkpoint=path, **QUICK)

    learned()
    learned()  # the same model again, under another name
    with pytest.raises(CheckpointError, match="another run"):
        learned(slope=0.5)
    with pytest.raises(CheckpointError, match="another run"):
        learned(target=dataclasses.replace(target_of(), bias="int32"))


def test_a_report_goes_through_a_file(taught, tmp_path):
    *_, report = taught
    report.save(tmp_path / "report.json")
    assert RoundingReport.load(tmp_path / "report.json") == report
    assert "head" in report.summary()
    assert "<table>" in report._repr_html_()
    with pytest.raises(DataError, match="not a rounding report"):
        RoundingReport.from_dict({"format": "other"})


def test_no_better_keeps_nearest():
    """Held-back samples of another kind judge: what suits the others is refused."""
    model, x = dense_net(units=4), correlated(64)
    q_model = quantized(model, x)
    codes = codes_of(q_model)["head/kernel"].codes
    report = learn_rounding(q_model, x, steps=1, penalty=1e9, learning_rate=1e-9, verbose=False)
    (unit,) = report.units
    assert not unit.kept
    assert unit.changed == 0
    assert (codes_of(q_model)["head/kernel"].codes == codes).all()
    assert "nearest rounding stays" in report.summary()


def test_training_goes_on_from_there():
    model, x = dense_net(), correlated()
    q_model = quantized(model, x)
    learn_rounding(q_model, x, **QUICK)
    q_model.compile("sgd", "mse")
    q_model.fit(x, model.predict(x, verbose=0), verbose=0)
    assert np.isfinite(q_model.predict(x, verbose=0)).all()


@pytest.fixture(scope="module")
def ready():
    """A quantized model that nobody changes, and its data."""
    x = correlated(16)
    return quantized(dense_net(), x), x


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"granularity": "channel"}, "granularity must be"),
        ({"steps": 0}, "steps must be an integer from 1 on"),
        ({"steps": 2.5}, "steps must be an integer"),
        ({"batch_size": -1}, "batch_size must be"),
        ({"seed": -1}, "seed must be"),
        ({"biases": "yes"}, "biases must be"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0"),
        ({"penalty": float("nan")}, "penalty must be"),
        ({"drop": 1.5}, "drop must be a probability"),
        ({"progress": 3}, "progress must be a function"),
        ({"stop": 3}, "stop must be a function"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(ready, wrong, words):
    with pytest.raises(DataError, match=words):
        learn_rounding(*ready, **{"verbose": False, **wrong})


def test_wrong_models_and_data_are_refused():
    model, x = dense_net(), correlated(16)
    with pytest.raises(NotQuantizedError):
        learn_rounding(model, x)
    with pytest.raises(UncalibratedError, match="Run calibrate"):
        learn_rounding(qdq.quantize_model(model), x)
    q_model = quantized(model, x)
    state = state_of(q_model)
    holed = x.copy()
    holed[3, 2] = np.nan
    for data, words in ((None, "needs data"), ([], "no data"), (x[:, :3], "does not fit"), (holed, "NaN")):
        with pytest.raises(DataError, match=words):
            learn_rounding(q_model, data, **QUICK)
    assert all((a == b).all() for a, b in zip(state, state_of(q_model), strict=True))
