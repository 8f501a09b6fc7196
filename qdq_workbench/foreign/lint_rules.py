"""The rules of `lint_onnx`: one generator per rule, each finding with its node and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper

from qdq_workbench.foreign.finding import Finding
from qdq_workbench.foreign.lint_axes import axes, channel_axes
from qdq_workbench.graph.operators import CLIPS, CONVOLUTIONS, MOVES, WEIGHTED, operators_of
from qdq_workbench.onnx_graph.qdq_graph import (
    DEQUANTIZE,
    QUANTIZE,
    QDQGraph,
    attribute,
    computes_on_integers,
    has_negative_scales,
    integer_limits,
    name_of,
    subgraphs,
    type_name,
)

# The operations that may stand between the Q and the DQ of a pair.
_TAKES_INTEGERS = MOVES | operators_of("concatenation", "resizing") | {"NhwcMaxPool"}
_CHOOSES = operators_of("choice")
_KEEPS_SCALES = MOVES & operators_of("movement", "pool", "global pool")


def dangling(graph: QDQGraph) -> Iterator[Finding]:
    """A Q that no DQ reads, or a DQ of a tensor that is neither a constant nor the integer result of an operation.

    Tensors that a branch or body reads or returns are accepted.
    """
    for node in graph.nodes:
        if node.op_type == QUANTIZE:
            readers = graph.readers(node.output[0])
            others = [reader.op_type for reader in readers if not _takes_integers(reader)]
            if (not readers and node.output[0] not in graph.outputs) or others:
                read = f"only {', '.join(sorted(set(others)))} reads" if others else "nothing reads"
                yield Finding("QDQ-DANGLING", name_of(node), f"{read} its result; put a DequantizeLinear behind it")
        elif node.op_type == DEQUANTIZE:
            tensor = graph.origin(node.input[0], _TAKES_INTEGERS)
            source = graph.producer(tensor)
            if tensor in graph.model_inputs:
                message = "it dequantizes what an input of the model gives, not a QuantizeLinear"
                yield Finding("QDQ-DANGLING", name_of(node), message)
            elif source is not None and not graph.is_constant(tensor) and not _gives_integers(source):
                message = f"it dequantizes what {source.op_type} gives, not a QuantizeLinear"
                yield Finding("QDQ-DANGLING", name_of(node), message)


def mismatched(graph: QDQGraph) -> Iterator[Finding]:
    """A DQ with other parameters than the Q that wrote its integers."""
    for node in graph.nodes:
        source = graph.producer(node.input[0]) if node.op_type == DEQUANTIZE else None
        if source is not None and source.op_type == QUANTIZE and not _same_parameters(graph, source, node):
            yield Finding("QDQ-MISMATCH", name_of(node), f"its scale or zero point is not that of {name_of(source)!r}")


def repeated(graph: QDQGraph) -> Iterator[Finding]:
    """DQ -> Q with the same parameters, which does nothing."""
    for node in graph.nodes:
        source = graph.producer(node.input[0]) if node.op_type == QUANTIZE else None
        if source is None or source.op_type != DEQUANTIZE or _is_of_padded_tensor(graph, node):
            continue
        if _same_parameters(graph, source, node):
            yield Finding(
                "QDQ-REPEATED",
                name_of(node),
                f"it quantizes again what {name_of(source)!r} just dequantized; drop both",
            )


def scales(graph: QDQGraph) -> Iterator[Finding]:
    """Scales that are zero, negative, not finite or computed; activations with more than one scale.

    A constant with zero point 0 may have negative scales, which only change the sign of its integers.
    """
    for node in graph.nodes:
        if node.op_type not in (QUANTIZE, DEQUANTIZE):
            continue
        found = graph.parameters(node)
        if found is None:
            if _is_dynamic(graph, node):
                continue
            yield Finding("QDQ-SCALE", name_of(node), "its scale or zero point is computed; make it a constant")
            continue
        values = found[0].astype(np.float64)
        usable = values != 0 if has_negative_scales(graph, node) else values > 0
        bad = int(np.sum(~(np.isfinite(values) & usable)))
        if bad:
            yield Finding("QDQ-SCALE", name_of(node), f"{bad} of {values.size} scales are zero, negative or not finite")
        elif node.op_type == QUANTIZE and values.size > 1 and not graph.is_constant(graph.origin(node.input[0])):
            yield Finding("QDQ-PER-TENSOR", name_of(node), "an activation has one scale; this one has several")


def float_weights(graph: QDQGraph) -> Iterator[Finding]:
    """Weights stored as floats before a Q: the file is four times larger, and the runtime quantizes at every load."""
    for node in graph.nodes:
        if node.op_type == QUANTIZE and graph.is_constant(node.input[0]):
            yield Finding("QDQ-FLOAT-WEIGHT", name_of(node), "it quantizes a constant; store the integers themselves")


def biases(graph: QDQGraph) -> Iterator[Finding]:
    """A float bias although others are int32, or a bias whose scale is not the product of input and weight scale.

    A convolution whose result is clipped to fewer values than its integer type has is computed in float, so its bias
    may have any scale.
    """
    quantized = [
        node for node in graph.nodes if node.op_type in ("Conv", "Gemm") and _has_integer_operands(graph, node)
    ]
    with_bias = [node for node in quantized if len(node.input) > 2 and node.input[2]]
    integer = [node for node in with_bias if graph.is_dequantized(node.input[2])]
    for node in with_bias if integer else ():
        if node not in integer:
            yield Finding("QDQ-BIAS", name_of(node), "its bias is float although other biases of the file are int32")
        elif not _bias_scale_fits(graph, node) and not (node.op_type == "Conv" and _is_cut(graph, node.output[0])):
            yield Finding("QDQ-BIAS", name_of(node), "the scale of its bias is not input scale times weight scale")


def unfolded(graph: QDQGraph) -> Iterator[Finding]:
    """A BatchNormalization, or a product with a constant per channel, after a convolution with integer weights."""
    for node in graph.nodes:
        if node.op_type not in ("BatchNormalization", "Mul"):
            continue
        result, factor = _result_and_factor(graph, node)
        before = graph.producer(result)
        if before is None or before.op_type not in CONVOLUTIONS or not _has_integer_operands(graph, before):
            continue
        if len(graph.readers(before.output[0])) > 1 or len(graph.readers(before.input[1])) > 1:
            continue  # other nodes read the convolution's result or its weights
        if node.op_type == "Mul" and (factor is None or factor.size != _output_channels(graph, before)):
            continue
        yield Finding(
            "QDQ-UNFOLDED", name_of(node), f"fold it into the weights of {name_of(before)!r} before quantizing them"
        )


def _result_and_factor(graph: QDQGraph, node: onnx.NodeProto) -> tuple[str, np.ndarray | None]:
    """Return the first operand that is computed, and the constant beside it; a product has them in either order."""
    first, second = node.input[:2]
    if node.op_type == "Mul" and graph.constant(first) is not None:
        first, second = second, first
    return first, graph.constant(second)


def _output_channels(graph: QDQGraph, convolution: onnx.NodeProto) -> int | None:
    """Return the output channels of a convolution with a known kernel; a transposed one has them on axis 1."""
    kernel = graph.constant(_codes_of(graph, convolution))
    if kernel is None:
        return None
    return kernel.shape[0] if convolution.op_type == "Conv" else kernel.shape[1] * attribute(convolution, "group", 1)


def operands(graph: QDQGraph) -> Iterator[Finding]:
    """A convolution or matrix product with integers on one side and floats on the other.

    A DequantizeLinear counts also before operations that only move data, such as the reshape before a projection:
    runtimes move it over them.
    """
    for node in graph.nodes:
        if node.op_type not in WEIGHTED:
            continue
        quantized = [graph.dequantize_of(tensor) is not None for tensor in node.input[:2]]
        if sum(quantized) == 1 and not (quantized[1] and _in_blocks(graph, node.input[1])):
            missing = "input" if not quantized[0] else "weight"
            yield Finding("QDQ-OPERAND", name_of(node), f"its {missing} is not quantized, so it is computed in float")


def _in_blocks(graph: QDQGraph, tensor: str) -> bool:
    """Return whether a weight is in blocks: its activations stay in float, and runtimes have a kernel for that."""
    dequantize = graph.dequantize_of(tensor)
    return dequantize is not None and attribute(dequantize, "block_size", 0) > 0


def joins(graph: QDQGraph) -> Iterator[Finding]:
    """A Concat of dequantized and float inputs, which is computed in float."""
    for node in graph.nodes:
        if node.op_type != "Concat":
            continue
        dequantized = [graph.dequantize_of(tensor) is not None for tensor in node.input]
        if any(dequantized) and not all(dequantized):
            missing = dequantized.index(False)
            yield Finding("QDQ-JOIN", name_of(node), f"input {missing} is float while others are quantized")


def shared_scales(graph: QDQGraph) -> Iterator[Finding]:
    """Pooling or movement between two pairs of different scales: the runtime must rescale there."""
    for node in graph.nodes:
        if node.op_type not in _KEEPS_SCALES:
            continue
        before = graph.producer(node.input[0])
        readers = graph.readers(node.output[0])
        if before is None or before.op_type != DEQUANTIZE or len(readers) != 1 or readers[0].op_type != QUANTIZE:
            continue
        if not graph.is_constant(before.input[0]) and not _same_parameters(graph, before, readers[0]):
            yield Finding("QDQ-RESCALE", name_of(node), "the pairs before and behind it differ; give them one scale")


def islands(graph: QDQGraph) -> Iterator[Finding]:
    """An Add or Mul of a dequantized and a float operand, whose result is quantized: it is computed in float."""
    for node in graph.nodes:
        if node.op_type not in ("Add", "Mul") or any(graph.is_constant(tensor) for tensor in node.input):
            continue
        sources = [graph.producer(tensor) for tensor in node.input]
        dequantized = [source is not None and source.op_type == DEQUANTIZE for source in sources]
        behind = graph.readers(node.output[0])
        quantized = bool(behind) and all(reader.op_type == QUANTIZE for reader in behind)
        if not quantized or all(dequantized) or not any(dequantized) or _is_activation(graph, node, dequantized):
            continue
        if not _fuses(graph, node, dequantized):
            yield Finding("QDQ-ISLAND", name_of(node), "one operand is float between integers; quantize both or none")


def _is_activation(graph: QDQGraph, node: onnx.NodeProto, dequantized: list[bool]) -> bool:
    """Return whether the float operand is a function of the other one alone: SiLU is `x * sigmoid(x)`, and so on."""
    own, tensor = node.input[dequantized.index(True)], node.input[dequantized.index(False)]
    while tensor != own:
        producer = graph.producer(tensor)
        read = [] if producer is None else [name for name in producer.input if name and not graph.is_constant(name)]
        if len(read) != 1:
            return False
        tensor = read[0]
    return True


RULES: tuple[Callable[[QDQGraph], Iterator[Finding]], ...] = (
    *(dangling, mismatched, repeated, scales, axes, channel_axes, float_weights),
    *(biases, unfolded, operands, joins, shared_scales, islands),
)


def _takes_integers(node: onnx.NodeProto) -> bool:
    kinds = {DEQUANTIZE, *_TAKES_INTEGERS, *_CHOOSES}
    return node.op_type in kinds or computes_on_integers(node) or any(subgraphs(node))


def _gives_integers(node: onnx.NodeProto) -> bool:
    return node.op_type in {QUANTIZE, *_CHOOSES} or computes_on_integers(node) or any(subgraphs(node))


def _is_dynamic(graph: QDQGraph, node: onnx.NodeProto) -> bool:
    """Return whether a node is part of dynamic quantization, whose scales are computed on purpose."""
    source = graph.producer(node.input[1])
    return source is not None and source.op_type == "DynamicQuantizeLinear"


def _same_parameters(graph: QDQGraph, one: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    """Return whether two nodes have equal scales and zero points; the float types of the scales may differ."""
    mine, theirs = graph.parameters(one), graph.parameters(other)
    if mine is None or theirs is None:
        # Computed parameters are known to be equal only if they are the same tensors.
        return list(one.input[1:]) == list(other.input[1:])
    if mine[0].size > 1 and attribute(one, "axis", 1) != attribute(other, "axis", 1):
        return False
    # A scale of shape () and one of shape (1,) mean the same.
    (scale, zero), (other_scale, other_zero) = ([array.squeeze() for array in found] for found in (mine, theirs))
    same_zero = zero.dtype == other_zero.dtype and np.array_equal(zero, other_zero)
    return same_zero and np.array_equal(scale.astype(np.float64), other_scale.astype(np.float64))


def _is_of_padded_tensor(graph: QDQGraph, quantize: onnx.NodeProto) -> bool:
    """Return whether all readers of a pair pad: the padding before the pair may have been folded into them."""
    behind = [
        reader for dequantize in graph.readers(quantize.output[0]) for reader in graph.readers(dequantize.output[0])
    ]
    pads = [helper.get_attribute_value(item) for node in behind for item in node.attribute if item.name == "pads"]
    return bool(behind) and len(pads) == len(behind) and all(any(widths) for widths in pads)


def _weight_dequantizer(graph: QDQGraph, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Return the DQ that writes a node's weight, if it reads a constant."""
    dequantize = graph.producer(node.input[1]) if len(node.input) > 1 else None
    if dequantize is None or dequantize.op_type != DEQUANTIZE or not graph.is_constant(dequantize.input[0]):
        return None
    return dequantize


