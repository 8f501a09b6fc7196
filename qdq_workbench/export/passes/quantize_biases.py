"""Integer biases for convolutions and Gemm on integer operands.

The equations are in `encodings.py`. ONNX Runtime checks a bias's scale loosely or not at all and would compute
wrong results with another one, so it is always derived here, never given.

A convolution whose result is clipped to a grid with fewer bits than its integer type has no integer kernel, because
the Clip before the QuantizeLinear stays. The bias scale `s_x * s_w` would only cost accuracy there: with 4 bits for
everything in ResNet-8, 2 of 100 integers after the first convolution were one step off, and 45 of 100 near the end.
ONNX Runtime itself would round a float bias to that scale when it loads the file. So such a bias is int32 with a
scale of its own, under which it is exact. The same holds for every transposed convolution, which has no integer kernel
at all: with float biases, 28 of 100 values after three of them with 4 bits were off, by up to a fifth of their range.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.encodings import Encoding, raise_scale_for_bias
from qdq_workbench.export.insert_qdq import narrows
from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.graph.operators import CLIPS
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.quantizers.bias_room import BIAS_LIMIT, bias_codes, bias_scale
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_OUTPUT_AXIS = {"Conv": 0, "Gemm": 1}
_TRANSPOSED = "ConvTranspose"
_SMALLEST = 2.0**-90  # divided by the steps it is still a normal number


@dataclasses.dataclass(frozen=True)
class _Operand:
    """The DequantizeLinear of one operand, with its scale and axis."""

    node: Node
    scale: np.ndarray
    axis: int | None


def quantize_biases(graph: Graph) -> None:
    """Store the float biases of Conv and Gemm as int32 wherever both operands are dequantized.

    For a bias that would overflow, the weight scale of its channel is raised, unless other nodes share the weight;
    then the bias stays float. So does one whose result is quantized to more than 8 bits: no integer kernel reads it,
    and rounding it to the scale `s_x * s_w` would move the result by several steps of the fine grid.
    """
    for node in graph.sorted_nodes():
        found = _float_bias(graph, node)
        if found is None:
            continue
        bias, data, weight = found
        if node.op == _TRANSPOSED or _stays_float(graph, node):
            _keep_bias_exact(graph, node, bias, weight)
        elif _has_kernel(graph, node, weight):
            _quantize_bias(graph, node, bias, data, weight)


def _float_bias(graph: Graph, node: Node) -> tuple[np.ndarray, _Operand, _Operand] | None:
    """Return the float bias of a node whose input and weight are dequantized, with these two operands."""
    if node.op not in (*_OUTPUT_AXIS, _TRANSPOSED) or len(node.inputs) < 3 or node.domain:
        return None
    bias = graph.constant(node.inputs[2])
    data, weight = _operand(graph, node.inputs[0]), _operand(graph, node.inputs[1])
    if bias is None or bias.dtype != np.float32 or data is None or weight is None or data.axis is not None:
        return None
    return bias, data, weight


def _has_kernel(graph: Graph, node: Node, weight: _Operand) -> bool:
    """Return whether an integer kernel computes a convolution or product of dequantized operands."""
    # Scales along another axis or in blocks give the bias no scale s_x * s_w per output.
    along_outputs = weight.axis in (None, _OUTPUT_AXIS[node.op]) and weight.scale.ndim < 2
    return along_outputs and _is_plain(node) and not _meets_fine_grid(graph, node)


def _is_plain(node: Node) -> bool:
    return node.op != "Gemm" or (
        node.get("alpha", 1.0) == 1.0 and node.get("beta", 1.0) == 1.0 and not node.get("transB", 0)
    )


def _meets_fine_grid(graph: Graph, node: Node) -> bool:
    """Return whether the first QuantizeLinear on a path from a node's result has more than 8 bits."""
    waiting, seen = [node.output], set()
    while waiting:
        tensor = waiting.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        for reader in graph.readers(tensor):
            if reader.op != "QuantizeLinear":
                waiting.extend(reader.outputs)
                continue
            zero_point = graph.constant(reader.inputs[2]) if len(reader.inputs) > 2 else None
            if zero_point is not None and zero_point.dtype.itemsize > 1:
                return True
    return False


def _operand(graph: Graph, tensor: str) -> _Operand | None:
    node = graph.producer(tensor)
    if node is None or node.op != "DequantizeLinear":
        return None
    scale = graph.constant(node.inputs[1])
    if scale is None:
        return None
    return _Operand(node, scale, int(node.get("axis", 1)) if scale.ndim else None)


