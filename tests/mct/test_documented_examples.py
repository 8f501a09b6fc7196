"""The five examples of MCT's `FrameworkInfo` documentation, as printed but for the import of Keras."""

import inspect

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench import mct
from qdq_workbench.errors import SpecError
from qdq_workbench.mct import (
    DEFAULT_KERAS_INFO,
    DefaultDict,
    FrameworkInfo,
    QuantizationConfig,
    QuantizationErrorMethod,
    QuantizationMethod,
    keras_post_training_quantization,
)
from qdq_workbench.mct.quantizers import (
    constraint_quantization,
    kmeans_quantizer,
    lut_kmeans_quantizer,
    symmetric_uniform_quantizer,
)


class tf:  # noqa: N801 - the examples are written for tf.keras
    keras = keras


def network():
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    hidden = layers.ReLU(name="relu")(layers.Conv2D(4, 3, name="conv")(image))
    hidden = layers.Reshape((-1, 4), name="reshape")(hidden)
    hidden = layers.Activation("softmax", name="activation")(hidden)
    return keras.Model(image, layers.Softmax(name="softmax")(hidden))


def examples():
    """Return what the five examples build, in the form with six arguments."""
    kernel_ops = [tf.keras.layers.Conv2D]
    kernel_channels_mapping = DefaultDict({tf.keras.layers.Conv2D: (3, 2)})
    first = FrameworkInfo(kernel_ops, [], [], kernel_channels_mapping, {}, {})
    activation_ops = [tf.keras.layers.ReLU]
    second = FrameworkInfo(kernel_ops, activation_ops, [], kernel_channels_mapping, {}, {})
    no_quantization_ops = [tf.keras.layers.Reshape]
    third = FrameworkInfo(kernel_ops, activation_ops, no_quantization_ops, kernel_channels_mapping, {}, {})
    activation_min_max_mapping = {"softmax": (0, 1)}
    fourth = FrameworkInfo(
        kernel_ops, activation_ops, no_quantization_ops, kernel_channels_mapping, activation_min_max_mapping, {}
    )
    layer_min_max_mapping = {tf.keras.layers.Softmax: (0, 1)}
    fifth = FrameworkInfo(
        kernel_ops,
        activation_ops,
        no_quantization_ops,
        kernel_channels_mapping,
        activation_min_max_mapping,
        layer_min_max_mapping,
    )
    return [first, second, third, fourth, fifth]


def examples_of_five_arguments():
    """Return the same without the channels."""
    kernel_ops = [tf.keras.layers.Conv2D]
    activation_ops = [tf.keras.layers.ReLU]
    no_quantization_ops = [tf.keras.layers.Reshape]
    activation_min_max_mapping = {"softmax": (0, 1)}
    layer_min_max_mapping = {tf.keras.layers.Softmax: (0, 1)}
    return [
        FrameworkInfo(kernel_ops, [], [], {}, {}),
        FrameworkInfo(kernel_ops, activation_ops, [], {}, {}),
        FrameworkInfo(kernel_ops, activation_ops, no_quantization_ops, {}, {}),
        FrameworkInfo(kernel_ops, activation_ops, no_quantization_ops, activation_min_max_mapping, {}),
        FrameworkInfo(
            kernel_ops, activation_ops, no_quantization_ops, activation_min_max_mapping, layer_min_max_mapping
        ),
    ]


UNKNOWN = "ignore:The framework_info does not know all of the model:UserWarning"


@pytest.mark.parametrize("form", [examples, examples_of_five_arguments])
@pytest.mark.parametrize("number", range(5))
@pytest.mark.filterwarnings(UNKNOWN)
def test_the_examples_plan_what_they_say(form, number):
    info = form()[number]
    plan = qdq.plan_placement(network(), framework_info=info)
    weights = {p.tensor: p.quantizer.axis for p in plan.placements if p.site == "weight"}
    outputs = {p.tensor for p in plan.placements if p.site == "output"}
    assert weights == {"conv/kernel": 3}
    assert outputs == ({"conv"} if number == 0 else {"relu"})
    assert info.activation_has_min_max("softmax") == (number >= 3)
    assert info.layers_has_min_max(tf.keras.layers.Softmax) == (number == 4)


