"""What a target is, and the registry of the known ones."""

from __future__ import annotations

import dataclasses
from typing import Literal

from qdq_workbench._registry import Registry
from qdq_workbench.errors import TargetError
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


@dataclasses.dataclass(frozen=True)
class Target:
    """An inference runtime, described by the encoding and the extra Q/DQ pairs that it needs.

    Args:
        name: The name that users pass as `target=`.
        title: The runtime's full name, for reports.
        activation: The grid of activation tensors.
        weight: The grid of weights; the axis is filled in per weight.
        bias: "int32" where biases are stored as integers with scale `input scale * weight scale`, else "float".
        integer_kinds: Node kinds with an integer kernel that needs a pair on the output tensor as well.
        float_output_kinds: Of those, the kinds whose kernel may also return float values (so that a missing
            output pair does not keep the layer in float).
        same_scale_kinds: Node kinds that run on integers only when their input and output share one scale.
        joined_kinds: Node kinds whose inputs (and output, where it has a pair) share one scale when a spec or a case
            quantizes them, because the runtime would rescale every branch otherwise.
        fused_activations: Activations that vanish into the preceding kernel, so that the pair belongs behind them.
        relu_needs_zero: Whether a ReLU is fused only where 0 is the lowest integer of the pair behind it, so that its
            tensor must not share a scale with negative values.
        integer_activations: Activations with an integer kernel of their own, between a pair in front and one behind.
        completes_activations: Whether the target needs a pair behind such an activation as soon as one stands in
            front of it, as runtimes do that know no mixed graphs.
        documentation: Address of the runtime's own documentation of these rules.
        version: The runtime version that the rules were checked against.
    """

    name: str
    title: str
    activation: QuantizerSpec
    weight: QuantizerSpec
    bias: Literal["float", "int32"]
    integer_kinds: frozenset[str] = frozenset()
    float_output_kinds: frozenset[str] = frozenset()
    same_scale_kinds: frozenset[str] = frozenset()
    joined_kinds: frozenset[str] = frozenset()
    fused_activations: frozenset[str] = frozenset()
    relu_needs_zero: bool = False
    integer_activations: frozenset[str] = frozenset()
    completes_activations: bool = False
    documentation: str = ""
    version: str = ""


TARGETS: Registry[Target] = Registry("target", TargetError)


def get_target(name: str | Target) -> Target:
    """Return the target called `name`.

    Args:
        name: A target's name, or a `Target`, which is returned as it is.

    Returns:
        Its grids, its rules and its `title`.

    Raises:
        TargetError: If no target has that name.

    Example:
        >>> get_target("tensorrt").bias
        'float'
    """
    return name if isinstance(name, Target) else TARGETS.get(name)


def target_names() -> list[str]:
    """Return the names of the known targets, sorted.

    Returns:
        What `target=` accepts.

    Example:
        >>> "onnxruntime" in target_names()
        True
    """
    return TARGETS.names()
