"""Writes docs/runtimes.md, what every target runs in INT8, from the rule sets: `python docs/site/runtime_page.py`.

Every layer class stands in a network of a few layers, which is planned and explained for every target.
`tests/test_site.py` compares the page with the rule sets, so that it cannot go stale.
"""

from __future__ import annotations

import itertools
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.graph.kinds import KINDS
from qdq_workbench.placement.defaults import class_name_of
from qdq_workbench.runtimes import litert, onnxruntime, openvino, tensorrt

PAGE = pathlib.Path(__file__).parents[1] / "runtimes.md"
TARGETS = {"tensorrt": tensorrt, "onnxruntime": onnxruntime, "openvino": openvino, "litert": litert}
_HEAD = """\
# What each runtime runs in INT8

<!-- Written by `python docs/site/runtime_page.py` from the rule sets; do not edit. -->

These tables are computed from the rule sets behind `qdq.explain`. [Targets](targets.md) says how each rule set was
checked, and [one file cannot serve every runtime](concepts/one_file.md) why they differ.

## The targets

{targets}

## Layers

Each layer stands between two convolutions (or Dense layers), as in a network. The cells say which placement lets it run
in INT8:

- **default**: `quantize_model(model, target=...)`;
- **AutoQDQCase**: with `custom_qdq_cases=[qdq.AutoQDQCase()]`;
- **named**: with `spec.add(name, quantize_input=True, quantize_output=True)`;
- **folded**: it is computed inside the layer in front of it, or does nothing at inference, as image augmentations do;
- **float**, with the rule that decides.

{layers}

Separable convolutions and attention run in INT8 after `qdq.transforms.split_separable_convolutions` and
`qdq.transforms.split_attention`. Transposed convolutions run in INT8 on OpenVINO where their input is never negative,
as behind a ReLU.

## Activations

Each activation is a layer of its own, between two convolutions.

{activations}

An activation inside another layer (`Conv2D(activation="swish")`) is computed with it;
`qdq.transforms.split_activations(model)` makes it a layer.

## Rules

{rules}
"""
#: The arguments of the layers that need some, by class name without its rank.
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "AveragePooling": (2,),
    "Conv": (4, 3),
    "ConvLSTM": (4, 3),
    "ConvTranspose": (4, 3),
    "Cropping": (1,),
    "Dense": (4,),
    "DepthwiseConv": (3,),
    "Dropout": (0.5,),
    "EinsumDense": ("abcd,de->abce", (8, 8, 4)),
    "GRU": (4,),
    "GroupNormalization": (2,),
    "GroupQueryAttention": (4, 4, 2),
    "LSTM": (4,),
    "MaxPooling": (2,),
    "MultiHeadAttention": (2, 2),
    "Permute": ((2, 1, 3),),
    "RepeatVector": (3,),
    "Rescaling": (0.5,),
    "Reshape": ((-1,),),
    "Resizing": (4, 4),
    "SeparableConv": (4, 3),
    "SimpleRNN": (4,),
    "UpSampling": (2,),
    "ZeroPadding": (1,),
}
#: The names under which Keras exports classes of other names.
_EXPORTED = {"GroupedQueryAttention": "GroupQueryAttention"}
_ON_MATRICES = ("Dense", "RepeatVector", "UnitNormalization")
#: What is shown elsewhere on the page, is a parent of what is shown, or needs inputs of another kind.
_LEFT_OUT = """
    Activation ActivityRegularization AdditiveAttention AlphaDropout Attention Bidirectional ConvLSTM Dot ELU
    Embedding GaussianDropout GaussianNoise Identity LeakyReLU MaxNumBoundingBoxes PReLU RNN ReLU
    Softmax SpectralNormalization SpatialDropout1D SpatialDropout2D SpatialDropout3D
""".split()  # noqa: SIM905 - words are easier to read than a quoted list
_ROLES_LEFT_OUT = frozenset({"augmentation", "cell", "preprocessing", "product", "table", "windowed product"})
_ACTIVATIONS = "relu relu6 leaky_relu elu selu sigmoid hard_sigmoid tanh softmax silu hard_silu gelu softplus".split()  # noqa: SIM905


def runtimes_page() -> str:
    """Return the page."""
    return _HEAD.format(
        targets=_targets(),
        layers=_matrix("Layer", _rows(_layer_models())),
        activations=_matrix("Activation", _rows(_activation_models())),
        rules="\n\n".join(_rules(name) for name in TARGETS),
    )


def _targets() -> str:
    found = [qdq.targets.get_target(name) for name in TARGETS]
    rows: list[tuple[str, Callable[[Any], str]]] = [
        ("runtime", lambda target: target.title),
        ("activations", lambda target: _grid(target.activation)),
        ("weights", lambda target: f"{_grid(target.weight)}, per output channel"),
        ("biases in the file", lambda target: target.bias),
        ("activations fused into the kernel before", lambda target: _names(target.fused_activations)),
        ("file", lambda target: {"onnx": "`.onnx`", "tflite": "`.tflite`"}[target.file]),
        ("version", lambda target: f"[{target.version}]({target.documentation})"),
    ]
    lines = ["| | " + " | ".join(f"`{target.name}`" for target in found) + " |", "|---" * (len(found) + 1) + "|"]
    for title, cell in rows:
        lines.append(f"| {title} | " + " | ".join(cell(target) for target in found) + " |")
    return "\n".join(lines)