@pytest.mark.filterwarnings(UNKNOWN)
def test_and_are_passed_to_the_function():
    config = QuantizationConfig(weights_bias_correction=False, weights_error_method=QuantizationErrorMethod.NOCLIPPING)
    batch = [np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")]
    for info in (examples()[4], examples_of_five_arguments()[4]):
        _, found = keras_post_training_quantization(network(), lambda: batch, 1, config, info)
        assert [tensor.name for tensor in found.plan.tensors] == ["conv/kernel", "relu"]


def test_the_configuration_of_the_documentation():
    with pytest.warns(UserWarning, match="without effect: relu_bound_to_power_of_2"):
        qc = QuantizationConfig(
            activation_error_method=QuantizationErrorMethod.NOCLIPPING,
            weights_error_method=QuantizationErrorMethod.MSE,
            relu_bound_to_power_of_2=True,
            weights_bias_correction=True,
            weights_per_channel_threshold=True,
        )
    assert qc.activation_error_method is QuantizationErrorMethod.NOCLIPPING


def test_the_default_information_is_mcts_and_knows_flatten():
    info, k = DEFAULT_KERAS_INFO, layers
    assert info.kernel_ops == [k.Conv2D, k.DepthwiseConv2D, k.Dense, k.Conv2DTranspose]
    assert info.no_quantization_ops == [k.Reshape, k.Flatten, k.ZeroPadding2D, k.Dropout, k.MaxPooling2D]
    assert info.activation_ops == [
        k.Activation, k.ReLU, k.Softmax, k.GlobalAveragePooling2D, k.Add, k.Multiply,
        k.AveragePooling2D, k.UpSampling2D, k.InputLayer, k.Concatenate, k.PReLU,
    ]  # fmt: skip
    axes = {k.Conv2D: (3, 2), k.DepthwiseConv2D: (2, 2), k.Dense: (1, 0), k.Conv2DTranspose: (2, 3)}
    assert info.kernel_channels_mapping.known_dict == axes
    assert info.kernel_channels_mapping.get(k.Flatten) == (None, None)
    assert info.activation_min_max_mapping == {
        "softmax": (0, 1), "sigmoid": (0, 1), "linear": (None, None), "identity": (None, None),
        "tanh": (-1, 1), "swish": (-0.279, None), "relu": (0, None), "selu": (None, None),
    }  # fmt: skip
    assert info.layer_min_max_mapping == {k.Softmax: (0, 1), k.ReLU: (0, None)}
    methods = QuantizationMethod
    assert info.activation_quantizer_mapping == {methods.SYMMETRIC_UNIFORM: constraint_quantization}
    assert info.weights_quantizer_mapping == {
        methods.SYMMETRIC_UNIFORM: symmetric_uniform_quantizer,
        methods.KMEANS: kmeans_quantizer,
        methods.LUT_QUANTIZER: lut_kmeans_quantizer,
    }


def test_positional_order_is_mcts():
    names = list(inspect.signature(keras_post_training_quantization).parameters)
    assert names[:5] == ["in_model", "representative_data_gen", "n_iter", "quant_config", "fw_info"]


@pytest.mark.parametrize("axis", [None, 1])
def test_quantization_functions(axis):
    values = np.random.default_rng(0).normal(size=(500, 3)).astype("float32")
    for function in (constraint_quantization, symmetric_uniform_quantizer, kmeans_quantizer, lut_kmeans_quantizer):
        quantized = function(values, 4, axis)
        pieces = [quantized] if axis is None else quantized.T
        assert max(len(np.unique(piece)) for piece in pieces) <= 16
        assert np.abs(quantized - values).mean() < 0.25


def test_codebooks_have_the_documented_widths():
    values = np.linspace(-1.0, 1.0, 300, dtype="float32")
    assert len(np.unique(kmeans_quantizer(values))) == 256
    assert len(np.unique(lut_kmeans_quantizer(values))) == 16


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"activation_error_method": "mse"}, "must be a QuantizationErrorMethod"),
        ({"weights_error_method": QuantizationErrorMethod.KL}, "Received: KL"),
        ({"weights_quantization_method": "kmeans"}, "must be a QuantizationMethod"),
        ({"weights_quantization_method": QuantizationMethod.POWER_OF_TWO}, "cannot be powers of two"),
        ({"activation_quantization_method": QuantizationMethod.KMEANS}, "codebooks are for weights"),
    ],
)
def test_configurations_that_cannot_be(fields, message):
    with pytest.raises(SpecError, match=message):
        QuantizationConfig(**fields)


