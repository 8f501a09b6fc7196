"""TensorFlow's converter: from a Keras model with fake-quant operations to the bytes of a `.tflite` file."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from qdq_workbench._scratch import scratch_folder
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.rebuild import unique_names
from qdq_workbench.errors import ExportError, first_line
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.keras_side.as_graph import as_graph
from qdq_workbench.export.keras_side.broadcast_additions import BROADCAST_ADDITIONS
from qdq_workbench.export.litert.mended import mended
from qdq_workbench.export.litert.tflite_run import SIGNATURE
from qdq_workbench.export.litert.unread_results import unread_results


@dataclasses.dataclass(frozen=True)
class Names:
    """The names of the file's inputs and outputs, in the model's order."""

    inputs: list[str]
    outputs: list[str]

    @classmethod
    def of(cls, q_model: QuantizedModel) -> Names:
        """Return the unique names in a model's file, where characters other than letters and digits are `_`."""
        inputs = list(q_model.plan.graph.inputs)
        every = [re.sub(r"\W", "_", name) for name in (*inputs, *q_model.source_output_names)]
        unique = list(unique_names(dict(enumerate(every))).values())
        return cls(unique[: len(inputs)], unique[len(inputs) :])


def convert(model: Any, names: Names, batch: int | None, activations: Mapping[str, Encoding]) -> bytes:
    """Convert a model with its variables frozen, because the converter stores only constants as integers.

    ExportError is raised if the converter has no form of the model. `activations` are the encodings of its pairs,
    without which the file is in float; an open batch size is None.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    packed = model._inputs_struct  # noqa: SLF001 - Keras has no public name for how inputs are nested
    tensors = keras.tree.flatten(packed)
    signature = {
        name: tf.TensorSpec([batch, *tensor.shape[1:]], tensor.dtype, name=name)
        for name, tensor in zip(names.inputs, tensors, strict=True)
    }

    def run(**values: Any) -> dict[str, Any]:
        inputs = keras.tree.pack_sequence_as(packed, [values[name] for name in names.inputs])
        with BROADCAST_ADDITIONS:
            outputs = keras.tree.flatten(model(inputs, training=False))
        return {**dict(zip(names.outputs, outputs, strict=True)), **unread_results(outputs)}

    traced = as_graph(tf.function(run, jit_compile=False, autograph=False), **signature)
    frozen = convert_variables_to_constants_v2(traced)
    in_order = sorted(traced.structured_outputs)  # as TensorFlow flattens the dictionary that `run` returns
    module = tf.Module()
    module.run = tf.function(
        lambda **values: dict(zip(in_order, tf.nest.flatten(frozen(**values)), strict=True)), autograph=False
    )
    with scratch_folder() as folder, warnings.catch_warnings(), _without_progress_lines():
        warnings.simplefilter("ignore")  # saving warns about a module without variables, which is intended here
        # TensorFlow's SiLU has a custom gradient, which saving would trace and fail on; the file holds no gradients.
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        signatures = {SIGNATURE: module.run.get_concrete_function(**signature)}
        tf.saved_model.save(module, str(folder), signatures=signatures, options=options)
        converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
        if activations:  # without fake-quant operations it would round weights on scales of its own
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        try:
            return mended(bytes(converter.convert()), activations.values())
        except Exception as error:
            raise ExportError(
                "TensorFlow's converter has no LiteRT form of the model. Replace the operation that it names; where it "
                "joins or pools, quantize all of its inputs, for LiteRT has no kernel that mixes integers and floats. "
                f"Received: {type(error).__name__}: {_what_failed(error)}"
            ) from error


@contextlib.contextmanager
def _without_progress_lines() -> Iterator[None]:
    """Suppress TensorFlow's messages below warnings, such as those about a temporary folder."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        logger.setLevel(level)


def _what_failed(error: Exception) -> str:
    """Return the operations that the converter's error names, or else its first line."""
    message = str(error)
    listed = re.search(r"(?:Custom|Select) ops: (.+)", message)
    if listed:
        return listed[1]
    located = re.search(r'fused\["(\w+):", "([^"@]+)', message)
    if located:
        return f"{located[1]} at {located[2]}"
    return first_line(error)
