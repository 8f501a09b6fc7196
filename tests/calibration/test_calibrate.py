import json

import keras
import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf
from keras import layers
from small_models import residual_net, samples, two_headed_net

import qdq_workbench as qdq
from qdq_workbench.errors import DataError, NotQuantizedError


@pytest.fixture
def q_model():
    return qdq.quantize_model(residual_net())


def image(count=16, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 8, 8, 2)).astype("float32")


def test_minmax_records_every_tensor_of_the_float_model(q_model):
    x = image()
    result = qdq.calibrate(q_model, x, batch_size=5, verbose=False, freeze=True)
    assert (result.batches, result.samples) == (4, 16)
    float_model = residual_net()
    for name in ("stem", "stem_relu", "norm", "add", "head"):
        values = keras.Model(float_model.inputs, float_model.get_layer(name).output).predict(x, verbose=0)
        np.testing.assert_allclose(result.ranges[name], (values.min(), values.max()), rtol=1e-5, atol=1e-6)
    assert set(result.ranges) == set(q_model.plan.graph.tensors)
    assert q_model.recorded_ranges == result.ranges
    assert q_model.activation_ranges()["image"] == pytest.approx((x.min(), x.max()))
    assert all(bool(layer.frozen.numpy()) for layer in q_model.activation_quantizers)


def test_moving_average_and_percentile_are_narrower(q_model):
    x = image(64)
    x[0] *= 10
    widths = {}
    for method, settings in (("minmax", {}), ("moving_average", {}), ("percentile", {"percentile": 99.0})):
        low, high = qdq.calibrate(q_model, x, method, batch_size=8, verbose=False, **settings).ranges["image"]
        widths[method] = high - low
    assert widths["percentile"] < widths["moving_average"] < widths["minmax"]


@pytest.mark.parametrize(
    "data",
    [
        lambda x: x,
        lambda x: (x, np.zeros(16)),
        lambda x: tf.data.Dataset.from_tensor_slices(x).batch(4),
        lambda x: tf.data.Dataset.from_tensor_slices((x, np.zeros(16))).batch(4),
        lambda x: [x[:8], x[8:]],
        lambda x: [(x[:8], np.zeros(8)), (x[8:], np.zeros(8))],
        lambda x: [[x[:8], np.zeros(8)], [x[8:], np.zeros(8)]],
        lambda x: (batch for batch in (x[:8], x[8:])),
        lambda x: lambda: ([batch] for batch in (x[:8], x[8:])),
        lambda x: {"image": x},
        tf.constant,
        lambda x: x.astype("float64"),
    ],
    ids=[
        "array",
        "array, labels",
        "dataset",
        "labelled dataset",
        "list",
        "labelled list",
        "labelled lists, as PyTorch's loaders yield them",
        "generator",
        "function",
        "dict",
        "tensor",
        "float64",
    ],
)
def test_forms_of_data(q_model, data):
    x = image()
    result = qdq.calibrate(q_model, data(x), verbose=False)
    assert result.samples == 16
    assert result.ranges["image"] == pytest.approx((x.min(), x.max()))


def test_several_inputs():
    model = two_headed_net()
    x = samples(model)
    arrays = [x["left"], x["right"]]
    for data in (x, arrays, [x], [tuple(arrays)], [(x, np.zeros(16))], [[arrays, np.zeros(16)]], [[x, np.zeros(16)]]):
        q_model = qdq.quantize_model(model)
        result = qdq.calibrate(q_model, data, verbose=False)
        assert result.ranges["right"] == pytest.approx((x["right"].min(), x["right"].max()))


