"""Histograms of the values of tensors, with the range and the grid of their quantization."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import qdq_workbench as qdq
from qdq_widgets.background import Job
from qdq_widgets.data import few_samples
from qdq_widgets.errors import BenchError

SAMPLES = 32
MOST_VALUES = 20_000_000
"""So many values of one tensor are held at most: fewer samples of larger tensors are read."""


@dataclasses.dataclass(frozen=True)
class Histogram:
    """The histogram of a tensor's values, with its range and grid.

    Args:
        tensor: Name of the tensor, or `<layer>/<weight>`.
        counts: The number of values in each bin.
        edges: Edges of the bins, one more than there are bins.
        low: Lower end of the range; the lowest value if the tensor has no range.
        high: Upper end of the range; the highest value if the tensor has no range.
        outside: Share of the values, from 0 to 1, that saturate: more than half a step beyond the ends of the grid.
        clips: The lowest and the highest value of the grid, over all scales of a weight; None if the tensor is not
            quantized.
        grid: The grid, such as `int8`, with the tensor that it shares its scale with or the number of scales; empty if
            the tensor is not quantized.
        kind: "activation" or "weight".
    """

    tensor: str
    counts: tuple[int, ...] = dataclasses.field(repr=False)
    edges: tuple[float, ...] = dataclasses.field(repr=False)
    low: float
    high: float
    outside: float
    clips: tuple[float, float] | None = None
    grid: str = ""
    kind: str = "activation"


def known_tensors(plan: Any) -> dict[str, str]:
    """Return every tensor that a histogram can show, with its kind and grid; quantized ones come first."""
    found: dict[str, str] = {}
    for tensor in plan.tensors:  # readers of one tensor may have several pairs on it: the first one is named
        found.setdefault(tensor.tensor, f"{tensor.kind}, {tensor.quantizer.label}")
    graph = plan.graph
    names = [name for node in graph.nodes for name in node.outputs if graph.tensors[name].is_float]
    found |= {name: "activation, float" for name in names if name not in found}
    for node in graph.nodes:
        for weight in node.weights:
            found.setdefault(f"{node.layer}/{weight.name}", "weight, float")
    return found


def tensors_of_layer(plan: Any, node: Any) -> list[str]:
    """Return the tensors of a call: its inputs, weights and outputs, without integer and boolean ones."""
    known = known_tensors(plan)
    names = [*node.inputs, *(f"{node.layer}/{weight.name}" for weight in node.weights), *node.outputs]
    return [name for name in dict.fromkeys(names) if name in known]


def count_values(
    q_model: Any,
    ranges: Mapping[str, tuple[float, float]],
    data: Callable[[], Any],
    job: Job,
    tensors: Sequence[str],
    bins: int = 100,
) -> tuple[Histogram, ...]:
    """Return histograms of activations (of the float model, on a few samples) and of weights.

    `data` is called only if there are activations; ranges are of activation tensors, quantized or not.
    """
    plan = q_model.plan
    known = known_tensors(plan)
    for name in tensors:
        if name not in known:
            raise BenchError(f"The model has no tensor of that name to count. Received: tensor={name!r}")
    weights = qdq.weight_values(q_model)
    codes = qdq.integer_weights(q_model) if any(name in weights for name in tensors) else {}
    activations = [name for name in tensors if name not in weights]
    values = _activations(q_model, data(), job, activations) if activations else {}
    # Reversed: of several pairs on a tensor the first one stays, as in `known_tensors`.
    placed = {tensor.tensor: tensor for tensor in reversed(plan.tensors)}
    found = []
    for name in tensors:
        job.report(None, f"counting {name}")
        if name in weights:
            found.append(_weight_histogram(name, weights[name], placed.get(name), codes.get(name), bins))
        else:
            found.append(_activation_histogram(name, values[name], placed.get(name), q_model, ranges, bins))
    return tuple(found)


def _activations(q_model: Any, data: Any, job: Job, names: Sequence[str]) -> dict[str, np.ndarray]:
    tensors = q_model.plan.graph.tensors
    largest = max(math.prod(size or 1 for size in tensors[name].shape[1:]) for name in names)
    count = max(1, min(SAMPLES, MOST_VALUES // max(1, largest)))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    job.report(None, f"reading {', '.join(names)[:80]}")
    read = 0
    for batch in qdq.tensor_values(q_model, few_samples(data, count), names, batch_size=min(8, count)):
        for name in names:
            parts[name].append(np.ravel(batch.float[name]))
        read += len(batch.float[names[0]])
        if read >= count or job.stop_requested:
            break
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _activation_histogram(
    name: str, values: np.ndarray, placed: Any, q_model: Any, ranges: Mapping[str, tuple[float, float]], bins: int
) -> Histogram:
    pair = q_model.activation_ranges().get(name if placed is None else placed.name)
    low, high = pair or ranges.get(name) or (float(values.min()), float(values.max()))
    clips, grid, outside = None, "", 0.0
    if placed is not None and pair is not None:
        qparams = qdq.numerics.qparams_from_range(low, high, placed.quantizer)
        clips = (float(qparams.representable_range[0]), float(qparams.representable_range[1]))
        half = float(qparams.scale) / 2
        outside = float(np.mean((values < clips[0] - half) | (values > clips[1] + half)))
        grid = placed.quantizer.label
        if placed.scale_group not in (None, name):
            grid += f", one scale with {placed.scale_group}"
    return _counted(name, values, low, high, outside, clips, grid, "activation", bins)


def _weight_histogram(name: str, values: np.ndarray, placed: Any, codes: Any, bins: int) -> Histogram:
    low, high = float(values.min()), float(values.max())
    if placed is None or not hasattr(codes, "scale"):
        return _counted(name, values, low, high, 0.0, None, "", "weight", bins)
    spec = placed.quantizer
    scale, zero_point = (_of_values(part, values, codes) for part in (codes.scale, codes.zero_point))
    # In float64: the difference can overflow int8.
    bottom, top = ((end - zero_point.astype(np.float64)) * scale for end in (spec.qmin, spec.qmax))
    half = scale / 2
    outside = float(np.mean((values < bottom - half) | (values > top + half)))
    grid = spec.label + (f", {codes.scale.size} scales" if codes.scale.size > 1 else "")
    return _counted(name, values, low, high, outside, (float(bottom.min()), float(top.max())), grid, "weight", bins)


def _of_values(part: np.ndarray, values: np.ndarray, codes: Any) -> np.ndarray:
    """Return the scales or zero points of a weight, reshaped or repeated to broadcast against its values."""
    if part.ndim == 0:
        return part
    # The last block may be shorter than the others.
    if codes.block_size is not None:
        return np.take(np.repeat(part, codes.block_size, codes.axis), np.arange(values.shape[codes.axis]), codes.axis)
    return part.reshape([-1 if index == codes.axis % values.ndim else 1 for index in range(values.ndim)])


def _counted(
    name: str,
    values: np.ndarray,
    low: float,
    high: float,
    outside: float,
    clips: tuple[float, float] | None,
    grid: str,
    kind: str,
    bins: int,
) -> Histogram:
    counts, edges = np.histogram(np.ravel(values), bins=bins)
    return Histogram(
        name, tuple(map(int, counts)), tuple(map(float, edges)), float(low), float(high), outside, clips, grid, kind
    )
