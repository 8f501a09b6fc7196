"""MCT's entry on whole models: every switch does what it says, and the result goes the whole way."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers
from small_models import samples, shake

import qdq_workbench as qdq
from qdq_workbench import mct
from qdq_workbench.errors import DataError, SpecError
from qdq_workbench.numerics import qparams_from_range


def network(activation="relu"):
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    hidden = layers.Conv2D(6, 3, padding="same", use_bias=False, name="first")(image)
    hidden = layers.BatchNormalization(name="norm")(hidden)
    hidden = layers.Activation(activation, name="act")(hidden)
    hidden = layers.Conv2D(6, 3, padding="same", name="second")(hidden)
    hidden = layers.GlobalAveragePooling2D(name="pool")(hidden)
    model = keras.Model(image, layers.Dense(4, activation="softmax", name="head")(hidden), name="network")
    shake(model)
    model.get_layer("norm").gamma.assign(model.get_layer("norm").gamma * 4)
    return model


def batches(count=4):
    x = samples(network(), 8 * count)

    def generator():
        for start in range(0, len(x), 8):
            yield [x[start : start + 8]]

    return generator


def quantize(model, n_iter=4, **config):
    return mct.keras_post_training_quantization(model, batches(), n_iter, mct.QuantizationConfig(**config))


def test_as_documented(tmp_path):
    """Positional arguments, a function that returns one batch per call, the defaults."""
    calls = []
    x = samples(network(), 8)

    def representative_data_gen():
        calls.append(1)
        return [x]

    model = network()
    quantized_model, info = mct.keras_post_training_quantization(model, representative_data_gen, 3)
    assert isinstance(quantized_model, qdq.QuantizedModel)
    assert info.calibration.batches == 3
    assert len(calls) == 6  # once for the means of the bias correction, once for the ranges
    assert info.steps[0] == "batch normalizations folded"
    assert "norm" not in {layer.name for layer in quantized_model.layers}
    difference = np.abs(np.asarray(quantized_model(x)) - np.asarray(model(x))).max()
    assert 0 < difference < 0.1
    qdq.export_onnx(quantized_model, tmp_path / "mct.onnx")
    qdq.verify_onnx(tmp_path / "mct.onnx", quantized_model, x).raise_if_failed()


def test_scales_are_powers_of_two_by_default():
    quantized_model, info = quantize(network())
    for tensor in info.plan.tensors:
        if tensor.kind == "activation" and tensor.name != "head":  # the range of a softmax is known: no calibration
            scale = float(qparams_from_range(*info.calibration.ranges[tensor.name], tensor.quantizer).scale)
            assert np.log2(scale) == pytest.approx(round(np.log2(scale)), abs=1e-6)
    assert info.calibration.ranges["head"] == (0.0, 1.0)
    free, _ = quantize(network(), activation_quantization_method=mct.QuantizationMethod.SYMMETRIC)
    assert free.activation_ranges() != quantized_model.activation_ranges()


@pytest.mark.parametrize("name", ["NOCLIPPING", "KL", "LP"])
def test_error_methods(name):
    method = mct.QuantizationErrorMethod[name]
    weights = mct.QuantizationErrorMethod.MSE if method is mct.QuantizationErrorMethod.KL else method
    _, info = quantize(network(), activation_error_method=method, weights_error_method=weights, l_p_value=3)
    assert info.calibration.method == {"NOCLIPPING": "minmax"}.get(name, name.lower())
    assert info.calibration.settings.get("p") == (3 if name == "LP" else None)
    assert any("clipped" in step for step in info.steps) == (weights.name != "NOCLIPPING")


def test_corrections_can_be_switched():
    sentences = {
        "weights_bias_correction": "biases corrected",
        "activation_channel_equalization": "equalized",
        "shift_negative_activation_correction": "shifted",
    }
    _, none = quantize(network("swish"), **dict.fromkeys(sentences, False))
    for field, sentence in sentences.items():
        _, info = quantize(network("swish"), **{**dict.fromkeys(sentences, False), field: True})
        assert any(sentence in step for step in info.steps)
        assert not any(sentence in step for step in none.steps)


def test_shifting_leaves_no_negative_values_and_raises_resolution():
    lowest = {}
    for on in (True, False):
        q_model, info = quantize(network("swish"), shift_negative_activation_correction=on, shift_negative_ratio=1.0)
        activations = [p.tensor for p in info.plan.placements if p.site == "output" and p.tensor.startswith("act")]
        assert activations == (["act_shift"] if on else ["act"])
        lowest[on] = q_model.activation_ranges()[activations[0]][0]
        assert info.plan.input_placement("second", 0) is not None
    assert lowest[False] < 0
    assert lowest[True] == 0


def test_widths_and_kinds_of_grids():
    methods, bits = mct.QuantizationMethod, 4
    _, info = quantize(network(), weights_n_bits=bits, activation_n_bits=bits)
    assert {t.quantizer.num_bits for t in info.plan.tensors} == {bits}
    _, info = quantize(network(), weights_n_bits=bits, weights_quantization_method=methods.UNIFORM)
    assert {t.quantizer.symmetric for t in info.plan.tensors if t.kind == "weight"} == {False}
    _, info = quantize(network(), weights_per_channel_threshold=False)
    assert {t.quantizer.axis for t in info.plan.tensors if t.kind == "weight"} == {None}


def test_widths_stay_under_another_target():
    q_model, _ = quantize(network(), weights_n_bits=4, weights_per_channel_threshold=False)
    other = qdq.retarget(q_model, "tensorrt")
    grids = {tensor.name: tensor.quantizer for tensor in other.plan.tensors}
    assert (grids["second/kernel"].num_bits, grids["second/kernel"].axis) == (4, None)
    assert other.activation_ranges()["head"] == (0.0, 1.0)


def test_codebooks():
    methods = mct.QuantizationMethod
    q_model, info = quantize(network(), weights_n_bits=2, weights_quantization_method=methods.LUT_QUANTIZER)
    codes = qdq.integer_weights(q_model)["second/kernel"].codes
    assert max(len(np.unique(column)) for column in codes.reshape(-1, codes.shape[-1]).T) <= 4
    q_model, info = quantize(network(), weights_n_bits=2, weights_quantization_method=methods.KMEANS)
    assert {tensor.kind for tensor in info.plan.tensors} == {"activation"}
    reasons = {item.tensor: item.reason for item in info.plan.unquantized}
    assert "k-means levels" in reasons["second/kernel"]
    kernel = q_model.get_layer("second").kernel.numpy()
    assert max(len(np.unique(column)) for column in kernel.reshape(-1, kernel.shape[-1]).T) <= 4


def test_weights_or_activations_alone():
    _, info = quantize(network(), enable_weights_quantization=False)
    assert {tensor.kind for tensor in info.plan.tensors} == {"activation"}
    q_model, info = quantize(network(), enable_activation_quantization=False)
    assert {tensor.kind for tensor in info.plan.tensors} == {"weight"}
    assert info.calibration is None
    assert q_model.activation_quantizers == []


def test_the_source_is_only_read():
    model = network("swish")
    before = model.get_weights()
    quantize(model, activation_channel_equalization=True, shift_negative_activation_correction=True)
    for ours, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_unknown_activation_warns_instead_of_a_key_error():
    with pytest.warns(UserWarning, match="activation 'gelu'"):
        _, info = quantize(network("gelu"))
    assert not info.plan.for_layer("act").quantize_output


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"representative_data_gen": [1]}, DataError, "must be a function"),
        ({"representative_data_gen": lambda: None}, DataError, r"a list of arrays.*Received: a batch that is NoneType"),
        ({"representative_data_gen": lambda: iter([None])}, DataError, "a batch that is NoneType"),
        ({"representative_data_gen": lambda: 3.0}, DataError, "a batch that is float"),
        ({"representative_data_gen": lambda: {"image": 1}}, DataError, "a batch that is dict"),
        ({"n_iter": 0}, SpecError, "n_iter=0"),
        ({"quant_config": {}}, SpecError, "quant_config must be"),
        ({"fw_info": {}}, SpecError, "fw_info must be"),
        ({"network_editor": [object()]}, SpecError, "network_editor is not available.*QuantizationSpec"),
        ({"gptq_config": object()}, SpecError, "gptq_config must be a qdq_workbench.mct.GradientPTQConfig"),
        ({"analyze_similarity": True}, SpecError, r"analyze_similarity is not available.*sensitivity\("),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        mct.keras_post_training_quantization(network(), **{"representative_data_gen": batches(), **arguments})


def test_the_rounding_of_the_weights_is_learned(tmp_path):
    found, read = {}, []
    x = samples(network(), 32)

    def own_data():
        read.append(1)
        return [x]

    for name, learning in (
        ("nearest", None),
        ("learned", mct.GradientPTQConfig(150, representative_data_gen=own_data)),
    ):
        config = mct.QuantizationConfig(weights_n_bits=3, weights_bias_correction=learning is not None)
        q_model, info = mct.keras_post_training_quantization(network(), batches(), 4, config, gptq_config=learning)
        found[name] = float(np.mean(np.abs(q_model.predict(x, verbose=0) - network().predict(x, verbose=0))))
        assert not any("biases corrected" in step for step in info.steps)  # learning moves the same biases
    assert len(read) == 4
    assert info.steps[-1].startswith("rounding learned in 150 steps, better in ")
    assert found["learned"] < 0.8 * found["nearest"], found
    report = qdq.export_onnx(q_model, tmp_path / "learned.onnx")
    qdq.verify_onnx(report.path, q_model, x).raise_if_failed()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_iter": 0}, "n_iter must be an integer from 1 on"),
        ({"n_iter": True}, "n_iter must be an integer from 1 on. Received: n_iter=True"),
        ({"n_iter": 5, "optimizer": "adam"}, r"optimizer of a GradientPTQConfig is not available.*learning_rate="),
        ({"n_iter": 5, "loss": print}, "loss of a GradientPTQConfig is not available.*mean squared"),
        ({"n_iter": 5, "log_function": print}, "log_function of a GradientPTQConfig is not available.*progress="),
        ({"n_iter": 5, "train_bias": 1}, "train_bias must be True or False"),
    ],
)
def test_settings_of_learning_that_are_refused(arguments, message):
    with pytest.raises(SpecError, match=message):
        mct.GradientPTQConfig(**arguments)


@pytest.mark.parametrize(
    "config",
    [{"enable_weights_quantization": False}, {"weights_quantization_method": mct.QuantizationMethod.LUT_QUANTIZER}],
)
def test_without_a_grid_no_rounding_is_learned(config):
    with pytest.raises(SpecError, match="gptq_config learns to which integer of its grid"):
        mct.keras_post_training_quantization(
            network(), batches(), 2, mct.QuantizationConfig(**config), gptq_config=mct.GradientPTQConfig(5)
        )


def test_data_to_learn_from_are_a_function():
    with pytest.raises(DataError, match="representative_data_gen must be a function"):
        mct.GradientPTQConfig(5, representative_data_gen=np.ones((4, 2)))


@pytest.mark.parametrize("equalize", [False, True])
def test_a_network_of_flatten_warns_of_nothing_and_folds_only_what_is_there(equalize):
    image = keras.Input((8, 8, 3), name="image")
    hidden = layers.Conv2D(4, 3, activation="relu", name="conv")(image)
    model = keras.Model(image, layers.Dense(2, name="head")(layers.Flatten(name="flat")(hidden)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, info = quantize(model, activation_channel_equalization=equalize)
    assert not any("normalization" in step or "equalized" in step for step in info.steps)
    assert not info.plan.for_layer("flat").quantize_output
    assert info.plan.input_placement("head", 0) is not None
    _, info = quantize(network(), activation_channel_equalization=equalize)
    assert ("equalized" in info.steps[0]) == equalize
    assert info.steps[0].startswith("batch normalizations folded")


def test_batch_normalizations_may_stay_layers():
    model = network()
    quantized_model, info = quantize(model, batch_normalization_folding=False, weights_bias_correction=False)
    assert "norm" in {layer.name for layer in quantized_model.layers}
    assert not any("folded" in step for step in info.steps)
    x = samples(model, 8)
    np.testing.assert_allclose(quantized_model(x), model(x), atol=0.1)
    with pytest.raises(SpecError, match="folding cannot be switched off then"):
        mct.QuantizationConfig(batch_normalization_folding=False, activation_channel_equalization=True)


def test_thresholds_have_a_lower_bound():
    quantized_model, info = quantize(network(), min_threshold=64.0)
    assert {max(-low, high) for low, high in info.calibration.ranges.values()} == {64.0}
    ranges = {layer.tensor: layer.range for layer in quantized_model.activation_quantizers}
    assert ranges["act"] == (0.0, 64.0)
    assert "lowest threshold" in info.steps[-1]
    for value in (0.0, -1.0, float("inf"), True):
        with pytest.raises(SpecError, match="above 0"):
            mct.QuantizationConfig(min_threshold=value)


@pytest.mark.parametrize(
    "config",
    [
        {"weights_quantization_method": mct.QuantizationMethod.LUT_QUANTIZER, "weights_n_bits": 2},
        {"weights_quantization_method": mct.QuantizationMethod.KMEANS, "weights_n_bits": 2},
        {"weights_error_method": mct.QuantizationErrorMethod.MSE, "weights_n_bits": 3},
    ],
    ids=["lut", "kmeans", "clipped"],
)
def test_the_shift_of_clipped_and_clustered_weights_is_taken_back(config):
    keras.utils.set_random_seed(0)
    image = keras.Input((40,), name="image")
    model = keras.Model(image, layers.Dense(6, name="head")(image))
    x = 1 + np.random.default_rng(0).normal(size=(64, 40)).astype("float32")
    shifts = {}
    for corrects in (False, True):
        config = {**config, "weights_bias_correction": corrects, "enable_activation_quantization": False}
        found, info = mct.keras_post_training_quantization(model, lambda: [x], 1, mct.QuantizationConfig(**config))
        shifts[corrects] = np.abs((np.asarray(found(x)) - np.asarray(model(x))).mean(axis=0)).max()
        assert any("biases corrected for the choice and rounding" in step for step in info.steps) == corrects
    assert shifts[True] < 0.01 * shifts[False]


def test_steps_that_change_nothing_are_not_recorded():
    image = keras.Input((4,), name="image")
    head = layers.Dense(2, kernel_initializer="zeros", name="head")
    model = keras.Model(image, head(layers.Activation("relu", name="act")(image)))
    config = mct.QuantizationConfig(
        weights_error_method=mct.QuantizationErrorMethod.NOCLIPPING, shift_negative_activation_correction=True
    )
    _, info = mct.keras_post_training_quantization(model, lambda: [np.ones((4, 4), "float32")], 1, config)
    assert not any("biases" in step or "shifted" in step for step in info.steps)


@pytest.mark.parametrize("shifts", [False, True])
def test_sums_of_the_user_are_quantized_as_the_users_information_says(shifts):
    default = mct.DEFAULT_KERAS_INFO
    without_sums = qdq.FrameworkInfo(
        default.kernel_ops,
        [kind for kind in default.activation_ops if kind is not layers.Add],
        [*default.no_quantization_ops, "Add"],
        default.kernel_channels_mapping,
        default.activation_min_max_mapping,
        default.layer_min_max_mapping,
    )
    image = keras.Input((8, 8, 3), name="image")
    left = layers.Conv2D(4, 3, padding="same", name="left")(layers.Activation("swish", name="act")(image))
    moved = layers.ReLU(name="relu")(left) + 1.0
    model = keras.Model(image, layers.Conv2D(4, 1, name="last")(moved + left))
    config = mct.QuantizationConfig(shift_negative_activation_correction=shifts, shift_negative_ratio=1.0)
    _, info = mct.keras_post_training_quantization(model, batches(), 2, config, without_sums)
    outputs = {p.tensor for p in info.plan.placements if p.site == "output"}
    assert outputs == {"image", "left", "relu", "last", "act_shift" if shifts else "act"}


def test_an_inserted_addition_is_known_where_its_name_is_taken():
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, name="first")(layers.Activation("swish", name="act")(image))
    model = keras.Model(image, layers.Conv2D(4, 1, name="last")(layers.ReLU(name="act_shift")(x)))
    config = mct.QuantizationConfig(shift_negative_activation_correction=True, shift_negative_ratio=1.0)
    _, info = mct.keras_post_training_quantization(model, batches(), 2, config)
    outputs = {p.tensor for p in info.plan.placements if p.site == "output"}
    assert "act_shift_2" in outputs
    assert "act" not in outputs


@pytest.mark.parametrize("method", [mct.QuantizationMethod.KMEANS, mct.QuantizationMethod.LUT_QUANTIZER])
def test_codes_of_a_codebook_have_at_most_8_bits(method):
    assert mct.QuantizationConfig(weights_quantization_method=method, weights_n_bits=8).uses_codebook
    for bits in (0, 9):
        with pytest.raises(SpecError, match=rf"from 1 to 8 with {method.name}. Received: weights_n_bits={bits}"):
            mct.QuantizationConfig(weights_quantization_method=method, weights_n_bits=bits)
    assert mct.QuantizationConfig(weights_n_bits=16).weights_n_bits == 16


def test_a_reference_may_have_a_layer_named_as_a_nested_one_is_in_a_flat_copy():
    inside = keras.Input((8, 8, 3))
    nested = keras.Model(inside, layers.Conv2D(3, 1, name="b")(inside), name="a")
    image = keras.Input((8, 8, 3), name="image")
    model = keras.Model(image, layers.Conv2D(5, 1, name="a.b")(nested(image)))
    clipped = qdq.correction.clip_weights(model, "mse")
    corrected = qdq.correction.correct_biases(clipped, batches(), reference=model)
    assert [layer.name for layer in corrected.layers if layer.weights] == ["a.b", "a.b_2"]


def test_a_reference_of_other_layers_is_refused():
    image = keras.Input((8, 8, 3), name="image")
    other = keras.Model(image, layers.Conv2D(6, 1, name="first")(image))
    with pytest.raises(SpecError, match=r"reference must have the layers of the model.*without a layer like 'first'"):
        qdq.correct_biases(network(), samples(network(), 4), reference=other)
