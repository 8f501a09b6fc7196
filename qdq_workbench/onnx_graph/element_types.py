"""The element types of a graph's tensors, and which inputs and outputs of an operator share one type.

Read from the operators' schemas alone, so that no shape has to be known and no constant to be copied.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import onnx
from onnx import TensorProto, defs, helper

from qdq_workbench.graph.operators import operators_of
from qdq_workbench.onnx_graph.graph import Graph, Node

_BODIES = {"If": ("then_branch", 0), "Loop": ("body", 1), "Scan": ("body", 0)}  # attribute, outputs before the results
_TYPED_BY_ATTRIBUTE = operators_of("generator")


@dataclasses.dataclass(frozen=True)
class Following:
    """The inputs of an operator that have the type that it computes in.

    Args:
        inputs: Indexes of these inputs; the last one stands for all further ones of a variadic input.
        variadic: Whether the last input may be repeated.
        allowed: The allowed types, as ONNX writes them: "tensor(float16)".
    """

    inputs: frozenset[int]
    variadic: bool
    allowed: frozenset[str]

    def takes(self, index: int, count: int) -> bool:
        """Return whether the input at an index has the operator's type; the schema has `count` inputs."""
        return index in self.inputs or (self.variadic and index >= count and (count - 1) in self.inputs)


@functools.cache
def schema_of(op: str, opset: int) -> Any:
    """Return an operator's schema; None if the standard has no such operator."""
    return defs.get_schema(op, opset) if defs.has(op, opset) else None


@functools.cache
def following(op: str, opset: int) -> Following | None:
    """Return which inputs of an operator have the type that it computes in; None where none does.

    That is the type of its first output, or of its first input if that output cannot be float32.
    """
    schema = schema_of(op, opset)
    if schema is None:
        return None
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    for ends in (schema.outputs, schema.inputs):
        parameter = ends[0].type_str if ends else ""
        if "tensor(float)" in allowed.get(parameter, ()):
            return Following(
                frozenset(i for i, end in enumerate(schema.inputs) if end.type_str == parameter),
                bool(schema.inputs) and schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic,
                frozenset(allowed[parameter]),
            )
    return None


def typed_inputs(node: Node, opset: int) -> list[int]:
    """Return the indexes of a node's inputs that have the type that it computes in."""
    found = None if node.domain else following(node.op, opset)
    if found is None:
        return []
    count = len(schema_of(node.op, opset).inputs)
    return [i for i, tensor in enumerate(node.inputs) if tensor and found.takes(i, count)]


def element_types(graph: Graph) -> dict[str, int]:
    """Return the ONNX element type of every tensor of the main graph."""
    types = {name: value.type.tensor_type.elem_type for name, value in graph.inputs.items()}
    types |= {name: int(helper.np_dtype_to_tensor_dtype(value.dtype)) for name, value in graph.constants.items()}
    for node in graph.sorted_nodes():
        for index, tensor in enumerate(node.outputs):
            if tensor:
                types[tensor] = _output_type(node, index, types, graph.opset)
    return types


def _output_type(node: Node, index: int, types: dict[str, int], opset: int) -> int:
    if node.domain:
        return TensorProto.FLOAT
    if node.op == "QuantizeLinear":
        return types[node.inputs[2]] if len(node.inputs) > 2 else TensorProto.UINT8
    if node.op == "DequantizeLinear":
        # A DequantizeLinear computes in the type of its scale.
        return types[node.inputs[1]]
    if node.op == "Cast":
        return int(node.get("to"))
    if node.op == "ConstantOfShape":
        value = node.get("value")
        return TensorProto.FLOAT if value is None else int(value.data_type)
    if node.op in _TYPED_BY_ATTRIBUTE:
        like = types.get(node.inputs[0], TensorProto.FLOAT) if node.inputs else TensorProto.FLOAT
        return int(node.get("dtype", like))
    if node.op in _BODIES:
        attribute, before = _BODIES[node.op]
        body: onnx.GraphProto = node.get(attribute)
        return int(body.output[before + index].type.tensor_type.elem_type) or TensorProto.FLOAT
    return _by_schema(node, index, types, opset)


def _by_schema(node: Node, index: int, types: dict[str, int], opset: int) -> int:
    """Return the type of an output that the schema gives, by the inputs that share its type."""
    schema = schema_of(node.op, opset)
    if schema is None:
        return TensorProto.FLOAT
    parameter = schema.outputs[min(index, len(schema.outputs) - 1)].type_str
    for number, tensor in enumerate(node.inputs):
        if tensor in types and schema.inputs[min(number, len(schema.inputs) - 1)].type_str == parameter:
            return types[tensor]
    constraints = {item.type_param_str: item.allowed_type_strs for item in schema.type_constraints}
    allowed = constraints.get(parameter, [parameter])
    name = "tensor(float)" if "tensor(float)" in allowed else allowed[0]
    return _TYPE_NUMBERS.get(name, TensorProto.FLOAT)


_TYPE_NUMBERS = {f"tensor({name.lower()})": number for name, number in TensorProto.DataType.items()}
