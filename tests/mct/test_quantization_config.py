"""The values that MCT's `QuantizationConfig` takes, refuses and warns of."""

import json
import math
import warnings

import numpy as np
import pytest

from qdq_workbench import QuantizationMethod
from qdq_workbench.calibration.methods import calibration_methods
from qdq_workbench.errors import SpecError
from qdq_workbench.mct.quantization_config import (
    CALIBRATION_METHODS,
    DEFAULTCONFIG,
    QuantizationConfig,
    QuantizationErrorMethod,
    ThresholdSelectionMethod,
)

KMEANS, LUT = QuantizationMethod.KMEANS, QuantizationMethod.LUT_QUANTIZER
SWITCHES = [name for name, value in vars(DEFAULTCONFIG).items() if isinstance(value, bool)]
WITHOUT_EFFECT = [
    "relu_bound_to_power_of_2",
    "input_scaling",
    "softmax_shift",
    "linear_collapsing",
    "residual_collapsing",
]


def test_the_defaults_are_mcts_and_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = QuantizationConfig()
    assert config == DEFAULTCONFIG
    assert [name for name in SWITCHES if getattr(config, name)] == [
        "weights_bias_correction", "weights_per_channel_threshold", "enable_activation_quantization",
        "enable_weights_quantization", "batch_normalization_folding",
    ]  # fmt: skip
    assert (config.z_threshold, config.min_threshold, config.l_p_value) == (math.inf, 2.0**-28, 2)
    assert (config.activation_n_bits, config.weights_n_bits, config.shift_negative_ratio) == (8, 8, 0.05)


def test_every_error_method_has_a_method_of_calibration():
    assert CALIBRATION_METHODS.keys() == set(QuantizationErrorMethod)
    assert set(CALIBRATION_METHODS.values()) <= set(calibration_methods())
    assert [method.value for method in QuantizationErrorMethod] == [0, 1, 2, 4, 5]
    assert ThresholdSelectionMethod is QuantizationErrorMethod


@pytest.mark.parametrize(
    ("field", "bits", "weights"),
    [
        ("activation_n_bits", (2, 16), QuantizationMethod.SYMMETRIC),
        ("activation_n_bits", (2, 16), KMEANS),
        ("weights_n_bits", (2, 16), QuantizationMethod.UNIFORM),
        ("weights_n_bits", (1, 8), KMEANS),
        ("weights_n_bits", (1, 8), LUT),
    ],
)
def test_the_ends_of_widths(field, bits, weights):
    fewest, most = bits
    for number in (fewest, most, np.int64(most)):
        config = QuantizationConfig(weights_quantization_method=weights, **{field: number})
        assert type(getattr(config, field)) is int
    codebook = f" with {weights.name}" if most == 8 else ""
    for wrong in (fewest - 1, most + 1, float(most), True, None):
        says = rf"{field} must be an integer from {fewest} to {most}{codebook}\. Received: {field}={wrong!r}"
        with pytest.raises(SpecError, match=says):
            QuantizationConfig(weights_quantization_method=weights, **{field: wrong})


@pytest.mark.parametrize("field", SWITCHES)
def test_switches_are_true_or_false(field):
    for wrong in (None, "yes", 2):
        with pytest.raises(SpecError, match=f"{field} must be True or False. Received: {field}={wrong!r}"):
            QuantizationConfig(**{field: wrong})


@pytest.mark.parametrize("field", ["z_threshold", "l_p_value", "shift_negative_ratio", "min_threshold"])
def test_numbers_are_numbers_and_kept_as_those_of_python(field):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        config = QuantizationConfig(**{field: np.float32(0.5)})
    assert json.dumps(getattr(config, field)) == "0.5"
    for wrong in (True, "0.5", None, [0.5]):
        with pytest.raises(SpecError, match=f"{field} must be a (finite )?number"):
            QuantizationConfig(**{field: wrong})


@pytest.mark.parametrize("wrong", [0.0, -1e-9, math.inf, math.nan])
def test_a_minimum_threshold_is_above_zero_and_finite(wrong):
    with pytest.raises(SpecError, match=r"min_threshold must be a finite number above 0\. Received: min_threshold="):
        QuantizationConfig(min_threshold=wrong)
    assert QuantizationConfig(min_threshold=5e-324).min_threshold == 5e-324


