"""`diagnose`: each planted cause is named first, and its fix gains what it says."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.retarget import replan
from qdq_workbench.diagnosis.fixes import Fix
from qdq_workbench.errors import DataError, SpecError

LAYERS = keras.layers


def network(body, *, shape=(8,), seed=0):
    """A model with a float head, so that a cause in its body is not hidden by the last layer's own grid."""
    keras.utils.set_random_seed(seed)
    image = keras.Input(shape, name="image")
    return keras.Model(image, body(image), name="net")


def samples(shape, count=128, seed=1):
    return np.random.default_rng(seed).normal(size=(count, *shape)).astype("float32")


def quantized(model, data, *, target="tensorrt", spec=None, method="minmax", calibration=None):
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    qdq.calibrate(q_model, data if calibration is None else calibration, method, verbose=False)
    return q_model


def scale_rows(layer, rows, factor):
    kernel = np.array(layer.kernel)
    kernel[..., rows, :] *= factor
    layer.kernel.assign(kernel)


def outlier_channel():
    x = samples((8,))
    x[:, 3] *= 200.0
    model = network(lambda image: LAYERS.Dense(4, name="head")(LAYERS.Dense(8, activation="relu", name="first")(image)))
    scale_rows(model.get_layer("first"), [3], 1 / 200.0)
    return quantized(model, x), x, "image"


def outlier_behind_a_normalization():
    x = samples((6, 16))
    model = network(
        lambda image: LAYERS.Dense(4, name="head")(LAYERS.LayerNormalization(name="norm")(image)), shape=(6, 16)
    )
    model.get_layer("norm").gamma.assign(np.array([100.0] + [1.0] * 15, "float32"))
    scale_rows(model.get_layer("head"), [0], 1 / 100.0)
    return quantized(model, x), x, "norm"


def dead_channels():
    x = samples((6, 6, 3))

    def body(image):
        value = LAYERS.Conv2D(8, 3, name="stem")(image)
        value = LAYERS.ReLU(name="relu")(value)
        return LAYERS.Dense(4, name="head")(LAYERS.GlobalAveragePooling2D()(LAYERS.Conv2D(8, 3, name="conv")(value)))

    model = network(body, shape=(6, 6, 3))
    stem = model.get_layer("stem")
    stem.bias.assign(np.array([0.0] * 6 + [-100.0] * 2, "float32"))
    scale_rows(model.get_layer("conv"), [6, 7], 60.0)
    return quantized(model, x), x, "conv/kernel"


def unbalanced_inputs():
    x = samples((6, 6, 3))

    def body(image):
        wide = LAYERS.Conv2D(4, 3, padding="same", activation="relu", name="wide")(image)
        narrow = LAYERS.Conv2D(4, 3, padding="same", activation="relu", name="narrow")(image)
        both = LAYERS.Concatenate(name="join")([wide, narrow])
        return [LAYERS.Conv2D(4, 1, name=f"{name}_head")(both) for name in ("wide", "narrow")]

    model = network(body, shape=(6, 6, 3))
    model.get_layer("wide").kernel.assign(model.get_layer("wide").kernel * 300.0)
    scale_rows(model.get_layer("wide_head"), [4, 5, 6, 7], 0.0)
    scale_rows(model.get_layer("narrow_head"), [0, 1, 2, 3], 0.0)
    spec = qdq.QuantizationSpec()
    spec.add("join", quantize_input=True)
    return quantized(model, x, spec=spec), x, "wide"


def unbalanced_sum():
    """Large activations that are added to small ones, and subtracted again behind the sum."""
    x = samples((6, 6, 3))

    def body(image):
        wide = LAYERS.Conv2D(4, 3, padding="same", activation="relu", name="wide")(image)
        narrow = LAYERS.Conv2D(4, 3, padding="same", activation="relu", name="narrow")(image)
        both = LAYERS.Add(name="join")([wide, narrow])
        return LAYERS.Conv2D(4, 1, name="head")(LAYERS.Subtract(name="without")([both, wide]))

    model = network(body, shape=(6, 6, 3))
    model.get_layer("wide").kernel.assign(model.get_layer("wide").kernel * 300.0)
    spec = qdq.QuantizationSpec()
    spec.add("join", quantize_input=True)
    return quantized(model, x, spec=spec), x, "wide"


