"""Builds a report from measured times: by layer and of other kernels, with noise and a comparison with a baseline."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from qdq_workbench.profiling.kernels import Kernel
from qdq_workbench.profiling.latency import Kind, LatencyReport, LayerLatency, OtherLatency
from qdq_workbench.profiling.stopwatch import Times, median_interval, middle, without_profiler


class Owners(Protocol):
    """Maps the kernels of a file to layers: `KernelOwners` for ONNX files, `OperatorOwners` for LiteRT files."""

    kernels: tuple[Kernel, ...]

    def kind(self, kernel: Kernel) -> Literal["pair", "layout"] | None:
        """Return the kind of a kernel that belongs to no layer; None for all others."""

    def layer(self, node: str) -> str:
        """Return the layer of a node by its name."""

    def fused(self, kernel: Kernel, layer: str) -> Iterator[str]:
        """Yield the layers that a kernel computes besides its main one."""


def reports_of(
    paths: Sequence[pathlib.Path],
    found: Sequence[Times],
    again: list[tuple[float, ...]],
    owners: Sequence[Owners],
    outside: float | None,
    settings: Mapping[str, Any],
    targets: Sequence[str | None],
) -> LatencyReport:
    """Return the report of the first file, with that of the second one, if any, as its baseline.

    `again` are the second turns of the first file, one per round; `outside` are the seconds of a run that are spent
    outside the kernels, None if the profiler adds no overhead; `settings` are further fields of the reports.
    """
    common = {**settings, "rounds": len(again), "noise": _noise(found[0], again)}
    reports = [
        _report(path, times, _Entries(one, times, outside), {**common, "target": target})
        for path, times, one, target in zip(paths, found, owners, targets, strict=True)
    ]
    return reports[0] if len(reports) == 1 else _compared(reports[0], reports[1], found)


def _noise(times: Times, again: list[tuple[float, ...]]) -> float:
    ratios = [
        statistics.median(second) / statistics.median(first) for first, second in zip(times.turns, again, strict=True)
    ]
    low, high = median_interval(ratios)
    return max(abs(1 - low), abs(1 - high))


def _compared(report: LatencyReport, baseline: LatencyReport, turns: Sequence[Times]) -> LatencyReport:
    here, there = ([statistics.median(turn) for turn in times.turns] for times in turns)
    # Within a round both files met the same speed of the machine, which drifts over the rounds.
    ratios = [slow / fast for fast, slow in zip(here, there, strict=True)]
    return dataclasses.replace(
        report, baseline=baseline, speedup=statistics.median(ratios), speedup_interval=median_interval(ratios)
    )


def _report(path: pathlib.Path, times: Times, entries: _Entries, settings: Mapping[str, Any]) -> LatencyReport:
    seconds = times.seconds
    layers, others = entries.shares()
    percentiles = {percent: 1e3 * float(np.percentile(seconds, percent)) for percent in (50, 90, 99)}
    return LatencyReport(path, layers, others, entries.total, percentiles, len(seconds), **settings)


class _Entries:
    """Adds up the times of a file's kernels, by layer and by conversions.

    Args:
        owners: Its kernels and their owners.
        times: The measured times.
        outside: Seconds of a run that are spent outside the kernels; None if the profiler adds no overhead.
    """

    def __init__(self, owners: Owners, times: Times, outside: float | None) -> None:
        self._owners = owners
        kernels = self._owners.kernels
        told = [1e-3 * middle(times.kernels.get(kernel.name) or (0.0,)) for kernel in kernels]
        self.total = 1e3 * statistics.median(times.seconds)
        if outside is None:  # runs with counters may be slower, so their sum may exceed the total
            scale = min(1.0, self.total / (sum(told) or self.total))
            self._ms = [scale * one for one in told]
        else:
            inputs = [kernel.inputs for kernel in kernels]
            self._ms, _ = without_profiler(told, inputs, self.total, 1e3 * outside)

    def shares(self) -> tuple[tuple[LayerLatency, ...], tuple[OtherLatency, ...]]:
        """Return the entries of the layers, and those of conversions and of the time outside the kernels."""
        total = self.total
        ms: dict[str, float] = {}
        kernels: dict[str, list[str]] = {}
        fused: dict[str, dict[str, None]] = {}
        others: dict[tuple[Kind, str], float] = {}
        for kernel, spent in zip(self._owners.kernels, self._ms, strict=True):
            kind = self._owners.kind(kernel)
            if kind is not None:
                key = kind, kernel.pair or kernel.name
                others[key] = others.get(key, 0.0) + spent
                continue
            layer = self._owners.layer(kernel.leader or kernel.name)
            ms[layer] = ms.get(layer, 0.0) + spent
            kernels.setdefault(layer, []).append(kernel.operator)
            fused.setdefault(layer, {}).update(dict.fromkeys(self._owners.fused(kernel, layer)))
        layers = tuple(
            LayerLatency(
                layer,
                spent,
                spent / total,
                tuple(kernels[layer]),
                tuple(name for name in fused[layer] if name not in ms),
            )
            for layer, spent in ms.items()
        )
        rest = total - sum(self._ms)
        others["runtime", ""] = rest
        return layers, tuple(OtherLatency(what, name, spent, spent / total) for (what, name), spent in others.items())
