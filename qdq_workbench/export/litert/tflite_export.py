"""`export_tflite`: a quantized model as an int8 LiteRT (TensorFlow Lite) file with the ranges that it has.

TensorFlow's converter decides about integers by the fake-quant operations that it finds. So the float model is
rebuilt with its batch normalizations folded, its weights on their grids, and one `fake_quant_with_min_max_vars` with
our range wherever the plan has a pair. The converter takes the scales from there; it derives those of weights from
the values, which lie on a symmetric grid, so that the largest code of each channel, 127, gives our scale back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench._files import check_name, write_atomically
from qdq_workbench._interrupts import interrupts_held, safe_point
from qdq_workbench._scratch import scratch_folder
from qdq_workbench.conversion.engine.cut import cut_model
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.folding import FoldingRebuilder
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.conversion.engine.random_inputs import random_inputs
from qdq_workbench.conversion.engine.rebuild import keras_name, unique_names
from qdq_workbench.conversion.engine.retarget import in_float32
from qdq_workbench.errors import ExportError, first_line
from qdq_workbench.export.encode import encode_activations, encode_weights
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.litert.tflite_run import SIGNATURE, integer_operators, run_tflite
from qdq_workbench.export.other_targets import planned_for
from qdq_workbench.graph_builder import Call, layer_weights
from qdq_workbench.placement.kept import scales_along_other_axes
from qdq_workbench.placement.plan import Placement
from qdq_workbench.planning import explain

_SAMPLES = 8
_LARGE = 0.2  # of a tensor's mean size; the steps of an 8-bit grid that add up over a deep network stay below it
_NAMED = 5
_TARGET = "litert"
_SUFFIXES = (".tflite",)


@dataclasses.dataclass(frozen=True)
class TFLiteReport:
    """What `export_tflite` wrote.

    Args:
        path: The file.
        activations: How many activation tensors have our range in it.
        weights: How many weights are integers.
        operators: Operator -> (run on integers, all of them), as the interpreter has them.
        mean_difference: Mean absolute difference of its outputs from the Keras model's, on random inputs.
        mean_size: Mean absolute size of those outputs.
        bytes: Size of the file.
        seconds: How long the export took.
        notes: What the user should know.
    """

    path: pathlib.Path
    activations: int
    weights: int
    operators: dict[str, tuple[int, int]]
    mean_difference: float
    mean_size: float
    bytes: int
    seconds: float
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dictionary."""
        operators = {name: list(counts) for name, counts in self.operators.items()}
        return {**dataclasses.asdict(self), "path": str(self.path), "operators": operators, "notes": list(self.notes)}

    def summary(self) -> str:
        """Return the report as a few lines of text."""
        shown = ", ".join(f"{name} {integer}/{total}" for name, (integer, total) in sorted(self.operators.items()))
        return "\n".join(
            [
                f"{self.path}: {self.bytes / 1024:.1f} KiB, for LiteRT",
                f"{self.activations} activations and {self.weights} weights with our ranges, {self.seconds:.1f} s",
                f"on integers: {shown}",
                f"outputs differ from Keras by {self.mean_difference:.3g} (their mean size is {self.mean_size:.3g})",
                *self.notes,
            ]
        )


