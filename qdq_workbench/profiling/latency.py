"""The report of a profile of a file in a runtime."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

from qdq_workbench._documents import LoadedReport
from qdq_workbench._files import rebuilt
from qdq_workbench._pages import page
from qdq_workbench.errors import QDQError, nearest_names
from qdq_workbench.runtimes.other_target import other_target_remark

_FORMAT = "qdq-workbench/latency-report"
_PLAIN = ("total_ms", "runs", "batch", "threads", "runtime", "noise", "speedup")
_WORTH_IT, _SHOWN = 1.02, 4
_LEAST_ROUNDS = 6  # the extremes of fewer rounds contain the median with less than 95 % probability
Kind = Literal["pair", "layout", "runtime"]
KINDS: dict[Kind, str] = {
    "pair": "Q/DQ that stays",
    "layout": "change of layout",
    "runtime": "outside the kernels",
}

_MOSTLY_OUTSIDE = 0.7  # the share of a run outside the kernels from which layers cannot be told apart
SATURATES = (
    "This processor has no VNNI: the measured kernels are ONNX Runtime's default ones, whose sums "
    "of 8-bit products may saturate. Weights of 7 bits (--weight-bits 7) are exact at this speed; exact kernels "
    f"(session.x64quantprecision) are slower: {page('targets.md', 'Processors without VNNI')}"
)


@dataclasses.dataclass(frozen=True)
class LayerLatency:
    """The time of one layer.

    Args:
        layer: Path of the layer; in a file without a plan, name of the node.
        ms: Milliseconds per run of all kernels with this main layer.
        share: Its share of the whole run, from 0 to 1.
        kernels: The operators of these kernels, such as "QLinearConv".
        fused: The other layers that these kernels compute too, such as an activation, and that have no entry.
    """

    layer: str
    ms: float
    share: float
    kernels: tuple[str, ...]
    fused: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class OtherLatency:
    """Time that belongs to no layer.

    Args:
        what: "pair" for a QuantizeLinear or DequantizeLinear that no kernel absorbs, "layout" for a transposition that
            the runtime or the exporter inserted, "runtime" for the time outside the kernels.
        name: Name of the QuantizeLinear or DequantizeLinear in the file, whose entry includes the runtime's copies of
            it; name of the kernel if the runtime inserted it; empty for the time outside the kernels.
        ms: Milliseconds per run.
        share: Its share of the whole run, from 0 to 1.
    """

    what: Kind
    name: str
    ms: float
    share: float


@dataclasses.dataclass(frozen=True)
class Gain:
    """The time of some layers in a file and in its baseline.

    Args:
        layers: The smallest set of layers whose kernels compute no other layer, in either file.
        ms: Their milliseconds per run in the file.
        baseline_ms: The same in the baseline.
    """

    layers: tuple[str, ...]
    ms: float
    baseline_ms: float

    @property
    def gain_ms(self) -> float:
        """Milliseconds per run that the file saves; negative where it is slower."""
        return self.baseline_ms - self.ms


@dataclasses.dataclass(frozen=True)
class LatencyReport(LoadedReport):
    """The report of `profile_onnx`.

    Args:
        path: The file.
        layers: The layers that have kernels, in computing order.
        others: Time that belongs to no layer, the part outside the kernels last.
        total_ms: Milliseconds per run, the median over all runs without the profiler.
        percentiles: The 50th, 90th and 99th percentile of these runs, in milliseconds.
        runs: How many runs they are taken from.
        batch: Samples per run.
        threads: Threads within a kernel; None for the runtime's own choice.
        runtime: The version of the runtime.
        noise: The noise of the measurement: the largest distance from 1 of the 95 % interval of the ratio between two
            turns of the same file in a round.
        baseline: The report of the baseline file, measured in the same rounds; None without a baseline.
        speedup: The median over all rounds of the baseline's time divided by the file's, above 1 if the file is
            faster; None without a baseline.
        speedup_interval: The 95 % interval of that median; with fewer than 6 rounds, which have no such interval, the
            lowest and the highest ratio.
        engine: Name of the runtime: "ONNX Runtime", "OpenVINO" or "LiteRT".
        rounds: Number of turns of the file; None in reports of earlier versions.
        target: The target that the file was exported for; None for a float file, a file of another exporter, and in
            reports of earlier versions.
        saturates: Whether sums may saturate in the measured kernels, on a processor without VNNI.
    """

    _what: ClassVar[str] = "latency report"

    path: pathlib.Path
    layers: tuple[LayerLatency, ...]
    others: tuple[OtherLatency, ...]
    total_ms: float
    percentiles: Mapping[int, float]
    runs: int
    batch: int
    threads: int | None
    runtime: str
    noise: float
    baseline: LatencyReport | None = None
    speedup: float | None = None
    speedup_interval: tuple[float, float] | None = None
    engine: str = "ONNX Runtime"
    rounds: int | None = None
    target: str | None = None
    saturates: bool = False

    def for_layer(self, name: str) -> LayerLatency:
        """Return the entry of a layer: its own, or that of the layer whose kernel computes it.

        Args:
            name: Path of the layer.

        Raises:
            QDQError: If no kernel computes such a layer.
        """
        own = [entry for entry in self.layers if entry.layer == name]
        found = own or [entry for entry in self.layers if name in entry.fused]
        if not found:
            known = [layer for entry in self.layers for layer in (entry.layer, *entry.fused)]
            raise QDQError(f"No kernel of {self.path} computes a layer of that name. {nearest_names(name, known)}")
        return found[0]

    def ranked(self) -> list[LayerLatency]:
        """Return the layers, the slowest first."""
        return sorted(self.layers, key=lambda entry: -entry.ms)

    @property
    def gains(self) -> tuple[Gain, ...]:
        """The gain of every layer, or group of layers that share kernels in either file; the largest gain first.

        Empty without a baseline. A layer with its own kernel in one file that is fused into another layer in the other
        file cannot be compared alone, so both layers are compared together.
        """
        if self.baseline is None:
            return ()
        groups = list(_groups((*self.layers, *self.baseline.layers)))
        here, there = ({entry.layer: entry.ms for entry in report.layers} for report in (self, self.baseline))
        gains = [
            Gain(
                group,
                sum(here.get(layer, 0.0) for layer in group),
                sum(there.get(layer, 0.0) for layer in group),
            )
            for group in groups
        ]
        return tuple(sorted(gains, key=lambda gain: -gain.gain_ms))

    @property
    def interval_name(self) -> str:
        """The name of `speedup_interval`: the 95 % interval, or the extremes if there are too few rounds for one."""
        if self.rounds is None or self.rounds >= _LEAST_ROUNDS:
            return "95 % interval"
        return "one round" if self.rounds == 1 else f"extremes of {self.rounds} rounds"

    @property
    def target_remark(self) -> str:
        """A remark if the file was exported for another target than the measured runtime's, with a remedy; else ""."""
        return other_target_remark(self.target, self.engine, str(self.path))

    @property
    def processor_remark(self) -> str:
        """A remark if sums may saturate in the measured kernels (no VNNI), with a remedy; else empty."""
        return SATURATES if self.saturates else ""

    @property
    def short_run_remark(self) -> str:
        """A remark if runs are too short to tell the times of layers, with a remedy; else empty."""
        # Not by path: a file may be its own baseline.
        outside = [
            (report.path, sum(one.share for one in report.others if one.what == "runtime")) for report in self._reports
        ]
        path, share = max(outside, key=lambda item: item[1])
        if share < _MOSTLY_OUTSIDE:
            return ""
        return (
            f"{share:.0%} of a run of {path} is spent outside the kernels, so the times and gains of layers say "
            f"little. Measure with more samples per run, such as {max(32, 8 * self.batch)} (batch)."
        )

    @property
    def remark(self) -> str:
        """Advice if the file is not shown to be 2 % faster than its baseline; else empty."""
        # By the interval, not the median: a noisy measurement neither shows a speedup nor advises against the file.
        if self.speedup is None or self.speedup_interval is None or self.speedup_interval[0] >= _WORTH_IT:
            return ""
        if self.speedup_interval[1] >= _WORTH_IT:
            return (
                "This measurement does not show whether the file is 2 % faster than its baseline: the interval holds "
                "both. Measure with more rounds, with nothing else running."
            )
        slow = f"The file is {self.speedup:.2f} times as fast as its baseline, not 2 % faster"
        advice = f"The ways out are on {page('howto/speed.md')}."
        if self.target_remark:
            return f"{slow}, in a runtime that it was not exported for: that does not say which one to deploy. {advice}"
        # Gains are sorted, the largest first; reversed, the largest loss is.
        slower = [gain for gain in self.gains if gain.gain_ms < 0][::-1]
        shown = ", ".join(f"{' + '.join(gain.layers)} ({-gain.gain_ms:.4f} ms)" for gain in slower[:_SHOWN])
        which = (
            f" Slower than in the baseline: {shown}. Leave them in float, and measure again. One in float already "
            "pays for conversions beside it: explain(q_model, latency=report) names the layers that cause them."
            if shown
            else ""
        )
        baseline = "the baseline" if self.baseline is None else f"the baseline, {self.baseline.path}"
        return f"{slow}: deploy {baseline}.{which} {advice}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """All remarks that apply to the file and its baseline, as in `summary`; `remark` is the last one."""
        targets = (report.target_remark for report in self._reports)
        return tuple(filter(None, (*targets, self.processor_remark, self.short_run_remark, self.remark)))

    @property
    def _reports(self) -> tuple[LatencyReport, ...]:
        return (self,) if self.baseline is None else (self, self.baseline)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dictionary."""
        data = {"format": _FORMAT, "version": 1}
        data |= {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["path"] = str(self.path)
        data["layers"] = [dataclasses.asdict(entry) for entry in self.layers]
        data["others"] = [dataclasses.asdict(entry) for entry in self.others]
        data["percentiles"] = {str(key): value for key, value in self.percentiles.items()}
        data["baseline"] = None if self.baseline is None else self.baseline.to_dict()
        data["gains"] = [{**dataclasses.asdict(gain), "gain_ms": gain.gain_ms} for gain in self.gains]
        names = ("remark", "target_remark", "processor_remark", "short_run_remark")
        data |= {name: getattr(self, name) for name in names}
        return data

    @classmethod
    def from_dict(cls, data: Any) -> LatencyReport:
        """Rebuild a report from `to_dict`, also after it went through JSON.

        Args:
            data: A dictionary made by `to_dict`.

        Raises:
            DataError: If the dictionary is not a latency report of this version.
        """
        return rebuilt(data, _build, what="latency report", made_by="profile_onnx(...)")

    def plot(self) -> Any:
        """Draw the time of every layer; see `qdq_workbench.report.latency_figure`.

        Returns:
            A `plotly.graph_objects.Figure`.
        """
        import qdq_workbench

        return qdq_workbench.latency_figure(self)

    def summary(self) -> str:
        """Return the report as a text table, the slowest layer first."""
        threads = f"{self.engine}'s own number of threads" if self.threads is None else f"threads: {self.threads}"
        p50, p90, p99 = (f"{self.percentiles[key]:.3f}" for key in (50, 90, 99))
        runs = f"{self.runs} runs of batch {self.batch}, {threads}, {self.engine} {self.runtime}"
        lines = [f"{self.path}: {p50} ms per run (90 % below {p90}, 99 % below {p99}), {runs}"]
        if self.baseline is not None and self.speedup is not None and self.speedup_interval is not None:
            low, high = self.speedup_interval
            lines.append(
                f"{self.speedup:.2f} times as fast as {self.baseline.path} ({self.baseline.total_ms:.3f} ms); "
                f"{self.interval_name} {low:.2f} to {high:.2f}; noise (the same file measured twice): {self.noise:.1%}"
            )
        else:
            lines.append(f"noise (the same file measured twice): {self.noise:.1%}")
        lines += self.remarks
        rows = [(entry.ms, entry.share, entry.layer, ", ".join(entry.kernels), _with(entry)) for entry in self.ranked()]
        rows += [(entry.ms, entry.share, entry.name, KINDS[entry.what], "") for entry in self.others]
        width = max((len(row[2]) for row in rows), default=0)
        wide = max((len(row[3]) for row in rows), default=0)
        lines += [
            f"{ms:>10.4f} ms  {share:>6.1%}  {name.ljust(width)}  {kernels.ljust(wide)}  {rest}".rstrip()
            for ms, share, name, kernels, rest in rows
        ]
        lines += _gain_lines(self.gains)
        return "\n".join(lines)


def _build(data: Mapping[str, Any]) -> LatencyReport:
    interval, baseline = data["speedup_interval"], data["baseline"]
    layers = ({**one, "kernels": tuple(one["kernels"]), "fused": tuple(one["fused"])} for one in data["layers"])
    return LatencyReport(
        pathlib.Path(data["path"]),
        tuple(LayerLatency(**one) for one in layers),
        tuple(OtherLatency(**one) for one in data["others"]),
        percentiles={int(key): value for key, value in data["percentiles"].items()},
        speedup_interval=None if interval is None else (interval[0], interval[1]),
        baseline=None if baseline is None else LatencyReport.from_dict(baseline),
        engine=data.get("engine", "ONNX Runtime"),  # reports without the field predate the other runtimes
        rounds=data.get("rounds"),
        target=data.get("target"),
        saturates=data.get("saturates", False),
        **{name: data[name] for name in _PLAIN},
    )


def _with(entry: LayerLatency) -> str:
    return f"with {', '.join(entry.fused)}" if entry.fused else ""


def _gain_lines(gains: Iterable[Gain]) -> list[str]:
    rows = [(gain, " + ".join(gain.layers)) for gain in gains]
    if not rows:
        return []
    width = max(len(layers) for _, layers in rows)
    return [
        "Against the baseline, layers that share a kernel in either file together:",
        *(
            f"{gain.gain_ms:>+10.4f} ms  {layers.ljust(width)}  {gain.baseline_ms:.4f} -> {gain.ms:.4f} ms"
            for gain, layers in rows
        ),
    ]


def _groups(entries: Iterable[LayerLatency]) -> Iterator[tuple[str, ...]]:
    """Yield the sets of layers that are connected by shared kernels, in the order of their first layers."""
    linked: dict[str, set[str]] = {}
    for entry in entries:
        together = {entry.layer, *entry.fused}
        for layer in (entry.layer, *entry.fused):
            linked.setdefault(layer, set()).update(together)
    seen: set[str] = set()
    for first in linked:
        if first in seen:
            continue
        group, waiting = [], [first]
        seen.add(first)
        while waiting:
            group.append(waiting.pop())
            new = [layer for layer in linked if layer in linked[group[-1]] and layer not in seen]
            seen.update(new)
            waiting.extend(new)
        yield tuple(layer for layer in linked if layer in group)
