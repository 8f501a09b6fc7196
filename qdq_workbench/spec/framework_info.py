"""`FrameworkInfo`: how layer classes are quantized, in the form of Sony's Model Compression Toolkit (MCT).

Source: `model_compression_toolkit.common.framework_info` of MCT 1.0 and its documentation page "FrameworkInfo Class".
MCT's own documentation calls the class with five or six positional arguments, which MCT 1.0 refuses; here they work.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from qdq_workbench._numbers import real, whole
from qdq_workbench.errors import SpecError

Range = tuple[float | None, float | None]

_OTHERS = (
    "activation_quantizer_mapping",
    "weights_quantizer_mapping",
    "kernel_channels_mapping",
    "activation_min_max_mapping",
    "layer_min_max_mapping",
)
_SYNONYMS = {"silu": "swish", "swish": "silu", "identity": "linear", "linear": "identity"}


class QuantizationMethod(enum.Enum):
    """How a quantizer turns values into levels, by MCT's names.

    POWER_OF_TWO: symmetric and uniform, with a power of two as threshold. SYMMETRIC, SYMMETRIC_UNIFORM: symmetric and
    uniform. UNIFORM: uniform between any two ends. KMEANS: the levels are the centres of clusters of the values.
    LUT_QUANTIZER: the levels are such centres, rounded to a uniform grid, in a lookup table.

    Source: `QuantizationMethod` of Sony's MCT.

    Example:
        >>> QuantizationMethod["KMEANS"]
        <QuantizationMethod.KMEANS: 4>
    """

    POWER_OF_TWO = 0
    SYMMETRIC = 1
    UNIFORM = 2
    SYMMETRIC_UNIFORM = 3
    KMEANS = 4
    LUT_QUANTIZER = 5


class DefaultDict:
    """A dictionary whose `get` returns the result of a function for unknown keys; MCT's class.

    Args:
        known_dict: The known keys with their values.
        default_factory: Called without arguments for an unknown key; None for None.

    Example:
        >>> axes = DefaultDict({"Conv2D": (3, 2)}, lambda: (None, None))
        >>> axes.get("Conv2D"), axes.get("Flatten")
        ((3, 2), (None, None))
    """

    def __init__(self, known_dict: Mapping[Any, Any], default_factory: Callable[[], Any] | None = None) -> None:
        self.known_dict = dict(known_dict)
        self.default_factory = default_factory

    def get(self, key: Any) -> Any:
        """Return the value of a key, or the default.

        Args:
            key: The key.
        """
        if key in self.known_dict:
            return self.known_dict[key]
        return None if self.default_factory is None else self.default_factory()

    def __repr__(self) -> str:
        return f"DefaultDict({self.known_dict!r})"


class FrameworkInfo:
    """Which layer classes are quantized, along which axes, and which value ranges are known in advance.

    The layers of `kernel_ops` get quantized weights and outputs, those of `activation_ops` quantized outputs, those of
    `no_quantization_ops` nothing; a layer that no list names stays in float, with a warning. Classes are compared
    exactly, not by inheritance: by the name of a class object, or as a string. An output with two known bounds
    needs no calibration.

    All eight arguments may be given by position or by name. As in MCT's documentation, five positional arguments omit
    the quantizer mappings and the channels, and six omit the quantizer mappings.

    Args:
        kernel_ops: Classes of the layers with weights to quantize.
        activation_ops: Classes of the layers whose outputs are quantized.
        no_quantization_ops: Classes of the layers that are not quantized.
        *others: The other five arguments, the last three, or the last two.
        **named: The others by name: `activation_quantizer_mapping` and `weights_quantizer_mapping` (from
            `QuantizationMethod` to a function; they are stored, but the grids are the target's),
            `kernel_channels_mapping` (a `DefaultDict` from a class to the output and input axes of its kernel; None
            for the library's default axes), `activation_min_max_mapping` (from the name of an activation to its
            lowest and highest value, None if unknown; an activation without an entry stays in float, with a
            warning) and `layer_min_max_mapping` (the same for layer classes).

    Raises:
        SpecError: If the number of arguments fits none of the forms, or one has the wrong type.

    Example:
        >>> info = FrameworkInfo(["Conv2D"], ["Softmax"], ["Reshape"], {}, {"Softmax": (0, 1)})
        >>> info.layer_range("Softmax"), info.in_kernel_ops("Conv2D"), info.is_listed("Flatten")
        ((0, 1), True, False)
    """

    activation_quantizer_mapping: Mapping[Any, Any]
    weights_quantizer_mapping: Mapping[Any, Any]
    kernel_channels_mapping: DefaultDict | None
    activation_min_max_mapping: Mapping[str, Range]
    layer_min_max_mapping: Mapping[Any, Range]

    def __init__(
        self,
        kernel_ops: Collection[Any],
        activation_ops: Collection[Any],
        no_quantization_ops: Collection[Any],
        *others: Any,
        **named: Any,
    ) -> None:
        self.kernel_ops = _checked_list("kernel_ops", kernel_ops)
        self.activation_ops = _checked_list("activation_ops", activation_ops)
        self.no_quantization_ops = _checked_list("no_quantization_ops", no_quantization_ops)
        given = _by_name(others, named)
        self.activation_quantizer_mapping = _checked_mapping(given, "activation_quantizer_mapping")
        self.weights_quantizer_mapping = _checked_mapping(given, "weights_quantizer_mapping")
        self.kernel_channels_mapping = _checked_channels(given.get("kernel_channels_mapping"))
        self.activation_min_max_mapping = _checked_ranges(given, "activation_min_max_mapping")
        self.layer_min_max_mapping = _checked_ranges(given, "layer_min_max_mapping")

    def in_kernel_ops(self, layer: Any) -> bool:
        """Return whether a class is in `kernel_ops`.

        Args:
            layer: A class, its name, or a node of a `ModelGraph`.
        """
        return name_of(layer) in map(name_of, self.kernel_ops)

    def in_activation_ops(self, layer: Any) -> bool:
        """Return whether a class is in `activation_ops`.

        Args:
            layer: A class, its name, or a node of a `ModelGraph`.
        """
        return name_of(layer) in map(name_of, self.activation_ops)

    def in_no_quantization_ops(self, layer: Any) -> bool:
        """Return whether a class is in `no_quantization_ops`.

        Args:
            layer: A class, its name, or a node of a `ModelGraph`.
        """
        return name_of(layer) in map(name_of, self.no_quantization_ops)

    def is_listed(self, layer: Any) -> bool:
        """Return whether any of the three lists names a class.

        Args:
            layer: A class, its name, or a node of a `ModelGraph`.
        """
        return self.in_kernel_ops(layer) or self.in_activation_ops(layer) or self.in_no_quantization_ops(layer)

    def layers_has_min_max(self, layer: Any) -> bool:
        """Return whether a class has an entry in `layer_min_max_mapping`.

        Args:
            layer: A class, its name, or a node of a `ModelGraph`.
        """
        return self.layer_range(layer) is not None

    def activation_has_min_max(self, activation: str) -> bool:
        """Return whether an activation has an entry in `activation_min_max_mapping`.

        Args:
            activation: Its name, such as "softmax".
        """
        return self.activation_range(activation) is not None

    def layer_range(self, layer: Any) -> Range | None:
        """Return the lowest and highest value of a class's outputs, each None if unknown; None without an entry.

        Args:
            layer: A class, its name, or a node of a `ModelGraph`.
        """
        return _find(self.layer_min_max_mapping, name_of(layer))

    def activation_range(self, activation: str) -> Range | None:
        """Return the lowest and highest value of an activation, each None if unknown; None without an entry.

        Args:
            activation: Its name; "silu" and "swish" are equivalent, and so are "linear" and "identity".
        """
        found = _find(self.activation_min_max_mapping, activation)
        return found or _find(self.activation_min_max_mapping, _SYNONYMS.get(activation, activation))

    def kernel_axis(self, layer: Any) -> int | None:
        """Return the axis of the output channels in a class's kernel; None for one scale per tensor.

        Args:
            layer: A class, its name, or a node of a `ModelGraph`.

        Raises:
            SpecError: If `kernel_channels_mapping` was not given.
        """
        if self.kernel_channels_mapping is None:
            raise SpecError(
                "This FrameworkInfo has no kernel_channels_mapping, so it knows no axes; pass one. "
                f"Received: {name_of(layer)!r}"
            )
        mapping = self.kernel_channels_mapping
        # Not `mapping.get`: the keys may be classes where `layer` is a name or a node.
        axes = _find(mapping.known_dict, name_of(layer))
        if axes is None and mapping.default_factory is not None:
            axes = mapping.default_factory()
        return None if axes is None else whole(axes[0])

    def __repr__(self) -> str:
        lists = (self.kernel_ops, self.activation_ops, self.no_quantization_ops)
        return "FrameworkInfo({}, {}, {})".format(*([name_of(item) for item in items] for items in lists))


def name_of(layer: Any) -> str:
    """Return the name under which a class is compared, for a class or function, its name, or a node of a `ModelGraph`.

    Example:
        >>> name_of("Conv2D"), name_of(int)
        ('Conv2D', 'int')
    """
    if isinstance(layer, str):
        return layer
    return str(getattr(layer, "class_name", None) or getattr(layer, "__name__", None) or type(layer).__name__)


def _find(mapping: Mapping[Any, Any], name: str) -> Any:
    return next((value for key, value in mapping.items() if name_of(key) == name), None)


def _by_name(others: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Return the last five arguments by name, given by position or by name."""
    unknown = sorted(set(named) - set(_OTHERS))
    if unknown:
        raise SpecError(f"FrameworkInfo has no argument {unknown[0]!r}; it takes {', '.join(_OTHERS)}.")
    if len(others) not in (0, 2, 3, 5):
        raise SpecError(
            "FrameworkInfo takes kernel_ops, activation_ops and no_quantization_ops, then by position all of "
            f"{', '.join(_OTHERS)}, or the last three or two of them. Received: {3 + len(others)} positional arguments"
        )
    # MCT's shorter forms leave out the arguments in front.
    given = dict(zip(_OTHERS[len(_OTHERS) - len(others) :], others, strict=True))
    twice = sorted(set(given) & set(named))
    if twice:
        raise SpecError(f"FrameworkInfo received {twice[0]!r} by position and by name. Pass it once.")
    return {**given, **named}


def _checked_list(argument: str, value: Any) -> list[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise SpecError(f"{argument} must be a list of layer classes. Received: {argument}={value!r}")
    return list(value)


def _checked_mapping(given: Mapping[str, Any], argument: str) -> Mapping[Any, Any]:
    value = given.get(argument)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SpecError(f"{argument} must be a dictionary. Received: {argument}={value!r}")
    return dict(value)


def _checked_ranges(given: Mapping[str, Any], argument: str) -> Mapping[Any, Range]:
    ranges = {
        key: tuple(map(real, value)) if isinstance(value, (tuple, list)) else value
        for key, value in _checked_mapping(given, argument).items()
    }
    for key, value in ranges.items():
        pair = isinstance(value, (tuple, list)) and len(value) == 2
        ends = [end for end in value if end is not None] if pair else []
        if not pair or any(isinstance(end, bool) or not isinstance(end, (int, float)) for end in ends):
            raise SpecError(
                f"{argument} maps to pairs (lowest, highest value), None where unknown. "
                f"Received: {name_of(key)!r}: {value!r}"
            )
        if len(ends) == 2 and not ends[0] <= ends[1]:
            raise SpecError(f"{argument}: the lowest value is above the highest. Received: {name_of(key)!r}: {value!r}")
    return ranges


def _checked_channels(value: Any) -> DefaultDict | None:
    if value is None or isinstance(value, DefaultDict):
        return value
    if isinstance(value, Mapping):
        return DefaultDict(value, lambda: (None, None))
    raise SpecError(
        "kernel_channels_mapping must be a DefaultDict or a dictionary from a layer class to the output and input axes "
        f"of its kernel. Received: kernel_channels_mapping={value!r}"
    )
