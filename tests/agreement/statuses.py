"""Comparing an explanation with what ONNX Runtime made of a file, node by node."""

from __future__ import annotations

import onnx

from qdq_workbench.conversion.engine.rebuild import keras_name
from qdq_workbench.onnx_graph.qdq_graph import NARROWING, keeps_in_float
from qdq_workbench.verification.integer_kernels import (
    COMPUTE_OPS,
    _as_file,
    _float_tensors,
    _integer_tensors,
    _verdicts,
    name_in_file,
    optimized_graph,
)

# The operators that decide about a layer of these classes; others of its nodes only prepare or add a bias.
_DECIDING = {
    ("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"): "Conv",
    ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"): "ConvTranspose",
    ("Dense", "EinsumDense", "Matmul"): "Gemm MatMul",
    ("TimeDistributed", "SpectralNormalization"): "Conv Gemm MatMul",
    ("Add", "Subtract", "Multiply", "Concatenate", "Divide"): "Add Sub Mul Concat Div",
    ("AveragePooling1D", "AveragePooling2D", "AveragePooling3D"): "AveragePool",
    ("GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D"): "GlobalAveragePool ReduceMean",
    ("MaxPooling1D", "MaxPooling2D", "MaxPooling3D"): "MaxPool",
    ("GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D"): "GlobalMaxPool ReduceMax",
    ("UpSampling2D", "Resizing"): "Resize",
    ("LeakyReLU",): "LeakyRelu",
    ("CustomScaleLayer",): "Add",
    ("BatchNormalization",): "BatchNormalization Mul Add",
    ("ReLU",): "Relu Clip",
    ("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", "Pad"): "Pad",
    ("Flatten", "Reshape", "Permute"): "Reshape Flatten Transpose Squeeze",
}
DECIDING = {name: operators.split() for names, operators in _DECIDING.items() for name in names}
_ACTIVATIONS = ("LeakyRelu", "Sigmoid", "Softmax", "Tanh", "Relu", "Clip", "Erf", "HardSigmoid", "HardSwish", "Elu")
# MatMulNBits or float, by the sizes, and neither computes integers; and what nobody can see from outside.
_UNDECIDED = frozenset({"ORT-WEIGHT-ONLY", "ORT-OPAQUE"})
_MOVING = frozenset({"Reshape", "Flatten", "Transpose", "Squeeze"})
_VANISHING = frozenset({"Relu", "Clip"})


def compare(explanation, file: onnx.ModelProto, folder) -> tuple[int, list[tuple[object, ...]]]:
    """Return how many statuses were compared, and those that differ from the runtime's optimized graph.

    Args:
        explanation: What `explain` said of the plan.
        file: The file of the plan.
        folder: A folder for temporary files.
    """
    compared, differing = 0, []
    for entry, runs in compared_layers(explanation, file, folder):
        compared += 1
        expected = {"int8", "float"} if entry.status == "partial" else {entry.status}
        if runs != expected:
            differing.append((entry.layer, entry.class_name, entry.status, entry.rule, sorted(runs)))
    return compared, differing


def compared_layers(explanation, file: onnx.ModelProto, folder):
    """Yield every explained layer that has nodes of its own in the file, with how these run in ONNX Runtime.

    Args:
        explanation: What `explain` said of the plan.
        file: The file of the plan.
        folder: A folder for temporary files.
    """
    original, path = _as_file(file, folder)
    fates = _Fates(original, optimized_graph(path, folder / "optimized.onnx"))
    for entry in explanation.layers:
        runs = fates.of_layer(keras_name(entry.layer), entry.class_name)
        if not runs or entry.rule in _UNDECIDED:
            continue
        yield entry, runs


class _Fates:
    """What became of every node of a file.

    Args:
        original: The file.
        optimized: The runtime's graph.
    """

    def __init__(self, original: onnx.ModelProto, optimized: onnx.ModelProto) -> None:
        self._verdicts = _verdicts(optimized)
        integers = _integer_tensors(optimized)
        self._moves_integers = {
            name_in_file(node): node.input[0] in integers for node in optimized.graph.node if node.op_type in _MOVING
        }
        self._floats = _float_tensors(original)
        self._producers = {output: node for node in original.graph.node for output in node.output}
        self._pairs = {node.name for node in original.graph.node if node.op_type == "QuantizeLinear"}
        self._by_layer: dict[str, list[onnx.NodeProto]] = {}
        for node in original.graph.node:
            parts = node.name.split("/")
            self._by_layer.setdefault(parts[0], []).append(node)

    def of_layer(self, name: str, class_name: str) -> set[str]:
        """Return how the deciding nodes of a layer run: "int8", "float", both, or nothing where none is left."""
        operators = DECIDING.get(class_name) or (_ACTIVATIONS if class_name == "Activation" else COMPUTE_OPS)
        if class_name not in DECIDING and class_name != "Activation":
            operators = [*COMPUTE_OPS, "Relu", "Clip"]
        nodes = [node for node in self._by_layer.get(name, ()) if node.op_type in operators]
        return {fate for node in nodes for fate in self._of_node(node)}

    def _of_node(self, node: onnx.NodeProto) -> list[str]:
        if node.output[0] not in self._floats or node.name.endswith(("/QuantizeLinear", "/DequantizeLinear")):
            return []
        # The Clip of a pair, not of a layer, and one that only keeps operators apart.
        if f"{node.name.removesuffix(NARROWING)}/QuantizeLinear" in self._pairs or keeps_in_float(node):
            return []
        name = name_in_file(node)
        if node.op_type in _MOVING:
            return [] if name not in self._moves_integers else ["int8" if self._moves_integers[name] else "float"]
        if node.op_type in _VANISHING and name not in self._verdicts:
            before = self._producers.get(node.input[0])  # gone: into the kernel before it, which is of either kind
            return ["float"] if before is None else self._of_node(before)[:1] or ["float"]
        return ["int8" if self._verdicts.get(name, False) else "float"]
