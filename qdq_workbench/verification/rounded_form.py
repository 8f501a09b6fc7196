"""The float32 form of a file in half precision: every half-precision result is computed in float32 and then rounded.

ONNX Runtime's CPU kernels support float16 in part and bfloat16 not at all. In this form every node computes in
float32, and a cast to the half type and back rounds each tensor that has this type in the file, so the model runs on
any CPU. A half-precision kernel with a float32 accumulator computes the same.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qdq_workbench.graph.half_precision import FLOAT32, HALF_TYPES
from qdq_workbench.onnx_graph.element_types import element_types
from qdq_workbench.onnx_graph.graph import Graph

_NUMBERS = {int(TensorProto.DataType.Value(name.upper())): kind for name, kind in HALF_TYPES.items()}


def float_type_of(proto: onnx.ModelProto) -> str:
    """Return the float type of a file, determined by its constants and casts."""
    found = {tensor.data_type for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        found |= {item.i for item in node.attribute if node.op_type == "Cast" and item.name == "to"}
    return next((kind.name for number, kind in _NUMBERS.items() if number in found), FLOAT32)


def half_tensors(proto: onnx.ModelProto) -> dict[str, int]:
    """Return the half-precision node outputs of a file, with their ONNX type."""
    types = element_types(Graph(proto))
    written = {tensor for node in proto.graph.node for tensor in node.output if tensor}
    return {tensor: number for tensor, number in types.items() if number in _NUMBERS and tensor in written}


def type_differences(expected: onnx.ModelProto, found: onnx.ModelProto) -> list[str]:
    """Return the differences between the output types of the nodes of two files, one sentence each."""
    wanted, given = _node_types(expected), _node_types(found)
    missing = [f"node {name!r} is missing" for name in wanted if name not in given]
    added = [f"node {name!r} was not expected" for name in given if name not in wanted]
    return [
        *missing,
        *added,
        *(
            f"node {name!r} computes in {given[name]}, expected {types}"
            for name, types in wanted.items()
            if given.get(name, types) != types
        ),
    ]


def _node_types(proto: onnx.ModelProto) -> dict[str, str]:
    """Return the output types of every node, as text."""
    types = element_types(Graph(proto))
    names = {int(number): name.lower() for name, number in TensorProto.DataType.items()}
    return {node.name: ", ".join(names[types[tensor]] for tensor in node.output if tensor) for node in proto.graph.node}


def rounded_form(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the float32 form of a file in half precision; see the module's docstring."""
    half = half_tensors(proto)
    form = onnx.ModelProto()
    form.CopyFrom(proto)
    for tensor in form.graph.initializer:
        if tensor.data_type in _NUMBERS:
            wide = np.asarray(numpy_helper.to_array(tensor), np.float32)
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    ends, inputs = half_ends(proto), {value.name for value in form.graph.input}
    nodes = [node for name in inputs & ends.keys() for node in _rounding(name, f"{name}/rounded", ends[name])]
    for value in (*form.graph.input, *form.graph.output):
        if value.name in ends:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in form.graph.node:
        node.input[:] = [f"{name}/rounded" if name in inputs and name in ends else name for name in node.input]
        for item in node.attribute if node.op_type == "Cast" else ():
            # The result of this cast is rounded below, like that of any other node in half precision.
            if item.name == "to" and item.i in _NUMBERS:
                item.i = TensorProto.FLOAT
        nodes.append(node)
        for index, tensor in enumerate(node.output):
            if tensor in half:
                node.output[index] = f"{tensor}/exact"
                nodes += _rounding(f"{tensor}/exact", tensor, half[tensor])
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del form.graph.node[:]
    form.graph.node.extend(kept)
    return form


def _rounding(exact: str, rounded: str, kind: int) -> list[onnx.NodeProto]:
    """Return the two casts that round the tensor `exact` to an ONNX type and write it to `rounded` in float32."""
    middle = f"{rounded}/half"
    there = helper.make_node("Cast", [exact], [middle], f"{middle}/Cast", to=kind)
    return [there, helper.make_node("Cast", [middle], [rounded], f"{rounded}/rounded/Cast", to=TensorProto.FLOAT)]


def half_ends(proto: onnx.ModelProto) -> dict[str, int]:
    """Return the inputs and outputs of a file that are in half precision, with their ONNX type."""
    ends = {value.name: value.type.tensor_type.elem_type for value in (*proto.graph.input, *proto.graph.output)}
    return {name: kind for name, kind in ends.items() if kind in _NUMBERS}