def swish_network():
    """Samples, and a model whose activation has a short negative side."""
    x = samples((8,))

    def body(image):
        value = LAYERS.Dense(8, name="first")(image)
        return LAYERS.Dense(4, name="head")(LAYERS.Activation("swish", name="swish")(value))

    model = network(body)
    model.get_layer("first").kernel.assign(model.get_layer("first").kernel * 3.0)
    return x, model


def normalized_network():
    """Samples, and a model with a batch normalization behind its convolution."""
    x = samples((6, 6, 3))

    def body(image):
        value = LAYERS.BatchNormalization(name="norm")(LAYERS.Conv2D(4, 3, name="conv")(image))
        return LAYERS.Dense(4, name="head")(LAYERS.GlobalAveragePooling2D()(LAYERS.ReLU(name="relu")(value)))

    model = network(body, shape=(6, 6, 3))
    return x, model


def negative_tail():
    x, model = swish_network()
    spec = qdq.QuantizationSpec()
    spec.add("first", quantize_input=False, quantize_weight=False)
    spec.add("head", quantize_input=True, quantize_weight=False)
    return quantized(model, x, spec=spec), x, "swish"


def symmetric_tail():
    x, model = swish_network()
    symmetric = qdq.LayerQuantizeConfig(activation={"symmetric": True, "signed": True})
    spec = qdq.QuantizationSpec()
    spec.add("first", quantize_input=False, quantize_weight=False)
    spec.add("head", quantize_input=True, quantize_weight=True, quantize_config=symmetric)
    return quantized(model, x, spec=spec, target="onnxruntime"), x, "swish"


def depthwise_channels():
    x = samples((6, 6, 8))

    def body(image):
        value = LAYERS.DepthwiseConv2D(3, activation="relu", name="depthwise")(image)
        return LAYERS.Dense(4, name="head")(LAYERS.GlobalAveragePooling2D()(value))

    model = network(body, shape=(6, 6, 8))
    scale_rows(model.get_layer("depthwise"), [2], 300.0)
    scale_rows(model.get_layer("head"), [2], 1 / 300.0)
    spec = qdq.QuantizationSpec()
    per_tensor = qdq.LayerQuantizeConfig(weight={"per_axis": False})
    spec.add("depthwise", quantize_input=False, quantize_weight=True, quantize_config=per_tensor)
    spec.add("head", quantize_input=False, quantize_weight=False)
    return quantized(model, x, spec=spec), x, "depthwise/kernel"


def unfolded_normalization():
    x, model = normalized_network()
    conv = model.get_layer("conv")
    conv.kernel.assign(conv.kernel * np.array([1.0, 4.0, 0.3, 2.0], "float32"))
    settle(model, x)
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_output=True)
    return quantized(model, x, spec=spec), x, "conv"


def softmax():
    x = samples((8,))
    model = network(LAYERS.Dense(64, activation="softmax", name="head"))
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_output=True)
    return quantized(model, x, spec=spec), x, "head"


def logits():
    x = samples((8,))

    def body(image):
        return LAYERS.Softmax(name="softmax")(LAYERS.Dense(4, name="head")(LAYERS.Dense(16, name="first")(image)))

    model = network(body)
    model.get_layer("head").kernel.assign(model.get_layer("head").kernel * 40.0)
    spec = qdq.QuantizationSpec()
    spec.add("first", quantize_input=False, quantize_weight=False)
    spec.add("head", quantize_input=False, quantize_weight=False)
    spec.add("softmax", quantize_input=True)
    return quantized(model, x, spec=spec), x, "head"


def few_samples():
    x = samples((8,))
    model = network(lambda image: LAYERS.Dense(4, name="head")(LAYERS.Dense(8, activation="relu", name="first")(image)))
    return quantized(model, x, calibration=x[:2] * 0.7), x, None


def data_range():
    x = np.abs(samples((6, 6, 3))) * 255.0

    def body(image):
        value = LAYERS.Conv2D(4, 3, activation="relu", name="conv")(LAYERS.Rescaling(1 / 255.0, name="rescale")(image))
        return LAYERS.Dense(4, name="head")(LAYERS.GlobalAveragePooling2D()(value))

    model = network(body, shape=(6, 6, 3))
    return quantized(model, x, calibration=x / 255.0), x, None


