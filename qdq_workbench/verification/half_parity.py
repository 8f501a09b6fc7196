"""Verification of a file in half precision against the same file in float32; `parity` compares the latter with Keras.

Both graphs are cut after every QuantizeLinear and fed the float32 file's integers, so that each part is judged by
itself: its floats may differ by the effect of rounding to the half type (`rounding_noise`), its integers by one step
more. From end to end the tolerance is the difference that worst-case rounding of all values causes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx

from qdq_workbench.errors import VerificationError
from qdq_workbench.graph.half_precision import HalfType
from qdq_workbench.onnx_graph.batches import first_batch, run_session
from qdq_workbench.onnx_graph.qdq_graph import QUANTIZE
from qdq_workbench.onnx_graph.sessions import fed_inputs, make_session, with_outputs
from qdq_workbench.onnx_graph.truncation import halves_are_truncated
from qdq_workbench.verification.alone import OptimizationParity
from qdq_workbench.verification.parts import Arrays, cut_behind, run_parts
from qdq_workbench.verification.report import Check
from qdq_workbench.verification.rounded_form import half_tensors, rounded_form
from qdq_workbench.verification.rounding_noise import RoundingNoise
from qdq_workbench.verification.sensitivity import HEADROOM

_ANOTHER_ORDER = 2.0**-20  # relative and absolute tolerance for sums in another order
# ONNX Runtime's CPU kernels do not support bfloat16.
_CPU_TYPES = frozenset({"float16"})


@dataclasses.dataclass(frozen=True)
class PartParity:
    """The difference of one quantized tensor or output from the float32 file's, both computed from the same integers.

    Args:
        tensor: Name of the pair or output.
        worst: The largest difference of the float values.
        allowed: The largest difference that rounding explains.
        steps: The largest difference of the integers, in steps; 0 for an output.
        allowed_steps: The largest difference of the integers that rounding explains, in steps.
    """

    tensor: str
    worst: float
    allowed: float
    steps: int = 0
    allowed_steps: int = 1

    @property
    def passed(self) -> bool:
        """Whether rounding explains the differences; False for NaN."""
        return self.worst <= self.allowed and self.steps <= self.allowed_steps


class HalfRun(NamedTuple):
    """How ONNX Runtime runs a file in half precision.

    Args:
        kind: The half type.
        why_not: Why it cannot run the file on a CPU; empty if it can.
    """

    kind: HalfType
    why_not: str = ""


class HalfParity:
    """Compares a file in half precision with the same file in float32, on the same samples.

    Args:
        proto: The file in half precision.
        twin: The file in float32, at the same opset.
        half_run: Its half type, and whether ONNX Runtime can run it.
        inputs: Samples by input name.
    """

    def __init__(self, proto: onnx.ModelProto, twin: onnx.ModelProto, half_run: HalfRun, inputs: Arrays) -> None:
        self._twin, self._kind, self._runs = twin, half_run.kind, not half_run.why_not
        # Round the samples of half-precision inputs first, so that rounding them is no difference between the files.
        held = {name: array.astype(dtype) for name, array, dtype in _typed(proto, first_batch(twin, inputs))}
        self._inputs = {name: array.astype(dtype) for name, array, dtype in _typed(twin, held)}
        self._noise = RoundingNoise(twin, proto, self._kind)
        self._proto = proto if self._runs else rounded_form(proto)

    def checks(self) -> Iterator[Check]:
        """Yield one check for all parts together, and one or two per output.

        The second check of an output, of ONNX Runtime's optimized run, exists only for a file that runs on the CPU.
        """
        parts = self.parts()
        bad = next((part for part in parts if not part.passed), None)
        detail = f"{len(parts)} parts differ from float32 by what rounding to {self._kind.name} explains"
        if bad is not None:
            detail = (
                f"{bad.tensor!r} differs from float32 by {bad.worst:.3g}, rounding explains {bad.allowed:.3g}"
                f"; its integers by {bad.steps} steps, rounding explains {bad.allowed_steps}"
            )
        yield Check(f"tensor by tensor in {self._kind.name}", passed=bad is None, detail=detail)
        given = run_session(make_session(self._proto, optimized=False), self._fed(self._proto))
        for name in self._wanted:
            yield self._output(name, given[name])
        if self._runs:
            # The outputs alone: the parts were compared above.
            yield from OptimizationParity(self._proto, self._fed(self._proto)).outputs(
                {n: HEADROOM * m for n, m in self._noise_of_outputs.items()}
            )

    def parts(self) -> list[PartParity]:
        """Return the comparison of every quantized tensor and output, given the float32 file's integers."""
        base, codes = self._run_parts(self._twin), self._codes
        noisy = [self._run_parts(self._twin, seed) for seed in self._noise.seeds]
        given = self._run_parts(self._proto)
        found = []
        for name, wanted in base.items():
            moved = max((_worst(wanted, other[name]) for other in noisy), default=0.0)
            allowed = _allowed(wanted, moved)
            worst = _worst(wanted, given[name])
            if name in codes:
                ours, theirs = codes[name], given[f"{name}/{QUANTIZE}"]
                steps = _steps(ours, theirs)
                # Rounding noise may move a value by several steps of a fine grid, so the noisy copies tell how many.
                explained = max((_steps(ours, other[f"{name}/{QUANTIZE}"]) for other in noisy), default=0)
                found.append(PartParity(name, worst, allowed, steps, 1 + int(HEADROOM * explained)))
            # The integers of a pair are compared together with its floats.
            elif not name.endswith(f"/{QUANTIZE}"):
                found.append(PartParity(name, worst, allowed))
        return found

    def _fed(self, model: onnx.ModelProto) -> dict[str, np.ndarray]:
        """Return the samples in the types of a model's inputs."""
        return {name: array.astype(dtype) for name, array, dtype in _typed(model, self._inputs)}

    def _output(self, name: str, given: np.ndarray) -> Check:
        wanted = self._wanted[name]
        apart, allowed = _apart(wanted, given), _allowed(wanted, self._noise_of_outputs[name])
        how = "" if self._runs else ", rounded in float32"
        detail = f"mean difference from float32 {apart:.3g}, rounding explains {allowed:.3g}"
        return Check(f"output {name!r} in {self._kind.name}{how}", passed=apart <= allowed, detail=detail)

    @functools.cached_property
    def _wanted(self) -> dict[str, np.ndarray]:
        """The float32 file's outputs."""
        return run_session(make_session(self._twin, optimized=False), self._inputs)

    @functools.cached_property
    def _noise_of_outputs(self) -> dict[str, float]:
        """By output, the mean difference that worst-case rounding causes: the maximum over all noisy copies."""
        found = dict.fromkeys(self._wanted, 0.0)
        for seed in self._noise.seeds:
            session = make_session(self._noise.copy(self._twin, seed), optimized=False)
            for name, values in run_session(session, self._inputs).items():
                found[name] = max(found[name], _apart(self._wanted[name], values))
        return found

    @functools.cached_property
    def _codes(self) -> dict[str, np.ndarray]:
        """The float32 file's integers by pair."""
        ends = {pair: node.output[0] for pair, node in _quantizers(self._twin).items()}
        found = run_session(make_session(with_outputs(self._twin, ends.values()), optimized=False), self._inputs)
        return {pair: found[tensor] for pair, tensor in ends.items()}

    def _run_parts(self, model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
        """Return what a model computes for every pair and output from the float32 file's integers.

        The key of a pair's source is the pair's name, that of its integers `<pair>/QuantizeLinear`. A seed other than
        0 adds rounding noise.
        """
        pairs = _quantizers(model)
        codes = {pairs[pair].output[0]: values for pair, values in self._codes.items() if pair in pairs}
        exposed = with_outputs(model, [t for node in pairs.values() for t in (node.input[0], node.output[0])])
        parts = cut_behind(exposed, codes)
        if seed:
            parts = self._noise.copy(parts, seed)
        session = make_session(parts, optimized=False)
        values = run_parts(session, [output.name for output in session.get_outputs()], self._fed(model), codes)
        # The source of a pair on a model input is an input, which no session returns.
        values |= self._inputs
        found = {value.name: values[value.name] for value in model.graph.output}
        for pair, node in pairs.items():
            found[pair] = np.asarray(values[node.input[0]], np.float32)
            found[f"{pair}/{QUANTIZE}"] = values[node.output[0]]
        return found


def run_of_half(proto: onnx.ModelProto, kind: HalfType) -> HalfRun:
    """Return whether ONNX Runtime can run a file in half precision on a CPU."""
    if kind.name not in _CPU_TYPES:
        return HalfRun(kind, f"ONNX Runtime has no CPU kernels of {kind.name}")
    try:
        make_session(proto, optimized=True)
        make_session(proto, optimized=False)
    except VerificationError as error:
        # A missing kernel is no fault of the file; it is then judged in its rounded form. Any other refusal is one.
        if "NOT_IMPLEMENTED" in str(error):
            return HalfRun(kind, str(error))
        raise
    sources = {node.input[0] for node in _quantizers(proto).values()}
    if halves_are_truncated() and not sources.isdisjoint(half_tensors(proto)):
        return HalfRun(kind, "this release of ONNX Runtime truncates float16 values where it is to round them")
    return HalfRun(kind)


def _quantizers(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    nodes = [node for node in model.graph.node if node.op_type == QUANTIZE]
    return {node.name.removesuffix(f"/{QUANTIZE}"): node for node in nodes}


def _allowed(wanted: np.ndarray, moved: float) -> float:
    """Return the tolerance for values that rounding moves by `moved`, plus an allowance for another order of sums."""
    return HEADROOM * moved + _ANOTHER_ORDER * float(np.abs(wanted).max(initial=0.0)) + _ANOTHER_ORDER


def _typed(model: onnx.ModelProto, inputs: Arrays) -> Iterator[tuple[str, np.ndarray, np.dtype[Any]]]:
    """Yield name and samples of every input, and the type that the model takes there."""
    for name, (_, dtype) in fed_inputs(model).items():
        yield name, inputs[name], dtype


def _difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the absolute differences; equal infinities give 0."""
    ours, theirs = np.asarray(one, np.float64), np.asarray(other, np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(ours == theirs, 0.0, np.abs(ours - theirs))


def _worst(one: np.ndarray, other: np.ndarray) -> float:
    return float(_difference(one, other).max(initial=0.0))


def _steps(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.abs(one.astype(np.int64) - other.astype(np.int64)).max(initial=0))


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    difference = _difference(one, other)
    return float(difference.mean()) if difference.size else 0.0
