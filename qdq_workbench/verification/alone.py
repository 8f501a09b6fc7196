"""Verification of a file without its Keras model: ONNX Runtime's optimized run against its unoptimized run.

The unoptimized ("plain") run computes every operation as ONNX defines it, so it is the reference for the integer
kernels. Pair by pair, with each part of the graph fed the plain run's integers, a kernel may differ by one step. From
end to end these differences propagate, so the tolerance of an output is derived from the network's own sensitivity.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime

from qdq_workbench.export.metadata import noted_target
from qdq_workbench.onnx_graph.batches import first_batch, run_session
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE, QDQGraph, integer_limits, type_name
from qdq_workbench.onnx_graph.sessions import fed_inputs, make_session, run_once, with_outputs
from qdq_workbench.placement.targets import get_target, target_names
from qdq_workbench.verification.differences import apart, mean_of_numbers
from qdq_workbench.verification.moved_pairs import pairs_that_reach
from qdq_workbench.verification.own_quantization import moved_by_own_quantization
from qdq_workbench.verification.parts import Arrays, cut_behind, run_parts
from qdq_workbench.verification.report import Check
from qdq_workbench.verification.saturation import exact_session, exact_sums_note, run_exactly, worst_saturation
from qdq_workbench.verification.sensitivity import (
    ELSEWHERE,
    FLOAT_TOLERANCE,
    HEADROOM,
    OWN_QUANTIZATION,
    PERTURBATIONS,
    ROUNDED_OUTPUT,
    moved_by_steps,
)
from qdq_workbench.verification.softmax_steps import moved_by_softmax

_SAMPLES = 8
_WIDEST_STEP = 1
# A file that does not say what it is for runs in ONNX Runtime with its default options.
_OTHER_RUNTIMES = {name for name in target_names() if not get_target(name).quantizes_float_weights}


def random_samples(proto: onnx.ModelProto, count: int = _SAMPLES) -> dict[str, np.ndarray] | None:
    """Return uniform samples within the ranges of the pairs on the inputs, or within [-1, 1] for an input without one.

    None if a dimension other than the batch is unknown; if the batch is, there are `count` samples. Integer inputs are
    zero, a valid index of every embedding.
    """
    graph, generator = QDQGraph(proto), np.random.default_rng(0)
    samples = {}
    for name, (shape, dtype) in fed_inputs(proto).items():
        sizes = [size for size in shape[1:] if size is not None]
        if len(sizes) < len(shape[1:]):
            return None
        full = (shape[0] or count, *sizes) if shape else ()
        low, high = _range_of(graph, name)
        floats = not np.issubdtype(dtype, np.integer) and dtype != np.bool_  # bfloat16 is not one of NumPy's floats
        samples[name] = (generator.uniform(low, high, full) if floats else np.zeros(full)).astype(dtype)
    return samples


def _range_of(graph: QDQGraph, tensor: str) -> tuple[float, float]:
    found = next((grid for grid in _grids_behind(graph, tensor)), None)
    if found is None:
        return -1.0, 1.0
    scale, zero, (lowest, highest) = found
    return scale * (lowest - zero), scale * (highest - zero)


def _grids_behind(graph: QDQGraph, tensor: str) -> Iterator[tuple[float, int, tuple[int, int]]]:
    """Yield scale, zero point and integer limits of every per-tensor pair that quantizes a tensor."""
    for reader in graph.readers(tensor):
        behind = graph.clipped_pair(reader)
        node = behind or reader
        parameters = graph.parameters(node) if node.op_type == QUANTIZE else None
        limits = None if parameters is None else integer_limits(type_name(parameters[1].dtype))
        if parameters is not None and limits is not None and parameters[0].size == 1:
            scale, zero = float(parameters[0].item()), int(parameters[1].item())
            narrowed = limits if behind is None else graph.clipped_limits(reader, scale, zero)
            if narrowed is not None:
                yield scale, zero, narrowed


class OptimizationParity:
    """Compares the optimized with the plain run of one file on the same samples, given by input name."""

    def __init__(self, proto: onnx.ModelProto, inputs: Arrays) -> None:
        self._proto = proto
        self._graph = QDQGraph(proto)
        self._inputs = dict(inputs)
        self._one_batch = first_batch(proto, inputs)
        self._saturated: list[dict[str, Any]] = []
        self._session = make_session(proto, optimized=False)
        self._plain = run_session(self._session, self._inputs)
        self._pairs = [
            (node.name.removesuffix(f"/{QUANTIZE}"), node.output[0])
            for node in self._graph.nodes
            if node.op_type == QUANTIZE
            and any(reader.op_type == DEQUANTIZE for reader in self._graph.readers(node.output[0]))
        ]

    @property
    def saturation(self) -> dict[str, Any] | None:
        """The output with the largest error by saturation, for `processor_remark`; None before `checks` has run."""
        return worst_saturation(self._saturated)

    def checks(self) -> Iterator[Check]:
        """Yield one check for all pairs together, and one per output."""
        if self._pairs:
            worst = max(self._steps, key=lambda name: self._steps[name][1])
            count, most = sum(off for off, _ in self._steps.values()), self._steps[worst][1]
            detail = f"{count} integers differ from the plain run's by one step, none by more"
            if most > _WIDEST_STEP:
                detail = f"tensor {worst!r} differs from the plain run's by up to {most} steps"
            yield Check("tensor by tensor in ONNX Runtime", passed=most <= _WIDEST_STEP, detail=detail)
        yield from self.outputs({})

    def outputs(self, slack: Mapping[str, float]) -> Iterator[Check]:
        """Yield one check per output.

        `slack` is the additional tolerance by output name, for roundings of the plain run that the optimized run omits.
        """
        fast = run_session(make_session(self._proto, optimized=True), self._inputs)
        for name, wanted in self._plain.items():
            yield self._output(name, wanted, fast[name], slack.get(name, 0.0))

    @functools.cached_property
    def _moved_by_kernels(self) -> dict[str, float]:
        """The mean differences by the integers that kernels of ONNX Runtime have one step away."""
        return moved_by_softmax(self._proto, self._inputs)

    @functools.cached_property
    def _own_quantization(self) -> dict[str, float]:
        return moved_by_own_quantization(self._proto, self._inputs, self._plain)

    @functools.cached_property
    def _exact(self) -> dict[str, np.ndarray]:
        """The outputs computed by integer kernels with exact sums."""
        return run_exactly(self._proto, self._inputs)

    def _output(self, name: str, wanted: np.ndarray, given: np.ndarray, slack: float) -> Check:
        """Compare an output; like `Parity`, account for rewrites by ONNX Runtime and for saturating kernels."""
        allowed, apart = self._allowed[name] + slack, _apart(wanted, given)
        reasons: list[str] = []
        if not apart <= allowed:  # NaN is not
            allowed += self._moved_by_kernels[name]
        if not apart <= allowed:
            # Most explanations cost a session, so each is computed only if the ones before it do not suffice.
            apart, reasons = next(
                (
                    (other, found)
                    for other, found in self._explanations(name, wanted, given, allowed)
                    if other <= allowed
                ),
                (apart, reasons),
            )
        note = f" ({'; '.join(reasons)})" if reasons else ""
        detail = f"mean difference by optimizations {apart:.3g}, allowed {allowed:.3g}{note}"
        return Check(f"output {name!r} runs in ONNX Runtime", passed=apart <= allowed, detail=detail)

    def _explanations(
        self, name: str, wanted: np.ndarray, given: np.ndarray, allowed: float
    ) -> Iterator[tuple[float, list[str]]]:
        """Yield the difference that remains under each explanation, with the explanation; exact sums come last."""
        yield from self._liberties(name, wanted, given)
        apart, exact = _apart(wanted, given), self._exact[name]
        saturation = {"name": f"output {name!r}", "mean_difference": apart, "allowed": allowed, "agreement": None}
        rest = [(_apart(wanted, exact), []), *self._liberties(name, wanted, exact, exact_sums=True)]
        for other, reasons in rest:
            # Only a difference that exact sums remove is due to the processor.
            if other <= allowed:
                self._saturated.append(saturation)
            yield other, [*reasons, exact_sums_note(saturation)]

    def _liberties(
        self, name: str, wanted: np.ndarray, given: np.ndarray, *, exact_sums: bool = False
    ) -> Iterator[tuple[float, list[str]]]:
        if exact_sums:
            kept = run_exactly(self._proto, self._inputs, as_planned=True)
        else:
            kept = run_session(make_session(self._proto, optimized=True, as_planned=True), self._inputs)
        if _apart(wanted, given) <= self._allowed[name] + self._own_quantization[name]:
            yield _apart(wanted, kept[name]), [OWN_QUANTIZATION]
        elif noted_target(self._proto) in _OTHER_RUNTIMES:
            yield _apart(wanted, kept[name]), [ELSEWHERE]
        reaching = {f"{pair}/{QUANTIZE}" for pair in pairs_that_reach(self._proto, name)}
        sources = [node.input[0] for node in self._graph.nodes if node.name in reaching]
        # The pair on the output itself, then those that ONNX Runtime may move in front of it.
        for tensor in dict.fromkeys((name, *sources)):
            for scale, zero, limits in _grids_behind(self._graph, tensor):
                # In float32, with ties to even, as QuantizeLinear is defined.
                codes = np.clip(np.rint(wanted / np.float32(scale)) + zero, *limits)
                yield _apart((codes - zero) * scale, given), [ROUNDED_OUTPUT]

    @functools.cached_property
    def _allowed(self) -> dict[str, float]:
        """The allowed mean difference by output, from moving as many input values by one step as `_steps` found."""
        steps = sum(count for count, _ in self._steps.values())
        # Rounded up, and at least 1: some sensitivity is allowed for even if no integer differs on these samples.
        per_sample = max(1, -(-steps // max(1, len(next(iter(self._one_batch.values()))))))
        generator = np.random.default_rng(0)
        widths = {name: next((grid[0] for grid in _grids_behind(self._graph, name)), None) for name in self._inputs}
        moved = dict.fromkeys(self._plain, 0.0)
        for _ in range(PERTURBATIONS):
            changed = {
                name: moved_by_steps(values, widths[name], per_sample, generator)
                for name, values in self._inputs.items()
            }
            for name, values in run_session(self._session, changed).items():
                moved[name] = max(moved[name], mean_of_numbers(self._plain[name], values))
        return {
            name: HEADROOM * moved[name] + FLOAT_TOLERANCE * mean_of_numbers(values) + 1e-6
            for name, values in self._plain.items()
        }

    @functools.cached_property
    def _steps(self) -> dict[str, tuple[int, int]]:
        """By pair, the sum and the maximum of the differences between the runs' integers, in steps.

        Every part starts from the plain run's integers.
        """
        if not self._pairs:
            return {}
        names = [tensor for _, tensor in self._pairs]
        # `cut_behind` gives the new inputs the shapes of these integers, so the parts cannot be run batch by batch.
        inputs = self._one_batch
        exposed = with_outputs(self._proto, names)
        wanted = dict(zip(names, run_once(make_session(exposed, optimized=False), names, inputs), strict=True))
        parts = cut_behind(exposed, wanted)
        # As planned: a float weight that ONNX Runtime quantizes on its own would move integers by more than a step.
        found = self._steps_of(make_session(parts, optimized=True, as_planned=True), inputs, wanted)
        if max(most for _, most in found.values()) <= _WIDEST_STEP:
            return found
        # Saturating kernels are no fault of the file: it fails only if the difference remains with exact sums.
        return self._steps_of(exact_session(parts, as_planned=True), inputs, wanted)

    def _steps_of(
        self, parts: onnxruntime.InferenceSession, inputs: Arrays, wanted: Arrays
    ) -> dict[str, tuple[int, int]]:
        given = run_parts(parts, list(wanted), inputs, wanted)
        found = {}
        for pair, tensor in self._pairs:
            difference = np.abs(given[tensor].astype(np.int64) - wanted[tensor].astype(np.int64))
            found[pair] = (int(difference.sum()), int(difference.max(initial=0)))
        return found


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """Return the mean absolute difference; equal infinities, or NaN on both sides, count as 0."""
    found = apart(one, other)
    return float(found.sum()) / max(1, found.size)