def stale_statistics():
    x, model = normalized_network()
    settle(model, x)
    norm = model.get_layer("norm")
    norm.moving_mean.assign(norm.moving_mean + 2.0)
    return quantized(model, x), x, "conv"


def outlier_weights():
    x = samples((64,))
    model = network(lambda image: LAYERS.Dense(4, name="head")(LAYERS.Dense(8, name="first")(image)), shape=(64,))
    first = model.get_layer("first")
    kernel = np.array(first.kernel)
    kernel[5, :] = 8.0
    first.kernel.assign(kernel)
    x[:, 5] *= 0.01
    spec = qdq.QuantizationSpec()
    spec.add("first", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
    return quantized(model, x, spec=spec), x, "first/kernel"


def settle(model, x):
    """Give normalizations the statistics of the data."""
    norm = model.get_layer("norm")
    values = keras.Model(model.input, norm.input)(x).numpy()
    norm.moving_mean.assign(values.mean((0, 1, 2)))
    norm.moving_variance.assign(values.var((0, 1, 2)))


PLANTED = {
    "outlier_channel, behind a normalization": outlier_behind_a_normalization,
    "negative_tail, asymmetric allowed": symmetric_tail,
    "outlier_channel": outlier_channel,
    "dead_channels": dead_channels,
    "unbalanced_inputs": unbalanced_inputs,
    "unbalanced_inputs, of a sum": unbalanced_sum,
    "negative_tail": negative_tail,
    "depthwise_channels": depthwise_channels,
    "unfolded_normalization": unfolded_normalization,
    "softmax": softmax,
    "logits": logits,
    "few_samples": few_samples,
    "data_range": data_range,
    "stale_statistics": stale_statistics,
    "outlier_weights": outlier_weights,
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_cause_is_named_first_and_its_fix_gains(kind):
    q_model, x, tensor = PLANTED[kind]()
    found = qdq.diagnose(q_model, x, verbose=False)
    cause = found.causes[0]
    assert cause.kind == kind.partition(",")[0]
    assert tensor in (None, cause.tensor)
    assert cause.gain is None
    assert not cause.applied
    before = [np.array(variable) for variable in q_model.variables]
    fixed = found.apply(cause, verbose=False)
    assert cause.applied
    if kind == "stale_statistics":
        assert cause.gain is None  # without labels nobody knows whether another function is a better one
    else:
        assert cause.gain > 1.0  # dB
    for variable, value in zip(q_model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    assert not fixed.uncalibrated_tensors()
    assert ("smooth_scales" in cause.fix) == ("behind a normalization" in kind)


def test_statistics_that_do_not_fit_are_judged_by_labels():
    q_model, x, _ = stale_statistics()
    right = qdq.strip(q_model)
    norm = right.get_layer("norm")
    norm.moving_mean.assign(norm.moving_mean - 2.0)
    labels = np.argmax(right(x), axis=-1)
    found = qdq.diagnose(q_model, (x, labels), verbose=False)
    assert (found.metric, found.causes[0].kind) == ("accuracy", "stale_statistics")
    fixed = found.apply("stale_statistics", verbose=False)
    agreement = np.mean(np.argmax(fixed(x), axis=-1) == labels)
    assert found.causes[0].gain == pytest.approx(agreement - found.quantized_value)
    assert agreement > 0.95 > found.float_value


def test_all_fixes_are_tried_in_order_and_kept_where_held_out_samples_gain():
    q_model, x, _ = outlier_channel()
    held_out = x[64:]
    found = qdq.diagnose(q_model, x[:64], verbose=False)
    seen = []
    fixed = found.apply(data=held_out, progress=lambda *step: seen.append(step))
    assert seen[0][:2] == (0, len(found.causes))
    assert seen[-1][:2] == (len(found.causes),) * 2
    assert all(cause.applied == (cause.gain > 0.0) for cause in found.causes)
    reference = np.asarray(qdq.strip(q_model)(held_out))

    def error(model):
        return 10 * np.log10(np.sum(reference**2) / np.sum((np.asarray(model(held_out)) - reference) ** 2))

    gained = sum(cause.gain for cause in found.causes if cause.applied)
    assert error(fixed) - error(q_model) == pytest.approx(gained, abs=1e-2)


def test_fixes_can_be_stopped():
    q_model, x, _ = outlier_channel()
    found = qdq.diagnose(q_model, x[:64], verbose=False)
    asked = []
    fixed = found.apply(stop=lambda: len(asked) == 1 or asked.append(None), verbose=False)
    assert [cause.gain is None for cause in found.causes] == [False] + [True] * (len(found.causes) - 1)
    assert (fixed is not q_model) == found.causes[0].applied


def test_a_float_model_is_quantized_and_calibrated_inside():
    x = samples((8,))
    model = network(lambda image: LAYERS.Dense(4, name="head")(LAYERS.Dense(8, activation="relu", name="first")(image)))
    spec = qdq.QuantizationSpec()
    spec.add("first", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 2}))
    plan = qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")
    found = qdq.diagnose(model, x, plan=plan, calibration_data=x[:50], verbose=False)
    assert (found.target, found.causes[0].tensor, found.weights_share > 0.9) == ("onnxruntime", "first/kernel", True)
    assert "2 bits" in found.causes[0].evidence
    assert "learn_rounding" in found.causes[0].evidence
    assert found.apply(0, verbose=False).plan.for_layer("first").quantize_weight
    assert found.causes[0].fix == "raise first to 8 bits"


def test_nothing_is_blamed_where_nothing_is_lost():
    x = np.zeros((16, 8), "float32")
    model = network(LAYERS.Dense(4, name="head"))
    model.get_layer("head").bias.assign(np.ones(4, "float32"))
    found = qdq.diagnose(quantized(model, x), x, verbose=False)
    assert found.causes == ()
    assert "No cause was found" in found.summary()
    assert found.apply(verbose=False) is found.patient.q_model


def test_it_can_be_stopped_and_tells_how_far_it_is():
    q_model, x, _ = dead_channels()
    seen = []
    found = qdq.diagnose(q_model, x, progress=lambda *step: seen.append(step), stop=lambda: len(seen) > 2)
    assert not found.complete
    assert seen[0][0] == 0


def test_what_is_written_can_be_read(tmp_path):
    q_model, x, _ = logits()
    found = qdq.diagnose(q_model, x, verbose=False)
    found.apply(0, verbose=False)
    found.save(tmp_path / "diagnosis.json")
    data = json.loads((tmp_path / "diagnosis.json").read_text())
    assert data["causes"][0]["kind"] == "logits"
    assert data["float_value"] == "inf"
    assert data["causes"][0]["gain"] == "inf"
    assert "patient" not in data
    assert "quantized logits" in found._repr_html_()


def test_bad_input_is_refused_by_name():
    q_model, x, _ = softmax()
    found = qdq.diagnose(q_model, (x, np.zeros(len(x), int)), verbose=False)
    with pytest.raises(SpecError, match="no such cause"):
        found.apply("coarse", verbose=False)
    with pytest.raises(SpecError, match="no such cause"):
        found.apply(99, verbose=False)
    with pytest.raises(DataError, match="compares with labels"):
        found.apply(data=x, verbose=False)
    with pytest.raises(DataError, match="finite"):
        qdq.diagnose(q_model, np.full_like(x, np.nan), verbose=False)
    with pytest.raises(DataError, match="must be a function"):
        qdq.diagnose(q_model, x, stop=5, verbose=False)
    with pytest.raises(SpecError, match="quantized by another plan"):
        other = qdq.plan_placement(qdq.strip(q_model))
        qdq.diagnose(q_model, x, plan=other, verbose=False)


@pytest.mark.parametrize("kind", ["unbalanced_inputs", "depthwise_channels", "softmax", "logits", "outlier_weights"])
def test_fixes_of_the_plan_are_entries_of_a_specification(kind):
    q_model, x, _ = PLANTED[kind]()
    found = qdq.diagnose(q_model, x, verbose=False)
    fix = next(fix for fix in found.causes[0].fixes if fix.replan is not None)
    model = qdq.strip(q_model)
    start = qdq.plan_placement(model)
    spec = fix.entries(None, start)
    assert {p.key for p in qdq.plan_placement(model, quantization_spec=spec).placements} == {
        p.key for p in fix.replan(start).placements
    }
    assert len(spec.layers) >= (fix.replan(start).decisions != start.decisions)


def test_weights_are_cut_for_the_grids_of_the_plan():
    x = samples((512,))
    model = network(lambda image: LAYERS.Dense(4, name="head")(LAYERS.Dense(2, name="first")(image)), shape=(512,))
    kernel = 0.3 * np.random.default_rng(0).standard_normal((512, 2))
    kernel[5] = 6.0
    model.get_layer("first").kernel.assign(kernel)
    x[:, 5] *= 0.01
    spec = qdq.QuantizationSpec()
    spec.add("first", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
    q_model = quantized(model, x, spec=spec)
    fix = qdq.diagnose(q_model, x, verbose=False).causes[0].fixes[0]
    assert "clip_weights" in fix.text
    cut = qdq.strip(fix.run(q_model, x)).get_layer("first").kernel
    model = qdq.strip(q_model)
    wanted = qdq.correction.clip_weights(model, plan=q_model.plan).get_layer("first").kernel
    np.testing.assert_array_equal(cut, wanted)
    assert np.abs(wanted).max() < np.abs(qdq.correction.clip_weights(model).get_layer("first").kernel).max()  # 8 bits


def test_scales_are_smoothed_for_the_grids_of_the_plan():
    planted, x, _ = outlier_behind_a_normalization()
    model = qdq.strip(planted)
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 3}))
    q_model = quantized(model, x, spec=spec)
    fixes = [fix for cause in qdq.diagnose(q_model, x, verbose=False).causes for fix in cause.fixes]
    fix = next(fix for fix in fixes if "smooth_scales" in fix.text)
    gain = qdq.strip(fix.run(q_model, x)).get_layer("norm").gamma
    wanted = qdq.correction.smooth_scales(model, x, plan=q_model.plan).get_layer("norm").gamma
    np.testing.assert_array_equal(gain, wanted)
    assert not np.array_equal(wanted, qdq.correction.smooth_scales(model, x).get_layer("norm").gamma)  # 8 bits