def _grid(spec: Any) -> str:
    kind = f"{'int' if spec.signed else 'uint'}{spec.num_bits}"
    return f"{kind}, zero point 0" if spec.symmetric else f"{kind}, any zero point"


def _names(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) if names else "see the rules"


def _layer_models() -> Iterator[tuple[str, Any]]:
    """Yield every layer class with a network in which a layer called `it` is one."""
    for class_name, kind in KINDS.items():
        name = _EXPORTED.get(class_name, class_name)
        shown = hasattr(layers, name) and name not in _LEFT_OUT and kind.role not in _ROLES_LEFT_OUT
        if shown and not kind.only_operation:
            yield name, _network(name)


def _network(name: str) -> Any:
    """Return a convolution, or a Dense layer, and behind it a layer of a class."""
    ranked = re.search(r"(\d)D", name)
    stem = name.replace(ranked[0], "") if ranked else name
    role = KINDS[class_name_of(name)].role
    sequence = role in {"recurrent", "multi-head attention"} or name == "TimeDistributed"
    rank = int(ranked[1]) if ranked else 1 if sequence else 2
    convolution = getattr(layers, f"Conv{rank}D")
    if stem == "ConvLSTM":
        image = keras.Input((3, *(8,) * rank, 4))
        before: Any = layers.TimeDistributed(convolution(4, 3, padding="same"))
    elif name in _ON_MATRICES:
        image, before = keras.Input((16,)), layers.Dense(8)
    else:
        image, before = keras.Input((*(8,) * rank, 4)), convolution(4, 3, padding="same")
    arguments = (layers.Dense(4),) if name == "TimeDistributed" else _ARGUMENTS.get(stem, ())
    layer = getattr(layers, name)(*arguments, name="it")
    tensor = before(image)
    others = [convolution(4, 3, padding="same")(image)] if role == "merge" else []
    operands = [tensor, tensor] if role == "multi-head attention" else [[tensor, *others] if others else tensor]
    return _with_a_reader(image, layer(*operands))


def _with_a_reader(image: Any, tensor: Any) -> Any:
    """Return a network in which a convolution, or a Dense layer, reads a tensor."""
    rank = len(tensor.shape) - 2
    reader = getattr(layers, f"Conv{rank}D")(4, 1, name="after") if rank > 0 else layers.Dense(4, name="after")
    return keras.Model(image, reader(tensor))


def _activation_models() -> Iterator[tuple[str, Any]]:
    for name in (*_ACTIVATIONS, "prelu"):
        image = keras.Input((8, 8, 4))
        layer = layers.PReLU(name="it") if name == "prelu" else layers.Activation(name, name="it")
        yield name, _with_a_reader(image, layer(layers.Conv2D(4, 3, name="before")(image)))


def _rows(models: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    for name, model in models:
        graph = qdq.build_graph(model)
        yield name, [_cell(graph, target) for target in TARGETS]


def _cell(graph: Any, target: str) -> str:
    verdict = None
    for title, options in (
        ("default", {}),
        ("AutoQDQCase", {"custom_qdq_cases": [qdq.AutoQDQCase()]}),
        ("named", {"quantization_spec": _naming()}),
    ):
        plan = qdq.plan_placement(graph, target=target, **options)
        verdict = qdq.explain(plan, target=target).for_layer("it")
        if verdict.status == "int8":
            return "folded" if verdict.rule.endswith(("-FUSED", "-VANISHES")) else title
    return f"float, `{verdict.rule}`"


def _naming() -> Any:
    spec = qdq.QuantizationSpec()
    spec.add("it", quantize_input=True, quantize_output=True)
    return spec


def _matrix(title: str, rows: Iterator[tuple[str, list[str]]]) -> str:
    lines = [f"| {title} | " + " | ".join(f"`{name}`" for name in TARGETS) + " |", "|---" * (len(TARGETS) + 1) + "|"]
    for (_, cells), group in itertools.groupby(rows, key=lambda row: (_family(row[0]), row[1])):
        names = ", ".join(f"`{name}`" for name, _ in group)
        lines.append(f"| {names} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _family(name: str) -> str:
    kind = KINDS.get(class_name_of(name))
    return kind.role if kind else name


def _rules(name: str) -> str:
    lines = [f"### {name}", "", "| Rule | Meaning |", "|---|---|"]
    lines += [f"| `{rule.id}` | {rule.sentence} |" for rule in TARGETS[name].RULES.values()]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(runtimes_page(), encoding="utf-8")
