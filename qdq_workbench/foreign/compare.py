"""`compare`: the differences between two quantized files in placement, and the first tensor whose values diverge."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from qdq_workbench.errors import DataError, SpecError
from qdq_workbench.foreign.float_signatures import ImportedTensor, match_tensors, read_float_view
from qdq_workbench.foreign.lint import load_graph
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.sessions import fed_inputs, make_session, with_outputs
from qdq_workbench.placement.plan import PlacementPlan, PlanDiff

Ends = Mapping[str, tuple[tuple[int | None, ...], np.dtype[Any]]]

_SAMPLES = 8
_EQUAL_DB = 200.0
_DIVERGED_DB = 20.0


@dataclasses.dataclass(frozen=True)
class TensorDifference:
    """One activation tensor in both files.

    Args:
        tensor: Its name in the first file.
        other: Its name in the second file.
        pairs: The number of its Q/DQ pairs in the first and in the second file.
        scales: The scale of the first pair in each file; None without a pair.
        sqnr_db: SQNR of the second file's values relative to the first's, from -200 to 200 dB (higher is closer); None
            if they were not compared.
    """

    tensor: str
    other: str
    pairs: tuple[int, int]
    scales: tuple[float | None, float | None]
    sqnr_db: float | None

    @property
    def same_placement(self) -> bool:
        """Whether both files quantize the tensor, or neither does."""
        return bool(self.pairs[0]) == bool(self.pairs[1])


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The differences that `compare` found between two files.

    Args:
        first: The first file.
        second: The second file.
        tensors: The tensors that both files compute, in the order of the first.
        unmatched: Tensors of the first file without a counterpart in the second, and vice versa.
    """

    first: pathlib.Path
    second: pathlib.Path
    tensors: tuple[TensorDifference, ...]
    unmatched: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def placement_differences(self) -> tuple[TensorDifference, ...]:
        """The tensors that only one of the files quantizes."""
        return tuple(item for item in self.tensors if not item.same_placement)

    @property
    def first_divergence(self) -> TensorDifference | None:
        """The first tensor with an SQNR below 20 dB; None without one."""
        found = (item for item in self.tensors if item.sqnr_db is not None and item.sqnr_db < _DIVERGED_DB)
        return next(found, None)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a JSON-compatible dictionary."""
        return {
            "first": str(self.first),
            "second": str(self.second),
            "tensors": [dataclasses.asdict(item) for item in self.tensors],
            "unmatched": [list(names) for names in self.unmatched],
            "first_divergence": None if self.first_divergence is None else self.first_divergence.tensor,
        }

    def summary(self) -> str:
        """Return the comparison as text, one line per tensor that differs in placement, and the first divergence."""
        placed = self.placement_differences
        head = (
            f"{self.first} against {self.second}: {len(self.tensors)} tensors in both, {len(placed)} placed differently"
        )
        only = [
            f"{item.tensor}: quantized only in the {'first' if item.pairs[0] else 'second'} file" for item in placed
        ]
        part = self.first_divergence
        shown = "nowhere below 20 dB" if part is None else f"first at {part.tensor!r}, {part.sqnr_db:.1f} dB"
        compared = sum(item.sqnr_db is not None for item in self.tensors)
        lines = [head, *only, f"numbers of {compared} tensors compared: they part {shown}"]
        if any(self.unmatched):
            ours, theirs = map(len, self.unmatched)
            lines.append(
                f"without a counterpart, and not compared: {ours} tensors of the first, {theirs} of the second"
            )
        return "\n".join(lines)


def compare(a: Any, b: Any, *, data: Mapping[str, np.ndarray] | np.ndarray | None = None) -> Comparison | PlanDiff:
    """Return the differences between two QDQ files, or between two plans.

    The tensors of two files of one network are matched by structure (the operations that compute them), so their names
    need not agree. Both files are run in ONNX Runtime without optimizations, and every matched tensor is compared.

    Args:
        a: An ONNX file, or a plan.
        b: Another one of the same kind.
        data: Samples per input name of the first file, or one array for a single input; None for random ones. Ignored
            for plans.

    Returns:
        A `Comparison` of two files; the `PlanDiff` of two plans.

    Raises:
        SpecError: If one is a plan and the other is not, the plans are of different models, or the files take
            different inputs.
        FileAccessError: If a file cannot be read, or is not an ONNX model.
        DataError: If the data do not fit the first file's inputs, or hold NaN or infinity.
    """
    if isinstance(a, PlacementPlan) or isinstance(b, PlacementPlan):
        if not (isinstance(a, PlacementPlan) and isinstance(b, PlacementPlan)):
            raise SpecError(
                "Two plans or two files can be compared, not one of each. Read the file's placement with "
                f"import_qdq(path, model). Received: {type(a).__name__} and {type(b).__name__}"
            )
        return a.diff(b)
    first, second = load_graph(a), load_graph(b)
    ours, theirs = read_float_view(first), read_float_view(second)
    pairs = match_tensors(ours, theirs)
    values = _values(first, second, {ours[one].value: theirs[other].value for one, other in pairs.items()}, data)
    tensors = tuple(_difference(ours[one], theirs[other], values.get(ours[one].value)) for one, other in pairs.items())
    unmatched = (
        tuple(name for name in ours if name not in pairs),
        tuple(name for name in theirs if name not in set(pairs.values())),
    )
    return Comparison(pathlib.Path(os.fspath(a)), pathlib.Path(os.fspath(b)), tensors, unmatched)


def _difference(one: ImportedTensor, other: ImportedTensor, sqnr: float | None) -> TensorDifference:
    scales = tuple(item.quantizers[0].scale if item.quantizers else None for item in (one, other))
    return TensorDifference(
        one.name, other.name, (len(one.quantizers), len(other.quantizers)), (scales[0], scales[1]), sqnr
    )


def _values(first: onnx.ModelProto, second: onnx.ModelProto, pairs: Mapping[str, str], data: Any) -> dict[str, float]:
    """Return the SQNR of every matched tensor, in dB, for equal inputs of both files."""
    ends, others = fed_inputs(first), fed_inputs(second)
    if len(ends) != len(others):
        raise SpecError(
            "The files take different numbers of inputs, so they are not of one network. "
            f"Received: {list(ends)} and {list(others)}"
        )
    inputs = _samples(ends, others) if data is None else _checked(ends, data)
    renamed = _for_other(others, inputs)
    ours = run_session(make_session(with_outputs(first, list(pairs)), optimized=False), inputs, strict=False)
    theirs = run_session(
        make_session(with_outputs(second, list(pairs.values())), optimized=False), renamed, strict=False
    )
    found = {}
    for one, other in pairs.items():
        # Inputs are not returned by a session, and tensors of other layouts cannot be compared by element. A number,
        # such as the size of a batch, belongs to no sample.
        if one in ours and other in theirs and ours[one].shape == theirs[other].shape != ():
            found[one] = _sqnr(ours[one], theirs[other])
    return found


def _sqnr(signal: np.ndarray, other: np.ndarray) -> float:
    """Return the SQNR of the finite values in dB; the lowest if infinities or NaN are not the same in both arrays."""
    wanted, given = signal.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(wanted) & np.isfinite(given)
    if not np.array_equal(wanted[~finite], given[~finite], equal_nan=True):
        return -_EQUAL_DB
    noise = float(np.square(wanted[finite] - given[finite]).sum())
    power = float(np.square(wanted[finite]).sum())
    if noise == 0.0:
        return _EQUAL_DB
    return float(np.clip(10 * np.log10(max(power, 1e-30) / noise), -_EQUAL_DB, _EQUAL_DB))


def _samples(ends: Ends, others: Ends) -> dict[str, np.ndarray]:
    """Return random samples of the first file's inputs; sizes that it leaves open are those of the second file."""
    generator = np.random.default_rng(0)
    found = {}
    for (name, (shape, dtype)), (other, _) in zip(ends.items(), others.values(), strict=True):
        sizes = other if len(other) == len(shape) else (None,) * len(shape)
        both = [there if size is None else size for size, there in zip(shape, sizes, strict=True)]
        found[name] = generator.normal(size=[_SAMPLES if size is None else size for size in both]).astype(dtype)
    return found


