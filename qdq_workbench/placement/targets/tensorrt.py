"""TensorRT: symmetric int8 everywhere, float biases, no pairs on outputs unless requested."""

from __future__ import annotations

from qdq_workbench.placement.targets.target import TARGETS, Target
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

TENSORRT = TARGETS.add(
    "tensorrt",
    Target(
        name="tensorrt",
        title="NVIDIA TensorRT (explicit quantization)",
        # Its parser refuses zero points other than 0, and imports uint8 as int8.
        activation=QuantizerSpec(signed=True, symmetric=True),
        weight=QuantizerSpec(signed=True, symmetric=True, narrow_range=True),
        # Its parser refuses int32 DequantizeLinear. The kernels add float biases.
        bias="float",
        joined_kinds=frozenset({"Concatenate"}),
        half_scales=True,
        block_sizes=frozenset({64, 128}),
        block_bits=4,
        block_zero_points=False,
        whole_blocks=True,
        documentation="https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/work-quantized-types.html",
        version="10.x, 11.x",
    ),
)
