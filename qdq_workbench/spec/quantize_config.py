"""The quantizers of one layer in place of the target's defaults: TFMOT's interface, and plain settings."""

from __future__ import annotations

import abc
import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from qdq_workbench._numbers import real, whole
from qdq_workbench.errors import SpecError, nearest_names
from qdq_workbench.spec.quantizer_method import METHOD_SETTINGS, METHODS
from qdq_workbench.spec.quantizer_spec import QuantizerSpec, is_block_size

_SITES = ("weight", "activation", "output")
_FLAGS = ("symmetric", "signed", "narrow_range", "per_axis")
#: Numbers of any type become numbers of Python, which a saved configuration can hold.
_PLAIN = {**dict.fromkeys(("num_bits", "axis", "block_size"), whole), **dict.fromkeys(METHOD_SETTINGS, real)}
_KEYS = ("num_bits", *_FLAGS, "axis", "block_size", "quantizer", *METHOD_SETTINGS)


class QuantizeConfig(abc.ABC):
    """Determines which parts of a layer are quantized, and by which quantizers; TFMOT's interface.

    Attach one with `spec.add(name, quantize_config=config)`. The methods are called during planning: the plan then
    holds every grid, so that preview, training and the exported file agree. `get_weights_and_quantizers` assigns
    quantizers to weights. `set_quantize_weights` is only checked: it is called with a stand-in that accepts
    assignments such as `layer.kernel = quantize_weights[0]`, although Keras 3 makes `kernel` read-only, and must
    assign every quantized weight unchanged. The user's layer is only read.

    An activation is quantized after the layer's own activation function, on the layer's output tensor. Whether
    inputs are quantized is set by `spec.add(quantize_input=...)`.

    Source: `QuantizeConfig` of TensorFlow Model Optimization (TFMOT).

    Example:
        >>> from qdq_workbench.quantizers import LastValueQuantizer
        >>> class FourBitKernel(QuantizeConfig):
        ...     def get_weights_and_quantizers(self, layer):
        ...         return [(layer.kernel, LastValueQuantizer(num_bits=4, per_axis=True, narrow_range=True))]
        ...
        ...     def get_activations_and_quantizers(self, layer):
        ...         return []
        ...
        ...     def set_quantize_weights(self, layer, quantize_weights):
        ...         layer.kernel = quantize_weights[0]
        ...
        ...     def set_quantize_activations(self, layer, quantize_activations):
        ...         pass
        ...
        ...     def get_output_quantizers(self, layer):
        ...         return []
        ...
        ...     def get_config(self):
        ...         return {}
        >>> FourBitKernel.from_config({}).get_config()
        {}
    """

    @abc.abstractmethod
    def get_weights_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:
        """Return the weights to quantize, each with its quantizer.

        Args:
            layer: The layer, built.
        """

    @abc.abstractmethod
    def get_activations_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:
        """Return the activation functions whose results are quantized, each with its quantizer.

        Args:
            layer: The layer, built.
        """

    @abc.abstractmethod
    def set_quantize_weights(self, layer: Any, quantize_weights: list[Any]) -> None:
        """Replace the layer's weights by quantized ones: `layer.kernel = quantize_weights[0]`.

        Args:
            layer: A stand-in for the layer that accepts assignments.
            quantize_weights: The quantized weights, in the order of `get_weights_and_quantizers`.
        """

    @abc.abstractmethod
    def set_quantize_activations(self, layer: Any, quantize_activations: list[Any]) -> None:
        """Replace the layer's activation functions: `layer.activation = quantize_activations[0]`.

        Args:
            layer: A stand-in for the layer that accepts assignments.
            quantize_activations: The quantized activations, in the order of `get_activations_and_quantizers`.
        """

    @abc.abstractmethod
    def get_output_quantizers(self, layer: Any) -> list[Any]:
        """Return the quantizer of the layer's output, in a list; an empty list leaves the output in float.

        Args:
            layer: The layer, built.
        """

    @abc.abstractmethod
    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> QuantizeConfig:
        """Rebuild a config from `get_config`.

        Args:
            config: The result of `get_config`.
        """
        return cls(**config)


