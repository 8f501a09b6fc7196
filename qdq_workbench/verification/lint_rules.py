"""The rules of `lint_onnx`: one generator per rule, each finding with its node and what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper

from qdq_workbench.verification.qdq_graph import DEQUANTIZE, MOVES, QUANTIZE, WEIGHTED, QDQGraph, attribute


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a file.

    Args:
        rule: Id of the rule, such as `QDQ-DANGLING`.
        node: Name of the node.
        message: What is wrong, and what to do.
    """

    rule: str
    node: str
    message: str


def dangling(graph: QDQGraph) -> Iterator[Finding]:
    """A Q that no DQ reads, or a DQ of something that is neither a Q's result nor a constant."""
    for node in graph.nodes:
        if node.op_type == QUANTIZE:
            readers = graph.readers(node.output[0])
            others = [reader.op_type for reader in readers if reader.op_type not in (DEQUANTIZE, *MOVES)]
            if (not readers and node.output[0] not in graph.outputs) or others:
                read = f"only {', '.join(sorted(set(others)))} reads" if others else "nothing reads"
                yield Finding("QDQ-DANGLING", node.name, f"{read} its result; put a DequantizeLinear behind it")
        elif node.op_type == DEQUANTIZE and not graph.is_constant(node.input[0]):
            source = graph.producer(node.input[0])
            while source is not None and source.op_type in MOVES:
                source = graph.producer(source.input[0])
            if source is None or source.op_type != QUANTIZE:
                what = "an input of the model" if source is None else source.op_type
                yield Finding("QDQ-DANGLING", node.name, f"it dequantizes what {what} gives, not a QuantizeLinear")


def mismatched(graph: QDQGraph) -> Iterator[Finding]:
    """A DQ with other parameters than the Q that wrote its integers."""
    for node in graph.nodes:
        source = graph.producer(node.input[0]) if node.op_type == DEQUANTIZE else None
        if source is not None and source.op_type == QUANTIZE and not _same_parameters(graph, source, node):
            yield Finding("QDQ-MISMATCH", node.name, f"its scale or zero point is not that of {source.name!r}")


def repeated(graph: QDQGraph) -> Iterator[Finding]:
    """DQ -> Q with the same parameters: the pair in between does nothing."""
    for node in graph.nodes:
        source = graph.producer(node.input[0]) if node.op_type == QUANTIZE else None
        if source is None or source.op_type != DEQUANTIZE or _is_of_padded_tensor(graph, node):
            continue
        if _same_parameters(graph, source, node):
            yield Finding(
                "QDQ-REPEATED", node.name, f"it quantizes again what {source.name!r} just dequantized; drop both"
            )


def scales(graph: QDQGraph) -> Iterator[Finding]:
    """Scales that are zero, negative, not finite, or not known before the model runs."""
    for node in graph.nodes:
        if node.op_type not in (QUANTIZE, DEQUANTIZE):
            continue
        found = graph.parameters(node)
        if found is None:
            yield Finding("QDQ-SCALE", node.name, "its scale or zero point is computed; make it a constant")
        elif not np.all(np.isfinite(found[0])) or np.any(found[0] <= 0):
            bad = int(np.sum(~(np.isfinite(found[0]) & (found[0] > 0))))
            yield Finding("QDQ-SCALE", node.name, f"{bad} of {found[0].size} scales are zero, negative or not finite")
        elif node.op_type == QUANTIZE and found[0].size > 1:
            yield Finding("QDQ-PER-TENSOR", node.name, "an activation has one scale; this one has several")


def axes(graph: QDQGraph) -> Iterator[Finding]:
    """Weights whose scales lie along another axis than that of the output channels."""
    for node in graph.nodes:
        if node.op_type not in WEIGHTED:
            continue
        dequantize = _weight_dequantizer(graph, node)
        found = None if dequantize is None else graph.parameters(dequantize)
        codes = None if dequantize is None else graph.constant(dequantize.input[0])
        if dequantize is None or found is None or codes is None or found[0].size == 1:
            continue
        axis = attribute(dequantize, "axis", 1) % codes.ndim
        if codes.shape[axis] != found[0].size:
            yield Finding(
                "QDQ-AXIS", dequantize.name, f"{found[0].size} scales do not fit axis {axis} of shape {codes.shape}"
            )
        elif axis != _channel_axis(node, codes.ndim):
            expected = _channel_axis(node, codes.ndim)
            yield Finding(
                "QDQ-AXIS",
                dequantize.name,
                f"its scales lie along axis {axis}; the output channels of {node.op_type} are axis {expected}",
            )