@interrupts_held()
def export_tflite(q_model: QuantizedModel, path: str | pathlib.Path, *, batch: int | None = 1) -> TFLiteReport:
    """Write a quantized model to an int8 `.tflite` file, through TensorFlow's converter and with our ranges.

    Args:
        q_model: A calibrated model made by `quantize_model`; it is only read. One quantized for another target is
            planned anew for LiteRT from its recorded ranges.
        path: Where to write the file, ending in `.tflite`; the folder must exist.
        batch: The batch size of the file; None leaves it open, which not every operation survives.

    Returns:
        What was written, and how it compares with the Keras model in TensorFlow's interpreter.

    Raises:
        NotQuantizedError: If the model was not made by `quantize_model`.
        UncalibratedError: If an activation quantizer has no range; the message lists the tensors.
        OutputPathError: If the file cannot be written, or its name ends otherwise.
        ExportError: If a quantizer is not of 8 bits, `batch` is no batch size, or the converter refuses the model.

    Example:
        >>> import pathlib, tempfile
        >>> from qdq_workbench import calibrate, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(1, name="head")(image))
        >>> q_model = quantize_model(model, target="litert")
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export_tflite(q_model, pathlib.Path(folder) / "model.tflite").operators["FULLY_CONNECTED"]
        (1, 1)
    """
    started = time.perf_counter()
    check_quantized(q_model)
    check_name(path, _SUFFIXES)
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ExportError(f"batch must be an integer from 1 on, or None for an open one. Received: batch={batch!r}")
    q_model, notes = planned_for(q_model, None if q_model.target == _TARGET else _TARGET)
    q_model = in_float32(q_model)
    _check_bits(q_model)
    activations = encode_activations(q_model)
    model, weights, pairs = _fake_quant_model(q_model, activations)
    names = _Names.of(q_model)
    safe_point()
    content = _convert(model, names, batch)
    safe_point()
    try:
        difference, size = _compare(q_model, content, names, batch or 1)
    except RuntimeError as error:
        raise _refused(q_model, error) from error
    written = write_atomically(path, lambda temporary: temporary.write_bytes(content))
    notes.extend(_notes_on_axes(q_model))
    if difference > _LARGE * size:
        notes.append(_where_it_parts(q_model, model, pairs, names, batch))
    return TFLiteReport(
        path=written,
        activations=len(activations),
        weights=weights,
        operators=_operators(content),
        mean_difference=difference,
        mean_size=size,
        bytes=len(content),
        seconds=time.perf_counter() - started,
        notes=tuple(notes),
    )


def _refused(q_model: QuantizedModel, error: RuntimeError) -> ExportError:
    """Return an error for a file that the interpreter does not run, with the layers that it may be about."""
    plan = q_model.plan
    in_float = [
        entry.layer
        for entry in explain(plan).layers
        if entry.status != "int8" and any(p.layer == entry.layer and p.weight is not None for p in plan.placements)
    ]
    which = f" These quantized layers have no int8 kernel: {', '.join(map(repr, in_float))}." if in_float else ""
    return ExportError(
        "TensorFlow's converter made a file that TensorFlow's interpreter refuses, so nothing was written: it left an "
        f"operation with integers on one side and floats on the other.{which} Leave such layers in float: "
        f"spec.add(name, quantize_input=False, quantize_weight=False). Received: {first_line(error)}"
    )


def _check_bits(q_model: QuantizedModel) -> None:
    for tensor in q_model.plan.tensors:
        spec = tensor.quantizer
        if spec.num_bits != 8 or (tensor.kind == "weight" and not spec.symmetric):
            raise ExportError(
                "LiteRT's int8 kernels take 8-bit activations and 8-bit weights without a zero point. Quantize "
                f"{tensor.name!r} with num_bits=8, symmetric=True, or leave it in float (docs/targets.md, LiteRT). "
                f"Received: num_bits={spec.num_bits}, symmetric={spec.symmetric}"
            )


