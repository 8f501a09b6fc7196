"""Processors on which ONNX Runtime's 8-bit kernels saturate: x86-64 without VNNI.

Before VNNI the instruction for products of uint8 and int8 (VPMADDUBSW) adds two of them in 16 bits, and a sum beyond
-32768 to 32767 becomes the nearest of these (Intel's "Nuances of int8 computations", ONNX Runtime's pull request
12088). The session option `session.x64quantprecision` makes ONNX Runtime take slower kernels without that. What a file
says and what such a processor makes of it are two things: a file is judged by exact sums, and the report says what is
lost here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from qdq_workbench.errors import VerificationError
from qdq_workbench.onnx_graph.sessions import make_session, run_session

EXACT_SUMS = "compared with exact sums, which ONNX Runtime's kernels compute on this processor only where asked to"


def run_exactly(
    proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray], *, as_planned: bool = False
) -> dict[str, np.ndarray] | None:
    """Return the outputs of integer kernels whose sums do not saturate; None where ONNX Runtime opens no such session.

    ONNX Runtime 1.32 refuses that setting for a weight that two convolutions read.

    Args:
        proto: The file.
        inputs: Samples per input name.
        as_planned: Keep ONNX Runtime from quantizing by itself what the file has in float.
    """
    try:
        session = make_session(proto, optimized=True, as_planned=as_planned, exact_sums=True)
    except VerificationError:
        return None
    return run_session(session, inputs)


def processor_remark(found: Mapping[str, Any] | None) -> str:
    """Return what a saturating processor does to the outputs, and what to do; empty where nothing saturates.

    Args:
        found: `name` of the output, its `mean_difference` in a session with default settings, what is `allowed`, and
            the `agreement` of top-1 answers, if it was measured.
    """
    if not found:
        return ""
    agreement = found.get("agreement")
    answers = "" if agreement is None else f", top-1 agreement {100 * agreement:.2f} %"
    return (
        "this processor has no VNNI instructions: with default settings ONNX Runtime's 8-bit kernels saturate on it. "
        f"{found['name']} is off by {found['mean_difference']:.3g} on average (allowed {found['allowed']:.3g})"
        f"{answers}. The file is right, and exact on processors with VNNI. To run it on this one, set the session "
        'option "session.x64quantprecision" to "1" (exact, slower), or quantize the weights to 7 bits '
        "(--weight-bits 7): docs/targets.md#processors-without-vnni"
    )