def float_weights(graph: QDQGraph) -> Iterator[Finding]:
    """Weights stored as floats behind a Q: the file is four times larger and the runtime quantizes at every load."""
    for node in graph.nodes:
        if node.op_type == QUANTIZE and graph.is_constant(node.input[0]):
            yield Finding("QDQ-FLOAT-WEIGHT", node.name, "it quantizes a constant; store the integers themselves")


def biases(graph: QDQGraph) -> Iterator[Finding]:
    """Some biases are int32 and this one is not, or its scale is not the product of input and weight scale.

    A convolution that is cut to fewer values than its integer type has is float anyway: its bias may have any scale.
    """
    quantized = [
        node for node in graph.nodes if node.op_type in ("Conv", "Gemm") and _has_integer_operands(graph, node)
    ]
    with_bias = [node for node in quantized if len(node.input) > 2 and node.input[2]]
    integer = [node for node in with_bias if graph.is_dequantized(node.input[2])]
    for node in with_bias if integer else ():
        if node not in integer:
            yield Finding("QDQ-BIAS", node.name, "its bias is float although other biases of the file are int32")
        elif not _bias_scale_fits(graph, node) and not (node.op_type == "Conv" and _is_cut(graph, node.output[0])):
            yield Finding("QDQ-BIAS", node.name, "the scale of its bias is not input scale times weight scale")


def unfolded(graph: QDQGraph) -> Iterator[Finding]:
    """A BatchNormalization, or its product with a constant per channel, behind a convolution with integer weights."""
    for node in graph.nodes:
        if node.op_type not in ("BatchNormalization", "Mul"):
            continue
        before = graph.producer(node.input[0])
        if (
            before is None
            or before.op_type not in ("Conv", "ConvTranspose")
            or not _has_integer_operands(graph, before)
        ):
            continue
        if len(graph.readers(before.output[0])) > 1 or len(graph.readers(before.input[1])) > 1:
            continue  # the convolution's result or its weights are needed elsewhere as they are
        factor = graph.constant(node.input[1])
        channels = graph.constant(_codes_of(graph, before))
        if node.op_type == "Mul" and (factor is None or channels is None or factor.size != channels.shape[0]):
            continue
        yield Finding("QDQ-UNFOLDED", node.name, f"fold it into the weights of {before.name!r} before quantizing them")


def operands(graph: QDQGraph) -> Iterator[Finding]:
    """A convolution or matrix product with integers on one side and floats on the other.

    Runtimes move a DequantizeLinear over what only moves data, such as the reshape in front of a projection.
    """
    for node in graph.nodes:
        if node.op_type not in WEIGHTED:
            continue
        quantized = [graph.quantizer_of(tensor) is not None for tensor in node.input[:2]]
        if sum(quantized) == 1:
            missing = "input" if not quantized[0] else "weight"
            yield Finding("QDQ-OPERAND", node.name, f"its {missing} is not quantized, so it is computed in float")


def joins(graph: QDQGraph) -> Iterator[Finding]:
    """A Concat of integers, some of whose branches are float; the join is then made in float."""
    for node in graph.nodes:
        if node.op_type != "Concat":
            continue
        dequantized = [graph.quantizer_of(tensor) is not None for tensor in node.input]
        if any(dequantized) and not all(dequantized):
            missing = dequantized.index(False)
            yield Finding("QDQ-JOIN", node.name, f"input {missing} is float while others are quantized")


def shared_scales(graph: QDQGraph) -> Iterator[Finding]:
    """Pooling or movement between two pairs of different scales: the runtime must rescale there."""
    for node in graph.nodes:
        if node.op_type not in ("MaxPool", "GlobalMaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"):
            continue
        before = graph.producer(node.input[0])
        readers = graph.readers(node.output[0])
        if before is None or before.op_type != DEQUANTIZE or len(readers) != 1 or readers[0].op_type != QUANTIZE:
            continue
        if not graph.is_constant(before.input[0]) and not _same_parameters(graph, before, readers[0]):
            yield Finding("QDQ-RESCALE", node.name, "the pairs before and behind it differ; give them one scale")


def islands(graph: QDQGraph) -> Iterator[Finding]:
    """A single elementwise operation in float whose inputs and result are quantized around it but not at it."""
    for node in graph.nodes:
        if node.op_type not in ("Add", "Mul") or any(graph.is_constant(tensor) for tensor in node.input):
            continue
        sources = [graph.producer(tensor) for tensor in node.input]
        dequantized = [source is not None and source.op_type == DEQUANTIZE for source in sources]
        behind = graph.readers(node.output[0])
        quantized = bool(behind) and all(reader.op_type == QUANTIZE for reader in behind)
        if quantized and any(dequantized) and not all(dequantized) and not _fuses(graph, node, dequantized):
            yield Finding("QDQ-ISLAND", node.name, "one operand is float between integers; quantize both or none")


