"""The table of layer classes and operations, from which all code reads the properties of a class.

`KINDS` has a row for every class. The groups after it, such as `CONVOLUTIONS`, are derived from the table, for
`Node.is_a`, which includes subclasses. The kernels of an inference runtime are listed with the targets.

To add a new Keras layer, add its row here and a model with it to `tests/families/zoo.py`. Only a layer whose
multiplications are counted in a special way needs more: a rule in `graph/macs.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

#: The axes of an einsum's kernel that its result has, too, by the equation.
OUTPUT_AXES = "output axes"

Role = Literal[
    "activation",
    "attention",
    "augmentation",
    "average",
    "batch normalization",
    "cell",
    "convolution",
    "cropping",
    "dense",
    "depthwise convolution",
    "dropout",
    "einsum",
    "embedding",
    "global maximum",
    "maximum",
    "merge",
    "movement",
    "multi-head attention",
    "no operation",
    "normalization",
    "padding",
    "padding operation",
    "preprocessing",
    "product",
    "recurrent",
    "rescaling",
    "resizing",
    "separable convolution",
    "table",
    "transposed convolution",
    "upsampling",
    "windowed product",
    "wrapper",
]
#: How a layer combines tensors element by element; "" if it does not.
Elementwise = Literal["", "addition", "multiplication", "extremum", "mean"]
#: What is quantized of a layer by default; "" if the layers inside determine it, or there is nothing to quantize.
Default = Literal["", "float", "input", "weight", "input and weight"]


@dataclasses.dataclass(frozen=True)
class Kind:
    """The properties of one layer class or operation.

    Args:
        role: Its role.
        default: What planning quantizes of it by default.
        weights: The weights that can be quantized, by name below the layer, each with the axis of its scales: None
            for one scale, `OUTPUT_AXES` for the longest axis of an einsum's kernel that the result has too.
        activation: Keras's name of the activation function that it computes.
        operator: The ONNX operator of a class that only moves, selects or averages values; its results are not
            negative if no input is.
        operators: The ONNX operators that a file holds for it, without those that only move, cast or measure values
            and without the addition of a bias; None if they depend on more than its class.
        inner_activation: Whether its result goes through the function of its setting `activation`.
        folds: Whether a batch normalization after it can be folded into its weights.
        vanishes: Whether it does nothing at inference and has no operator in a file.
        holds_one: Whether it computes the same as the one layer inside, and a file holds only that.
        elementwise: How it combines tensors element by element.
        chooses_by_mask: Whether it reads other values at positions that the mask of an input leaves out.
        multiplies: Whether it is an operation that multiplies tensors.
        only_operation: Whether it is a `keras.ops` function without a layer of that name.
    """

    role: Role
    default: Default = ""
    weights: Mapping[str, int | str | None] = dataclasses.field(default_factory=dict)
    activation: str = ""
    operator: str = ""
    operators: tuple[str, ...] | None = None
    inner_activation: bool = False
    folds: bool = False
    vanishes: bool = False
    holds_one: bool = False
    elementwise: Elementwise = ""
    chooses_by_mask: bool = False
    multiplies: bool = False
    only_operation: bool = False


def _ranked(pattern: str, *ranks: int) -> tuple[str, ...]:
    """Return the names of a class for images of several ranks, such as `Conv1D`, `Conv2D` and `Conv3D`."""
    return tuple(pattern.format(rank) for rank in ranks or (1, 2, 3))


def _product(role: Role, weights: Mapping[str, int | str | None], *operators: str) -> Kind:
    return Kind(role, "input and weight", weights, operators=operators, inner_activation=True, folds=True)


# Layers that change images at random, in training only. Not among them: RandomCrop, whose result has another size.
_AUGMENTATIONS = (
    *("AugMix", "CutMix", "Equalization", "MixUp", "RandAugment", "RandomBrightness", "RandomColorDegeneration"),
    *("RandomColorJitter", "RandomContrast", "RandomElasticTransform", "RandomErasing", "RandomFlip"),
    *("RandomGaussianBlur", "RandomGrayscale", "RandomHue", "RandomInvert", "RandomPerspective", "RandomPosterization"),
    *("RandomRotation", "RandomSaturation", "RandomSharpness", "RandomShear", "RandomTranslation", "RandomZoom"),
    "Solarization",
)
# The last axes of Keras's kernels: input and output channels; of depthwise ones, input channels and multiplier; of
# transposed ones, output and input channels.
_KERNEL, _NEXT_TO_LAST = {"kernel": -1}, {"kernel": -2}
_SEPARABLE = {"depthwise_kernel": -2, "pointwise_kernel": -1}
# The gates of a cell lie one behind the other on the last axis, so every gate and unit has a scale.
_CELL = {"kernel": -1, "recurrent_kernel": -1}

_ROWS: tuple[tuple[tuple[str, ...], Kind], ...] = (
    (_ranked("Conv{}D"), _product("convolution", _KERNEL, "Conv")),
    (_ranked("Conv{}DTranspose"), _product("transposed convolution", _NEXT_TO_LAST, "ConvTranspose")),
    (_ranked("DepthwiseConv{}D", 1, 2), _product("depthwise convolution", _NEXT_TO_LAST, "Conv")),
    (_ranked("SeparableConv{}D", 1, 2), _product("separable convolution", _SEPARABLE, "Conv", "Conv")),
    (("Dense",), _product("dense", _KERNEL, "MatMul")),
    (
        ("EinsumDense",),  # its operators depend on the equation
        Kind("einsum", "input and weight", {"kernel": OUTPUT_AXES}, inner_activation=True),
    ),
    (("Embedding",), Kind("embedding", "weight", {"embeddings": None, "reverse_embeddings": -1})),
    (("LSTMCell", "GRUCell", "SimpleRNNCell", "ConvLSTMCell"), Kind("cell", "input and weight", _CELL)),
    (("RNN", "LSTM", "GRU", "SimpleRNN", "ConvLSTM", *_ranked("ConvLSTM{}D")), Kind("recurrent")),
    # Keras exports the second class as `GroupQueryAttention`: `placement.defaults.class_name_of`.
    (("MultiHeadAttention", "GroupedQueryAttention"), Kind("multi-head attention")),
    (("Attention", "AdditiveAttention"), Kind("attention")),
    (("Bidirectional",), Kind("wrapper")),
    (("TimeDistributed", "SpectralNormalization"), Kind("wrapper", holds_one=True)),
    (("BatchNormalization",), Kind("batch normalization", "float", operators=("Mul", "Add"))),  # if nothing absorbs it
    (
        ("LayerNormalization", "GroupNormalization", "RMSNormalization", "UnitNormalization"),
        Kind("normalization", "float"),
    ),
    (_ranked("AveragePooling{}D"), Kind("average", "input", operator="AveragePool", operators=("AveragePool",))),
    (
        _ranked("GlobalAveragePooling{}D", 2, 3),
        Kind("average", "input", operator="GlobalAveragePool", operators=("GlobalAveragePool",)),
    ),
    (
        _ranked("GlobalAveragePooling{}D", 1),  # its operators depend on whether its input has a mask
        Kind("average", "input", operator="GlobalAveragePool"),
    ),
    (_ranked("MaxPooling{}D"), Kind("maximum", "float", operator="MaxPool", operators=("MaxPool",))),
    (
        _ranked("GlobalMaxPooling{}D"),
        Kind("global maximum", "float", operator="GlobalMaxPool", operators=("GlobalMaxPool",)),
    ),
    (("Add",), Kind("merge", "float", operators=("Add",), elementwise="addition")),
    (("Subtract",), Kind("merge", "float", operators=("Sub",), elementwise="addition")),
    (
        ("Multiply",),
        Kind("merge", "float", operators=("Mul",), elementwise="multiplication", chooses_by_mask=True),
    ),
    (("Maximum",), Kind("merge", "float", operators=("Max",), elementwise="extremum", chooses_by_mask=True)),
    (("Minimum",), Kind("merge", "float", operators=("Min",), elementwise="extremum", chooses_by_mask=True)),
    (("Average",), Kind("merge", "float", elementwise="mean")),
    (("Concatenate",), Kind("merge", "float", operator="Concat", operators=("Concat",))),
    (("Matmul",), Kind("merge", "float", operators=("MatMul",), multiplies=True)),
    (("Dot",), Kind("merge", "float", multiplies=True)),
    (("Resizing",), Kind("resizing", "float")),
    (_ranked("UpSampling{}D", 2), Kind("upsampling", "float", operator="Resize", operators=("Resize",))),
    (_ranked("UpSampling{}D", 1, 3), Kind("upsampling", "float", operator="Resize")),
    (_ranked("ZeroPadding{}D"), Kind("padding", operator="Pad", operators=("Pad",))),
    # No `operator`: it may pad with negative values (`op_kinds.pads_with_zeros`).
    (("Pad",), Kind("padding operation", operators=("Pad",), only_operation=True)),
    (_ranked("Cropping{}D"), Kind("cropping", operator="Slice")),
    (("Flatten", "Reshape"), Kind("movement", operator="Reshape")),
    (("Permute", "Transpose"), Kind("movement", operator="Transpose")),
    (("GetItem",), Kind("movement", operator="Slice")),
    (("Squeeze",), Kind("movement", operator="Squeeze")),
    (("ExpandDims",), Kind("movement", operator="Unsqueeze")),
    (("RepeatVector", "Swapaxes", "Moveaxis", "Slice", "Split", "Unstack", "Take"), Kind("movement")),
    (
        ("Dropout", *_ranked("SpatialDropout{}D"), "GaussianDropout", "AlphaDropout"),
        Kind("dropout", vanishes=True),
    ),
    (
        ("GaussianNoise", "ActivityRegularization", "Identity", "MaxNumBoundingBoxes"),
        Kind("no operation", vanishes=True),
    ),
    # The functions of `Activation` and `ReLU` depend on their settings: `graph.activations`.
    (("Activation",), Kind("activation")),
    (("ReLU",), Kind("activation", activation="relu")),
    (("LeakyReLU",), Kind("activation", activation="leaky_relu")),
    (("PReLU",), Kind("activation", "float", {"alpha": None}, activation="prelu")),
    (("ELU",), Kind("activation", activation="elu")),
    (("Softmax",), Kind("activation", activation="softmax")),
    *(
        ((operation,), Kind("activation", activation=name, only_operation=True))
        for operation, name in (
            ("Relu", "relu"),
            ("Relu6", "relu6"),
            ("LeakyRelu", "leaky_relu"),
            ("Elu", "elu"),
            ("Selu", "selu"),
            ("Gelu", "gelu"),
            ("Silu", "silu"),
            ("HardSilu", "hard_silu"),
            ("Sigmoid", "sigmoid"),
            ("HardSigmoid", "hard_sigmoid"),
            ("Tanh", "tanh"),
            ("Softplus", "softplus"),
        )
    ),
    (
        ("Conv", "ConvTranspose", "DepthwiseConv", "SeparableConv"),
        Kind("windowed product", multiplies=True, only_operation=True),
    ),
    (
        ("DotProductAttention", "Einsum", "Inner", "Tensordot", "Vdot"),
        Kind("product", multiplies=True, only_operation=True),
    ),
    (
        ("Hashing", "HashedCrossing", "IndexLookup", "IntegerLookup", "StringLookup", "TextVectorization"),
        Kind("table"),
    ),
    (
        (
            *("Normalization", "Discretization", "AutoContrast", "CenterCrop", "RandomCrop"),
            "ContrastLimitedAdaptiveHistogramEqualization",
        ),
        Kind("preprocessing"),
    ),
    (("Rescaling",), Kind("rescaling")),
    (_AUGMENTATIONS, Kind("augmentation", vanishes=True)),
)
#: Every class that the library knows, by name.
KINDS: Mapping[str, Kind] = {name: kind for names, kind in _ROWS for name in names}


def classes_where(holds: Callable[[Kind], bool]) -> tuple[str, ...]:
    """Return the names of the classes whose kind has a property.

    Example:
        >>> classes_where(lambda kind: kind.holds_one)
        ('TimeDistributed', 'SpectralNormalization')
    """
    return tuple(name for name, kind in KINDS.items() if holds(kind))


def classes_of(*roles: Role) -> tuple[str, ...]:
    """Return the names of the classes that have one of some roles.

    Example:
        >>> classes_of("depthwise convolution")
        ('DepthwiseConv1D', 'DepthwiseConv2D')
    """
    return classes_where(lambda kind: kind.role in roles)


TRANSPOSED = classes_of("transposed convolution")
DEPTHWISE = classes_of("depthwise convolution")
SEPARABLE = classes_of("separable convolution")
#: Convolutions whose output channels are sums of products over a window, all in one step.
DIRECT_CONVOLUTIONS = classes_of("convolution", "depthwise convolution")
CONVOLUTIONS = (*classes_of("convolution"), *TRANSPOSED, *DEPTHWISE, *SEPARABLE)
MATRIX_PRODUCTS = classes_of("dense", "einsum")
EINSUMS = classes_of("einsum")
#: Convolutions and matrix products, which apply the activation function of their settings to the result.
WITH_ACTIVATION = classes_where(lambda kind: kind.inner_activation)
MULTI_HEAD_ATTENTION = classes_of("multi-head attention")
RECURRENT = classes_of("recurrent")
#: Layers whose defaults are those of the layers inside; the graph does not show what these compute.
HOLDERS = classes_of("recurrent", "multi-head attention", "wrapper")
HOLDING_ONE = classes_where(lambda kind: kind.holds_one)
BATCH_NORMALIZATION = classes_of("batch normalization")
NORMALIZATIONS = classes_of("normalization")
AVERAGES = classes_of("average")
MAXIMA = classes_of("maximum")
GLOBAL_MAXIMA = classes_of("global maximum")
POOLINGS = (*AVERAGES, *MAXIMA, *GLOBAL_MAXIMA)
MERGES = classes_of("merge")
#: Those that combine tensors element by element.
ELEMENTWISE = classes_where(lambda kind: kind.elementwise != "")
ADDITIONS = classes_where(lambda kind: kind.elementwise == "addition")
#: Sums, differences and products: runtimes have kernels of two tensors for them.
ARITHMETIC = classes_where(lambda kind: kind.elementwise in ("addition", "multiplication"))
#: The elementwise ones that are one operator for two tensors; a mean is a sum and a product.
ELEMENTWISE_OPERATORS = classes_where(lambda kind: kind.elementwise != "" and kind.operators is not None)
#: Those that read other values at the positions that a mask leaves out, such as 1 in place of a factor.
CHOOSING_BY_MASK = classes_where(lambda kind: kind.chooses_by_mask)
#: Products of tensors, elementwise or of matrices, that are one operator; `Dot` is several.
TENSOR_PRODUCTS = classes_where(lambda kind: kind.role == "merge" and kind.operators in (("Mul",), ("MatMul",)))
PADDINGS = classes_of("padding")
PADDING_OPERATIONS = classes_of("padding operation")
CROPPINGS = classes_of("cropping")
UPSAMPLINGS = classes_of("upsampling")
#: Layers and operations that only move values of their input.
MOVEMENTS = classes_of("movement")
#: Those that only change the shape of a tensor or the order of its axes.
RESHAPINGS = ("Flatten", "Reshape", "Permute")
DROPOUTS = classes_of("dropout")
#: Layers that do nothing at inference and have no operator in a file.
VANISHING = classes_where(lambda kind: kind.vanishes)
ACTIVATION_LAYERS = classes_where(lambda kind: kind.role == "activation" and not kind.only_operation)
TABLES = classes_of("table")
#: Operations with a kernel that moves over an image, volume or sequence.
WINDOWED_OPERATIONS = classes_of("windowed product")
#: The operations that multiply; only for these the graph holds the shapes of constant operands.
PRODUCT_OPERATIONS = classes_where(lambda kind: kind.multiplies)