def _quantize_bias(graph: Graph, node: Node, bias: np.ndarray, data: _Operand, weight: _Operand) -> None:
    scale = bias_scale(data.scale, weight.scale)
    codes = bias_codes(bias, scale)
    if codes is None:
        # Other readers of the weight would get other values.
        if not graph.has_one_reader(weight.node.output):
            return
        raised = _raise_weight_scale(graph, weight, bias, data.scale)
        scale = bias_scale(data.scale, raised)
        codes = bias_codes(bias, scale)
        if codes is None:
            return
    _write_bias(graph, node, weight, codes, scale)


def _keep_bias_exact(graph: Graph, node: Node, bias: np.ndarray, weight: _Operand) -> None:
    scale = _exact_scale(bias)
    codes = bias_codes(bias, scale)
    if codes is not None:
        _write_bias(graph, node, weight, codes, scale)


def _write_bias(graph: Graph, node: Node, weight: _Operand, codes: np.ndarray, scale: np.ndarray) -> None:
    name = bias_name(weight.node.name)
    inputs = [
        graph.add_constant(f"{name}/quantized", codes),
        graph.add_constant(f"{name}/scale", scale),
        graph.add_constant(f"{name}/zero_point", np.zeros(scale.shape, np.int32)),
    ]
    axis = 0 if scale.ndim else None
    dequantize = graph.add(
        "DequantizeLinear", inputs, f"{name}/DequantizeLinear", output=f"{name}/dequantized", axis=axis
    )
    graph.shapes[dequantize.output] = codes.shape
    graph.set_inputs(node, [*node.inputs[:2], dequantize.output])


def _stays_float(graph: Graph, node: Node) -> bool:
    """Return whether all readers of a convolution, after Relu and Clip, are pairs narrower than their integer type."""
    waiting = [node.output]
    while waiting and node.op == "Conv":
        readers = graph.readers(waiting.pop())
        others = [reader for reader in readers if not narrows(graph, reader)]
        waiting += [reader.output for reader in others]
        if not readers or any(reader.op not in CLIPS for reader in others):
            return False
    return node.op == "Conv"


def _exact_scale(bias: np.ndarray) -> np.ndarray:
    """Return scales under which the codes are 2**30 or -2**30 and exact; values below `_SMALLEST` become 0."""
    size = np.abs(bias)
    return np.where(size >= _SMALLEST, size / np.float32(BIAS_LIMIT), np.float32(1)).astype(np.float32)


def bias_name(weight_node: str) -> str:
    """Return the name of the bias that goes with the weight written by a DequantizeLinear node.

    Example:
        >>> bias_name("block/conv1/kernel/DequantizeLinear")
        'block/conv1/bias'
    """
    weight = weight_node.rpartition("/")[0]
    return f"{weight.rpartition('/')[0]}/bias"


def _raise_weight_scale(graph: Graph, weight: _Operand, bias: np.ndarray, input_scale: np.ndarray) -> np.ndarray:
    """Replace the weight's constants by those with scales under which the bias fits; return the scales."""
    codes = graph.constants[weight.node.inputs[0]]
    zero = graph.constants[weight.node.inputs[2]]
    # The grid is not known here; the integer type is limit enough, because a larger scale gives smaller codes.
    spec = QuantizerSpec(num_bits=8 * codes.dtype.itemsize, signed=codes.dtype.kind == "i", axis=weight.axis)
    raised = raise_scale_for_bias(Encoding(weight.scale, zero, spec, codes), bias, input_scale)
    # Nothing else reads these constants: the weight has one DequantizeLinear, and that has one reader.
    graph.constants[weight.node.inputs[0]] = np.asarray(raised.codes)
    graph.constants[weight.node.inputs[1]] = raised.scale
    return raised.scale


def _in_float(graph: Graph) -> Iterator[Node]:
    """Yield the nodes with an integer kernel whose float bias fits int32."""
    for node in graph.nodes:
        found = _float_bias(graph, node)
        if found is None or node.op == _TRANSPOSED:
            continue
        bias, data, weight = found
        runs_on_integers = not _stays_float(graph, node) and _has_kernel(graph, node, weight)
        if runs_on_integers and bias_codes(bias, bias_scale(data.scale, weight.scale)) is not None:
            yield node


PASS = GraphPass(
    quantize_biases,
    needs="Biases folded into Conv and Gemm, weights as integers.",
    holds="A bias between dequantized operands is int32 with the scale s_x * s_w wherever an integer kernel reads it; "
    "elsewhere it is a whole number of steps of its own.",
    refuses="Biases behind which a grid of more than 8 bits stands, and those that do not fit int32 where other nodes "
    "share the weight.",
    denied_by=_in_float,
)