def test_steps_and_stopping(q_model):
    assert qdq.calibrate(q_model, image(), batch_size=2, steps=3, verbose=False).batches == 3
    seen = []
    qdq.calibrate(q_model, image(), batch_size=2, verbose=False, on_batch=lambda n: seen.append(n) or n < 2)
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "needs data"),
        ("images.npz", "needs data"),
        (3, "cannot be read"),
        ([], "no data"),
        (np.array(3.0), "a single number"),
        (np.zeros((0, 8, 8, 2), "float32"), "no data"),
        (np.zeros((4, 8, 8, 3), "float32"), r"must be \(None, 8, 8, 2\).*Received: shape \(4, 8, 8, 3\)"),
        (np.zeros((8, 8, 2), "float32"), "batch first"),
        ([[np.zeros((4, 8, 8, 2))] * 4], "1 inputs"),
        ({"picture": np.zeros((4, 8, 8, 2))}, "lack the input 'image'"),
        (np.full((4, 8, 8, 2), np.nan, "float32"), "'image' holds NaN"),
        (np.full((4, 8, 8, 2), np.inf, "float32"), "'image' holds infinity"),
    ],
)
def test_bad_data_is_refused_and_the_model_unchanged(q_model, data, message):
    before = q_model.get_weights()
    with pytest.raises(DataError, match=message):
        qdq.calibrate(q_model, data, verbose=False)
    for ours, theirs in zip(q_model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert q_model.quantization_enabled
    assert q_model.recorded_ranges == {}


def test_nan_inside_the_network_is_found_where_it_starts(q_model):
    q_model.get_layer("quant_conv").layer.bias.assign([np.nan, 0, 0, 0])
    with pytest.raises(DataError, match="Tensor 'conv' holds NaN"):
        qdq.calibrate(q_model, image(), verbose=False)


def test_unknown_method_and_setting(q_model):
    with pytest.raises(DataError, match="Did you mean 'minmax'"):
        qdq.calibrate(q_model, image(), "min_max", verbose=False)
    with pytest.raises(DataError, match="no setting 'percentile'"):
        qdq.calibrate(q_model, image(), "minmax", percentile=99, verbose=False)


def test_weights_statistics_and_optimizer_are_not_touched(q_model):
    q_model.compile("adam", "mse")
    q_model.fit(image(), np.zeros((16, 3)), verbose=0)
    weights = [w.numpy() for w in q_model.trainable_variables]
    statistics = [w.numpy() for layer in q_model.layers if "norm" in layer.name for w in layer.weights]
    iterations = int(q_model.optimizer.iterations)
    qdq.calibrate(q_model, image(), verbose=False)
    for ours, theirs in zip(q_model.trainable_variables, weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    after = [w.numpy() for layer in q_model.layers if "norm" in layer.name for w in layer.weights]
    assert all(np.array_equal(x, y) for x, y in zip(after, statistics, strict=True))
    assert int(q_model.optimizer.iterations) == iterations


def test_results_can_be_saved_and_applied(q_model):
    result = qdq.calibrate(q_model, image(), verbose=False)
    again = qdq.CalibrationResult.from_dict(result.to_dict())
    assert again == result
    assert "16 samples" in again.summary()
    fresh = qdq.quantize_model(residual_net())
    qdq.apply_calibration(fresh, again)
    assert fresh.activation_ranges() == q_model.activation_ranges()
    with pytest.raises(DataError, match="another network"):
        qdq.apply_calibration(qdq.quantize_model(two_headed_net()), again)


def test_settings_may_be_numbers_of_numpy(q_model):
    result = qdq.calibrate(q_model, image(), "percentile", percentile=np.float32(99.5), verbose=False)
    assert json.dumps(result.to_dict()["settings"]) == '{"percentile": 99.5}'


def test_only_quantized_models_can_be_calibrated():
    with pytest.raises(NotQuantizedError, match="quantize_model"):
        qdq.calibrate(residual_net(), image())


def test_progress_is_shown(q_model, capsys):
    qdq.calibrate(q_model, image(), batch_size=8)
    assert "Calibrating residual_net" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict:UserWarning")  # Keras's own advice
def test_a_dictionary_may_have_other_keys_than_the_inputs_have_names():
    left, right = keras.Input((2,), name="left"), keras.Input((2,), name="right")
    model = keras.Model({"a": right, "b": left}, layers.Dense(1)(left + 2.0 * right))
    low, high = np.zeros((4, 2), "float32"), np.ones((4, 2), "float32")
    for data in ({"a": high, "b": low}, [{"a": high, "b": low}], {"right": high, "left": low}):
        q_model = qdq.quantize_model(model)
        ranges = qdq.calibrate(q_model, data, verbose=False).ranges
        assert (ranges["right"], ranges["left"]) == ((1.0, 1.0), (0.0, 0.0))
    with pytest.raises(DataError, match=r"keys \['a', 'b'\]"):
        qdq.calibrate(q_model, {"a": high}, verbose=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size must be"),
        ({"batch_size": "a"}, "batch_size must be"),
        ({"steps": 0}, "steps must be"),
        ({"steps": -1}, "steps must be"),
        ({"method": "percentile", "percentile": "high"}, "percentile must be"),
        ({"method": "moving_average", "momentum": None}, "momentum must be"),
    ],
)
@pytest.mark.parametrize("verbose", [False, True])
def test_settings_out_of_bounds(q_model, settings, message, verbose):
    with pytest.raises(DataError, match=message):
        qdq.calibrate(q_model, image(), verbose=verbose, **settings)


@pytest.mark.parametrize("data", [np.full((2, 8, 8, 2), "a"), np.ones((2, 8, 8, 2), "complex64")])
def test_data_that_are_no_real_numbers(q_model, data):
    with pytest.raises(DataError, match="does not hold real numbers"):
        qdq.calibrate(q_model, data, verbose=False)


def _sparse():
    return tf.sparse.from_dense(np.eye(2, dtype="float32"))


UNEVEN = [[1.0, 2.0], [3.0]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: [[UNEVEN]], "Batch 0 of input 'x' must be an array of samples of one size.*a list of length 2"),
        (lambda: [{"x": UNEVEN}], "samples of one size"),
        (lambda: {"x": UNEVEN}, "The data must be an array of samples of one size"),
        (lambda: tf.ragged.constant(UNEVEN), "x.to_tensor.*Received: RaggedTensor"),
        (lambda: [tf.ragged.constant([[1.0, 2.0], [3.0, 4.0]])], "Batch 0 .*Received: RaggedTensor"),
        (_sparse, "The data must be a dense array.*Received: SparseTensor"),
        (lambda: [_sparse()], "Batch 0 of input 'x' must be a dense array.*Received: SparseTensor"),
        (lambda: tf.data.Dataset.from_tensors(_sparse()), "tf.sparse.to_dense"),
        (lambda: scipy.sparse.eye(2), r"The data must be a dense array.*x.toarray\(\)"),
        (lambda: [scipy.sparse.csr_matrix(np.eye(2))], "Batch 0 of input 'x' must be a dense array"),
    ],
)
def test_data_that_are_no_dense_arrays_are_refused(data, message):
    x = keras.Input((2,), name="x")
    q_model = qdq.quantize_model(keras.Model(x, layers.Dense(2)(x)))
    with pytest.raises(DataError, match=message):
        qdq.calibrate(q_model, data(), verbose=False)


