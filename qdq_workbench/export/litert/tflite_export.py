"""`export_tflite`: a quantized model as a LiteRT (TensorFlow Lite) file with the model's ranges and integers.

TensorFlow's converter quantizes where it finds fake-quant operations. So the float model is rebuilt with its batch
normalizations folded, its weights on their grids, and a `fake_quant_with_min_max_vars` with the range of each pair
of the plan (`fake_quant_model`). The converter turns it into int8 operators (`converter`). In its file, activations
become int16 where the model has 16 bits (`wide_activations`), and weights get the model's codes and scales, in 8 or
4 bits (`own_integers`).
"""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from qdq_workbench._files import check_name, write_atomically
from qdq_workbench._interrupts import interrupts_held, safe_point
from qdq_workbench._numbers import whole
from qdq_workbench._progress import is_count
from qdq_workbench._tables import shares_text
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.conversion.engine.retarget import in_float32
from qdq_workbench.errors import ExportError, first_line, first_names
from qdq_workbench.export.encode import encode_activations
from qdq_workbench.export.known_exports import remember_export
from qdq_workbench.export.litert.comparison import LARGE, compare, divergence_warning
from qdq_workbench.export.litert.converter import Names, convert
from qdq_workbench.export.litert.fake_quant_model import FakeQuantModel, fake_quant_model
from qdq_workbench.export.litert.lost_pairs import lost_pairs
from qdq_workbench.export.litert.own_integers import Written, write_integers
from qdq_workbench.export.litert.supported_grids import INT16_BITS, check_grids
from qdq_workbench.export.litert.tflite_file import TFLiteFile
from qdq_workbench.export.litert.tflite_run import integer_operators
from qdq_workbench.export.other_targets import planned_for
from qdq_workbench.placement.kept import scales_along_other_axes
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.planning import explain

_NAMED = 5
_CONVERTER = 1e-5  # of a scale: the converter computes it from a range in float32
_TARGET = "litert"
_SUFFIXES = (".tflite",)


@dataclasses.dataclass(frozen=True)
class TFLiteReport:
    """The result of `export_tflite`.

    Args:
        path: The file.
        activations: Number of pairs on activations, whose ranges the converter was given.
        weights: Number of weights that are stored with the model's integers.
        operators: Operator -> (number on integers, number of all), without QUANTIZE and DEQUANTIZE.
        mean_difference: Mean absolute difference between the outputs of the file and of the Keras model, on random
            inputs.
        mean_size: Mean absolute value of the Keras model's outputs.
        bytes: Size of the file, in bytes.
        seconds: Duration of the export, in seconds.
        notes: Remarks for the user, such as which weights hybrid kernels read.
        weight_types: "int8" or "int4" (two in a byte) -> number of the weights stored in that type.
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
    weight_types: dict[str, int] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dictionary."""
        operators = {name: list(counts) for name, counts in self.operators.items()}
        return {**dataclasses.asdict(self), "path": str(self.path), "operators": operators, "notes": list(self.notes)}

    def summary(self) -> str:
        """Return the report as a few lines of text."""
        shown = shares_text(self.operators)
        types = ", ".join(f"{count} in {name}" for name, count in sorted(self.weight_types.items()))
        weights = f"{self.weights} weights ({types})" if types else f"{self.weights} weights"
        return "\n".join(
            [
                f"{self.path}: {self.bytes / 1024:.1f} KiB, for LiteRT",
                f"{self.activations} activations and {weights} with our ranges, {self.seconds:.1f} s",
                f"on integers: {shown}",
                f"outputs differ from Keras by {self.mean_difference:.3g} (their mean size is {self.mean_size:.3g})",
                *self.notes,
            ]
        )