@dataclasses.dataclass(frozen=True)
class LayerQuantizeConfig:
    """Settings of one layer's quantizers, as plain values; omitted settings are the target's defaults.

    Attach it with `spec.add(name, quantize_config=LayerQuantizeConfig(weight={"num_bits": 4}))`. The settings define
    *how* a value is quantized; `spec.add(quantize_input=, quantize_weight=, quantize_output=)` whether it is.

    Each argument is a mapping with any of these keys:

    * `num_bits` (2 to 16), `symmetric`, `signed`, `narrow_range`: fields of `QuantizerSpec`;
    * `per_axis`: one scale per output channel (weights only), and `axis`: another axis for them;
    * `block_size`: the number of values that share a scale along the axis that products sum over (weights of `Dense`,
      `EinsumDense`, the projections of attention and `Embedding` only; usually 32, 64 or 128);
    * `quantizer`: how the range is found: "last_value", "moving_average", "all_values", "fixed" or "lsq", or a
      quantizer of your own as `keras.saving.serialize_keras_object` writes it;
    * `init_min` and `init_max` for "fixed", `momentum` for "moving_average".

    Args:
        weight: Settings of the weights: one mapping for all of them, or one per weight by its name, such as
            `{"depthwise_kernel": {"num_bits": 4}, "pointwise_kernel": {}}`; an omitted weight then stays in float.
        activation: Settings of the inputs.
        output: Settings of the output.

    Raises:
        SpecError: If a key is none of these, or a value is invalid.

    Example:
        >>> config = LayerQuantizeConfig(weight={"num_bits": 4, "quantizer": "lsq"})
        >>> LayerQuantizeConfig.from_config(config.get_config()) == config
        True
    """

    weight: Mapping[str, Any] | None = None
    activation: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        # Copies, so that a later change of the given mapping does not change the config.
        for site in _SITES:
            value = getattr(self, site)
            if site == "weight" and is_per_weight(value):
                each = {
                    name: _checked(f"weight {name!r}", settings, of_weight=True) for name, settings in value.items()
                }
                object.__setattr__(self, site, each)
            elif value is not None:
                object.__setattr__(self, site, _checked(site, value, of_weight=site == "weight"))

    def __hash__(self) -> int:
        # Equal mappings may list their keys in any order, and an equal number may be an int or a float.
        return hash(_frozen(self.get_config()))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that were given, as a JSON-compatible dictionary."""
        return {site: copy.deepcopy(dict(getattr(self, site))) for site in _SITES if getattr(self, site) is not None}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LayerQuantizeConfig:
        """Rebuild a config from `get_config`.

        Args:
            config: The result of `get_config`, also after a round trip through JSON or YAML.

        Raises:
            SpecError: If a key is no setting, or a value is invalid.
        """
        if not isinstance(config, Mapping):
            raise SpecError(f"Quantizer settings are a mapping of {_SITES}. Received: {config!r}")
        for key in config:
            if key not in _SITES:
                raise SpecError(
                    f"A LayerQuantizeConfig has settings for {', '.join(_SITES)}. {nearest_names(str(key), _SITES)} "
                    f"Received: {key!r}"
                )
        return cls(**config)


def _frozen(value: Any) -> Any:
    """Return nested mappings and lists as something that can be hashed, equal for equal ones."""
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(one)) for key, one in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def is_per_weight(settings: Any) -> bool:
    """Return whether a value of `LayerQuantizeConfig.weight` is a mapping per weight, rather than one for all."""
    # A serialized quantizer is a mapping under the key "quantizer", and no weight of that name.
    several = isinstance(settings, Mapping) and bool(settings) and "quantizer" not in settings
    return several and all(isinstance(value, Mapping) for value in settings.values())


def _checked(site: str, settings: Any, *, of_weight: bool) -> dict[str, Any]:
    """Return a copy of one site's settings, checked."""
    if not isinstance(settings, Mapping):
        raise SpecError(
            f'{site} must be a mapping such as {{"num_bits": 4}}, or None for the target\'s default. '
            f"Received: {site}={settings!r}"
        )
    for key in settings:
        if key not in _KEYS:
            raise SpecError(
                f"{site} has a setting that no quantizer knows. {nearest_names(str(key), _KEYS)} Received: {key!r}"
            )
    plain = {key: _PLAIN[key](value) if key in _PLAIN else value for key, value in settings.items()}
    _check_settings(site, plain, of_weight=of_weight)
    return plain


