"""Running a `.tflite` file in TensorFlow's interpreter, and reading which operators it computes on integers."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

SIGNATURE = "serving_default"


def make_interpreter(content: bytes) -> Any:
    """Return TensorFlow's interpreter for a `.tflite` file, with its built-in kernels and without delegates."""
    # The default delegate, XNNPACK, replaces operators by kernels of its own.
    plain = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow announces that the interpreter will move to another package
        interpreter = tf.lite.Interpreter(model_content=content, experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()
    return interpreter


def run_tflite(content: bytes, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of a `.tflite` file that `export_tflite` wrote, by name, run in batches of its batch size.

    An output without a row per sample, such as a mean over the batch, raises a `ValueError` for more than one batch.
    """
    return run_interpreter(make_interpreter(content), inputs)


def run_interpreter(interpreter: Any, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run an interpreter of `make_interpreter`; see `run_tflite`."""
    runner = interpreter.get_signature_runner(SIGNATURE)
    details = runner.get_input_details()
    count = len(next(iter(inputs.values())))
    step = batch_of(interpreter)
    parts = []
    for start in range(0, count, step):
        # `np.resize` repeats samples where the last batch is not full; their results are cut off below.
        samples = {
            name: np.resize(array[start : start + step], (step, *array.shape[1:])) for name, array in inputs.items()
        }
        parts.append(runner(**{name: array.astype(details[name]["dtype"]) for name, array in samples.items()}))
    if count == step:
        return dict(parts[0])
    for name, value in parts[0].items():
        if np.shape(value)[:1] != (step,):
            raise ValueError(
                f"Output {name!r} of the file has no row per sample, so that the results of several batches cannot be "
                f"joined; run it on one batch of {step} samples. Received: {count} samples, an output of shape "
                f"{np.shape(value)}"
            )
    return {name: np.concatenate([part[name] for part in parts])[:count] for name in parts[0]}


def batch_of(interpreter: Any) -> int:
    """Return the batch size in which `run_interpreter` runs a file: its own, 1 for an open one."""
    details = interpreter.get_signature_runner(SIGNATURE).get_input_details()
    return max(1, int(next(iter(details.values()))["shape"][0]))


def integer_operators(content: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the operators of a `.tflite` file but QUANTIZE and DEQUANTIZE, and whether each is on integers alone."""
    for operator in operators(content):
        if operator.name not in ("QUANTIZE", "DEQUANTIZE"):
            yield operator.name, operator.on_integers


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator of a `.tflite` file.

    Args:
        name: Such as `CONV_2D`.
        results: The names of its output tensors, which contain the names of the layers that it computes.
        reads_floats: Whether one of its inputs is in float32.
        writes_floats: Whether one of its outputs is in float32.
        on_integers: Whether it reads quantized integers and no floats.
    """

    name: str
    results: tuple[str, ...]
    reads_floats: bool
    writes_floats: bool
    on_integers: bool


def operators(content: bytes) -> Iterator[Operator]:
    """Yield every operator of a `.tflite` file with the types of its tensors, in execution order."""
    interpreter = make_interpreter(content)
    details = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    floats = {index for index, detail in details.items() if detail["dtype"] is np.float32}
    integers = {
        index
        for index, detail in details.items()
        if detail["dtype"] in (np.int8, np.int16) and len(detail["quantization_parameters"]["scales"])
    }
    for operator in interpreter._get_ops_details():  # noqa: SLF001 - there is no public list of operators
        inputs, outputs = operator["inputs"], operator["outputs"]
        yield Operator(
            name=operator["op_name"],
            results=tuple(details[index]["name"] for index in outputs if index in details),
            reads_floats=bool(floats.intersection(inputs)),
            writes_floats=bool(floats.intersection(outputs)),
            on_integers=bool(integers.intersection(inputs)) and not floats.intersection(inputs),
        )