@pytest.fixture
def token_model():
    """Return a quantized model of tokens from 0 to 9."""
    tokens = keras.Input((5,), dtype="int32", name="tokens")
    hidden = layers.Flatten(name="flat")(layers.Embedding(10, 4, name="embedding")(tokens))
    return qdq.quantize_model(keras.Model(tokens, layers.Dense(2, name="head")(hidden)))


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_tokens_beyond_an_embedding_are_named_in_one_line(token_model, method):
    good, bad = np.full((4, 5), 9), np.full((4, 5), 99)
    for data in ([bad], [good, good, bad]):
        with pytest.raises(DataError, match=r"TensorFlow says: indices\[0,0\] = 99 is not in \[0, 10\)\.") as failure:
            qdq.calibrate(token_model, data, method, verbose=False)
        assert str(failure.value).endswith("Received: a batch of shape and values (4, 5) from 99 to 99")
        assert "\n" not in str(failure.value)
        assert isinstance(failure.value.__cause__, tf.errors.InvalidArgumentError)
    assert token_model.recorded_ranges == {}
    with pytest.raises(DataError, match="could not compute this batch"):
        list(qdq.tensor_values(token_model, bad))


@pytest.mark.parametrize("name", ["correct_biases", "smooth_scales", "estimate_statistics"])
def test_corrections_name_them_too(name):
    tokens = keras.Input((5,), dtype="int32", name="tokens")
    hidden = layers.BatchNormalization(name="norm")(layers.Embedding(10, 4, name="embedding")(tokens))
    model = keras.Model(tokens, layers.Dense(2, name="head")(hidden))
    with pytest.raises(DataError, match=r"99 is not in \[0, 10\).*Received: a batch of shape and values \(4, 5\)"):
        getattr(qdq.correction, name)(model, np.full((4, 5), 99))


@pytest.mark.parametrize("name", ["learn_rounding", "gptq_weights"])
def test_rounding_names_them_too(token_model, name):
    qdq.calibrate(token_model, np.full((4, 5), 9), verbose=False)
    with pytest.raises(DataError, match=r"99 is not in \[0, 10\)"):
        getattr(qdq.correction, name)(token_model, np.full((4, 5), 99), verbose=False)


def test_inputs_with_unequal_numbers_of_samples_are_refused():
    inputs = [keras.Input((3,), name=name) for name in ("left", "right")]
    q_model = qdq.quantize_model(keras.Model(inputs, layers.Dense(2)(layers.Concatenate()(inputs))))
    short, long = np.ones((4, 3), "float32"), np.ones((6, 3), "float32")
    for data in ([short, long], {"left": short, "right": long}, iter([[short, long]])):
        with pytest.raises(DataError, match=r"'left': 4, 'right': 6"):
            qdq.calibrate(q_model, data, verbose=False)