def _check_settings(site: str, settings: Mapping[str, Any], *, of_weight: bool) -> None:
    """Raise an error unless the settings of one site are valid."""
    for flag in _FLAGS:
        if not isinstance(settings.get(flag, False), bool):
            raise SpecError(f"{site}: {flag} must be True or False. Received: {flag}={settings[flag]!r}")
    if not isinstance(settings.get("axis", 0), int) or isinstance(settings.get("axis"), bool):
        raise SpecError(f"{site}: axis must be a whole number. Received: axis={settings['axis']!r}")
    _check_blocks(site, settings, of_weight=of_weight)
    if not of_weight and (settings.get("per_axis") or "axis" in settings):
        raise SpecError(
            f"{site}: activations have one scale per tensor, because inference runtimes take no other on a Q/DQ pair "
            "between layers; leave per_axis and axis out. "
            f"Received: per_axis={settings.get('per_axis', False)}, axis={settings.get('axis')}"
        )
    try:
        # The limits of the width are known there alone.
        QuantizerSpec(**{key: settings[key] for key in ("num_bits",) if key in settings})
    except ValueError as error:
        raise SpecError(f"{site}: {error}") from error
    _check_method(site, settings)


def _check_blocks(site: str, settings: Mapping[str, Any], *, of_weight: bool) -> None:
    """Raise an error unless there are no blocks, or valid blocks of a weight."""
    size = settings.get("block_size")
    if size is None:
        return
    if not of_weight:
        raise SpecError(
            f"{site}: activations have one scale per tensor, blocks are for weights; leave block_size out. "
            f"Received: block_size={size!r}"
        )
    if not is_block_size(size):
        raise SpecError(
            f"{site}: block_size must be a whole number of values that share a scale, such as 32. "
            f"Received: block_size={size!r}"
        )
    if settings.get("per_axis") is False:
        raise SpecError(
            f"{site}: blocks have scales of their own along every other axis; leave per_axis out. "
            f"Received: block_size={size!r}, per_axis=False"
        )


def _check_method(site: str, settings: Mapping[str, Any]) -> None:
    """Raise an error unless the quantizer is known and has exactly the settings that it needs."""
    name = settings.get("quantizer", "")
    if isinstance(name, Mapping) and "class_name" in name:
        return  # a user's own class finds its range itself
    if name and name not in METHODS:
        raise SpecError(
            f"{site}: there is no quantizer of that name. {nearest_names(str(name), METHODS)} "
            f"Received: quantizer={name!r}"
        )
    if name == "fixed" and not {"init_min", "init_max"} <= set(settings):
        raise SpecError(f'{site}: quantizer="fixed" needs init_min and init_max. Received: {dict(settings)}')
    allowed = METHODS.get(name, ())
    for key in METHOD_SETTINGS:
        value = settings.get(key)
        if value is None:
            continue
        if key not in allowed:
            raise SpecError(f"{site}: {key} is not a setting of quantizer={name!r}. Received: {key}={value!r}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SpecError(f"{site}: {key} must be a number. Received: {key}={value!r}")
    if name == "fixed" and not _is_range(settings["init_min"], settings["init_max"]):
        raise SpecError(
            f"{site}: init_min and init_max must be finite numbers with init_min < init_max. "
            f"Received: init_min={settings['init_min']!r}, init_max={settings['init_max']!r}"
        )


def _is_range(low: Any, high: Any) -> bool:
    """Return whether two numbers are finite and the first is lower."""
    return math.isfinite(low) and math.isfinite(high) and low < high
