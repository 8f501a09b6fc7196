"""Comparison of a `.tflite` file with its Keras model: the difference of the outputs, and the first pairs with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.random_inputs import random_inputs
from qdq_workbench.conversion.engine.sample_rows import are_first_rows
from qdq_workbench.errors import ExportError
from qdq_workbench.export.keras_side.broadcast_additions import BROADCAST_ADDITIONS
from qdq_workbench.export.litert.converter import Names, convert
from qdq_workbench.export.litert.fake_quant_model import FakeQuantModel
from qdq_workbench.export.litert.tflite_run import batch_of, make_interpreter, run_interpreter

LARGE = 0.2  # of a tensor's mean size; the rounding errors of 8-bit grids in a deep network add up to less
_SAMPLES = 8
_NAMED = 5


def compare(q_model: QuantizedModel, content: bytes, names: Names, batch: int) -> tuple[float, float]:
    """Return the mean absolute difference between the outputs of file and model on random inputs, and their mean size.

    Args:
        q_model: The quantized model.
        content: The file's bytes.
        names: The names of its inputs and outputs.
        batch: Its batch size.

    Raises:
        ExportError: If an output of the file has another shape than the model's.
    """
    inputs = random_inputs(q_model, max(_SAMPLES, batch))
    ours, theirs = outputs_of_both(q_model, content, names, keras.tree.flatten(inputs))
    apart = other_shape(names, ours, theirs)
    if apart:
        raise ExportError(
            f"TensorFlow's converter made a file of which {apart}, so nothing was written. Open sizes are the usual "
            "cause: give the model's inputs fixed ones, such as Input((100, 8)) in place of Input((None, 8)); if all "
            f"are fixed, report it with the model. Received: the model {q_model.name!r}"
        )
    return mean_difference(ours, theirs)


def other_shape(names: Names, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> str:
    """Return a clause on the first output whose shape is not the model's; "" if there is none."""
    for name, own, found in zip(names.outputs, ours, theirs, strict=True):
        if own.shape != found.shape:
            return f"the output {name!r} has shape {found.shape}, where the model's has {own.shape}"
    return ""


def outputs_of_both(
    model: keras.Model, content: bytes, names: Names, inputs: Sequence[Any]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the outputs of a Keras model and of its file, in the model's order.

    Both run on all samples, but on one batch of the file's size if an output depends on the batch.
    """
    arrays = [np.asarray(array) for array in inputs]
    interpreter = make_interpreter(content)
    ours, batch = _outputs_of(model, arrays), batch_of(interpreter)
    if batch != len(arrays[0]):
        part = [np.resize(array, (batch, *array.shape[1:])) for array in arrays]
        few = _outputs_of(model, part)
        if not are_first_rows(few, ours, len(arrays[0])):
            arrays, ours = part, few
    found = run_interpreter(interpreter, dict(zip(names.inputs, arrays, strict=True)))
    return ours, [found[name] for name in names.outputs]


def _outputs_of(model: keras.Model, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    packed = keras.tree.pack_sequence_as(model._inputs_struct, list(arrays))  # noqa: SLF001 - as the converter reads it
    with BROADCAST_ADDITIONS:
        outputs = keras.tree.flatten(model(packed, training=False))
    return [np.asarray(value, np.float64) for value in outputs]


def mean_difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the mean absolute difference of all outputs, and the mean size of ours."""
    count = sum(value.size for value in ours)
    apart = sum(float(np.abs(a - b).sum()) for a, b in zip(ours, theirs, strict=True))
    return apart / count, sum(float(np.abs(value).sum()) for value in ours) / count


def divergence_warning(q_model: QuantizedModel, read: FakeQuantModel, names: Names, batch: int | None) -> str:
    """Return a warning that names the quantized tensors that differ in the interpreter, in the model's order.

    A second file with every pair as an output is compared with the same fake-quant model in Keras. Both have 8-bit
    activations, whatever the width of the model. An open batch size is None.
    """
    warning = "The file is NOT accurate: its outputs are far from the Keras model's. Compare both on your own data. "
    if not read.pairs:
        return warning + "The model has no pair, so look at its float layers."
    probe = functional_model(read.model._inputs_struct, list(read.pairs.values()))  # noqa: SLF001 - as in `convert`
    ends = [f"pair_{index:05d}" for index in range(len(read.pairs))]
    inputs = random_inputs(q_model, max(_SAMPLES, batch or 1))
    try:
        content = convert(probe, Names(names.inputs, ends), batch, read.activations)
    except ExportError:
        return warning + "Which layers part could not be found, for the converter refuses the file that would tell."
    both = outputs_of_both(probe, content, Names(names.inputs, ends), keras.tree.flatten(inputs))
    apart = []
    for tensor, ours, theirs in zip(read.pairs, *both, strict=True):
        if ours.shape != theirs.shape:
            apart.append(f"{tensor!r} (shape {theirs.shape} in place of {ours.shape})")
            continue
        difference, size = float(np.abs(ours - theirs).mean()), float(np.abs(ours).mean())
        if difference > LARGE * size:
            apart.append(f"{tensor!r} by {difference:.3g} (mean size {size:.3g})")
    if not apart:
        return warning + "No tensor with a pair parts from Keras, so look at the float layers in front of the outputs."
    more = f" and {len(apart) - _NAMED} more" if len(apart) > _NAMED else ""
    named = ", ".join(apart[:_NAMED]) + more
    return f"{warning}Quantized tensors that part, the first one being nearest to the cause: {named}."
