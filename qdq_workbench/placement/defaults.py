"""The default quantization of each layer class, for layers that neither a spec nor a case names.

The classes of `_KEPT` have the defaults of NVIDIA's tensorflow-quantization toolkit; similar classes follow them. A
layer that holds others (recurrent, attention, Bidirectional, TimeDistributed...) has the defaults of those inside.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from qdq_workbench.graph.contractions import product_terms
from qdq_workbench.graph.kinds import HOLDERS, KINDS
from qdq_workbench.graph.model_graph import Node, Part, Weight
from qdq_workbench.graph.op_kinds import multiplies_with_table


@dataclasses.dataclass(frozen=True)
class LayerDefault:
    """The quantization of a layer class that neither a spec nor a case changes.

    Args:
        quantize_input: Whether its inputs get Q/DQ pairs.
        quantize_weight: Whether its weights are quantized.
        weights: The weights that can be quantized, by name below the layer, each with the axis of its scales: None
            for one scale, `OUTPUT_AXES` for the longest axis of an einsum's kernel that the result has too.
    """

    quantize_input: bool
    quantize_weight: bool = False
    weights: Mapping[str, int | str | None] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class NodeDefault:
    """The default of a class, resolved for one node.

    Args:
        quantize_input: Whether its inputs get Q/DQ pairs.
        quantize_weight: Whether its weights are quantized.
        weights: Those of its weights that can be quantized, each with the axis of its scales, counted from 0.
    """

    quantize_input: bool
    quantize_weight: bool
    weights: Mapping[str, int | None]


_KEPT = frozenset(
    {
        "Conv2D",
        "Dense",
        "DepthwiseConv2D",
        "AveragePooling2D",
        "GlobalAveragePooling2D",
        "MaxPooling2D",
        "BatchNormalization",
        "Concatenate",
        "Add",
        "Multiply",
    }
)
# Keras's aliases only, not classes of the user's own with the word in their names.
_CONVOLUTION = re.compile(r"(Separable|Depthwise)?Convolution[123]D(Transpose)?")
_DEFAULTS: dict[str, LayerDefault] = {
    name: LayerDefault("input" in kind.default, "weight" in kind.default, kind.weights)
    for name, kind in KINDS.items()
    if kind.default
}


def class_name_of(name: str) -> str:
    """Return the layer class for an alias of Keras such as `GlobalMaxPool2D`; other names unchanged.

    Example:
        >>> class_name_of("GlobalMaxPool2D"), class_name_of("Convolution2D"), class_name_of("Dense")
        ('GlobalMaxPooling2D', 'Conv2D', 'Dense')
    """
    for short, full in (("AvgPool", "AveragePooling"), ("MaxPool", "MaxPooling"), ("AveragePool", "AveragePooling")):
        for dimension in ("1D", "2D", "3D"):
            if name in (f"{short}{dimension}", f"Global{short}{dimension}"):
                return name.replace(f"{short}{dimension}", f"{full}{dimension}")
    if _CONVOLUTION.fullmatch(name):
        return name.replace("Convolution", "Conv")
    # Keras exports the class `GroupedQueryAttention` under the shorter name.
    return "GroupedQueryAttention" if name == "GroupQueryAttention" else name


def find_default(node: Node) -> NodeDefault | None:
    """Return the default of the node's class, or of its nearest known parent class; None if there is none."""
    # Called several times per node and plan: cached on the node until another class is registered.
    kept: tuple[int, NodeDefault | None] | None = node.__dict__.get("_default")
    if kept is None or kept[0] != len(_HISTORY):
        kept = (len(_HISTORY), _find_default(node))
        node.__dict__["_default"] = kept
    return kept[1]


def _find_default(node: Node) -> NodeDefault | None:
    known = _first_known(_class_names(node))
    if known is not None:
        return _resolved(known, node)
    if node.parts and not set(HOLDERS).isdisjoint(_class_names(node)):
        return _default_of_holder(node)
    return None


def find_named_default(node: Node) -> NodeDefault | None:
    """Return what an entry that names a layer quantizes: for an unknown class, its inputs and all of its matrices.

    Biases are excluded, whatever their rank, and so are weights that the known class of a layer inside does not
    quantize.
    """
    known = find_default(node)
    if known is not None or node.is_operation:
        return known
    inside = [(f"{part.name}/", row) for part in node.parts if (row := _first_known(_class_names(part))) is not None]
    matrices = {
        w.name: None
        for w in node.weights
        if len(w.shape) > 1 and w.is_float and w.trainable and not is_bias(w.name) and _may_be(w.name, inside)
    }
    return NodeDefault(quantize_input=True, quantize_weight=bool(matrices), weights=matrices)


