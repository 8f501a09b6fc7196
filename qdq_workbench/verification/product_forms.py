"""Comparison of the form of convolutions and matrix products in a file with the one that follows from the plan.

An inference runtime has an integer kernel only for a product that reads its pair and its integer weight directly, with
the bias inside it and no movement of data in front of the pair behind it. Neither the numbers nor the counts of
operators tell that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import onnx

from qdq_workbench.graph import operators
from qdq_workbench.graph.kinds import CONVOLUTIONS, EINSUMS, MATRIX_PRODUCTS, SEPARABLE
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE, attribute
from qdq_workbench.placement.placement import Placement
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.quantizers.bias_room import BIAS_LIMIT, bias_scale
from qdq_workbench.verification.typed_file import TypedFile

_KERNEL_READERS = operators.CONVOLUTIONS | {"Gemm"}
# Operators that compute the same in either layout of images.
_IN_ANY_LAYOUT = operators.WINDOWED | operators.operators_of("arithmetic", "clip", "concatenation")
_MOVED = operators.MOVES - operators.operators_of("padding")  # a value beside the pair's own may be among the padding


def product_differences(file: TypedFile) -> Iterator[str]:
    """Yield where a layer with an integer weight stands in a file in a form without an integer kernel.

    And where the runtime would quantize the weight of a layer that the plan leaves in float.
    """
    if file.plan.target_object.quantizes_float_weights:
        yield from _quantized_by_runtime(file)
    for placement in file.plan.placements:
        call = None if placement.weight is None else file.plan.graph.calls(placement.layer)[0]
        if call is None or call.opaque or call.is_operation or not call.is_a(*CONVOLUTIONS, *MATRIX_PRODUCTS):
            continue
        weight = f"{placement.tensor}/dequantized"
        reader = file.only_reader(weight)
        if reader is not None and reader.op_type in operators.HELPERS:
            yield f"the integer weight {placement.tensor!r} is moved by a {reader.op_type} at run time"
        for node in file.graph.readers(weight):
            if node.op_type in operators.WEIGHTED and node.input[1] == weight:
                yield from (f"{placement.layer!r} {wrong}" for wrong in _of_product(file, placement, call, node))


def _quantized_by_runtime(file: TypedFile) -> Iterator[str]:
    for layer in file.layers:
        for node in file.nodes(layer):
            weight = None if node.op_type not in _KERNEL_READERS else file.graph.constant(node.input[1])
            if weight is None or weight.dtype != np.float32:
                continue
            if not file.graph.is_dequantized(file.graph.origin(node.input[0], _MOVED)):
                continue
            bias = node.input[2] if len(node.input) > 2 else ""
            behind = list(file.behind(node.output[0], operators.CLIPS | operators.PROPAGATING))
            if len(behind) == 1 and behind[0].op_type == QUANTIZE and (not bias or file.graph.is_constant(bias)):
                yield f"{layer!r} has a float weight between two pairs, which ONNX Runtime would quantize itself"


def _of_product(file: TypedFile, placement: Placement, call: Node, node: onnx.NodeProto) -> Iterator[str]:
    plan, graph = file.plan, file.graph
    pairs = [plan.input_placement(each.name, 0) for each in plan.graph.calls(placement.layer)]
    # With open sizes the exporter does not tell that an axis has size 1.
    shape = plan.graph.tensors[call.inputs[0]].shape
    is_open = None in shape[1:]
    # The operands of an einsum may have to be moved, and the second half of a separable convolution reads the first.
    if not call.is_a(*EINSUMS, *SEPARABLE):
        # A pair may stand in the layout of a convolution that reads it, too, and then be transposed for a Dense.
        data = graph.origin(node.input[0]) if node.op_type in operators.MATRIX_PRODUCTS else node.input[0]
        if all(pairs) and not graph.is_dequantized(data):
            yield "does not read its pair directly"
        rank = file.rank(node.input[0])
        if rank not in (None, len(shape)) and not is_open:
            yield f"is computed on {rank} axes, and has {len(shape)}"
    stays = is_open or call.is_a(*SEPARABLE) or node.op_type == "MatMul"
    # What an activation adds to a result with its bias, or of a layer without one, is none.
    if len(node.input) < 3 and _has_bias(plan, call):
        yield from _of_bias(file, node, past=frozenset() if stays else operators.HELPERS)
    if plan.target_object.relu_hides_blocks and placement.quantizer.block_size is not None:
        clip = file.only_reader(node.output[0])
        if clip is not None and clip.op_type in operators.CLIPS and file.only_reader(clip.output[0]) is not None:
            yield f"is followed by a {clip.op_type}, which hides its weight in blocks from the runtime"
    if plan.target_object.bias == "int32":
        yield from _of_integer_bias(file, node)
    # A matrix product works in the layout of Keras.
    windowed = node.op_type in operators.CONVOLUTIONS
    if windowed and any(_parts_pair(file, reader) for reader in file.behind(node.output[0], operators.CLIPS)):
        yield "is transposed in front of its pair, and back behind it"


def _has_bias(plan: PlacementPlan, call: Node) -> bool:
    """Return whether a layer has a bias in the file: its own, or of what becomes a part of it."""
    own = any(weight.name == "bias" for weight in call.weights)
    return own or call.name in plan.onnx_lowering.merged.into.values()


def _of_bias(file: TypedFile, node: onnx.NodeProto, past: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with the addition of a bias behind a product, and behind operators in `past`."""
    # Behind a convolution that was left in the layout of Keras, it stands behind a Transpose.
    readers = list(file.behind(node.output[0], past))
    add = readers[0] if len(readers) == 1 else None
    if add is None or add.op_type != "Add" or file.layer(add) != file.layer(node):
        return
    sizes = [constant.shape for tensor in add.input if (constant := file.graph.constant(tensor)) is not None]
    channels = _channels(file, node)
    if len(sizes) != 1 or channels is None or np.prod(sizes[0]) != channels:
        return
    in_sequence = node.op_type == "MatMul" and file.rank(node.input[0]) != 2
    if not in_sequence:
        yield "has its bias outside"
    elif len(sizes[0]) == 1 and file.graph.is_dequantized(node.input[0]):
        yield "has a bias of one axis, with which ONNX Runtime makes a float Gemm of it"


