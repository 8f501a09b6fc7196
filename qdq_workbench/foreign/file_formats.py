"""What files of others may hold: nodes without their inputs, operations on integers, pairs in branches and bodies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import onnx

from qdq_workbench.errors import FileAccessError
from qdq_workbench.onnx_graph.element_types import schema_of
from qdq_workbench.onnx_graph.graph import standard_opset
from qdq_workbench.onnx_graph.qdq_graph import (
    DEQUANTIZE,
    PAIR_OPERATORS,
    QUANTIZE,
    QDQGraph,
    computes_on_integers,
    name_of,
    subgraphs,
)


def check_nodes(model: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Refuse a file with a node that has fewer inputs than its operator needs, or no output.

    Raises:
        FileAccessError: If there is such a node.
    """
    opset = standard_opset(model)
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in _with_inner(nodes):
            known = node.domain in ("", "ai.onnx") or node.op_type in PAIR_OPERATORS
            schema = schema_of(node.op_type, opset) if known else None
            # Of the outputs one is enough: the readers of files ask for no others.
            if schema is None or (len(node.input) >= schema.min_input and (node.output or not schema.min_output)):
                continue
            raise FileAccessError(
                f"The file is damaged: the node {name_of(node)!r} has {len(node.input)} inputs and {len(node.output)} "
                f"outputs, and {node.op_type} needs {schema.min_input} inputs and an output at least. "
                f"Received: path={os.fspath(path)!r}"
            )


def _with_inner(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield some nodes, and those in their branches and bodies."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from _with_inner(graph.node)


def integer_operations(graphs: Iterable[QDQGraph]) -> list[str]:
    """Return the operator of every node that takes integers and their scales as inputs."""
    return [node.op_type for graph in graphs for node in graph.nodes if computes_on_integers(node)]


def check_qdq_format(graphs: Iterable[QDQGraph], path: str | os.PathLike[str]) -> None:
    """Refuse a file that is quantized by other operations than Q/DQ pairs, or by others too.

    Raises:
        FileAccessError: If the file is in the QOperator format, or quantized dynamically.
    """
    kinds = sorted(set(integer_operations(graphs)))
    if kinds:
        raise FileAccessError(
            f"The file is in the QOperator format, or quantized dynamically: {', '.join(kinds)} take integers "
            "themselves, without Q/DQ pairs. Expected: QuantizeLinear and DequantizeLinear around float operations. "
            "Make the file with quantize_static(..., quant_format=QuantFormat.QDQ), and take it as it is before a "
            f"runtime optimizes it. Received: path={os.fspath(path)!r}"
        )


def pairs_in_branches(graphs: Iterable[QDQGraph]) -> int:
    """Return the number of Q and DQ nodes in branches and loop bodies."""
    return sum(node.op_type in (QUANTIZE, DEQUANTIZE) for graph in graphs if graph.is_inner for node in graph.nodes)
