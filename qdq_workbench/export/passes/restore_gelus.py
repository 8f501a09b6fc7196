"""A GELU, which TensorFlow computes with erfc, is written in the form that runtimes fuse.

ONNX Runtime (GeluFusion) and TensorRT look for x * (1 + erf(x / sqrt(2))) / 2; from opset 20 on it is one Gelu.
"""

from __future__ import annotations

import math

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass, nodes_where
from qdq_workbench.export.passes.patterns import beside_number, is_number
from qdq_workbench.onnx_graph.graph import Graph, Node

_OPERATOR_OPSET = 20


def restore_gelus(graph: Graph) -> None:
    """Turn x / 2 * (1 - erf(-x / sqrt(2))) into the form that runtimes fuse."""
    for last in graph.sorted_nodes():
        source = _source(graph, last)
        if source is None:
            continue
        name, written = last.name, last.output
        graph.remove(last)
        if graph.opset >= _OPERATOR_OPSET:
            graph.add("Gelu", [source], name, output=written)
            continue
        root, one, half = (
            graph.add_constant(f"{name}/{which}", np.array(value, np.float32))
            for which, value in (("sqrt_2", math.sqrt(2.0)), ("one", 1.0), ("half", 0.5))
        )
        scaled = graph.add("Div", [source, root], f"{name}/Div").output
        erf = graph.add("Erf", [scaled], f"{name}/Erf").output
        shifted = graph.add("Add", [erf, one], f"{name}/Add").output
        product = graph.add("Mul", [source, shifted], f"{name}/Mul").output
        graph.add("Mul", [product, half], name, output=written)
        shape = graph.shape(source)
        # Without shapes only the first step would be moved to channels-first, with Transposes between the others.
        if shape is not None:
            graph.shapes.update(dict.fromkeys((scaled, erf, shifted, product), shape))
    graph.prune()


def find_gelu(graph: Graph, last: Node) -> str | None:
    """Return the input of the GELU whose last node this is, in TensorFlow's form or the fused one; else None."""
    return _source(graph, last) or _fused_source(graph, last)


def _fused_source(graph: Graph, last: Node) -> str | None:
    product = graph.producer(beside_number(graph, last, "Mul", 0.5) or "")
    if product is None or product.op != "Mul":
        return None
    for source, shifted in (product.inputs, product.inputs[::-1]):
        total = graph.producer(shifted)
        if total is None or total.op != "Add" or not is_number(graph, total.inputs[1], 1.0):
            continue
        error = graph.producer(total.inputs[0])
        quotient = graph.producer(error.inputs[0]) if error is not None and error.op == "Erf" else None
        if quotient is None or quotient.op != "Div" or quotient.inputs[0] != source:
            continue
        if is_number(graph, quotient.inputs[1], math.sqrt(2.0)):
            return source
    return None


def _source(graph: Graph, last: Node) -> str | None:
    """Return the input of the GELU whose last node this is, in TensorFlow's form (erfc); else None."""
    if last.op != "Mul" or last.domain:
        return None
    for halved, complement in (last.inputs, last.inputs[::-1]):
        source = beside_number(graph, graph.producer(halved), "Mul", 0.5)
        difference = graph.producer(complement)
        if source is None or difference is None or difference.op != "Sub":
            continue
        error = graph.producer(difference.inputs[1])
        if not is_number(graph, difference.inputs[0], 1.0) or error is None or error.op != "Erf":
            continue
        negative = beside_number(graph, graph.producer(error.inputs[0]), "Mul", math.sqrt(0.5))
        minus = None if negative is None else graph.producer(negative)
        if minus is not None and minus.op == "Neg" and minus.inputs[0] == source:
            return source
    return None


PASS = GraphPass(
    restore_gelus,
    needs="Nothing.",
    holds="No GELU is computed as x / 2 * (1 - erf(-x / sqrt(2))).",
    refuses="Other types than float32, and the approximation by tanh.",
    denied_by=nodes_where(_source),
)