def _codes_of(graph: QDQGraph, node: onnx.NodeProto) -> str:
    dequantize = _weight_dequantizer(graph, node)
    return "" if dequantize is None else dequantize.input[0]


def _has_integer_operands(graph: QDQGraph, node: onnx.NodeProto) -> bool:
    return graph.is_dequantized(node.input[0]) and _weight_dequantizer(graph, node) is not None


def _bias_scale_fits(graph: QDQGraph, node: onnx.NodeProto) -> bool:
    found = [graph.producer(tensor) for tensor in node.input[:3]]
    parameters = [graph.parameters(item) for item in found if item is not None]
    if len(parameters) < 3 or any(item is None for item in parameters):
        return False
    data, weight, bias = (item[0].astype(np.float64) for item in parameters if item is not None)
    if weight.ndim > 1 or (min(weight.size, bias.size) > 1 and weight.size != bias.size):
        return False
    return bool(np.allclose(data * weight, bias, rtol=1e-3, atol=0.0))


def _is_cut(graph: QDQGraph, tensor: str) -> bool:
    """Return whether every reader, after Relu and Clip, is a Clip to fewer values than the Q after it represents."""
    pending = [tensor]
    while pending:
        readers = graph.readers(pending.pop())
        uncut = [node for node in readers if not _cuts(graph, node)]
        if not readers or any(node.op_type not in CLIPS for node in uncut):
            return False
        pending += [node.output[0] for node in uncut]
    return True


