"""The table of ONNX operators, from which all code reads the properties of an operator.

`OPERATORS` has a row for every operator of which something is known; the groups after it are derived from the table.
Which operators a runtime fuses or has kernels for is listed with the code about that runtime.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Literal

Role = Literal[
    "arithmetic",
    "branch",
    "broadcasting",
    "cast",
    "choice",
    "clip",
    "concatenation",
    "contraction",
    "convolution",
    "cumulation",
    "generator",
    "global pool",
    "loop",
    "matrix product",
    "measure",
    "movement",
    "normalization",
    "padding",
    "pair",
    "pool",
    "recurrent",
    "reduction",
    "repetition",
    "resizing",
    "selection",
    "softmax",
    "unary",
]
_SUM = "sums many values: their rounding errors add up, and the sum may overflow where the mean does not"
_SOFTMAX = "a softmax sums exponentials"
_STATISTICS = "a normalization: its squares overflow beyond 256, and small variances vanish"
_EXPONENTIAL = "its values span more powers of two than float16 has"
_STATE = "its state goes from step to step, and its rounding errors with it"


@dataclasses.dataclass(frozen=True)
class Operator:
    """The properties of one operator.

    Args:
        role: Its role.
        moves: Whether it only moves or selects values, so that it runs on integers unchanged.
        propagates: Whether ONNX Runtime moves pairs over it.
        channels_first: Whether its channels are on axis 1.
        writes: The operator in the row of a layer that it is another form of.
        not_negative: Whether no result is negative for any input, or if no input is.
        sums: Whether its result is a sum of terms, and its error a share of their size.
        saturates: Whether its error is a share of 1 and not of its result.
        bounded: Whether its results are within small bounds for any input.
        float32: Why it stays in float32 beside half precision; "" if it does not.
        overflows: Whether its results may exceed float16, so that what reads them stays in float32, too.
        neutral: The constant with which it returns its other input, so that ONNX Runtime removes it; None without one.
    """

    role: Role
    moves: bool = False
    propagates: bool = False
    channels_first: bool = False
    writes: str = ""
    not_negative: Literal["", "makes", "keeps"] = ""
    sums: bool = False
    saturates: bool = False
    bounded: bool = False
    float32: str = ""
    overflows: bool = False
    neutral: float | None = None


def _moving(role: Role, *, propagates: bool = False, channels_first: bool = False) -> Operator:
    return Operator(role, moves=True, propagates=propagates, channels_first=channels_first, not_negative="keeps")


_ROWS: tuple[tuple[str, Operator], ...] = (
    ("Conv ConvTranspose", Operator("convolution", channels_first=True, sums=True)),
    ("MatMul", Operator("matrix product", sums=True)),
    ("Gemm", Operator("matrix product", sums=True, writes="MatMul")),
    ("Einsum", Operator("contraction")),
    ("AveragePool", Operator("pool", channels_first=True, not_negative="keeps", sums=True)),
    ("MaxPool", _moving("pool", propagates=True, channels_first=True)),
    ("LpPool", Operator("pool", channels_first=True, float32=_SUM)),
    (
        "GlobalAveragePool",
        Operator("global pool", channels_first=True, not_negative="keeps", sums=True, float32=_SUM),
    ),
    ("GlobalMaxPool", _moving("global pool", channels_first=True)),
    ("GlobalLpPool", Operator("global pool", channels_first=True, float32=_SUM)),
    (
        "ReduceMean",
        Operator("reduction", writes="GlobalAveragePool", not_negative="keeps", sums=True, float32=_SUM),
    ),
    ("ReduceMax", Operator("reduction", writes="GlobalMaxPool", not_negative="keeps")),
    ("ReduceMin", Operator("reduction")),
    ("ReduceSum", Operator("reduction", sums=True, float32=_SUM, overflows=True)),
    ("ReduceL1 ReduceL2 ReduceProd ReduceSumSquare", Operator("reduction", float32=_SUM, overflows=True)),
    ("ReduceLogSum ReduceLogSumExp", Operator("reduction", float32=_SUM)),
    ("CumSum", Operator("cumulation", float32=_SUM, overflows=True)),
    ("Add Sub", Operator("arithmetic", sums=True, neutral=0.0)),
    ("Mul Div", Operator("arithmetic", neutral=1.0)),
    ("Sum", Operator("broadcasting", sums=True)),
    ("Pow", Operator("broadcasting", float32=_EXPONENTIAL, overflows=True)),
    (
        "And Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Or PRelu Where",
        Operator("broadcasting"),
    ),
    ("Relu Clip", Operator("clip", not_negative="makes")),  # a Clip whose minimum is not negative
    ("Sigmoid", Operator("unary", not_negative="makes", saturates=True, bounded=True)),
    ("Erf HardSigmoid Tanh", Operator("unary", saturates=True, bounded=True)),
    ("Gelu", Operator("unary", saturates=True)),
    ("Softsign", Operator("unary", bounded=True)),
    ("Exp Reciprocal Sinh Cosh Tan", Operator("unary", float32=_EXPONENTIAL, overflows=True)),
    ("Log Softplus", Operator("unary", float32=_EXPONENTIAL)),
    (
        "Abs Ceil Celu Elu Floor HardSwish LeakyRelu Mish Neg Not Round Selu Sign Sqrt Swish ThresholdedRelu",
        Operator("unary"),
    ),
    ("Softmax", Operator("softmax", not_negative="makes", saturates=True, bounded=True, float32=_SOFTMAX)),
    ("LogSoftmax", Operator("softmax", float32=_SOFTMAX)),
    ("LayerNormalization", Operator("normalization", bounded=True, float32=_STATISTICS)),
    ("MeanVarianceNormalization RMSNormalization LpNormalization", Operator("normalization", float32=_STATISTICS)),
    (
        "BatchNormalization GroupNormalization InstanceNormalization LRN",
        Operator("normalization", channels_first=True, float32=_STATISTICS),
    ),
    ("LSTM GRU RNN", Operator("recurrent", float32=_STATE)),
    ("Loop Scan", Operator("loop", float32=_STATE)),
    ("SequenceMap", Operator("loop")),
    ("If", Operator("branch", float32=_STATE)),
    ("Reshape Transpose Squeeze Unsqueeze", _moving("movement", propagates=True)),
    ("Identity", _moving("movement", propagates=True)),  # removed by ONNX Runtime before it moves pairs
    ("Flatten", _moving("movement")),
    ("DepthToSpace SpaceToDepth", _moving("movement", channels_first=True)),
    ("Pad", _moving("padding")),
    ("Slice", _moving("selection", propagates=True)),
    ("Gather Split", _moving("selection")),
    ("Expand Tile", _moving("repetition")),
    ("Concat", Operator("concatenation", not_negative="keeps")),
    ("Resize", Operator("resizing", channels_first=True, not_negative="keeps")),  # by some interpolations
    ("Upsample", Operator("resizing", channels_first=True)),
    ("Cast", Operator("cast", not_negative="keeps")),
    ("QuantizeLinear DequantizeLinear", Operator("pair", not_negative="keeps")),  # every grid contains 0 exactly
    ("Shape Size", Operator("measure")),
    ("ArgMax ArgMin TopK", Operator("choice")),
    ("EyeLike RandomNormal RandomNormalLike RandomUniform RandomUniformLike", Operator("generator")),
)
#: Every operator of which something is known, by name.
OPERATORS: Mapping[str, Operator] = {name: operator for names, operator in _ROWS for name in names.split()}


def operators_where(holds: Callable[[Operator], object]) -> frozenset[str]:
    """Return the names of the operators that have a property.

    Example:
        >>> sorted(operators_where(lambda operator: operator.writes == "MatMul"))
        ['Gemm']
    """
    return frozenset(name for name, operator in OPERATORS.items() if holds(operator))


def operators_of(*roles: Role) -> frozenset[str]:
    """Return the names of the operators that have one of some roles.

    Example:
        >>> sorted(operators_of("recurrent"))
        ['GRU', 'LSTM', 'RNN']
    """
    return operators_where(lambda operator: operator.role in roles)


CONVOLUTIONS = operators_of("convolution")
MATRIX_PRODUCTS = operators_of("matrix product")
#: Convolutions and matrix products, whose second input is a weight.
WEIGHTED = CONVOLUTIONS | MATRIX_PRODUCTS
#: The operators with most of the arithmetic of a network.
CONTRACTIONS = WEIGHTED | operators_of("contraction")
#: Those with a window that moves over an image, volume or sequence.
WINDOWED = operators_of("convolution", "pool")
#: Those that every runtime computes in a kernel of its own, whatever it fuses with them.
HEAVY = WINDOWED | operators_of("matrix product", "global pool", "recurrent", "resizing")
CLIPS = operators_of("clip")
#: Elementwise operators of one tensor.
UNARY = operators_of("unary", "clip", "cast")
#: Elementwise operators of several tensors, which broadcast.
BROADCASTING = operators_of("arithmetic", "broadcasting")
MOVES = operators_where(lambda operator: operator.moves)
#: Those that only move or cast values, or return their shape; converters add them for shapes and layouts.
HELPERS = operators_of("movement", "selection", "repetition", "cast", "measure")
#: Those over which ONNX Runtime (1.31 and 1.32, `qdq_propagation.cc`) moves pairs.
PROPAGATING = operators_where(lambda operator: operator.propagates)
CHANNELS_FIRST = operators_where(lambda operator: operator.channels_first)
#: The operators that have graphs as attributes.
WITH_BODIES = operators_of("loop", "branch")
_RESIZE_MODES = ("nearest", "linear")


def written_for(name: str) -> str:
    """Return the operator in the row of a layer that an operator is written for: itself, or one of the same meaning.

    Example:
        >>> written_for("Gemm"), written_for("Relu")
        ('MatMul', 'Relu')
    """
    return (OPERATORS[name].writes if name in OPERATORS else "") or name


def makes_never_negative(name: str) -> bool:
    """Return whether no result of an operator is negative; of a `Clip` only with a minimum from 0 on."""
    return name in OPERATORS and OPERATORS[name].not_negative == "makes"


def keeps_never_negative(name: str, mode: str = "") -> bool:
    """Return whether no result of an operator is negative if no input value is; `mode` is that of a `Resize`."""
    if name == "Resize" and (mode or "nearest") not in _RESIZE_MODES:
        return False
    return name in OPERATORS and OPERATORS[name].not_negative == "keeps"


def read_values(name: str, inputs: Collection[str]) -> list[str]:
    """Return the inputs of an operator that hold values, not sizes, axes or scales; "" is one that is left out."""
    names = list(inputs)
    if name == "Concat":
        return names
    # The third input of a Pad is the value that it pads with.
    return names[:1] + ([names[2]] if name == "Pad" and len(names) > 2 and names[2] else [])
