"""Random inputs for a quantized model, for use without data."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.graph_builder import input_structure

_OPEN = 32


def random_inputs(q_model: QuantizedModel, count: int) -> Any:
    """Return uniform samples from the calibrated range of every input, or from [-1, 1], structured as the inputs.

    Unknown dimensions become 32, large enough for several strided windows. Integer inputs are zero, a valid index of
    every embedding.
    """
    generator = np.random.default_rng(0)
    ranges = {**q_model.recorded_ranges, **q_model.activation_ranges()}
    samples = []
    for name, tensor in zip(q_model.plan.graph.inputs, q_model.inputs, strict=True):
        shape = (count, *(size or _OPEN for size in tensor.shape[1:]))
        low, high = ranges.get(name, (-1.0, 1.0))
        values = generator.uniform(low, high, shape) if "float" in tensor.dtype else np.zeros(shape)
        samples.append(values.astype(tensor.dtype))
    return keras.tree.pack_sequence_as(input_structure(q_model), samples)