def test_ranges_that_are_no_calibration_result_are_refused(q_model):
    with pytest.raises(DataError, match="Received: dict"):
        qdq.apply_calibration(q_model, {"image": (0.0, 1.0)})


FIXED = {"quantizer": "fixed", "init_min": -0.5, "init_max": 0.5}


def forked(left, right, target):
    """A model in which two layers read one tensor, each through a pair of its own; with its ranges by reader."""
    image = keras.Input((4,), name="image")
    hidden = layers.Dense(6, name="hidden", kernel_initializer="ones")(image)
    spec = qdq.QuantizationSpec()
    for name, settings in (("left", left), ("right", right)):
        if settings:
            spec.add(name, quantize_config=qdq.LayerQuantizeConfig(activation=settings))
    heads = [layers.Dense(2, name=name)(hidden) for name in ("left", "right")]
    return qdq.quantize_model(keras.Model(image, heads), quantization_spec=spec, target=target)


def ranges_by_reader(q_model):
    plan, ranges = q_model.plan, q_model.activation_ranges()
    return {name: ranges[plan.pair_of(plan.input_placement(name, 0)).name] for name in ("left", "right")}


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime", "openvino", "litert"])
def test_a_fixed_range_is_that_of_its_reader_alone(target, tmp_path):
    """Whichever of the two pairs comes first, and after saving, loading and planning for every target."""
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    seen = (float(x.sum(-1).min()), float(x.sum(-1).max()))
    for settings in ((FIXED, None), (None, FIXED)):
        q_model = forked(*settings, target)
        result = qdq.calibrate(q_model, x, verbose=False)
        fixed, free = ("left", "right") if settings[0] else ("right", "left")
        assert result.ranges["hidden"] == pytest.approx(seen, rel=1e-5)
        q_model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        others = [qdq.retarget(loaded, other) for other in ("tensorrt", "onnxruntime", "openvino", "litert")]
        for each in (q_model, loaded, *others):
            found = ranges_by_reader(each)
            assert (found[fixed], found[free]) == ((-0.5, 0.5), pytest.approx(seen, rel=1e-5))


def test_pairs_on_other_grids_have_ranges_of_their_own():
    """A method that minimises an error finds other ranges for 3 bits than for 8, however the tensor is called."""
    x = np.random.default_rng(0).normal(size=(512, 4)).astype("float32")
    alone = {}
    for bits in (3, 8):
        q_model = forked({"num_bits": bits}, {"num_bits": bits}, "tensorrt")
        qdq.calibrate(q_model, x, "mse", verbose=False)
        alone[bits] = ranges_by_reader(q_model)["left"]
    assert alone[3][1] < 0.9 * alone[8][1]
    for bits in ((3, 8), (8, 3)):
        q_model = forked({"num_bits": bits[0]}, {"num_bits": bits[1]}, "tensorrt")
        result = qdq.calibrate(q_model, x, "mse", verbose=False)
        assert ranges_by_reader(q_model) == {"left": alone[bits[0]], "right": alone[bits[1]]}
        merged = qdq.CalibrationResult.merge([result])
        qdq.apply_calibration(q_model, merged)
        assert ranges_by_reader(q_model) == {"left": alone[bits[0]], "right": alone[bits[1]]}


def test_readers_keep_their_ranges_when_only_the_kind_of_grid_differs():
    q_model = forked({"symmetric": True}, {"symmetric": False}, "onnxruntime")
    for layer, ends in zip(q_model.activation_quantizers[1:], ((-1.0, 1.0), (-2.0, 2.0)), strict=True):
        layer.set_range(*ends)
    q_model.activation_quantizers[0].set_range(-1.0, 1.0)
    before = ranges_by_reader(q_model)
    assert ranges_by_reader(qdq.retarget(q_model, "tensorrt")) == before
    assert before["left"] != before["right"]


def test_states_that_keras_promises_and_does_not_give_are_not_asked_for(tmp_path):
    def way(layer_class, **kwargs):
        return layer_class(3, return_sequences=True, return_state=True, **kwargs)

    x = keras.Input((5, 4), name="x")
    both = layers.Bidirectional(way(layers.LSTM), backward_layer=way(layers.GRU, go_backwards=True), name="both")
    model = keras.Model(x, both(x)[0])
    data = np.random.default_rng(0).normal(size=(4, 5, 4)).astype("float32")
    q_model = qdq.quantize_model(model)
    q_model.quantization_enabled = False
    np.testing.assert_array_equal(np.asarray(q_model(data)), np.asarray(model(data)))
    q_model.quantization_enabled = True
    result = qdq.calibrate(q_model, data, verbose=False)
    assert set(result.ranges) == {"x", "both"}
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, data).raise_if_failed()
