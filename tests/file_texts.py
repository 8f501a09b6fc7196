"""The structure of exported files as short text, independent of names and values, for golden files."""

from __future__ import annotations

import collections
import hashlib
import pathlib
from typing import Any

import numpy as np
import onnx

from qdq_workbench.export.litert.tflite_run import SIGNATURE, make_interpreter


def onnx_lines(path: pathlib.Path) -> list[str]:
    """Per output of an ONNX file: what operators it is made of, and a digest of how they are joined."""
    graph = onnx.load(path).graph
    constants = {
        tensor.name: f"{onnx.TensorProto.DataType.Name(tensor.data_type)}{list(tensor.dims)}"
        for tensor in graph.initializer
    }
    makers = {
        name: (str(place), node, index)
        for place, node in enumerate(graph.node)
        for index, name in enumerate(node.output)
    }
    structure = _Structure(
        lambda name: _onnx_operator(*makers[name]) if name in makers else None,
        lambda name: constants.get(name, "input" if name else "none"),
    )
    return [f"{output.name}  {structure.line(output.name)}" for output in graph.output]


def _onnx_operator(place: str, node: Any, index: int) -> tuple[str, str, str, list[str]]:
    attributes = sorted(f"{a.name}={_attribute(a)}" for a in node.attribute)
    return place, node.op_type, f"{node.op_type}:{index} {attributes}", list(node.input)


def _attribute(attribute: Any) -> str:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return f"{onnx.numpy_helper.to_array(value).shape}"
    if isinstance(value, onnx.GraphProto):
        return ",".join(sorted(node.op_type for node in value.node))  # the converter orders them anew each time
    return f"{value}"


def tflite_lines(path: pathlib.Path) -> list[str]:
    """Per output of a LiteRT file: what operators it is made of, and a digest of how they are joined."""
    interpreter = make_interpreter(path.read_bytes())
    tensors = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    operators = interpreter._get_ops_details()  # the one place that tells the operators
    # -1 is a result of a loop that nothing reads.
    makers = {int(out): (op, k) for op in operators for k, out in enumerate(op["outputs"]) if out >= 0}
    inputs = {detail["index"] for detail in interpreter.get_input_details()}

    def operator(index: int) -> tuple[str, str, str, list[int]] | None:
        if index not in makers:
            return None
        op, place = makers[index]
        kind = np.dtype(tensors[index]["dtype"]).name
        return f"{op['index']}", op["op_name"], f"{op['op_name']}:{place} {kind}", [int(k) for k in op["inputs"]]

    def constant(index: int) -> str:
        if index < 0:
            return "none"
        detail = tensors[index]
        scales = len(detail["quantization_parameters"]["scales"])
        text = f"{np.dtype(detail['dtype']).name}{list(detail['shape_signature'])} {scales} scales"
        return f"input {text}" if index in inputs else text

    structure = _Structure(operator, constant)
    outputs = interpreter.get_signature_runner(SIGNATURE).get_output_details()
    return [f"{name}  {structure.line(int(detail['index']))}" for name, detail in sorted(outputs.items())]


class _Structure:
    """Digests of values: of the operator that makes one, its attributes, and the digests of what it reads."""

    def __init__(self, operator: Any, constant: Any) -> None:
        self._operator, self._constant = operator, constant
        self._digests: dict[Any, str] = {}
        self._names: dict[str, str] = {}
        self._before: dict[Any, frozenset[str]] = {}

    def line(self, value: Any) -> str:
        digest = self._visit(value)
        counts = collections.Counter(self._names[key] for key in self._before[value])
        operators = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        return f"{operators}  {digest}"

    def _visit(self, value: Any) -> str:
        if value not in self._digests:
            found = self._operator(value)
            if found is None:
                text, before = self._constant(value), frozenset()
            else:
                key, name, text, read = found
                self._names[key] = name
                text = f"{text} {[self._visit(item) for item in read]}"
                before = frozenset({key}).union(*(self._before[item] for item in read))
            self._digests[value] = hashlib.sha256(text.encode()).hexdigest()[:12]
            self._before[value] = before
        return self._digests[value]
