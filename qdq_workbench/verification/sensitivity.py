"""Constants of the tolerance between two correct programs, and the perturbation of inputs that measures it.

`OWN_QUANTIZATION` and `ROUNDED_OUTPUT` describe rewrites by ONNX Runtime that explain larger differences, `TOO_FAR`
those that do not, and `ELSEWHERE` those that do not matter, because the file is for another runtime.
"""

from __future__ import annotations

import numpy as np

PERTURBATIONS = 3  # perturbed runs, of which the largest difference counts
HEADROOM = 3.0  # the allowed difference, in multiples of that difference
FLOAT_TOLERANCE = 1e-3  # relative to the size of an output
OWN_QUANTIZATION = (
    "ONNX Runtime by default also quantizes float weights between two pairs, and float inputs of products with "
    "integer weights, and makes one pair of two in a row; compared without that"
)
TOO_FAR = "what ONNX Runtime by default also quantizes moves this output further than 8 bits explain"
ELSEWHERE = (
    f"{TOO_FAR}, and the file is for another runtime; compared without that. To run it in ONNX Runtime, set "
    "disabled_optimizers=['WeightBiasQuantization']"
)
ROUNDED_OUTPUT = "ONNX Runtime returns this output as the dequantized value of its pair; compared with that value"


def moved_by_steps(values: np.ndarray, step: float | None, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return samples with `count` values of each moved by one quantization step; integer samples stay unchanged.

    `step` is None for 1/255 of the range of the values.
    """
    if not np.issubdtype(values.dtype, np.floating):
        return values
    width = float(np.ptp(values) / 255.0) if step is None else step
    flat = values.reshape(len(values), -1).copy()
    for sample in flat:
        chosen = generator.choice(sample.size, min(count, sample.size), replace=False)
        sample[chosen] += width * generator.choice((-1.0, 1.0), chosen.size)
    return flat.reshape(values.shape).astype(values.dtype)
