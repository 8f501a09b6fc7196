"""The score of an exported file, computed by its runtime on labelled data: what the users of the file will get."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from qdq_workbench._files import as_path
from qdq_workbench._interrupts import interrupts_held, safe_point
from qdq_workbench.analysis.metrics import Metric, get_metric
from qdq_workbench.analysis.samples import Samples, read_for_inputs
from qdq_workbench.calibration.batches import named_inputs
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import DataError, FileAccessError, UnverifiableFileError
from qdq_workbench.export.litert.converter import Names
from qdq_workbench.export.litert.tflite_run import SIGNATURE, make_interpreter, run_interpreter
from qdq_workbench.graph_builder import check_model, functional_of, input_structure
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.model_files import is_litert, read_model
from qdq_workbench.onnx_graph.processor import may_saturate
from qdq_workbench.onnx_graph.sessions import fed_inputs, make_session

Array = npt.NDArray[Any]
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


@dataclasses.dataclass(frozen=True)
class FileScore:
    """The score of a file.

    Args:
        path: The file.
        runtime: "ONNX Runtime" or "LiteRT".
        metric: Name of the metric.
        unit: Its unit; empty for a pure number.
        value: The value of the file.
        model: The value of the Keras model on the same samples; None without a model.
        samples: How many samples.
        saturates: Whether sums of the file may saturate on this processor, which has no VNNI.

    Example:
        >>> score = FileScore(pathlib.Path("int8.onnx"), "ONNX Runtime", "accuracy", "", 0.979, 0.981, 719)
        >>> score.summary()
        'accuracy of 719 samples: 0.9790 in ONNX Runtime, 0.9810 in Keras'
    """

    path: pathlib.Path
    runtime: str
    metric: str
    unit: str
    value: float
    model: float | None
    samples: int
    saturates: bool = False

    def summary(self) -> str:
        """Return the score as one line."""
        unit = f" {self.unit}" if self.unit else ""
        values = [f"{self.value:.4f}{unit} in {self.runtime}"]
        if self.model is not None:
            values.append(f"{self.model:.4f}{unit} in Keras")
        note = " (sums of its 8-bit kernels may saturate on this processor, which has no VNNI)" * self.saturates
        return f"{self.metric} of {self.samples} samples: {', '.join(values)}{note}"

    def to_dict(self) -> dict[str, Any]:
        """Return the score as plain data for JSON."""
        return {**dataclasses.asdict(self), "path": str(self.path)}


@dataclasses.dataclass(frozen=True)
class _Opened:
    """A file that is open in its runtime: its inputs, with their types, and outputs by name."""

    runtime: str
    inputs: dict[str, tuple[tuple[int | None, ...], np.dtype[Any]]]
    outputs: list[str]
    run: Run
    saturates: bool = False


@interrupts_held()
def score_file(
    path: str | pathlib.Path, data: Any, metric: Any = "accuracy", *, model: keras.Model | None = None
) -> FileScore:
    """Return the score of a file on data, computed by ONNX Runtime or, for a `.tflite` file, by LiteRT's interpreter.

    The runtime computes as it does by default, so that a processor whose 8-bit kernels saturate shows what the file
    scores there. Padding that a model masks counts, as the file returns it.

    Args:
        path: The file, quantized or in float: `.onnx` of any origin, or a `.tflite` file of `export_tflite`.
        data: Samples, all of which are read, in any form that `sensitivity` takes: arrays as `(inputs, labels)`, a
            `tf.data.Dataset` or an iterable of batches of this form.
        metric: "accuracy", or another metric of `sensitivity`: a name, a `Metric` or a function. All but "accuracy"
            compare with the outputs of `model`.
        model: The Keras model that the file was exported from, or its float model, to score it too; it is only read.

    Returns:
        The score.

    Raises:
        FileAccessError: If the file cannot be read.
        UnverifiableFileError: If the file is neither an ONNX model nor a LiteRT file with named inputs.
        VerificationError: If the runtime refuses the file.
        DataError: If the data or the model do not fit the file, the metric needs labels that are not there, or it needs
            the model.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> import tempfile
        >>> from qdq_workbench import export_float_onnx
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(2, kernel_initializer="identity", name="head")(image))
        >>> data = np.array([[1.0, 0.0], [0.0, 1.0]], "float32"), np.array([0, 0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = export_float_onnx(model, pathlib.Path(folder) / "float.onnx")
        ...     score_file(path, data, model=model).summary()
        'accuracy of 2 samples: 0.5000 in ONNX Runtime, 0.5000 in Keras'
    """
    found = get_metric(metric)
    if model is None and found.name != "accuracy":
        raise DataError(
            f"The metric {found.name!r} compares with the outputs of the Keras model; pass it as model=, or choose "
            f"metric='accuracy'. Received: metric={metric!r}, model=None"
        )
    if model is not None:
        check_model(model)
    path = as_path(path, FileAccessError)
    file = _open_litert(path, model) if is_litert(path) else _open_onnx(path)
    if model is not None:
        _check_inputs(model, file)
    shapes = {name: (None, *shape[1:]) for name, (shape, _) in file.inputs.items()}
    samples = read_for_inputs(named_inputs(shapes, path.name), data)
    found.check_labels(samples.labels)  # before the runtime computes all samples
    outputs = _outputs(file, samples)
    wanted = outputs if model is None else _outputs_of(model, samples)
    if [array.shape for array in wanted] != [array.shape for array in outputs]:
        raise DataError(
            "The model has other outputs than the file; pass the one that the file was exported from. Received: "
            f"outputs of {[array.shape for array in wanted]}, where the file has {[array.shape for array in outputs]}"
        )
    return FileScore(
        path,
        file.runtime,
        found.name,
        found.unit,
        found.measure(wanted, outputs, samples.labels),
        None if model is None else _of_model(found, wanted, samples),
        samples.count,
        file.saturates,
    )


def _check_inputs(model: keras.Model, file: _Opened) -> None:
    ours = [tuple(tensor.shape[1:]) for tensor in model.inputs]
    theirs = [shape[1:] for shape, _ in file.inputs.values()]
    if len(ours) != len(theirs) or not all(map(_fits, ours, theirs)):
        raise DataError(
            "The model has other inputs than the file; pass the one that the file was exported from. Received: inputs "
            f"of {ours}, where the file has {theirs}"
        )


def _fits(one: tuple[int | None, ...], other: tuple[int | None, ...]) -> bool:
    """Return whether two shapes agree where both are known."""
    sizes = zip(one, other, strict=False)
    return len(one) == len(other) and all(None in pair or pair[0] == pair[1] for pair in sizes)


def _of_model(metric: Metric, outputs: list[Array], samples: Samples) -> float | None:
    """Return the score of the model; None for a metric without labels, which would compare it with itself."""
    return metric.measure(outputs, outputs, samples.labels) if metric.needs_labels else None


def _open_onnx(path: pathlib.Path) -> _Opened:
    proto = read_model(path, refusal=UnverifiableFileError, in_place_of_litert="its identifier is damaged")
    session = make_session(proto, optimized=True)
    names = [output.name for output in session.get_outputs()]
    return _Opened(
        "ONNX Runtime", fed_inputs(proto), names, lambda inputs: run_session(session, inputs), may_saturate(proto)
    )


def _open_litert(path: pathlib.Path, model: keras.Model | None) -> _Opened:
    content = path.read_bytes()
    try:
        interpreter = make_interpreter(content)
        runner = interpreter.get_signature_runner(SIGNATURE)
    except (RuntimeError, ValueError) as error:
        raise UnverifiableFileError(
            f"LiteRT's interpreter does not open the file, or it has no named inputs: {error}. Expected a file of "
            f"export_tflite. Received: path={str(path)!r}"
        ) from error
    ends = runner.get_input_details()
    names = Names(list(ends), list(runner.get_output_details()))
    if len(names.inputs) > 1 or len(names.outputs) > 1:
        # The file has them in the order of the alphabet.
        known = Names.of(model) if isinstance(model, QuantizedModel) else None
        if known is None or (sorted(known.inputs), sorted(known.outputs)) != (
            sorted(names.inputs),
            sorted(names.outputs),
        ):
            raise UnverifiableFileError(
                "A LiteRT file does not say in which order the model has several inputs or outputs; pass model=, the "
                f"quantized model that it was exported from. Received: path={str(path)!r} with inputs {names.inputs}, "
                f"outputs {names.outputs}"
            )
        names = known
    shapes = {
        name: tuple(int(size) if size > 0 else None for size in ends[name]["shape_signature"]) for name in names.inputs
    }
    inputs = {name: (shape, np.dtype(ends[name]["dtype"])) for name, shape in shapes.items()}
    return _Opened("LiteRT", inputs, names.outputs, lambda values: run_interpreter(interpreter, values))


def _outputs(file: _Opened, samples: Samples) -> list[Array]:
    """Return the file's outputs over all samples."""
    parts = []
    for batch in samples.batches:
        safe_point()
        ends = zip(file.inputs.items(), batch, strict=True)
        found = file.run({name: array.astype(dtype) for (name, (_, dtype)), array in ends})
        parts.append([np.asarray(found[name]) for name in file.outputs])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _outputs_of(model: keras.Model, samples: Samples) -> list[Array]:
    """Return a Keras model's outputs over all samples."""
    nested = input_structure(functional_of(model))
    parts = []
    for batch in samples.batches:
        safe_point()
        packed = keras.tree.pack_sequence_as(nested, batch)
        parts.append([np.asarray(value) for value in keras.tree.flatten(model(packed, training=False))])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]
