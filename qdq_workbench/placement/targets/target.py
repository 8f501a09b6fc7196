"""The description of a target, and the registry of the known ones."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, Literal

from qdq_workbench._registry import Registry
from qdq_workbench.errors import TargetError, first_line
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_BIASES = ("float", "int32")
_BYTE = 8
_NEAR = 0.6  # least similarity of a misspelt name to a target's name


@dataclasses.dataclass(frozen=True)
class Target:
    """An inference runtime, described by the encodings and the extra Q/DQ pairs that it needs.

    A modified target, such as `dataclasses.replace(get_target("onnxruntime"), bias="float")`, can be passed in place
    of a target's name; it is stored in the plan, the model and their files.

    Args:
        name: The name that users pass as `target=`.
        title: The runtime's full name, for reports.
        activation: The grid of activation tensors.
        weight: The grid of weights; the axis is filled in per weight.
        bias: "int32" if biases are stored as integers with scale `input scale * weight scale`, else "float".
        unsigned_activations: Whether a file holds signed activations of up to 8 bits as unsigned integers, with a zero
            point that is larger by as much, because the runtime's kernels take no others: the values are the same.
        integer_kinds: Node kinds with an integer kernel that needs a pair on the output tensor as well.
        float_output_kinds: Of those, the kinds whose kernel may also return float values (so that a missing
            output pair does not keep the layer in float).
        same_scale_kinds: Node kinds that run on integers only if their input and output share one scale.
        joined_kinds: Node kinds whose inputs (and output, if it has a pair) share one scale when a spec or a case
            quantizes them, because the runtime would rescale every branch otherwise.
        fused_activations: Activations that are fused into the preceding kernel, so that the pair belongs after them.
        relu_needs_zero: Whether a ReLU is fused only if 0 is the lowest integer of the pair after it, so that its
            tensor must not share a scale with negative values.
        integer_activations: Activations with an integer kernel of their own, between a pair before and one after.
        completes_activations: Whether the target needs a pair after such an activation as soon as there is one before
            it, as do runtimes without mixed graphs.
        block_sizes: How many values of a weight may share a scale; empty if weights in blocks are not supported.
        other_blocks: Whether other block sizes work too, though without a kernel that reads the blocks. A plan has
            them only for weights whose integers were given.
        block_bits: The most bits that a weight in blocks may have.
        block_zero_points: Whether a weight in blocks may have zero points.
        whole_blocks: Whether the size of the axis along which blocks lie must be a multiple of the block size.
        relu_hides_blocks: Whether a ReLU directly after a matrix product prevents the kernel for weights in blocks, so
            that a file holds the ReLU as a maximum.
        quantizes_float_weights: Whether the runtime itself quantizes a float weight between two pairs, so that a file
            has a Clip in front of such a product, which prevents it.
        merges_pairs: Whether the runtime merges two pairs in a row into one with another range, so that a file has a
            Clip between them, which prevents it.
        joins_hard_sigmoids: Whether a HardSigmoid is faster than its three steps, so that a file has the one operator;
            other runtimes fuse the steps.
        slow_transposes: Whether a change of layout takes longer than a layer normalization in separate operators, so
            that a file holds those of images in separate operators, channels first like the convolutions around them.
        file: The format of the runtime's files, "onnx" or "tflite".
        half_scales: Whether its integer kernels accept scales in half precision, and then return half precision.
        documentation: Address of the runtime's own documentation of these rules.
        version: The runtime version that the rules were checked against.

    Raises:
        TargetError: If the name is no string, a grid is no `QuantizerSpec`, or `bias` is neither "int32" nor "float".

    Example:
        >>> floating_biases = dataclasses.replace(get_target("onnxruntime"), bias="float")
        >>> floating_biases.name, floating_biases.bias
        ('onnxruntime', 'float')
    """

    name: str
    title: str
    activation: QuantizerSpec
    weight: QuantizerSpec
    bias: Literal["float", "int32"]
    unsigned_activations: bool = False
    integer_kinds: frozenset[str] = frozenset()
    float_output_kinds: frozenset[str] = frozenset()
    same_scale_kinds: frozenset[str] = frozenset()
    joined_kinds: frozenset[str] = frozenset()
    fused_activations: frozenset[str] = frozenset()
    relu_needs_zero: bool = False
    integer_activations: frozenset[str] = frozenset()
    completes_activations: bool = False
    block_sizes: frozenset[int] = frozenset()
    other_blocks: bool = False
    block_bits: int = 8
    block_zero_points: bool = True
    whole_blocks: bool = False
    relu_hides_blocks: bool = False
    quantizes_float_weights: bool = False
    merges_pairs: bool = False
    joins_hard_sigmoids: bool = False
    slow_transposes: bool = False
    file: Literal["onnx", "tflite"] = "onnx"
    half_scales: bool = False
    documentation: str = ""
    version: str = ""

    def __post_init__(self) -> None:
        grids = isinstance(self.activation, QuantizerSpec) and isinstance(self.weight, QuantizerSpec)
        if not isinstance(self.name, str) or not grids or self.bias not in _BIASES:
            raise TargetError(
                "A target needs a name, a QuantizerSpec for activations and one for weights, and bias='int32' or "
                f"'float'. Received: name={self.name!r}, activation={self.activation!r}, weight={self.weight!r}, "
                f"bias={self.bias!r}"
            )

    def activation_in_file(self, grid: QuantizerSpec) -> QuantizerSpec:
        """Return the grid on which a file holds an activation; it has the same values as the planned one.

        Args:
            grid: The grid in the plan.
        """
        return grid.replace(signed=False) if self.unsigned_activations and grid.num_bits <= _BYTE else grid

    def to_dict(self) -> dict[str, Any]:
        """Return the target as a JSON-compatible dictionary."""
        fields = {key: sorted(value) if isinstance(value, frozenset) else value for key, value in vars(self).items()}
        return {**fields, "activation": self.activation.to_dict(), "weight": self.weight.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Target:
        """Rebuild a target from `to_dict`.

        Args:
            data: The dictionary of `to_dict`, also after a round trip through JSON.

        Raises:
            TargetError: If the dictionary is not a target.
        """
        try:
            # JSON has no sets: every list of a target is one.
            fields: dict[str, Any] = {k: frozenset(v) if isinstance(v, list) else v for k, v in data.items()}
            grids: dict[str, Any] = {key: QuantizerSpec.from_dict(fields[key]) for key in ("activation", "weight")}
            return cls(**{**fields, **grids})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TargetError(
                f"This is no target; Target.to_dict() gives one. Received: {first_line(error)} in {str(data)[:100]}"
            ) from error


TARGETS: Registry[Target] = Registry("target", TargetError)
# Other names of the runtimes, in lower-case letters and digits only.
_ALIASES = {
    "ort": "onnxruntime",
    "onnx": "onnxruntime",
    "onnxrt": "onnxruntime",
    "trt": "tensorrt",
    "nvidia": "tensorrt",
    "ov": "openvino",
    "tflite": "litert",
    "tensorflowlite": "litert",
    "tfl": "litert",
    "tflm": "litert",
}


def get_target(name: str | Target) -> Target:
    """Return the target called `name`.

    Args:
        name: A target's name, or a `Target`, which is returned as it is.

    Returns:
        The target, with its grids, its rules and its `title`.

    Raises:
        TargetError: If no target has that name; the message lists all, and suggests the one of an alias such as "ort".

    Example:
        >>> get_target("tensorrt").bias
        'float'
    """
    if isinstance(name, Target):
        return name
    if not isinstance(name, str) or name not in TARGETS.names():
        raise TargetError(f"There is no target of that name. {suggested_target(name)} Received: target={name!r}")
    return TARGETS.get(name)


def suggested_target(name: Any) -> str:
    """Return a hint for an error message: the target that an unknown name may mean, and all names."""
    names = TARGETS.names()
    plain = "".join(letter for letter in str(name).lower() if letter.isalnum())
    meant = _ALIASES.get(plain, plain)
    near = [meant] if meant in names else difflib.get_close_matches(plain, names, n=1, cutoff=_NEAR)
    question = f"Did you mean {near[0]!r}? " if near else ""
    return f"{question}The targets are {', '.join(map(repr, names))}."


def is_registered(target: Target) -> bool:
    """Return whether a target equals the registered one of its name."""
    return target.name in TARGETS.names() and TARGETS.get(target.name) == target


def target_names() -> list[str]:
    """Return the names of the known targets, sorted.

    Returns:
        The names that `target=` accepts.

    Example:
        >>> "onnxruntime" in target_names()
        True
    """
    return TARGETS.names()
