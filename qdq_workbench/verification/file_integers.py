"""Comparison of a file's scales, zero points and integer weights with the model, independently of the exporter.

A new export of the model would repeat a fault of the exporter. Here the pairs follow from the model's ranges, and the
weights from its fake-quantized values: an integer weight of the file, dequantized, holds these values, times the gain
of a folded batch normalization, in some layout. Sorted values do not depend on the layout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.graph.operators import HELPERS, WEIGHTED
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QDQGraph
from qdq_workbench.quantizers import numerics
from qdq_workbench.quantizers.bias_room import least_weight_scale
from qdq_workbench.quantizers.blocks import spread
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.verification.file_biases import bias_differences
from qdq_workbench.verification.file_structure import QDQPair
from qdq_workbench.verification.planned_values import difference, planned_weights
from qdq_workbench.verification.report import Check, check_of
from qdq_workbench.verification.structure import expected_structure
from qdq_workbench.verification.structure_reader import read_pairs

_Values = tuple[np.ndarray, np.ndarray] | None  # the values of a weight, and the scale of each


def check_integers(proto: onnx.ModelProto, q_model: QuantizedModel) -> Check:
    """Compare pairs and integer weights of a float32 file with ranges and weights of a model planned for its target."""
    weights = dict(weight_differences(proto, q_model))
    pairs = dict(pair_differences(read_pairs(proto), q_model))
    biases = dict(bias_differences(proto, q_model))
    compared = (("pair", pairs), ("weight", weights), ("bias of", biases))
    problems = [f"{kind} {name!r}: {wrong}" for kind, found in compared for name, wrong in found.items() if wrong]
    finding = f"the grids of {len(pairs)} pairs and the values of {len(weights)} weights follow from the model"
    return check_of("integers", problems, finding)


def pair_differences(found: Mapping[str, QDQPair], q_model: QuantizedModel) -> Iterator[tuple[str, str]]:
    """Yield every pair of a file that the model has, with how its grid differs from the model's range, "" for not."""
    ranges = q_model.activation_ranges()
    for tensor in q_model.plan.tensors:
        pair = found.get(tensor.name)
        if tensor.kind != "activation" or pair is None:
            continue
        stored = q_model.plan.target_object.activation_in_file(tensor.quantizer)
        qparams = numerics.qparams_from_range(*ranges[tensor.name], stored)
        wanted = expected_structure({tensor.name: Encoding(qparams.scale, qparams.zero_point, stored)}, {})
        yield (
            tensor.name,
            "; ".join(
                f"its {field.replace('_', ' ')} is {theirs}, and {ours} by the model's range"
                for field in ("scale", "zero_point", "dtype", "bounds")
                if (theirs := getattr(pair, field)) != (ours := getattr(wanted.pairs[tensor.name], field))
            ),
        )


def weight_differences(proto: onnx.ModelProto, q_model: QuantizedModel) -> Iterator[tuple[str, str]]:
    """Yield every integer weight of a file that the model has, with how its values differ from the model's, "" for not.

    The model is planned for the file's target.
    """
    graph = QDQGraph(proto)
    weights = _file_weights(graph, proto)
    for planned in planned_weights(q_model, weights):
        name = planned.placement.tensor
        node, held = weights[name]
        raised = float(max(_scales_for_biases(graph, node), default=0.0))
        dequantized = held()
        if dequantized is None:
            yield name, "its scales are no constants"
        else:
            values, steps = dequantized
            yield name, difference(planned, np.sort(values, axis=None), steps, raised)


def _file_weights(graph: QDQGraph, proto: onnx.ModelProto) -> dict[str, tuple[onnx.NodeProto, Callable[[], _Values]]]:
    """Return by integer weight of a file its DequantizeLinear, and a function that returns its values and scales."""
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    found: dict[str, tuple[onnx.NodeProto, Callable[[], _Values]]] = {}
    for node in proto.graph.node:
        stored = constants.get(node.input[0]) if node.op_type == DEQUANTIZE else None
        if stored is not None and stored.data_type != onnx.TensorProto.INT32:  # that of a bias
            name = node.name.removesuffix(f"/{DEQUANTIZE}")
            found[name] = node, functools.partial(_dequantized, graph, node, stored)
    return found


def _scales_for_biases(graph: QDQGraph, weight: onnx.NodeProto) -> Iterator[np.float32]:
    """Yield the largest scale that a bias in the file needs, with the constants that it absorbed, per reading node."""
    waiting = [weight.output[0]]
    while waiting:
        for node in graph.readers(waiting.pop()):
            if node.op_type in HELPERS:
                waiting += node.output
            elif node.op_type in WEIGHTED and len(node.input) > 2 and node.input[2]:  # recurrent ones have other inputs
                bias, data = _bias_of(graph, node.input[2]), graph.dequantize_of(node.input[0])
                parameters = None if data is None else graph.parameters(data)
                if bias is not None and parameters is not None:
                    yield least_weight_scale(bias, parameters[0].max()).max()


def _bias_of(graph: QDQGraph, tensor: str) -> np.ndarray | None:
    """Return a bias as floats; None if it is computed."""
    dequantize = graph.dequantize_of(tensor)
    if dequantize is None:
        return graph.constant(tensor)
    codes, parameters = graph.constant(dequantize.input[0]), graph.parameters(dequantize)
    return None if codes is None or parameters is None else codes * parameters[0].astype(np.float64)


def _dequantized(graph: QDQGraph, node: onnx.NodeProto, stored: onnx.TensorProto) -> _Values:
    """Return the values of an integer weight, and the scale of each; None if its scales are no constants."""
    parameters = graph.parameters(node)
    if parameters is None:
        return None
    codes = numpy_helper.to_array(stored).astype(np.int32)
    settings = {attribute.name: attribute.i for attribute in node.attribute}
    axis, block = settings.get("axis", 1), settings.get("block_size", 0)
    spec = QuantizerSpec(axis=axis, block_size=block or None) if parameters[0].ndim else QuantizerSpec()
    scales, zeros = (np.broadcast_to(spread(part, codes.shape, spec), codes.shape)
                     for part in (parameters[0].astype(np.float32), parameters[1].astype(np.int32)))  # fmt: skip
    codes -= zeros
    return codes.astype(np.float32) * scales, scales