def is_bias(weight: str) -> bool:
    """Return whether a weight is a bias, by its path below the layer.

    The number of axes does not tell: the biases of attention and recurrent layers have two.

    Example:
        >>> [is_bias(name) for name in ("layers/0/query/bias", "attention_bias", "bias~2", "kernel", "biased/kernel")]
        [True, True, True, False, False]
    """
    name = weight.rpartition("/")[2].partition("~")[0]  # the number of a second variable of that name
    return name == "bias" or name.endswith("_bias")


def _may_be(weight: str, inside: Iterable[tuple[str, LayerDefault]]) -> bool:
    """Return False if the innermost known layer that holds a weight does not quantize it; else True."""
    rows = [(prefix, row) for prefix, row in inside if weight.startswith(prefix)]
    if not rows:
        return True
    prefix, row = max(rows, key=lambda item: len(item[0]))  # the innermost
    return weight.removeprefix(prefix) in row.weights or "/" in weight.removeprefix(prefix)


def default_inputs(node: Node) -> tuple[int, ...]:
    """Return the inputs that `quantize_input` quantizes without an index: all but masks and initial states."""
    if not node.arguments:
        return tuple(range(len(node.inputs)))
    return tuple(
        index for index, name in enumerate(node.arguments) if name != "initial_state" and not name.endswith("mask")
    )


def _class_names(part: Node | Part) -> tuple[str, ...]:
    """Return the class names that determine a default; a user's own class may be named like one of Keras's."""
    if part.opaque and part.class_name not in _REGISTERED:
        return part.bases
    return part.classes


def _first_known(class_names: tuple[str, ...]) -> LayerDefault | None:
    for name in class_names:
        if name in _DEFAULTS:
            return _DEFAULTS[name]
    return None


def _default_of_holder(node: Node) -> NodeDefault | None:
    """Return the union of the defaults of the layers inside; None if all are unknown."""
    found = [(part, _first_known(_class_names(part))) for part in node.parts]
    rows = [(part, row) for part, row in found if row is not None]
    weights: dict[str, int | None] = {}
    for part, row in rows:
        if row.quantize_weight:
            weights.update(_axes(row, node.weights, f"{part.name}/", str(part.settings.get("equation", ""))))
    if not rows:
        return None
    return NodeDefault(any(row.quantize_input for _, row in rows), bool(weights), weights)


def _resolved(row: LayerDefault, node: Node) -> NodeDefault:
    weights = _axes(row, node.weights, "", str(node.settings.get("equation", ""))) if row.weights else {}
    # The input of an embedding holds indices, unless the call multiplies with its table.
    return NodeDefault(row.quantize_input or multiplies_with_table(node), row.quantize_weight, weights)


def _axes(row: LayerDefault, weights: Iterable[Weight], prefix: str, equation: str) -> dict[str, int | None]:
    """Return the scale axis of every weight that a row names; a name also matches the last part of a weight's path."""
    shapes = {weight.name: weight.shape for weight in weights}
    found: dict[str, int | None] = {}
    for wanted, axis in row.weights.items():
        exact = f"{prefix}{wanted}"
        names = [exact] if exact in shapes else _ending(shapes, prefix, wanted)
        for name in names:
            found[name] = _axis(axis, shapes[name], equation)
    return found


def _ending(names: Iterable[str], prefix: str, wanted: str) -> list[str]:
    # Inside a holder only the exact path counts: a deeper layer with a weight of that name has a row of its own.
    return [name for name in names if not prefix and name.endswith(f"/{wanted}")]


def _axis(axis: int | str | None, shape: tuple[int, ...], equation: str) -> int | None:
    if axis is None or not shape:
        return None
    if not isinstance(axis, str):
        return axis % len(shape)
    _, letters, result = product_terms(equation)
    shared = [index for index, letter in enumerate(letters) if letter in result and len(letters) == len(shape)]
    # A runtime takes scales along one axis. The longest one gives the most scales.
    return max(shared, key=lambda index: (shape[index], index)) if shared else None


_REGISTERED: set[str] = set()
_HISTORY: list[str] = []  # every registration, in order


def has_own_wrapper(class_name: str) -> bool:
    """Return whether a quantize wrapper for layers of a class was defined."""
    return class_name in _REGISTERED


def register_default(class_name: str, default: LayerDefault) -> None:
    """Register the default of a layer class, or of the class behind an alias, so that its layers are quantized.

    The ten classes of NVIDIA's toolkit keep their defaults: a wrapper for one of them changes how it is computed, not
    whether it is quantized. Known weights keep the axis of their scales.
    """
    name = class_name_of(class_name)
    if name in _KEPT:
        return
    _REGISTERED.add(name)
    _HISTORY.append(name)
    known = _DEFAULTS.get(name)
    if known is not None and known.weights:
        default = dataclasses.replace(default, weights=known.weights)
    _DEFAULTS[name] = default