def test_a_site_whose_error_is_infinite_is_the_cause():
    """Rounded to 0, probabilities have no logarithm; the NaN of that site once hid every cause."""

    def body(image):
        scores = LAYERS.Dense(4, kernel_initializer="random_normal", name="scores")(image)
        chances = LAYERS.Softmax(name="chances")(scores)
        return keras.ops.multiply(chances, keras.ops.log(chances))

    model, x = network(body), samples((8,))
    kernel = model.get_layer("scores").kernel
    kernel.assign(kernel * 60.0)
    spec = qdq.QuantizationSpec()
    spec.add("chances", quantize_output=True)
    found = qdq.diagnose(quantized(model, x, spec=spec), x, verbose=False)
    assert np.isnan(found.quantized_value)
    assert [(cause.tensor, cause.share) for cause in found.causes] == [("chances", 1.0)]
    assert np.isfinite(found.apply(verbose=False)(x)).all()
    assert (found.causes[0].applied, found.causes[0].gain) == (True, np.inf)


def test_a_fix_whose_outputs_are_not_numbers_is_never_the_best():
    def broken(q_model, _):
        other = replan(q_model, q_model.plan)
        bias = other.wrappers_by_path()["head"].layer.bias  # nothing behind it could hide a NaN
        bias.assign(bias + np.nan)
        return other

    q_model, x, _ = outlier_channel()
    found = qdq.diagnose(q_model, x, verbose=False)
    cause = found.causes[0]
    breaks, nothing = Fix("break it", broken), Fix("leave it", lambda q_model, _: replan(q_model, q_model.plan))
    cause.fixes = (breaks, nothing)
    found.apply(0, verbose=False)
    assert cause.fix == "leave it"
    cause.fixes = (breaks,)
    assert np.isfinite(found.apply(0, verbose=False)(x)).all()
    assert (cause.applied, cause.gain) == (False, -np.inf)