E, M = QuantizationErrorMethod, QuantizationMethod
FORMS = {
    "1.0": (
        E.NOCLIPPING,
        E.MSE,
        M.UNIFORM,
        M.SYMMETRIC,
        16,
        4,
        False,
        False,
        False,
        False,
        True,
        False,
        True,
        True,
        9.0,
    ),
    "1.3": (E.NOCLIPPING, E.MSE, 16, 4, False, False, False, False, True, False, True, True, 9.0),
    "1.4": (E.NOCLIPPING, E.MSE, False, False, False, False, False, True, True, 9.0, 0.1, 3, 0.5, False),
    "1.5": (E.NOCLIPPING, E.MSE, False, False, False, False, False, True, True, 9.0, 0.1, 3, False, False, 0.5, False),
    "1.7": (E.NOCLIPPING, E.MSE, False, False, False, False, False, False, True, True, 9.0, 0.1, 3, False, False, 0.5),
}


@pytest.mark.filterwarnings("ignore:Not available:UserWarning")
@pytest.mark.parametrize("version", FORMS)
def test_arguments_by_position_are_those_of_the_version(version):
    config = QuantizationConfig(*FORMS[version])
    found = (config.activation_error_method, config.weights_error_method, config.weights_bias_correction)
    assert found == (E.NOCLIPPING, E.MSE, False)
    assert not config.weights_per_channel_threshold
    assert (config.shift_negative_activation_correction, config.activation_channel_equalization) == (True, True)
    assert config.z_threshold == 9.0
    if version in ("1.0", "1.3"):
        assert (config.activation_n_bits, config.weights_n_bits) == (16, 4)
        assert (config.enable_weights_quantization, config.enable_activation_quantization) == (True, False)
        kept = M.UNIFORM if version == "1.0" else M.POWER_OF_TWO
        assert config.activation_quantization_method is kept
    else:
        assert (config.min_threshold, config.l_p_value, config.shift_negative_ratio) == (0.1, 3, 0.5)
        assert (config.activation_n_bits, config.weights_n_bits) == (8, 8)


def test_sixteen_bits_by_position_are_sixteen_bits_and_per_channel():
    config = QuantizationConfig(E.NOCLIPPING, E.NOCLIPPING, 16, 16, False, False)
    batch = [np.ones((1, 8, 8, 3), "float32")]
    _, found = keras_post_training_quantization(network(), lambda: batch, 1, config)
    assert {pair.quantizer.num_bits for pair in found.plan.tensors} == {16}
    assert [pair.quantizer.axis for pair in found.plan.tensors if pair.kind == "weight"] == [3]


def test_names_of_mct_1_0():
    with pytest.warns(UserWarning, match="without effect: relu_unbound_correction"):
        config = QuantizationConfig(
            activation_threshold_method=mct.ThresholdSelectionMethod.KL,
            weights_threshold_method=mct.ThresholdSelectionMethod.MAE,
            relu_unbound_correction=True,
        )
    assert (config.activation_error_method, config.weights_error_method) == (E.KL, E.MAE)


@pytest.mark.parametrize(
    ("arguments", "fields", "message"),
    [
        ((E.MSE, E.MSE, True), {"relu_bound_to_power_of_2": False}, "by position and by name"),
        (FORMS["1.3"] + (0.1, 2, 0.05, False, 1), {}, r"MCT 1\.3.*takes 17"),
        ((), {"weights_bias_correction": 16}, "must be True or False"),
        ((), {"weights_n_bits": "8"}, "integer from 2 to 16"),
        ((), {"weights_n_bits": 1}, "weights_n_bits must be an integer from 2 to 16"),
        ((), {"activation_n_bits": 1}, "activation_n_bits must be an integer from 2 to 16"),
        ((), {"weights_quantization_method": qdq.QuantizationMethod.KMEANS, "weights_n_bits": 0}, "from 1 to 8"),
        ((), {"shift_negative_ratio": True}, "must be a number"),
    ],
)
def test_arguments_that_fit_no_order_are_refused(arguments, fields, message):
    with pytest.raises(SpecError, match=message):
        QuantizationConfig(*arguments, **fields)
