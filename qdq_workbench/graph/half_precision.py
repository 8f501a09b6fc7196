"""Half precision: its two types, and the operators that stay in float32, each with a reason.

A type with `p` bits of significand rounds a value by at most `u = 2**-p` of its size (the unit roundoff) as long as
the result is a normal number:

    float16     u = 2**-11, up to 65,504, normal from 2**-14 on, multiples of 2**-24 below that
    bfloat16    u = 2**-8, with the exponents of float32

The operators in `KEPT` are those that PyTorch's autocast computes in float32
(https://docs.pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast to float32"), averages over images, and
operators with a state. TensorRT itself warns of normalizations ("Running layernorm after self-attention in FP16 may
cause overflow").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from qdq_workbench.graph.operators import OPERATORS, operators_where

FLOAT32 = "float32"


@dataclasses.dataclass(frozen=True)
class HalfType:
    """A floating-point type of 16 bits.

    Args:
        name: Its name in numpy and Keras.
        roundoff: The unit roundoff: the largest relative error of rounding to it.
        largest: The largest finite value.
        normal: The smallest normal value, below which the relative error grows.
        tiny: The smallest positive value.
        opset: The ONNX opset that files in this type have by default. QuantizeLinear takes both types from 19 on;
            convolutions, pools and most activations take bfloat16 from 22 on.
    """

    name: str
    roundoff: float
    largest: float
    normal: float
    tiny: float
    opset: int


HALF_TYPES: Mapping[str, HalfType] = {
    kind.name: kind
    for kind in (
        HalfType("float16", 2.0**-11, 65504.0, 2.0**-14, 2.0**-24, 19),
        HalfType("bfloat16", 2.0**-8, 3.3895313892515355e38, 2.0**-126, 2.0**-133, 22),
    )
}
FLOAT_TYPES = (FLOAT32, *HALF_TYPES)
#: The opset from which QuantizeLinear and DequantizeLinear take scales in half precision.
LEAST_HALF_OPSET = 19
#: The share of float16's range that calibrated values may use; other data may exceed them.
USED_RANGE = 0.5

#: The operators that stay in float32, each with its reason ...
KEPT: Mapping[str, str] = {name: operator.float32 for name, operator in OPERATORS.items() if operator.float32}
#: ... those whose results may exceed float16, so that the operators that read them stay in float32 too ...
OUT_OF_RANGE = operators_where(lambda operator: operator.overflows)
#: ... up to these operators, whose results are bounded for any input.
BOUNDED = operators_where(lambda operator: operator.bounded)


@dataclasses.dataclass
class HalfRequest:
    """The type in which to write the float part of a file, and the result.

    Args:
        kind: The type.
        scales: Whether the target takes scales in half precision; else its integer kernels read float32 scales.
        why_kept: Returns why the node of that name in the file stays in float32; "" for no reason.
        ends: Whether the inputs and outputs of the file have the type, too.
        half: Names of the nodes in half precision, after the pass has run.
        kept: Name -> reason of the nodes in float32, after the pass has run.
    """

    kind: HalfType
    scales: bool
    why_kept: Callable[[str], str]
    ends: bool = False
    half: list[str] = dataclasses.field(default_factory=list)
    kept: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def kept_by_reason(self) -> dict[str, tuple[str, ...]]:
        """The nodes in float32 by reason, the most frequent one first."""
        found: dict[str, list[str]] = {}
        for name, reason in self.kept.items():
            found.setdefault(reason, []).append(name)
        return {reason: tuple(found[reason]) for reason in sorted(found, key=lambda reason: -len(found[reason]))}


def why_kept(operators: Iterable[str]) -> str:
    """Return why one of some operators stays in float32 beside half precision; "" if none does.

    Example:
        >>> why_kept(["MatMul", "Softmax"])
        'a softmax sums exponentials'
    """
    return next((KEPT[operator] for operator in operators if operator in KEPT), "")