@pytest.mark.parametrize("field", ["activation_error_method", "weights_error_method"])
def test_error_methods_are_members(field):
    with pytest.raises(SpecError, match=f"{field} must be a QuantizationErrorMethod. Received: 1"):
        QuantizationConfig(**{field: 1})


@pytest.mark.parametrize("field", ["activation_quantization_method", "weights_quantization_method"])
def test_quantization_methods_are_members(field):
    with pytest.raises(SpecError, match=f"{field} must be a QuantizationMethod. Received: 'SYMMETRIC'"):
        QuantizationConfig(**{field: "SYMMETRIC"})


def test_kl_is_for_activations_alone():
    kl = QuantizationErrorMethod.KL

    assert QuantizationConfig(activation_error_method=kl).activation_error_method is kl
    with pytest.raises(SpecError, match=r"weights_error_method must be NOCLIPPING, MSE, MAE or LP\. Received: KL"):
        QuantizationConfig(weights_error_method=kl)


@pytest.mark.parametrize("method", list(QuantizationMethod))
def test_codebooks_are_for_weights_and_powers_of_two_for_activations(method):
    is_codebook = method in (KMEANS, LUT)
    if is_codebook:
        with pytest.raises(SpecError, match=f"codebooks are for weights. Received: .*{method.name}"):
            QuantizationConfig(activation_quantization_method=method)
    else:
        assert QuantizationConfig(activation_quantization_method=method).activation_quantization_method is method
    if method is QuantizationMethod.POWER_OF_TWO:
        with pytest.raises(SpecError, match=r"cannot be powers of two\. Use SYMMETRIC"):
            QuantizationConfig(weights_quantization_method=method)
    else:
        assert QuantizationConfig(weights_quantization_method=method).uses_codebook == is_codebook


@pytest.mark.parametrize("folding", [True, False])
@pytest.mark.parametrize("equalization", [True, False])
def test_channels_are_equalized_only_with_folding(folding, equalization):
    fields = {"batch_normalization_folding": folding, "activation_channel_equalization": equalization}
    if equalization and not folding:
        with pytest.raises(SpecError, match="folding cannot be switched off then"):
            QuantizationConfig(**fields)
    else:
        assert QuantizationConfig(**fields).batch_normalization_folding is folding


@pytest.mark.parametrize("field", WITHOUT_EFFECT)
def test_what_is_not_available_is_warned_of(field):
    with pytest.warns(UserWarning, match=f"^Not available, so without effect: {field}\\.$"):
        QuantizationConfig(**{field: True})


def test_all_that_is_not_available_is_named_together():
    with pytest.warns(UserWarning, match="without effect: input_scaling, residual_collapsing, z_threshold") as found:
        QuantizationConfig(input_scaling=True, residual_collapsing=True, z_threshold=9)
    assert len(found) == 1
    assert found[0].filename == __file__


def test_fields_may_be_set_later_and_configs_compare_by_value():
    config = QuantizationConfig(l_p_value=3)
    assert config != DEFAULTCONFIG
    config.l_p_value = 2
    assert config == DEFAULTCONFIG


NO_CLIPPING, MSE = QuantizationErrorMethod.NOCLIPPING, QuantizationErrorMethod.MSE
BY_POSITION = (NO_CLIPPING, MSE, False, True, False, False, False, False, False, math.inf, 0.5, 3)  # 1.4 and 1.5


@pytest.mark.parametrize(
    ("behind", "ratio"), [((), 0.05), ((0.25,), 0.25), ((False, False, 0.25), 0.25)], ids=["either", "1.4", "1.5"]
)
def test_arguments_by_position_have_the_order_of_the_version_that_their_types_show(behind, ratio):
    config = QuantizationConfig(*BY_POSITION, *behind)

    assert (config.activation_error_method, config.weights_error_method) == (NO_CLIPPING, MSE)
    assert (config.min_threshold, config.l_p_value, config.shift_negative_ratio) == (0.5, 3, ratio)
