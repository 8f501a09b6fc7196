"""Where the sources list layer classes and operators beside `graph/kinds.py` and `operators.py`, and why they may."""

from __future__ import annotations

import ast
import functools
import pathlib
from collections.abc import Collection, Iterator

from keras import layers

from qdq_workbench.graph.kinds import KINDS
from qdq_workbench.graph.operators import OPERATORS

#: Files whose names are those of Keras's classes by chance: operators of ONNX, TensorFlow and firmware.
ONNX_OPERATORS, TENSORFLOWS, FIRMWARES = "ONNX operators", "TensorFlow's operations", "the operators of firmware"
#: Files that may list layer classes, and why.
EXCUSED = {
    "qdq_workbench/conversion/engine/saving.py": "which operations Keras reads as layers",
    "qdq_workbench/conversion/files/keras2.py": "what another version of Keras calls its classes",
    "qdq_workbench/conversion/transforms/split_separable.py": "of which two layers a separable convolution consists",
    "qdq_workbench/export/firmware/interpreter.py": FIRMWARES,
    "qdq_workbench/export/firmware/kernels.py": "which of firmware's kernels have a layout of their own",
    "qdq_workbench/export/firmware/walk.py": "what firmware has kernels for: the table of a target",
    "qdq_workbench/export/litert/fake_quant_model.py": "what LiteRT's converter splits on many axes",
    "qdq_workbench/export/passes/flips.py": ONNX_OPERATORS,
    "qdq_workbench/export/recurrent.py": ONNX_OPERATORS,
    "qdq_workbench/foreign/lint_axes.py": ONNX_OPERATORS,
    "qdq_workbench/foreign/lint_rules.py": ONNX_OPERATORS,
    "qdq_workbench/graph/kinds.py": "the table itself",
    "qdq_workbench/graph_builder/between_layers.py": TENSORFLOWS,
    "qdq_workbench/mct/default_keras_info.py": "the tables of MCT's `DEFAULT_KERAS_INFO`",
    "qdq_workbench/placement/defaults.py": "the ten classes of the predecessor, whose defaults stay",
    "qdq_workbench/placement/targets/litert.py": "what the runtime has integer kernels for",
    "qdq_workbench/placement/targets/onnxruntime.py": "what the runtime has integer kernels for",
    "qdq_workbench/post_training/chains.py": "the layers whose kernels may be scaled, with the axes of their channels",
    "qdq_workbench/profiling/kernels.py": ONNX_OPERATORS,
    "qdq_workbench/profiling/runtime_graph.py": ONNX_OPERATORS,
    "qdq_workbench/quantizers/settled.py": TENSORFLOWS,
    "qdq_workbench/runtimes/clipped_products.py": "which layers tf2onnx writes with several readers of their input",
    "qdq_workbench/runtimes/litert.py": "which of the runtime's kernels read weights of 4 bits",
    "qdq_workbench/runtimes/openvino.py": "what the runtime moves as integers",
    "qdq_workbench/runtimes/tensorrt_builds.py": ONNX_OPERATORS,
    "qdq_workbench/tfmot/default_scheme.py": "what TFMOT quantizes",
    "qdq_workbench/tfmot/trained_config.py": "parts of the names of TFMOT's configs",
    "qdq_workbench/verification/integer_kernels.py": ONNX_OPERATORS,
    "qdq_workbench/verification/lowered.py": ONNX_OPERATORS,
}
#: Files that list three or more operators of ONNX beside `graph/operators.py`, and why they may.
OPERATORS_LISTED = {
    "qdq_workbench/export/half/kept.py": "whose constants are factors, bounds or alternatives",
    "qdq_workbench/export/passes/flips.py": "the functions that flip one operator each",
    "qdq_workbench/export/recurrent.py": "the gates and states of each, and ONNX's default activations",
    "qdq_workbench/foreign/float_signatures.py": "with which a normalization or Gelu in steps begins",
    "qdq_workbench/foreign/lint_rules.py": "what TensorRT and OpenVINO fuse into a product",
    "qdq_workbench/onnx_graph/element_types.py": "the names of the bodies, and their results",
    "qdq_workbench/profiling/kernels.py": "what ONNX Runtime computes in the kernel behind it",
    "qdq_workbench/profiling/runtime_graph.py": "parts of the names of ONNX Runtime's kernels",
    "qdq_workbench/verification/integer_kernels.py": "what some runtime has integer kernels for",
    "qdq_workbench/verification/layer_forms.py": "in which tf2onnx writes an activation",
    "qdq_workbench/verification/lowered.py": "what no converter adds to compute shapes, indices or masks",
    "widgets/qdq_widgets/file_sides.py": "by which short names a card shows them",
}
#: Names by which Keras exports a class of another name, such as `MaxPool2D`. No node of a graph has one of them.
EXPORTED = frozenset(name for name, kind in vars(layers).items() if isinstance(kind, type) and kind.__name__ != name)


@functools.cache
def sources(root: pathlib.Path) -> dict[str, ast.Module]:
    """Return the modules of the library and the front end, by path below the root."""
    paths = (*root.glob("qdq_workbench/**/*.py"), *root.glob("widgets/qdq_widgets/**/*.py"))
    return {str(path.relative_to(root)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@functools.cache
def lists_in(tree: ast.AST, names: Collection[str] = frozenset(KINDS), least: int = 2) -> tuple[set[str], ...]:
    """Return the texts that stand together, wherever enough of them are classes or operations of the table."""
    together = (texts for node in ast.walk(tree) for texts in _together(node))
    return tuple(texts for texts in together if len(texts.intersection(names)) >= least)


def operators_in(tree: ast.AST) -> tuple[set[str], ...]:
    """Return the texts that stand together, wherever three or more are operators; two may be cases of a rule."""
    return lists_in(tree, frozenset(OPERATORS), 3)


def _together(node: ast.AST) -> Iterator[set[str]]:
    """Yield the texts in a collection, those of keys, of values, of a call's arguments, and the words of a split."""
    if isinstance(node, ast.Dict):
        yield _named(node.keys)
        yield _named(node.values)
    elif isinstance(node, ast.Call):
        yield _named(node.args) | {keyword.arg for keyword in node.keywords if keyword.arg}
        if isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            yield {word for text in _texts([node.func.value]) for word in text.split()}
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield _named(_joined(node))
    else:
        yield _named(getattr(node, "elts", ()))


def _joined(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what `|` joins, as in `isinstance(layer, layers.Dense | layers.EinsumDense)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _joined(node.left)
        yield from _joined(node.right)
    else:
        yield node


def _named(parts) -> set[str]:
    """Return the texts, and the names of classes that are attributes of `layers` or `keras.layers`."""
    parts = list(parts)
    attributes = [part for part in parts if isinstance(part, ast.Attribute)]
    classes = [part.attr for part in attributes if ast.unparse(part.value) in ("layers", "keras.layers")]
    return _texts(parts) | {getattr(layers, name).__name__ for name in classes if hasattr(layers, name)}


def names_asked_for(tree: ast.AST) -> set[str]:
    """Return the names of classes that `is_a` is asked for, and all names by which Keras exports other classes."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "is_a":
            found |= _texts(node.args)
        elif isinstance(node, ast.Constant):
            found |= _texts([node]) & EXPORTED
    return found


def _texts(parts) -> set[str]:
    return {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)} - {""}
