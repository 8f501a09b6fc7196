"""OpenVINO on CPUs: integer kernels wherever the inputs are quantized; no pairs on outputs unless requested.

It runs symmetric and asymmetric activations. The grid here is asymmetric: measured with 2026.4, padded max pooling of
symmetric int8 tensors gives wrong numbers, while uint8 tensors are computed exactly. Only transposed convolutions need
the zero point 0, which a tensor has if it is never negative.
"""

from __future__ import annotations

from qdq_workbench.placement.targets.target import TARGETS, Target
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

OPENVINO = TARGETS.add(
    "openvino",
    Target(
        name="openvino",
        title="OpenVINO CPU plugin (x86-64)",
        activation=QuantizerSpec(signed=False, symmetric=False),
        weight=QuantizerSpec(signed=True, symmetric=True, narrow_range=True),
        bias="float",
        joined_kinds=frozenset({"Concatenate"}),
        block_sizes=frozenset({16, 32, 64, 128, 256}),
        other_blocks=True,
        whole_blocks=True,
        # 2026.4: an image normalized as one operator between transpositions takes 1.4 times as long as in steps.
        slow_transposes=True,
        documentation="https://docs.openvino.ai/2026/documentation/openvino-extensibility/openvino-plugin-library/"
        "advanced-guides/low-precision-transformations.html",
        version="2026.4",
    ),
)
