"""`verify_tflite`: verification of a `.tflite` file against its quantized Keras model.

Its constants and encodings are compared with those of a new conversion of the model, its grids, integer weights and
biases with the plan, the ranges and the weights alone, and its outputs in TensorFlow's interpreter with the model's.
"""

from __future__ import annotations

import pathlib
from collections import Counter
from typing import Any

import keras
import numpy as np

from qdq_workbench._files import as_path
from qdq_workbench._interrupts import interrupts_held
from qdq_workbench._tables import shares_text
from qdq_workbench.calibration.data_scale import input_ranges, warn_of_scale
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.conversion.engine.random_inputs import random_inputs
from qdq_workbench.errors import FileAccessError, UnverifiableFileError, first_line, first_names
from qdq_workbench.export.known_exports import exports_of
from qdq_workbench.export.litert.comparison import LARGE, mean_difference, other_shape, outputs_of_both
from qdq_workbench.export.litert.converter import Names
from qdq_workbench.export.litert.own_integers import write_integers
from qdq_workbench.export.litert.tflite_export import converted, for_litert
from qdq_workbench.export.litert.tflite_file import TFLiteFile, constants_of
from qdq_workbench.export.litert.tflite_run import SIGNATURE, integer_operators, make_interpreter
from qdq_workbench.onnx_graph.model_files import is_litert
from qdq_workbench.verification.differences import top1_agreement
from qdq_workbench.verification.report import Check, VerificationReport
from qdq_workbench.verification.samples import read_samples
from qdq_workbench.verification.tflite_integers import check_tflite_integers

_SAMPLES = 32


@interrupts_held()
def verify_tflite(path: str | pathlib.Path, q_model: QuantizedModel, data: Any = None) -> VerificationReport:
    """Check a file of `export_tflite` against its quantized model.

    The file must open in TensorFlow's interpreter and have the model's inputs and outputs; its constants (weights and
    biases with their scales) and the encodings of its activations must equal the model's, bit for bit, by a new
    conversion, unless this process wrote the file and the model has not changed since; independently of the
    exporter, the grids of all pairs that an output depends on must follow from the model's ranges, and the integer
    weights and biases from its weights; and the mean difference of its outputs from the model's must not exceed a fifth
    of their mean magnitude, as in `export_tflite`.

    Args:
        path: The file, written by `export_tflite`.
        q_model: The calibrated model that it was exported from; it is only read. A model quantized for another target
            is planned again for LiteRT.
        data: Samples to compare on (at most 256 are used), in any form that `calibrate` takes; None for 32 random
            samples within the calibrated range of the inputs.

    Returns:
        The checks, and as figures the operators (nodes on integers, all nodes), the mean absolute difference of the
        outputs, their mean magnitude, and the share of samples with the same argmax of the outputs (None if no output
        has classes).

    Raises:
        FileAccessError: If the file cannot be read.
        UnverifiableFileError: If the file is not a LiteRT file.
        NotQuantizedError: If the model was not made by `quantize_model`.
        UncalibratedError: If an activation quantizer has no range.
        ExportError: If the model cannot be converted to LiteRT.
        DataError: If the data do not fit the model.

    Warns:
        DataScaleWarning: If the data are many times larger or smaller than the calibrated ranges of the inputs.

    Source:
        LiteRT 8-bit quantization specification, https://ai.google.dev/edge/litert/models/quantization_spec

    Example:
        >>> import keras, pathlib, tempfile
        >>> from qdq_workbench import calibrate, export_tflite, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(1, name="head")(image))
        >>> q_model = quantize_model(model, target="litert")
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = export_tflite(q_model, pathlib.Path(folder) / "model.tflite")
        ...     verify_tflite(report.path, q_model).passed
        True
    """
    check_quantized(q_model)
    path = as_path(path, FileAccessError)
    content = _read(path)
    known = exports_of(q_model).hold(content)
    q_model, _ = for_litert(q_model)
    figures: dict[str, Any] = {}
    try:
        runner = make_interpreter(content).get_signature_runner(SIGNATURE)
    except (RuntimeError, ValueError) as error:
        check = Check("opens in TensorFlow's interpreter", passed=False, detail=first_line(error))
        return VerificationReport(path, (check,), figures)
    figures["operators"] = _operators(content)
    shown = shares_text(figures["operators"])
    checks = [Check("opens in TensorFlow's interpreter", passed=True, detail=f"on integers: {shown}")]
    names = Names.of(q_model)
    checks.append(_check_ends(runner, names))
    if checks[-1].passed:
        file = TFLiteFile(content)
        checks.append(_check_constants(file, q_model, _batch_of(runner), known=known))
        checks.append(check_tflite_integers(file, q_model))
        checks.append(_check_outputs(content, q_model, names, data, figures))
    return VerificationReport(path, tuple(checks), figures)