def _channels(file: TypedFile, node: onnx.NodeProto) -> int | None:
    """Return the number of output channels of a product with an integer weight."""
    dequantize = file.graph.producer(node.input[1])
    codes = None if dequantize is None else file.graph.tensors.get(dequantize.input[0])
    if codes is None:
        return None
    if node.op_type == "ConvTranspose":
        return int(codes.dims[1]) * attribute(node, "group", 1)
    return int(codes.dims[0 if node.op_type == "Conv" else -1])


def _of_integer_bias(file: TypedFile, node: onnx.NodeProto) -> Iterator[str]:
    """Yield what is wrong with the bias of a product for targets that want it as int32."""
    graph = file.graph
    operands = [graph.producer(tensor) for tensor in node.input[:2]]
    if node.op_type not in _KERNEL_READERS or len(node.input) < 3 or graph.constant(node.input[0]) is not None:
        return
    data, weight = (None if each is None or each.op_type != DEQUANTIZE else graph.parameters(each) for each in operands)
    if data is None or weight is None or operands[1] is None or file.only_reader(node.input[1]) is None:
        return  # other nodes share the weight, so that its scales cannot be raised
    along = attribute(operands[1], "axis", 1) == (0 if node.op_type == "Conv" else 1)
    if weight[0].ndim > 1 or (weight[0].ndim and not along and node.op_type != "ConvTranspose"):
        return
    bias = graph.producer(node.input[2])
    if bias is None or bias.op_type != DEQUANTIZE:
        if not _meets_fine_grid(file, node.output[0]):
            yield "has a float bias, and by the target an int32 one"
        return
    found, codes = graph.parameters(bias), graph.constant(bias.input[0])
    wanted = bias_scale(data[0], weight[0])
    if found is None or codes is None or np.all(found[0] == wanted):
        return
    if not np.isin(np.abs(codes.astype(np.int64)), (0, BIAS_LIMIT)).all():  # those are the codes of an exact bias
        yield "has a bias whose scale is not the product of those of its input and its weight"


def _meets_fine_grid(file: TypedFile, tensor: str) -> bool:
    """Return whether a QuantizeLinear of more than 8 bits is the first on a path behind a tensor."""
    waiting, seen = [tensor], {tensor}
    while waiting:
        for reader in file.graph.readers(waiting.pop()):
            if reader.op_type == QUANTIZE:
                found = file.graph.parameters(reader)
                if found is not None and found[1].dtype.itemsize > 1:
                    return True
                continue
            new = set(reader.output) - seen
            seen |= new
            waiting.extend(new)
    return False


def _parts_pair(file: TypedFile, transpose: onnx.NodeProto) -> bool:
    """Return whether a Transpose stands in front of a pair whose readers could work in the layout before it."""
    quantize = None if transpose.op_type != "Transpose" else file.only_reader(transpose.output[0])
    if quantize is None or quantize.op_type != QUANTIZE or file.rank(transpose.input[0]) in (None, 0, 1, 2):
        return False
    readers = [r for each in file.graph.readers(quantize.output[0]) for r in file.graph.readers(each.output[0])]
    return any(reader.op_type in _IN_ANY_LAYOUT for reader in readers)
