"""MCT's `QuantizationConfig`: the error methods for thresholds, and the corrections."""

from __future__ import annotations

import dataclasses
import enum
import math
import numbers
from typing import Any

from qdq_workbench import QuantizationMethod
from qdq_workbench._warned_line import warn_caller
from qdq_workbench.errors import SpecError
from qdq_workbench.mct.positional import in_any_order


class QuantizationErrorMethod(enum.Enum):
    """The method that determines a threshold: all values (NOCLIPPING), or the least error of the given kind."""

    NOCLIPPING = 0
    MSE = 1
    MAE = 2
    # MCT's values: it has no 3.
    KL = 4
    LP = 5


#: The calibration method of every error method.
CALIBRATION_METHODS = {
    QuantizationErrorMethod.NOCLIPPING: "minmax",
    QuantizationErrorMethod.MSE: "mse",
    QuantizationErrorMethod.MAE: "mae",
    QuantizationErrorMethod.KL: "kl",
    QuantizationErrorMethod.LP: "lp",
}
_NOT_AVAILABLE = (
    "relu_bound_to_power_of_2",
    "input_scaling",
    "softmax_shift",
    "linear_collapsing",
    "residual_collapsing",
)
_SWITCHES = (
    *_NOT_AVAILABLE,
    "weights_bias_correction",
    "weights_per_channel_threshold",
    "shift_negative_activation_correction",
    "activation_channel_equalization",
    "enable_activation_quantization",
    "enable_weights_quantization",
    "batch_normalization_folding",
)
_NUMBERS = ("z_threshold", "min_threshold", "l_p_value", "shift_negative_ratio")
_FIELDS = (
    "activation_quantization_method",
    "weights_quantization_method",
    "activation_n_bits",
    "weights_n_bits",
    "enable_activation_quantization",
    "enable_weights_quantization",
    "batch_normalization_folding",
)
_CODEBOOKS = (QuantizationMethod.KMEANS, QuantizationMethod.LUT_QUANTIZER)


#: Its name in MCT 1.0 to 1.2.
ThresholdSelectionMethod = QuantizationErrorMethod


