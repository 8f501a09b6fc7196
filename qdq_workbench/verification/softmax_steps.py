"""How far the outputs move because ONNX Runtime's softmax of integers returns some integers one step too low.

Its kernel multiplies with the largest integer below 1/scale of the result (`qlinear_softmax.cc`, 1.32). So a
probability p loses less than p steps: the integer is that of ONNX's definition or, if 1/scale is none, often the one
below. How many depends on the scale alone and is no rare tie, and all move in one direction, so that their sum does not
average out. Therefore they are not counted: the unoptimized run is repeated with these kernels, and no others.

Which softmaxes have one is read from the runtime's graph of the whole file. Graphs of its parts have others: where the
integers of pairs are inputs or outputs of the graph, the runtime makes uint8 of the remaining ones alone, and forms no
kernel between two types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qdq_workbench._scratch import scratch_folder
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE, QDQGraph, attribute
from qdq_workbench.onnx_graph.sessions import QUANTIZING, make_session, session_source
from qdq_workbench.verification.differences import mean_of_numbers
from qdq_workbench.verification.integer_kernels import name_in_file, optimized_graph
from qdq_workbench.verification.parts import Arrays

_KERNEL, _DOMAIN = "QLinearSoftmax", "com.microsoft"
_WITHIN_ONE_STEP = 1.5  # in steps: more than one is not what this kernel does


def moved_by_softmax(proto: onnx.ModelProto, inputs: Arrays) -> dict[str, float]:
    """Return by output of a file the mean difference that the kernels of softmax cause."""
    kernels = _with_kernels(proto)
    if kernels is None:
        return {value.name: 0.0 for value in proto.graph.output}
    plain, moved = (run_session(make_session(each, optimized=False), inputs) for each in (proto, kernels))
    return {name: mean_of_numbers(moved[name], values) for name, values in plain.items()}


def _with_kernels(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a copy of a file that computes its softmaxes by the kernels that ONNX Runtime has for them; None if none.

    The optimizers that quantize by themselves are off, as where a comparison is repeated as planned.
    """
    if not any(map(_is_softmax, proto.graph.node)):
        return None
    with scratch_folder() as folder, session_source(proto) as source:
        optimized = optimized_graph(source, folder / "optimized.onnx", QUANTIZING)
    kernels = {name_in_file(node): node for node in optimized.graph.node if node.op_type == _KERNEL}
    if not kernels:
        return None
    constants = QDQGraph(optimized)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.node[:]
    for node in proto.graph.node:
        kernel = kernels.get(node.name) if _is_softmax(node) else None
        grids = [] if kernel is None else [constants.constant(name) for name in kernel.input[1:]]
        if kernel is None or any(value is None for value in grids):
            copy.graph.node.append(node)
        else:
            copy.graph.node.extend(_by_kernel(node, kernel, grids))
    if all(known.domain != _DOMAIN for known in copy.opset_import):
        copy.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    return copy


def _is_softmax(node: onnx.NodeProto) -> bool:
    return node.op_type == "Softmax"


def _by_kernel(node: onnx.NodeProto, kernel: onnx.NodeProto, grids: Sequence[Any]) -> Iterator[onnx.NodeProto]:
    """Yield nodes that compute a softmax by its kernel, and as ONNX defines it where these are more than a step apart.

    `grids` are scale and zero point of the kernel's input, then of its result. The axis is that of the file, because
    the runtime may have moved a Transpose over the kernel.
    """
    result = node.output[0]
    names = [f"{result}/{number}" for number in range(len(grids))]
    limit = np.float32(_WITHIN_ONE_STEP) * grids[2]
    for name, value in zip([*names, f"{result}/limit"], [*grids, limit], strict=True):
        yield helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))
    whole = onnx.NodeProto()
    whole.CopyFrom(node)
    whole.output[:] = [f"{result}/float"]
    yield whole
    yield helper.make_node(QUANTIZE, [f"{result}/float", *names[2:]], [f"{result}/defined"])
    yield helper.make_node(QUANTIZE, [node.input[0], *names[:2]], [f"{result}/read"])
    returned = helper.make_node(_KERNEL, [f"{result}/read", *names], [f"{result}/returned"], domain=_DOMAIN)
    returned.attribute.extend(item for item in kernel.attribute if item.name != "axis")
    returned.attribute.append(helper.make_attribute("axis", attribute(node, "axis", -1)))
    yield returned
    one, other = f"{result}/returned/dequantized", f"{result}/defined/dequantized"
    for tensor in ("returned", "defined"):
        codes = f"{result}/{tensor}"
        yield helper.make_node(DEQUANTIZE, [codes, *names[2:]], [f"{codes}/dequantized"])
    yield helper.make_node("Sub", [one, other], [f"{result}/difference"])
    yield helper.make_node("Abs", [f"{result}/difference"], [f"{result}/apart"])
    yield helper.make_node("Less", [f"{result}/apart", f"{result}/limit"], [f"{result}/within"])
    yield helper.make_node("Where", [f"{result}/within", one, other], [result])
