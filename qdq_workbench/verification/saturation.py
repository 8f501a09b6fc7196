"""Processors on which ONNX Runtime's 8-bit kernels saturate: x86-64 without VNNI.

Before VNNI the instruction for products of uint8 and int8 (VPMADDUBSW) adds two of them in 16 bits, and a sum beyond
-32768 to 32767 becomes the nearest of these (Intel's "Nuances of int8 computations", ONNX Runtime's pull request
12088). The session option `session.x64quantprecision` makes ONNX Runtime use slower kernels without saturation. The
file is not at fault, so it is judged by exact sums, and the report names the error of this processor separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime

from qdq_workbench._pages import page
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE
from qdq_workbench.onnx_graph.sessions import make_session

_PAGE = page("targets.md", "Processors without VNNI")


def run_exactly(
    proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray], *, as_planned: bool = False
) -> dict[str, np.ndarray]:
    """Return the outputs of a file run by integer kernels whose sums do not saturate.

    `as_planned` keeps ONNX Runtime from quantizing float tensors of the file on its own.
    """
    return run_session(exact_session(proto, as_planned=as_planned), inputs)


def exact_session(proto: onnx.ModelProto, *, as_planned: bool = False) -> onnxruntime.InferenceSession:
    """Return a session whose integer kernels compute exact sums on every processor; arguments as for `run_exactly`."""
    return make_session(_with_own_weights(proto), optimized=True, as_planned=as_planned, exact_sums=True)


def _with_own_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which every reader of an integer weight has its own copy of the weight and its zero point.

    For an exact kernel ONNX Runtime 1.32 adds converted copies of both under names derived from theirs, and refuses
    the file if two kernels read the same weight.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    weights = {
        node.output[0]: node for node in proto.graph.node if node.op_type == DEQUANTIZE and node.input[0] in constants
    }
    made = []
    for number, node in enumerate(copy.graph.node):
        for index, tensor in enumerate(node.input):
            if tensor in weights:
                own = onnx.NodeProto()
                own.CopyFrom(weights[tensor])
                own.name, own.output[0] = (f"{name}/{number}/{index}" for name in (own.name, tensor))
                # The integers, and the zero point if there is one; scales are not converted and may stay shared.
                for place in (at for at, name in enumerate(own.input) if at != 1 and name in constants):
                    constant = copy.graph.initializer.add()
                    constant.CopyFrom(constants[own.input[place]])
                    constant.name = own.input[place] = f"{own.input[place]}/{number}/{index}"
                node.input[index] = own.output[0]
                made.append(own)
    nodes = list(copy.graph.node)
    del copy.graph.node[:]
    # In front, because ONNX wants every tensor written before it is read.
    copy.graph.node.extend([*made, *nodes])
    return copy


def worst_saturation(found: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the output whose mean difference is largest relative to its tolerance; None if there are no outputs.

    Each is a mapping as for `processor_remark`.
    """
    worst = max(found, key=lambda one: float(one["mean_difference"]) / float(one["allowed"]), default=None)
    return None if worst is None else dict(worst)


def exact_sums_note(found: Mapping[str, Any]) -> str:
    """Return a note for a check's detail that its output was compared with exact sums.

    `found` is a mapping as for `processor_remark`.
    """
    answers = agreement_text(found.get("agreement"))
    return (
        f"compared with exact sums; with default settings {found['mean_difference']:.3g}{answers}, because "
        f"this processor has no VNNI: {_PAGE}"
    )


def processor_remark(found: Mapping[str, Any] | None) -> str:
    """Return a warning that this processor's kernels saturate, with advice; empty without `found`.

    That holds the `name` of the output, its `mean_difference` in a session with default settings, the `allowed` mean
    difference, and the `agreement` of top-1 answers (0 to 1, None if not measured).
    """
    if not found:
        return ""
    answers = agreement_text(found.get("agreement"))
    return (
        "this processor has no VNNI instructions: with default settings ONNX Runtime's 8-bit kernels saturate on it. "
        f"{found['name']} is off by {found['mean_difference']:.3g} on average (allowed {found['allowed']:.3g})"
        f"{answers}. The file is right, and exact on processors with VNNI. For this one, quantize weights to "
        "7 bits (--weight-bits 7), whose sums fit at full speed, or set the session option "
        f'"session.x64quantprecision" to "1" (exact, slower): {_PAGE}'
    )


def agreement_text(agreement: float | None) -> str:
    """Return the top-1 agreement as text to append to a difference; empty if it was not measured."""
    return "" if agreement is None else f", top-1 agreement {100 * agreement:.2f} %"