@in_any_order(_FIELDS)
@dataclasses.dataclass
class QuantizationConfig:
    """Settings of post-training quantization, with the fields and defaults of MCT's class.

    Positional arguments have the order of MCT 1.5, or if their types show it, that of MCT 1.0 to 1.2 (quantization
    methods third), 1.3 (numbers of bits third), 1.4 or 1.7. The names of MCT 1.0 work too.

    Args:
        activation_error_method: The method that determines the ranges of activations.
        weights_error_method: The method that determines the thresholds of weights (not KL).
        relu_bound_to_power_of_2: Not available; True gives a warning.
        weights_bias_correction: Correct biases for the rounding of weights.
        weights_per_channel_threshold: One scale per output channel, along the axes of the `FrameworkInfo`.
        input_scaling: Not available.
        softmax_shift: Not available.
        shift_negative_activation_correction: Shift activations with a small negative range so that they start at 0.
        activation_channel_equalization: Equalize the scales of channels by the moments of batch normalizations.
        z_threshold: Not available; must be infinity (off) to avoid a warning.
        min_threshold: The minimum threshold of an activation, above 0: smaller ranges are widened to it.
        l_p_value: The power of the error method LP.
        linear_collapsing: Not available.
        residual_collapsing: Not available.
        shift_negative_ratio: Shift only if the negative range is at most this share of the largest value.
        activation_quantization_method: POWER_OF_TWO for scales that are powers of two; SYMMETRIC, UNIFORM and
            SYMMETRIC_UNIFORM all use the target's grid.
        weights_quantization_method: SYMMETRIC, SYMMETRIC_UNIFORM or UNIFORM for integer grids, KMEANS or
            LUT_QUANTIZER for codebooks. POWER_OF_TWO is not available for weights.
        activation_n_bits: Width of the activations' grids, 2 to 16.
        weights_n_bits: Width of the weights' grids, 2 to 16, or of the codes of a codebook, 1 to 8.
        enable_activation_quantization: Whether activations are quantized.
        enable_weights_quantization: Whether weights are quantized.
        batch_normalization_folding: Fold batch normalizations into the layers before them, which MCT always does. If
            False, they remain layers of the quantized model, and the export folds them.

    Raises:
        SpecError: If an argument has the wrong type or is out of its range, a method is not available, an argument is
            given twice, or channel equalization is requested without folding.

    Warns:
        UserWarning: If a setting is enabled that is not available.

    Example:
        >>> QuantizationConfig(activation_error_method=QuantizationErrorMethod.NOCLIPPING).weights_bias_correction
        True
    """

    activation_error_method: QuantizationErrorMethod = QuantizationErrorMethod.MSE
    weights_error_method: QuantizationErrorMethod = QuantizationErrorMethod.MSE
    relu_bound_to_power_of_2: bool = False
    weights_bias_correction: bool = True
    weights_per_channel_threshold: bool = True
    input_scaling: bool = False
    softmax_shift: bool = False
    shift_negative_activation_correction: bool = False
    activation_channel_equalization: bool = False
    z_threshold: float = math.inf
    min_threshold: float = 2.0**-28
    l_p_value: float = 2
    linear_collapsing: bool = False
    residual_collapsing: bool = False
    shift_negative_ratio: float = 0.05
    activation_quantization_method: QuantizationMethod = QuantizationMethod.POWER_OF_TWO
    weights_quantization_method: QuantizationMethod = QuantizationMethod.SYMMETRIC
    activation_n_bits: int = 8
    weights_n_bits: int = 8
    enable_activation_quantization: bool = True
    enable_weights_quantization: bool = True
    batch_normalization_folding: bool = True

    def __post_init__(self) -> None:
        for field in ("activation_error_method", "weights_error_method"):
            if not isinstance(getattr(self, field), QuantizationErrorMethod):
                raise SpecError(f"{field} must be a QuantizationErrorMethod. Received: {getattr(self, field)!r}")
        for field in ("activation_quantization_method", "weights_quantization_method"):
            if not isinstance(getattr(self, field), QuantizationMethod):
                raise SpecError(f"{field} must be a QuantizationMethod. Received: {getattr(self, field)!r}")
        if self.weights_error_method is QuantizationErrorMethod.KL:
            raise SpecError("weights_error_method must be NOCLIPPING, MSE, MAE or LP. Received: KL")
        if self.activation_quantization_method in _CODEBOOKS:
            raise SpecError(
                "Activations are quantized on uniform grids; codebooks are for weights. "
                f"Received: activation_quantization_method={self.activation_quantization_method}"
            )
        if self.weights_quantization_method is QuantizationMethod.POWER_OF_TWO:
            raise SpecError(
                "Weight scales follow the weights' values, so their thresholds cannot be powers of two. Use SYMMETRIC. "
                "Received: weights_quantization_method=POWER_OF_TWO"
            )
        if self.activation_channel_equalization and not self.batch_normalization_folding:
            raise SpecError(
                "Channels are equalized by what folded batch normalizations predict, so folding cannot be switched off "
                "then. Received: activation_channel_equalization=True, batch_normalization_folding=False"
            )
        self._check_min_threshold()
        self._check_switches_and_numbers()
        self._warn_of_what_is_not_available()

    def _check_switches_and_numbers(self) -> None:
        """Raise SpecError for a value of the wrong type, such as from arguments in another order."""
        for field in _SWITCHES:
            if getattr(self, field) not in (True, False):
                raise SpecError(f"{field} must be True or False. Received: {field}={getattr(self, field)!r}")
        for field in _NUMBERS:
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise SpecError(f"{field} must be a number. Received: {field}={value!r}")
            setattr(self, field, int(value) if isinstance(value, numbers.Integral) else float(value))
        with_codebook = self.weights_quantization_method in _CODEBOOKS
        # As many bits as `codebook_weights` takes: a codebook is for few levels.
        widths = {"activation_n_bits": (2, 16), "weights_n_bits": (1, 8) if with_codebook else (2, 16)}
        for field, (fewest, most) in widths.items():
            bits = getattr(self, field)
            if isinstance(bits, bool) or not isinstance(bits, numbers.Integral) or not fewest <= int(bits) <= most:
                codebook = f" with {self.weights_quantization_method.name}" if (fewest, most) == (1, 8) else ""
                raise SpecError(
                    f"{field} must be an integer from {fewest} to {most}{codebook}. Received: {field}={bits!r}"
                )
            setattr(self, field, int(bits))

    def _check_min_threshold(self) -> None:
        value: Any = self.min_threshold
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0.0 < float(value) < math.inf:
            raise SpecError(f"min_threshold must be a finite number above 0. Received: min_threshold={value!r}")

    def _warn_of_what_is_not_available(self) -> None:
        missing = [name for name in _NOT_AVAILABLE if getattr(self, name)]
        missing += ["z_threshold"] if self.z_threshold != math.inf else []
        if missing:
            warn_caller(UserWarning(f"Not available, so without effect: {', '.join(missing)}."))

    @property
    def uses_codebook(self) -> bool:
        """Whether the weights are quantized by a codebook."""
        return self.weights_quantization_method in _CODEBOOKS


DEFAULTCONFIG = QuantizationConfig()