def _notes_on_axes(q_model: QuantizedModel) -> list[str]:
    """Say which weights the converter rounds once more, because LiteRT has no scales along the axis of theirs."""
    names = [placement.tensor for placement in scales_along_other_axes(q_model.plan.graph, q_model.plan.placements)]
    if not names:
        return []
    shown = ", ".join(repr(name) for name in names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    note = (
        f"LiteRT has weight scales along the output channels only, so its converter rounds {shown} once more, on "
        "scales of its own. Scales along the channels, or per_axis=False, give a file with the model's integers."
    )
    return [note]


def _fake_quant_model(
    q_model: QuantizedModel, activations: Mapping[str, Encoding]
) -> tuple[Any, int, Mapping[str, Any]]:
    """Return the folded model with fake-quant operations, how many of its weights lie on a grid, and its pairs."""
    cut = cut_model(q_model, fold=True, bake_weights=False)
    encodings = encode_weights(q_model, cut, dict(activations))
    builder = _FakeQuantBuilder(q_model, activations)
    model = builder.rebuilt(q_model.name)
    for placement in q_model.plan.placements:
        if placement.weight is not None:
            layer = builder.clones[placement.layer]
            dict(layer_weights(layer))[placement.weight].assign(encodings[placement.tensor].dequantized())
    for layer in builder.clones.values():
        _tell_biases_apart(layer)
    return model, len(encodings), builder.quantized


def _tell_biases_apart(layer: Any) -> None:
    """Move the first of several equal biases by one float32 step, for the converter gives equal ones equal integers.

    It does so whatever the scales of their channels are.
    """
    for name, variable in layer_weights(layer) if isinstance(layer, keras.layers.Layer) else ():
        values = np.array(variable)
        if name.endswith("bias") and values.ndim == 1 and values.size > 1 and values[0] and np.all(values == values[0]):
            values[0] = np.nextafter(values[0], np.float32(0))
            variable.assign(values)


class _FakeQuantize(keras.layers.Layer):
    """The fake-quant operation that the converter reads, with a range of ours."""

    def __init__(self, encoding: Encoding, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True  # a mask goes on to the sequence layers behind
        spec, scale, zero = encoding.spec, float(encoding.scale), int(encoding.zero_point)
        self._ends = ((spec.qmin - zero) * scale, (spec.qmax - zero) * scale)
        self._narrow = spec.narrow_range

    def call(self, inputs: Any) -> Any:
        """Return the inputs on the grid."""
        return tf.quantization.fake_quant_with_min_max_vars(inputs, *self._ends, narrow_range=self._narrow)


class _FakeQuantBuilder(FoldingRebuilder):
    """Rebuilds the float model with a fake-quant layer for every pair."""

    def __init__(self, q_model: QuantizedModel, activations: Mapping[str, Encoding]) -> None:
        self._plan = q_model.plan
        self._activations = activations
        self.quantized: dict[str, Any] = {}
        super().__init__(float_view(q_model), self._plan.lowering.folds)

    def read(self, call: Call, index: int, tensor: str) -> Any:
        placement = self._plan.input_placement(call.node.name, index)
        return self.values[tensor] if placement is None else self._pair(placement)

    def output(self, tensor: str) -> Any:
        placement = self._plan.output_placement(tensor)
        return self.values[tensor] if placement is None else self._pair(placement)

    def _pair(self, placement: Placement) -> Any:
        name = self._plan.pair_of(placement).name
        if name not in self.quantized:
            layer = _FakeQuantize(self._activations[name], name=self.free_name(f"qdq.{keras_name(name)}"))
            self.quantized[name] = layer(self.values[placement.tensor])
        return self.quantized[name]


def _convert(model: Any, names: _Names, batch: int | None) -> bytes:
    """Convert a frozen trace of a model: the converter folds only constants into integers, not variables."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    packed = model._inputs_struct  # noqa: SLF001 - Keras has no public name for how inputs are nested
    tensors = keras.tree.flatten(packed)
    signature = {
        name: tf.TensorSpec([batch, *tensor.shape[1:]], tensor.dtype, name=name)
        for name, tensor in zip(names.inputs, tensors, strict=True)
    }

    def run(**values: Any) -> dict[str, Any]:
        inputs = keras.tree.pack_sequence_as(packed, [values[name] for name in names.inputs])
        return dict(zip(names.outputs, keras.tree.flatten(model(inputs, training=False)), strict=True))

    traced = tf.function(run, jit_compile=False, autograph=False).get_concrete_function(**signature)
    frozen = convert_variables_to_constants_v2(traced)
    in_order = sorted(names.outputs)  # as TensorFlow flattens the dictionary that `run` returns
    module = tf.Module()
    module.run = tf.function(
        lambda **values: dict(zip(in_order, tf.nest.flatten(frozen(**values)), strict=True)), autograph=False
    )
    with scratch_folder() as folder, warnings.catch_warnings(), _without_progress_lines():
        warnings.simplefilter("ignore")  # saving warns about a module without variables, which is what it should be
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        signatures = {SIGNATURE: module.run.get_concrete_function(**signature)}
        tf.saved_model.save(module, str(folder), signatures=signatures, options=options)
        converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        try:
            return bytes(converter.convert())
        except Exception as error:
            raise ExportError(
                "TensorFlow's converter has no LiteRT form of the model. Replace the operation that it names; where it "
                "joins or pools, quantize all of its inputs, for LiteRT has no kernel that mixes integers and floats. "
                f"Received: {type(error).__name__}: {_what_failed(error)}"
            ) from error


@contextlib.contextmanager
def _without_progress_lines() -> Iterator[None]:
    """Let TensorFlow report warnings and errors, but not that it wrote assets into a folder that is gone at once."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        logger.setLevel(level)


def _what_failed(error: Exception) -> str:
    """Return the operations that the converter names, without its call stack."""
    message = str(error)
    listed = re.search(r"(?:Custom|Select) ops: (.+)", message)
    if listed:
        return listed[1]
    located = re.search(r'fused\["(\w+):", "([^"@]+)', message)
    if located:
        return f"{located[1]} at {located[2]}"
    return first_line(error)


@dataclasses.dataclass(frozen=True)
class _Names:
    """The names of the file's inputs and outputs, in the model's order."""

    inputs: list[str]
    outputs: list[str]

    @classmethod
    def of(cls, q_model: QuantizedModel) -> _Names:
        inputs = list(q_model.plan.graph.inputs)
        every = [re.sub(r"\W", "_", name) for name in (*inputs, *q_model.source_output_names)]
        unique = list(unique_names(dict(enumerate(every))).values())
        return cls(unique[: len(inputs)], unique[len(inputs) :])


def _compare(q_model: QuantizedModel, content: bytes, names: _Names, batch: int) -> tuple[float, float]:
    """Return the mean difference of the file's outputs from the model's on random inputs, and their mean size."""
    inputs = random_inputs(q_model, max(_SAMPLES, batch))
    ours = [np.asarray(value, np.float64) for value in keras.tree.flatten(q_model(inputs, training=False))]
    arrays = [np.asarray(value) for value in keras.tree.flatten(inputs)]
    found = run_tflite(content, dict(zip(names.inputs, arrays, strict=True)))
    theirs = [found[name] for name in names.outputs]
    count = sum(value.size for value in ours)
    apart = sum(float(np.abs(a - b).sum()) for a, b in zip(ours, theirs, strict=True))
    return apart / count, sum(float(np.abs(value).sum()) for value in ours) / count


def _where_it_parts(
    q_model: QuantizedModel, model: Any, pairs: Mapping[str, Any], names: _Names, batch: int | None
) -> str:
    """Return a warning that names the quantized tensors which the interpreter computes otherwise, in the model's order.

    A second file with every pair as an output says so; it is compared with the same fake-quant model in Keras.
    """
    warning = "The file is NOT accurate: its outputs are far from the Keras model's. Compare both on your own data. "
    probe = functional_model(model._inputs_struct, list(pairs.values()))  # noqa: SLF001 - as in _convert
    ends = [f"pair_{index:05d}" for index in range(len(pairs))]
    inputs = random_inputs(q_model, max(_SAMPLES, batch or 1))
    arrays = [np.asarray(value) for value in keras.tree.flatten(inputs)]
    try:
        content = _convert(probe, _Names(names.inputs, ends), batch)
    except ExportError:
        return warning + "Which layers part could not be found, for the converter refuses the file that would tell."
    found = run_tflite(content, dict(zip(names.inputs, arrays, strict=True)))
    values = [np.asarray(value, np.float64) for value in keras.tree.flatten(probe(inputs, training=False))]
    apart = []
    for tensor, end, ours in zip(pairs, ends, values, strict=True):
        difference, size = float(np.abs(ours - found[end]).mean()), float(np.abs(ours).mean())
        if difference > _LARGE * size:
            apart.append(f"{tensor!r} by {difference:.3g} (mean size {size:.3g})")
    if not apart:
        return warning + "No tensor with a pair parts from Keras, so look at the float layers in front of the outputs."
    more = f" and {len(apart) - _NAMED} more" if len(apart) > _NAMED else ""
    named = ", ".join(apart[:_NAMED]) + more
    return f"{warning}Quantized tensors that part, the first one being nearest to the cause: {named}."


def _operators(content: bytes) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for name, integer in integer_operators(content):
        good, total = found.get(name, (0, 0))
        found[name] = (good + integer, total + 1)
    return found