RULES: tuple[Callable[[QDQGraph], Iterator[Finding]], ...] = (
    *(dangling, mismatched, repeated, scales, axes, float_weights),
    *(biases, unfolded, operands, joins, shared_scales, islands),
)


def _same_parameters(graph: QDQGraph, one: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    mine, theirs = graph.parameters(one), graph.parameters(other)
    if mine is None or theirs is None:
        return list(one.input[1:]) == list(other.input[1:])
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


def _is_of_padded_tensor(graph: QDQGraph, quantize: onnx.NodeProto) -> bool:
    """The pair of a zero-padded tensor stands alone once the padding has moved into the convolution behind it."""
    behind = [
        reader for dequantize in graph.readers(quantize.output[0]) for reader in graph.readers(dequantize.output[0])
    ]
    pads = [helper.get_attribute_value(item) for node in behind for item in node.attribute if item.name == "pads"]
    return bool(behind) and len(pads) == len(behind) and all(any(widths) for widths in pads)


def _weight_dequantizer(graph: QDQGraph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Return the DQ that a node's weight comes straight out of, where that reads a constant."""
    dequantize = graph.producer(node.input[1]) if len(node.input) > 1 else None
    if dequantize is None or dequantize.op_type != DEQUANTIZE or not graph.is_constant(dequantize.input[0]):
        return None
    return dequantize


def _codes_of(graph: QDQGraph, node: onnx.NodeProto) -> str:
    dequantize = _weight_dequantizer(graph, node)
    return "" if dequantize is None else dequantize.input[0]


def _channel_axis(node: onnx.NodeProto, rank: int) -> int:
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1
    return 0 if node.op_type == "Gemm" and attribute(node, "transB", 0) else rank - 1


def _has_integer_operands(graph: QDQGraph, node: onnx.NodeProto) -> bool:
    return graph.is_dequantized(node.input[0]) and _weight_dequantizer(graph, node) is not None


def _bias_scale_fits(graph: QDQGraph, node: onnx.NodeProto) -> bool:
    found = [graph.producer(tensor) for tensor in node.input[:3]]
    parameters = [graph.parameters(item) for item in found if item is not None]
    if len(parameters) < 3 or any(item is None for item in parameters):
        return False
    data, weight, bias = (item[0].astype(np.float64) for item in parameters if item is not None)
    expected = np.broadcast_to(data * weight, np.broadcast_shapes((data * weight).shape, bias.shape))
    return bool(np.allclose(expected, bias, rtol=1e-3, atol=0.0))


def _is_cut(graph: QDQGraph, tensor: str) -> bool:
    """A Clip in front of every Q, perhaps behind a Relu, leaves out values that the Q could hold: it has to stay."""
    readers = graph.readers(tensor)
    return bool(readers) and all(
        _cuts(graph, node) or (node.op_type in ("Relu", "Clip") and _is_cut(graph, node.output[0])) for node in readers
    )


def _cuts(graph: QDQGraph, node: onnx.NodeProto) -> bool:
    bounds = [graph.constant(tensor) for tensor in node.input[1:3]] if node.op_type == "Clip" else []
    parameters = [graph.parameters(reader) for reader in graph.readers(node.output[0]) if reader.op_type == QUANTIZE]
    if len(bounds) < 2 or any(bound is None for bound in bounds) or not parameters or None in parameters:
        return False
    for scale, zero in (item for item in parameters if item is not None):
        low, high = (np.rint(bound / scale) + zero for bound in bounds if bound is not None)
        limits = np.iinfo(zero.dtype)
        if not (np.any(low > limits.min) or np.any(high < limits.max)):
            return False
    return True


def _fuses(graph: QDQGraph, node: onnx.NodeProto, dequantized: list[bool]) -> bool:
    """An Add whose float operand comes from a convolution alone is computed inside it, by TensorRT and OpenVINO."""
    tensor = node.input[dequantized.index(False)]
    source = graph.producer(tensor)
    while source is not None and source.op_type in ("Relu", "Clip", "BatchNormalization", "Sigmoid", "Mul"):
        tensor = source.input[0]
        source = graph.producer(tensor)
    return node.op_type == "Add" and source is not None and source.op_type in WEIGHTED
