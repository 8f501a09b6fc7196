"""Random inputs for a quantized model, where no data are at hand."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.graph_builder import input_structure

_OPEN = 32


def random_inputs(q_model: QuantizedModel, count: int) -> Any:
    """Return samples drawn evenly from the calibrated range of every input, in the structure the model takes.

    Unknown dimensions become 32, wide enough for several windows in a row; integer inputs are zero, which every
    embedding has a row for.

    Args:
        q_model: A model made by `quantize_model`.
        count: How many samples.
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