def _read(path: pathlib.Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileAccessError(
            f"Cannot read the file: {error.strerror or error}. Received: path={str(path)!r}"
        ) from error
    if not is_litert(path):
        raise UnverifiableFileError(
            "The file is not a LiteRT file: it lacks the identifier TFL3. Expected a file of export_tflite; for ONNX "
            f"files there is verify_onnx. Received: path={str(path)!r}"
        )
    return content


def _operators(content: bytes) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, integer in integer_operators(content):
        counts = found.setdefault(name, [0, 0])
        counts[0] += integer
        counts[1] += 1
    return found


def _check_ends(runner: Any, names: Names) -> Check:
    """Compare the names of the file's inputs and outputs with the model's."""
    held = (sorted(runner.get_input_details()), sorted(runner.get_output_details()))
    wanted = (sorted(names.inputs), sorted(names.outputs))
    detail = f"inputs {held[0]}, outputs {held[1]}"
    if held != wanted:
        detail += f"; the model has inputs {wanted[0]}, outputs {wanted[1]}"
    return Check("inputs and outputs", passed=held == wanted, detail=detail)


def _batch_of(runner: Any) -> int | None:
    """Return the smallest fixed batch size of a file's inputs; None if one is dynamic."""
    signatures = [detail["shape_signature"] for detail in runner.get_input_details().values()]
    sizes = {int(shape[0]) for shape in signatures if len(shape)}
    return None if sizes & {-1, 0} or not sizes else min(sizes)


def _check_constants(file: TFLiteFile, q_model: QuantizedModel, batch: int | None, *, known: bool) -> Check:
    """Compare constants and encodings with a new conversion, with and without dynamic-range weights, unless known."""
    held = list(constants_of(file))  # without their names, which contain a counter of Keras's
    detail = f"{len(held)} tensors with the constants and the grids of the model"
    if known:
        return Check("constants and grids", passed=True, detail=detail)
    found = Counter(tensor for _, tensor in held)
    extra: Counter[Any] = found
    missing: Counter[Any] = Counter()
    read, _, plain = converted(q_model, batch)
    # The file does not tell which of the two forms it has; the nearer one is the expected one.
    for dynamic_range in (False, True):
        written = write_integers(plain, read, dynamic_range=dynamic_range)
        wanted = Counter(tensor for _, tensor in constants_of(TFLiteFile(written.content)))
        if (found - wanted).total() + (wanted - found).total() < extra.total() + missing.total():
            extra, missing = found - wanted, wanted - found
        # Without weights of float kernels both forms are the same.
        if not (extra or missing) or not (written.floats or written.hybrid):
            break
    other = sorted({name for name, tensor in held if tensor in extra})
    count = max(len(other), missing.total())
    if count:
        detail = (
            f"{count} tensors differ from a new export of the model: {first_names(other) or 'they are missing'}. "
            "The file was changed, or exported from another model or by another version of TensorFlow"
        )
    return Check("constants and grids", passed=not count, detail=detail)


def _check_outputs(content: bytes, q_model: QuantizedModel, names: Names, data: Any, figures: dict[str, Any]) -> Check:
    """Compare the interpreter's outputs with the model's."""
    flat = keras.tree.flatten(random_inputs(q_model, _SAMPLES)) if data is None else read_samples(q_model, data)
    arrays = [np.asarray(array) for array in flat]
    if data is not None:
        warn_of_scale(input_ranges(q_model), [arrays])
    try:
        ours, theirs = outputs_of_both(q_model, content, names, arrays)
    except (RuntimeError, ValueError) as error:
        return Check("outputs", passed=False, detail=f"the interpreter does not run it: {first_line(error)}")
    other = other_shape(names, ours, theirs)
    if other:
        return Check("outputs", passed=False, detail=other)
    apart, size = mean_difference(ours, theirs)
    shares = [top1_agreement(a, b) for a, b in zip(ours, theirs, strict=True)]
    measured = [share for share in shares if share is not None]
    same = sum(measured) / len(measured) if measured else None
    figures.update(mean_difference=apart, mean_size=size, top1_agreement=same)
    detail = (
        f"differ from Keras by {apart:.3g} on average, of a mean size of {size:.3g}; at most {LARGE:.0%} of it is "
        "allowed"
    )
    if same is not None:
        detail += f"; the largest output is the same one in {same:.1%} of {len(arrays[0])} samples"
    return Check("outputs", passed=bool(apart <= LARGE * size), detail=detail)
