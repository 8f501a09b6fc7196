"""Comparison of a file's scales, zero points and integer weights with the model, independently of the exporter.

A new export of the model would repeat a fault of the exporter. Here the pairs follow from the model's ranges, and the
weights from its fake-quantized values: an integer weight of the file, dequantized, holds these values, times the gain
of a folded batch normalization, in some layout. Sorted values do not depend on the layout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np
import onnx
from onnx import numpy_helper

from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.folding import batch_norm_gain, folded_weight, spread_gain
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, Range
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.graph.operators import HELPERS, WEIGHTED
from qdq_workbench.graph_builder import layer_weights
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QDQGraph
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.quantizers import numerics
from qdq_workbench.quantizers.bias_room import least_weight_scale
from qdq_workbench.quantizers.blocks import spread
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.verification.file_biases import bias_differences
from qdq_workbench.verification.file_structure import QDQPair
from qdq_workbench.verification.report import Check, check_of
from qdq_workbench.verification.structure import expected_structure
from qdq_workbench.verification.structure_reader import read_pairs

# A value is the product of a scale, a gain and an integer, in another order in the file.
_ROUNDING = 6 * float(np.finfo(np.float32).eps)
_Values = tuple[np.ndarray, np.ndarray] | None  # the values of a weight, and the scale of each
_ZERO = 256 * float(np.finfo(np.float32).tiny)  # the exporter writes channels of scales below `tiny` as zeros


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
        qparams = numerics.qparams_from_range(*ranges[tensor.name], tensor.quantizer)
        wanted = expected_structure({tensor.name: Encoding(qparams.scale, qparams.zero_point, tensor.quantizer)}, {})
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
    weights, qparams, ranges = _file_weights(graph, proto), q_model.weight_qparams(), q_model.activation_ranges()
    layers = {call.node.layer: call.operation for call in float_view(q_model).calls}
    folds = {fold.layer.layer: fold for fold in q_model.plan.lowering.folds}
    for placement in q_model.plan.placements:
        if placement.weight is None or placement.tensor not in weights:
            continue
        own, fold = qparams[placement.tensor], folds.get(placement.layer)
        floats = dict(layer_weights(layers[placement.layer]))
        values = np.asarray(numerics.fake_quantize(_array(floats[placement.weight]), own))
        scales = np.asarray(own.scale, np.float64)
        bias = floats.get(placement.weight.removesuffix("kernel") + "bias")
        biases = [np.zeros(1) if bias is None else _array(bias)]
        if fold is not None and folded_weight(fold.layer.class_name, placement.weight):
            gain, shift = batch_norm_gain(layers[fold.batch_norm.layer])
            values = values * spread_gain(fold.layer.class_name, gain, values.shape)
            scales = np.multiply.outer(scales, np.abs(gain))  # more than there are: a channel has one of each
            biases += [biases[0] * gain, biases[0] * gain + shift]
        node, held = weights[placement.tensor]
        steps = _input_scales(q_model.plan, placement.layer, ranges)
        needed = [least_weight_scale(np.concatenate(biases), step).max() for step in steps]
        needed += _scales_for_biases(graph, node)
        dequantized = held()
        if dequantized is None:
            yield placement.tensor, "its scales are no constants"
        else:
            yield placement.tensor, _difference(values, scales, *dequantized, float(max(needed, default=0.0)))


def _array(variable: keras.Variable) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(variable))


def _input_scales(plan: PlacementPlan, layer: str, ranges: Mapping[str, Range]) -> list[np.ndarray]:
    """Return the scale of a layer's input at every call whose input is quantized."""
    scales = []
    for call in plan.graph.calls(layer):
        placement = plan.input_placement(call.name, 0)
        if placement is not None:
            pair = plan.pair_of(placement)
            scales.append(numerics.qparams_from_range(*ranges[pair.name], pair.quantizer).scale)
    return scales


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


def _difference(ours: np.ndarray, scales: np.ndarray, theirs: np.ndarray, steps: np.ndarray, most_raised: float) -> str:
    """Return how the values of a weight in a file differ from the model's; "" for not.

    The file's values are of any layout, and `steps` has the scale of each; `most_raised` is the largest scale that the
    int32 bias of the layer may need.
    """
    if ours.size != theirs.size:
        return f"it holds {theirs.size} values, and the model's {ours.size}"
    wanted, held = ours.astype(np.float32).reshape(-1), theirs.reshape(-1).copy()
    wanted.sort()
    held.sort()
    apart, allowed = np.abs(wanted - held), _ROUNDING * np.abs(wanted) + np.float32(_ZERO)
    if (apart <= allowed).all():
        return ""
    # Scales are raised where an int32 bias would overflow, and the weights rounded again.
    raised = steps[(steps > scales.min(initial=np.inf)) & (steps <= most_raised * (1 + _ROUNDING))].max(initial=0.0)
    if (apart <= allowed + 0.5 * raised * (1 + _ROUNDING)).all():
        return ""
    return f"{int((apart > allowed).sum())} of {ours.size} values are not the model's, by up to {apart.max():.3g}"
