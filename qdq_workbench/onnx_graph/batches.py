"""Running a file on any number of samples, also one with a fixed batch.

A file that takes the given arrays as they are is run once, and its outputs are returned as they are. Otherwise some
inputs have a fixed first axis of another size than their array: these are run that many samples at a time, the last
ones filled up by repetition, together with the inputs of an open first axis. An input whose array has the fixed size
already, such as a table, is the same in every run.

The outputs of these runs are joined where they hold samples: if their first axis is the batch, or a multiple of it
(batch and time in one axis) where repeated samples give repeated values. An output that is the same in every run
belongs to no sample.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from qdq_workbench._interrupts import safe_point
from qdq_workbench.onnx_graph.sessions import RunError, fed_inputs, run_once

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
_REPEATED = 0.9


@dataclasses.dataclass(frozen=True)
class _Split:
    """How samples are divided: the inputs that are, the samples of one run, and of all runs together."""

    names: frozenset[str]
    step: int
    count: int

    def part(self, inputs: Arrays, start: int) -> dict[str, Array]:
        """Return the inputs of the run that begins at a sample."""
        stop = start + self.step
        return {
            name: _filled(array[start:stop], self.step) if name in self.names else array
            for name, array in inputs.items()
        }

    def parts(self, inputs: Arrays) -> list[dict[str, Array]]:
        """Return the inputs of every run."""
        return [self.part(inputs, start) for start in range(0, self.count, self.step)]


def run_session(session: onnxruntime.InferenceSession, inputs: Arrays, *, strict: bool = True) -> dict[str, Array]:
    """Return the outputs by name; a file with a fixed batch is run that many samples at a time.

    RunError is raised if ONNX Runtime fails to run the file, or, if `strict`, an output cannot be divided into samples;
    otherwise all runs are joined as they are, which serves to compare two files.
    """
    names = [output.name for output in session.get_outputs()]
    split = _split_of({value.name: value.shape for value in session.get_inputs()}, inputs)
    if split is None:
        return dict(zip(names, run_once(session, names, inputs), strict=True))
    fed = split.parts(inputs)
    runs = [run_once(session, names, part) for part in fed]
    safe_point()
    varied = any(not np.array_equal(part[name], fed[0][name]) for part in fed for name in split.names)
    columns = zip(names, zip(*runs, strict=True), strict=True)
    return {name: _joined(name, arrays, split, varied=varied, strict=strict) for name, arrays in columns}


def first_batch(model: onnx.ModelProto, inputs: Arrays) -> dict[str, Array]:
    """Return the first batch of samples, filled up by repetition, if the file has a fixed batch; else all samples."""
    return all_batches(model, inputs)[0]


def all_batches(model: onnx.ModelProto, inputs: Arrays) -> list[dict[str, Array]]:
    """Return the samples batch by batch, the last filled up by repetition, if the file has a fixed batch; else all."""
    split = _split_of({name: shape for name, (shape, _) in fed_inputs(model).items()}, inputs)
    return [dict(inputs)] if split is None else split.parts(inputs)


def _split_of(shapes: Mapping[str, Sequence[int | str | None]], inputs: Arrays) -> _Split | None:
    """Return how samples are divided; None if the file takes all of them at once."""
    given = {name: len(array) for name, array in inputs.items() if array.ndim and shapes.get(name)}
    fixed = {name: shapes[name][0] for name in given}
    other = {name: size for name, size in fixed.items() if isinstance(size, int) and 0 < size != given[name]}
    if not other:
        return None
    names = {*other, *(name for name, size in fixed.items() if not (isinstance(size, int) and size > 0))}
    steps, counts = set(other.values()), {given[name] for name in names}
    if len(steps) > 1 or len(counts) > 1:
        raise RunError(
            "The samples cannot be divided into the file's batches: inputs with samples must have one batch size and "
            f"equally many samples. Give as many as the file takes. Received: {given}, where the file takes {fixed}"
        )
    return _Split(frozenset(names), steps.pop(), counts.pop())


def _joined(name: str, parts: Sequence[Array], split: _Split, *, varied: bool, strict: bool) -> Array:
    """Return one output over all runs."""
    # A number, such as the size of a batch, is that of the first run.
    if not np.ndim(parts[0]):
        return np.asarray(parts[0])
    if _holds_samples(parts, split, varied=varied):
        return np.concatenate(parts)[: split.count * (len(parts[0]) // split.step)]
    if all(np.array_equal(part, parts[0], equal_nan=part.dtype.kind == "f") for part in parts):
        return parts[0]
    if not strict:
        return np.concatenate(parts)
    raise RunError(
        f"Output {name!r} cannot be divided into samples: the file has a fixed batch of {split.step}, which is not the "
        f"first axis of this output. Give {split.step} samples, or export the file with an open batch. Received: "
        f"{split.count} samples, an output of shape {parts[0].shape}"
    )


def _holds_samples(parts: Sequence[Array], split: _Split, *, varied: bool) -> bool:
    """Return whether the first axis of an output is made of samples."""
    first, step = parts[0], split.step
    if len(first) % step or any(part.shape != first.shape for part in parts):
        return False
    rows = [np.reshape(part, (step, -1)) for part in parts]
    # Other samples with equal results: not a class that all of them have, but values that belong to none.
    same = varied and len(parts) > 1 and all(np.array_equal(each, rows[0]) for each in rows)
    if same and (len(first) > step or not (rows[0] == rows[0][0]).all()):
        return False
    left = split.count - step * (len(parts) - 1)
    if len(first) == step or left == step:
        return True
    close = np.isclose(rows[-1], rows[-1][np.arange(step) % left], rtol=1e-3, atol=1e-5, equal_nan=True)
    # A kernel may round equal samples at two places of a batch differently, and then an integer by one step.
    return float(close.mean()) > _REPEATED


def _filled(samples: Array, count: int) -> Array:
    """Repeat samples until there are `count`: a batch may be short."""
    return samples if len(samples) == count else np.resize(samples, (count, *samples.shape[1:]))