def _for_other(ends: Ends, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the samples of the first file as inputs of the second one, in its types."""
    found = {}
    for (name, (shape, dtype)), array in zip(ends.items(), inputs.values(), strict=True):
        # Not the first size: files with a fixed batch are run that many samples at a time.
        fits = len(shape) == array.ndim and all(
            size in (None, given) for size, given in zip(shape[1:], array.shape[1:], strict=True)
        )
        if not fits:
            raise SpecError(
                f"Inputs of the first file do not fit input {name!r} of the second: they are of other networks, or of "
                f"other fixed sizes. Expected: shape {_shape_text(shape)}. Received: {array.shape}"
            )
        found[name] = array.astype(dtype)
    return found


def _checked(ends: Ends, data: Any) -> dict[str, np.ndarray]:
    """Return the user's samples in the order and types of the inputs."""
    if not isinstance(data, Mapping) and len(ends) == 1:
        data = dict.fromkeys(ends, data)
    if not isinstance(data, Mapping) or set(data) != set(ends):
        given = sorted(map(str, data)) if isinstance(data, Mapping) else type(data).__name__
        raise DataError(f"The data must hold one array per input. Expected: {list(ends)}. Received: {given}")
    found = {}
    for name, (wanted, dtype) in ends.items():
        try:
            array = np.asarray(data[name]).astype(dtype)
        except (TypeError, ValueError) as error:
            raise DataError(f"The samples of input {name!r} are no numbers. Received: {data[name]!r:.80}") from error
        fits = [size in (None, given) for size, given in zip(wanted[1:], array.shape[1:], strict=False)]
        if array.ndim != len(wanted) or not all(fits) or not array.size:
            raise DataError(
                f"The samples of input {name!r} do not fit it. Expected: shape {_shape_text(wanted)}. "
                f"Received: {array.shape}"
            )
        if not np.isfinite(array.astype(np.float64)).all():
            raise DataError(f"The samples of input {name!r} hold NaN or infinity; drop such samples.")
        found[name] = array
    return found


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in shape)})"