def _cuts(graph: QDQGraph, node: onnx.NodeProto) -> bool:
    bounds = [graph.constant(tensor) for tensor in node.input[1:3]] if node.op_type == "Clip" else []
    parameters = [graph.parameters(reader) for reader in graph.readers(node.output[0]) if reader.op_type == QUANTIZE]
    if len(bounds) < 2 or any(bound is None for bound in bounds) or not parameters or None in parameters:
        return False
    for scale, zero in (item for item in parameters if item is not None):
        limits = integer_limits(type_name(zero.dtype))
        if limits is None:
            return False
        low, high = (np.rint(bound / scale) + zero.astype(np.float64) for bound in bounds if bound is not None)
        if not (np.any(low > limits[0]) or np.any(high < limits[1])):
            return False
    return True


def _fuses(graph: QDQGraph, node: onnx.NodeProto, dequantized: list[bool]) -> bool:
    """Return whether TensorRT and OpenVINO fuse an Add into the convolution or product of its float operand."""
    tensor = node.input[dequantized.index(False)]
    source = graph.producer(tensor)
    while source is not None and source.op_type in ("Relu", "Clip", "BatchNormalization", "Sigmoid", "Mul"):
        tensor = source.input[0]
        source = graph.producer(tensor)
    return node.op_type == "Add" and source is not None and source.op_type in WEIGHTED
