"""How far apart two correct programs may be: as far as a few single steps of the input move a network's outputs.

And the two liberties that ONNX Runtime takes, in words.
"""

from __future__ import annotations

import numpy as np

PERTURBATIONS = 3
HEADROOM = 3.0
FLOAT_TOLERANCE = 1e-3
OWN_QUANTIZATION = (
    "ONNX Runtime by default also quantizes float weights between two pairs, and float inputs of products with "
    "integer weights; compared without that"
)
ROUNDED_OUTPUT = "ONNX Runtime returns this output as the dequantized value of its pair; compared with that value"


def saturated_sums(difference: float) -> str:
    """Say what ONNX Runtime's kernels do on processors without VNNI, and the way out.

    Args:
        difference: The mean difference that it makes.
    """
    return (
        f"with ONNX Runtime's default settings {difference:.3g}: on x86 processors without VNNI, such as this one, its "
        "8-bit kernels saturate sums of two products at 16 bits. Set the session option session.x64quantprecision to 1 "
        "where you run the file on such a processor, or quantize weights to 7 bits: docs/howto/verification_failed.md"
    )


def moved_by_steps(values: np.ndarray, step: float | None, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return samples of which a few values each are moved by one quantization step; integers as they are.

    Args:
        values: The samples.
        step: The step; None for the 255th part of what the values span.
        count: How many values of each sample.
        generator: Chooses the values.
    """
    if not np.issubdtype(values.dtype, np.floating):
        return values
    width = float(np.ptp(values) / 255.0) if step is None else step
    flat = values.reshape(len(values), -1).copy()
    for sample in flat:
        chosen = generator.choice(sample.size, min(count, sample.size), replace=False)
        sample[chosen] += width * generator.choice((-1.0, 1.0), chosen.size)
    return flat.reshape(values.shape).astype(values.dtype)
