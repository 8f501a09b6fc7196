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