@interrupts_held()
def export_tflite(
    q_model: QuantizedModel, path: str | pathlib.Path, *, batch: int | None = 1, dynamic_range: bool = False
) -> TFLiteReport:
    """Write a quantized model to a `.tflite` file with TensorFlow's converter and the model's ranges and integers.

    Activations have 8 bits, or all of them 16 bits without a zero point; weights have 2 to 8 bits. Up to 4 bits they
    are stored two in a byte where LiteRT's kernels read that, else in int8. The weights of layers that compute in
    float are stored as integers as well.

    Args:
        q_model: A calibrated model made by `quantize_model`; it is only read. One quantized for another target is
            planned anew for LiteRT from its recorded ranges; one for an altered target of LiteRT keeps that.
        path: Where to write the file, ending in `.tflite`; the folder must exist.
        batch: The batch size of the file, at least 1; None leaves it open, which not every operation supports.
        dynamic_range: Let LiteRT's hybrid kernels (convolutions and matrix products) read weights with a float input.
            They round that input to 8 bits in every run: faster, but results differ from the Keras model by that
            rounding. False: these weights become floats when the file is loaded, and results are those of the model.

    Returns:
        The file's size, operators and weights, and its difference from the Keras model in TensorFlow's interpreter.

    Raises:
        NotQuantizedError: If the model was not made by `quantize_model`.
        UncalibratedError: If an activation quantizer has no range; the message lists the tensors.
        OutputPathError: If the file cannot be written, or its name does not end in `.tflite`.
        ExportError: If LiteRT has no tensors with the grid of a quantizer, `batch` is no batch size, or the converter
            or the interpreter refuses the model.

    Source:
        LiteRT 8-bit quantization specification, https://ai.google.dev/edge/litert/models/quantization_spec; 16-bit
        activations: its section "16x8".

    Example:
        >>> import keras, numpy as np, pathlib, tempfile
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
    if batch is not None and not is_count(batch):
        raise ExportError(f"batch must be an integer from 1 on, or None for an open one. Received: batch={batch!r}")
    batch = whole(batch)
    given = q_model
    q_model, notes = for_litert(q_model)
    read, names, found = build_tflite(q_model, batch, dynamic_range=dynamic_range)
    safe_point()
    try:
        difference, size = compare(q_model, found.content, names, batch or 1)
    except ExportError:
        raise
    except RuntimeError as error:
        raise _refused(q_model, error) from error
    written = write_atomically(path, lambda temporary: temporary.write_bytes(found.content))
    remember_export(given, found.content)
    notes.extend(_notes_on_weights(q_model, read, found))
    if difference > LARGE * size:
        notes.append(divergence_warning(q_model, read, names, batch))
    return TFLiteReport(
        path=written,
        activations=len(read.activations),
        weights=len(found.types),
        operators=_operators(found.content),
        mean_difference=difference,
        mean_size=size,
        bytes=len(found.content),
        seconds=time.perf_counter() - started,
        notes=tuple(notes),
        weight_types=dict(Counter(found.types.values())),
    )


def for_litert(q_model: QuantizedModel) -> tuple[QuantizedModel, list[str]]:
    """Return a model planned for LiteRT and in float32, and notes if it was quantized for another target."""
    q_model, notes = planned_for(q_model, _TARGET)
    return in_float32(q_model), notes


def build_tflite(
    q_model: QuantizedModel, batch: int | None, *, dynamic_range: bool
) -> tuple[FakeQuantModel, Names, Written]:
    """Return the model that the converter read, the names of the file's inputs and outputs, and the file.

    The model is from `for_litert`, and an open batch size is None; `dynamic_range` gives the weights of float layers to
    hybrid kernels, where they exist.
    """
    read, names, content = converted(q_model, batch)
    return read, names, write_integers(content, read, dynamic_range=dynamic_range)


def converted(q_model: QuantizedModel, batch: int | None) -> tuple[FakeQuantModel, Names, bytes]:
    """Return the converter's model, the names of the file's inputs and outputs, and its bytes with its own integers.

    The model is from `for_litert`, and an open batch size is None.
    """
    check_grids(q_model)
    activations, names = encode_activations(q_model), Names.of(q_model)
    read = fake_quant_model(q_model, activations)
    safe_point()
    content = convert(read.model, names, batch, activations)
    lost = _lost(content, read, q_model.plan)
    if lost:
        apart = fake_quant_model(q_model, activations, lost)
        again = convert(apart.model, names, batch, activations)
        if len(_lost(again, apart, q_model.plan)) < len(lost):
            return apart, names, again
    return read, names, content


def _lost(content: bytes, read: FakeQuantModel, plan: PlacementPlan) -> list[str]:
    """Return the names of the pairs of the model that the converter has dropped."""
    held = {layer.name for layer in read.model.layers}  # without those that no output depends on
    grids = {
        name: (float(np.float32(each.scale)), int(each.zero_point))
        for name, each in read.activations.items()
        # Grids of 16 bits are restored later, by `wide_activations`.
        if each.spec.num_bits != INT16_BITS
        and name in read.pairs
        and read.pairs[name]._keras_history.operation.name in held  # noqa: SLF001 - Keras has no public name for it
    }
    return [name for name, _ in lost_pairs(TFLiteFile(content), plan, grids, within=_CONVERTER)]


def _refused(q_model: QuantizedModel, error: RuntimeError) -> ExportError:
    """Return the error for a file that the interpreter refuses; it names the quantized layers without int8 kernels."""
    plan = q_model.plan
    in_float = [
        entry.layer
        for entry in explain(plan).layers
        if entry.status != "int8" and any(p.layer == entry.layer and p.weight is not None for p in plan.placements)
    ]
    is_open = any(None in given.shape[1:] for given in q_model.inputs)
    sizes = (
        " Or give the model's inputs fixed sizes in place of None: the converter knows more of those."
        if is_open
        else ""
    )
    which = f" These quantized layers have no int8 kernel: {', '.join(map(repr, in_float))}." if in_float else ""
    return ExportError(
        "TensorFlow's converter made a file that TensorFlow's interpreter refuses, so nothing was written: it left an "
        "operation with integers on one side and floats on the other, or with integers that it has no kernel for."
        f"{which} Leave such layers in float: spec.add(name, quantize_input=False, quantize_weight=False).{sizes} "
        f"Received: {first_line(error)}"
    )


def _notes_on_weights(q_model: QuantizedModel, read: FakeQuantModel, found: Written) -> Iterator[str]:
    """Yield notes on weights that float or hybrid kernels read, and on those stored otherwise than planned."""
    floats = [name for name in read.weights if name in found.floats]
    if floats:
        yield (
            "Integers in the file that the interpreter turns into floats once, for kernels that compute in float: "
            f"{_listed(floats)}."
        )
    hybrid = [name for name in read.weights if name in found.hybrid]
    if hybrid:
        yield (
            f"Integers that hybrid kernels read: {_listed(hybrid)}. These kernels round their float input to 8 bits in "
            "every run, which the Keras model does not; a result differs by up to half a step of its input times the "
            "sum of its weights' sizes."
        )
    missing = [name for name in read.weights if name not in found.types]
    along = {placed.tensor for placed in scales_along_other_axes(q_model.plan.graph, q_model.plan.placements)}
    turned = [name for name in missing if name in along]
    if turned:
        yield (
            f"LiteRT has weight scales along the output channels only, so its converter rounds {_listed(turned)} once "
            "more, on scales of its own. Scales along the channels, or per_axis=False, give a file with the model's "
            "integers."
        )
    changed = [name for name in missing if name not in along]
    if changed:
        yield (
            f"TensorFlow's converter merged {_listed(changed)} with other constants or rearranged their values, so the "
            "file has floats there, or integers of the converter."
        )


def _listed(names: Sequence[str]) -> str:
    return first_names(names, _NAMED)


def _operators(content: bytes) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for name, integer in integer_operators(content):
        good, total = found.get(name, (0, 0))
        found[name] = (good + integer, total + 1)
    return found
