"""The orders of the positional arguments of `QuantizationConfig` in versions of MCT, distinguished by their types.

Sources: `quantization_config.py` of MCT 1.0.0 to 1.11.0. The third argument is a quantization method in MCT 1.0 to 1.2
and a number of bits in 1.3; later versions leave both to the target. Version 1.7 is recognized by the tenth argument,
1.4 and 1.5 by the thirteenth.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from qdq_workbench import QuantizationMethod
from qdq_workbench._warned_line import warn_caller
from qdq_workbench.errors import SpecError

C = TypeVar("C", bound=type)

_ERRORS = ("activation_error_method", "weights_error_method")
_METHODS = ("activation_quantization_method", "weights_quantization_method")
_BITS = ("activation_n_bits", "weights_n_bits")
_WEIGHTS = ("relu_bound_to_power_of_2", "weights_bias_correction", "weights_per_channel_threshold")
_PARTS = ("enable_weights_quantization", "enable_activation_quantization")
_SHIFT = ("shift_negative_activation_correction", "activation_channel_equalization")
_THRESHOLDS = ("z_threshold", "min_threshold", "l_p_value")
_COLLAPSING = ("linear_collapsing", "residual_collapsing")
_RATIO = ("shift_negative_ratio", "shift_negative_threshold_recalculation")

_EARLY = (*_BITS, *_WEIGHTS, "input_scaling", *_PARTS, *_SHIFT, *_THRESHOLDS, *_RATIO)
_LATE = ("input_scaling", "softmax_shift", *_SHIFT, *_THRESHOLDS)
_FORMS = {
    "1.0 to 1.2": (*_ERRORS, *_METHODS, *_EARLY),
    "1.3": (*_ERRORS, *_EARLY),
    "1.4": (*_ERRORS, *_WEIGHTS, *_LATE, *_RATIO),
    "1.5": (*_ERRORS, *_WEIGHTS, *_LATE, *_COLLAPSING, *_RATIO),
    "1.7": (
        *(*_ERRORS, *_WEIGHTS, "weights_second_moment_correction"),
        *(*_LATE, *_COLLAPSING, *_RATIO, "shift_negative_params_search"),
    ),
}
_OLD_NAMES = {
    "activation_threshold_method": "activation_error_method",
    "weights_threshold_method": "weights_error_method",
}
# Arguments of some version of MCT that are no fields of this class.
_ABSENT = (
    "relu_unbound_correction",
    "shift_negative_threshold_recalculation",
    "weights_second_moment_correction",
    "shift_negative_params_search",
)


def in_any_order(fields: Sequence[str]) -> Callable[[C], C]:
    """Return a class decorator that accepts arguments in the order of every version of MCT, and under older names.

    Args:
        fields: The names of the class's further fields, in the order in which they follow MCT's positional ones.
    """

    def decorate(cls: C) -> C:
        kind: Any = cls
        initialize = kind.__init__

        @functools.wraps(initialize)
        def from_arguments(self: Any, *args: Any, **named: Any) -> None:
            given = _named(args, named, fields)
            without_effect = [name for name in _ABSENT if given.pop(name, False)]
            initialize(self, **given)
            if without_effect:
                warn_caller(UserWarning(f"Not available, so without effect: {', '.join(without_effect)}."))

        kind.__init__ = from_arguments
        return cls

    return decorate


def _named(args: Sequence[Any], named: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    given = {_OLD_NAMES.get(name, name): value for name, value in named.items()}
    version = _version_of(args)
    names = [*_FORMS[version]]
    # Argument 15 of 1.5 is the switch shift_negative_threshold_recalculation, which this class does not have.
    if version == "1.5" and not isinstance(args[15] if len(args) > 15 else None, bool):
        names = [*names[:15], *(name for name in fields if name not in names)]  # this class's fields after MCT's
    if len(args) > len(names):
        raise SpecError(
            f"QuantizationConfig of MCT {version}, which these arguments are in the order of, takes {len(names)} by "
            f"position; give the others by name. Received: {len(args)} arguments"
        )
    twice = sorted(set(names[: len(args)]) & set(given))
    if twice:
        raise SpecError(
            f"{twice[0]} is given by position and by name; give it once. MCT {version} has the order "
            f"{', '.join(names[: len(args)])}. Received: {twice[0]}={given[twice[0]]!r}"
        )
    return {**dict(zip(names, args, strict=False)), **given}


def _version_of(args: Sequence[Any]) -> str:
    if len(args) > 2 and isinstance(args[2], QuantizationMethod):
        return "1.0 to 1.2"
    if len(args) > 2 and not isinstance(args[2], bool) and isinstance(args[2], numbers.Integral):
        return "1.3"
    # Argument 9, counted from 0, is the switch activation_channel_equalization in 1.7, else the number z_threshold.
    if len(args) > 9 and isinstance(args[9], bool):
        return "1.7"
    # Argument 12 is the number shift_negative_ratio in 1.4 and the switch linear_collapsing in 1.5.
    if len(args) > 12 and not isinstance(args[12], bool):
        return "1.4"
    return "1.5"
