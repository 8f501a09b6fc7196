"""The measuring half of the bench: histograms, figures per layer, sensitivity, and what to do about them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import qdq_workbench as qdq
from qdq_widgets import metrics, toggles
from qdq_widgets.background import Jobs
from qdq_widgets.errors import BenchError
from qdq_widgets.histograms import Histogram
from qdq_widgets.history import Step
from qdq_widgets.metrics import Metric
from qdq_widgets.plan_bench import PlanBench
from qdq_widgets.state import plan_key
from qdq_widgets.work import Workshop

COLORINGS = ("plan", "precision")


class MetricBench(PlanBench):
    """Measures of the present plan; a part of `Workbench`, which makes `_jobs` and `_work`."""

    _jobs: Jobs
    _work: Workshop

    def _start_metrics(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._coloring = "plan"
        self._sensitivity: Any = None

    @property
    def metrics(self) -> dict[str, Metric]:
        """The figures per layer by name: sizes under the present plan, and what was measured or set so far."""
        live = (metrics.parameters(self.plan), metrics.weight_bytes(self.plan))
        return {**{metric.name: metric for metric in live}, **self._metrics}

    @property
    def own_metrics(self) -> list[Metric]:
        """What was measured or set so far, without the sizes that follow from the plan."""
        return list(self._metrics.values())

    @property
    def coloring(self) -> str:
        """What the graph is coloured by: "plan", "precision", or the name of a metric."""
        return self._coloring

    @property
    def sensitivity_report(self) -> qdq.SensitivityReport | None:
        """What `sensitivity` found last; None before."""
        return self._sensitivity

    def color_by(self, what: str) -> None:
        """Colour the graph by something else.

        Args:
            what: "plan" (what the plan quantizes), "precision" (what the target computes in INT8), or the name of
                one of `metrics`.
        """
        known = [*COLORINGS, *self.metrics]
        if what not in known:
            raise BenchError(f"The graph can be coloured by {', '.join(map(repr, known))}. Received: what={what!r}")
        self._coloring = what
        self._tell("colors")

    def is_stale(self, metric: Metric) -> bool:
        """Return whether the plan has changed since a metric was measured.

        Args:
            metric: One of `metrics`.
        """
        return metric.about is not None and metric.about != plan_key(self.plan)

    def set_metric(
        self,
        name: str,
        values: Mapping[str, float],
        unit: str = "",
        *,
        better: Literal["high", "low", ""] = "",
        scale: Literal["linear", "log"] = "linear",
    ) -> Metric:
        """Offer figures of your own as node colours.

        Args:
            name: What they are called; an earlier metric of that name is replaced.
            values: The figure by layer path, or by the name of a call such as `conv#1`; layers may be missing.
            unit: Their unit, such as "ms".
            better: "high" or "low" where one of them is.
            scale: "log" where values differ by orders of magnitude.

        Example:
            `wb.set_metric("latency", {"conv1": 0.31, "conv2": 0.12}, "ms", better="low"); wb.color_by("latency")`
        """
        if not name.strip() or name in (*COLORINGS, *metrics.LIVE):
            raise BenchError(f"A metric needs a name of its own. Received: name={name!r}")
        for layer, value in values.items():
            self.graph.calls(layer)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise BenchError(
                    f"The values of a metric are finite numbers; leave layers without one out. Received: {layer!r}: "
                    f"{value!r}"
                )
        if better not in ("high", "low", "") or scale not in ("linear", "log"):
            raise BenchError(f'better is "high", "low" or "", scale "linear" or "log". Received: {better!r}, {scale!r}')
        return self._keep_metric(Metric(name, dict(values), unit, better, scale))

    def measure_sqnr(self) -> tuple[Metric, ...]:
        """Measure the signal to quantization noise ratio of every layer under the present plan, in dB.

        Returns:
            That of the weights, and where there are data and ranges that of the outputs, also in `metrics`.
        """
        plan = self.plan
        with self._jobs.run("SQNR") as job:
            job.report(None, "comparing the weights")
            q_model = self._work.models.get(plan)
            found = [metrics.weight_sqnr(q_model, plan_key(plan))]
            data, _ = self._work.data.for_calibration()
            found.append(metrics.output_sqnr(q_model, data, job, plan_key(plan)))
            job.raise_if_stopped()
        for metric in found:
            self._keep_metric(metric)
        return tuple(found)

    def sensitivity(
        self, mode: str = "one_on", metric: str = "sqnr", *, samples: int = 128, **settings: Any
    ) -> qdq.SensitivityReport:
        """Find out which layers suffer from quantization, one at a time, on the validation data.

        Args:
            mode: "one_on" (only this layer is quantized) or "one_off" (all but this one are).
            metric: "sqnr", "mse", "kl", "accuracy", or a function; see `qdq_workbench.sensitivity`.
            samples: How many samples to read at most, where the data are arrays.
            **settings: Further arguments of `qdq_workbench.sensitivity`.

        Returns:
            The `SensitivityReport`; its values are also in `metrics`. Pairs that only the target asks for are not
            measured: they come and go with the layers around them.
        """
        plan = self.plan
        with self._jobs.run("sensitivity") as job:
            report = self._work.sensitivity(plan, job, mode, metric, samples, {"layers": decided(plan), **settings})
        self._sensitivity = report
        entries = {entry.layer: float(entry.value) for entry in report.entries if math.isfinite(entry.value)}
        harmful_is_high = report.higher_is_better == (report.mode == "one_off")
        better: Literal["high", "low"] = "low" if harmful_is_high else "high"
        self._metrics.pop(metrics.SENSITIVITY, None)  # measured last comes last
        self._keep_metric(Metric(metrics.SENSITIVITY, entries, report.unit, better, about=plan_key(plan)))
        self._tell("sensitivity")
        return report

    def leave_in_float(self, layers: int | Sequence[str]) -> Step:
        """Leave layers in float: one undoable step that adds an entry for each.

        Args:
            layers: Their paths; or how many of the most sensitive ones that `sensitivity` found.
        """
        label, keeps_inputs, keeps_weights = "leave in float", False, False
        if isinstance(layers, int):
            if self._sensitivity is None:
                raise BenchError("Which layers are sensitive is not known yet. Find out: wb.sensitivity()")
            label = f"leave the {layers} most sensitive in float"
            entries = self._sensitivity.apply(top_k=layers).layers
            layers = [entry.name for entry in entries]
            keeps_inputs = any(entry.quantize_input for entry in entries)  # where only weights were swept
            keeps_weights = any(entry.quantize_weight for entry in entries)
        if not layers:
            raise BenchError(f"Name at least one layer. Received: layers={layers!r}")
        with self._lock:
            wishes = {}
            for node in (self.graph.calls(name)[0] for name in layers):
                wish = toggles.wish_of(self.plan, node)
                inputs = wish.inputs if keeps_inputs else ()
                wishes[node.layer] = toggles.LayerWish(inputs, keeps_weights and wish.weight, output=False)
            state, plan = toggles.with_wishes(self._planner, self.state, self.plan, wishes)
            if plan_key(plan) == plan_key(self.plan):
                raise BenchError(f"This changes nothing: they are in float already. Received: {', '.join(wishes)}")
            return self._push(f"{label}: {', '.join(wishes)}"[:200], state, plan)

    def histogram(self, tensor: str) -> Histogram:
        """Count the values of a tensor: an activation, on a few samples of the calibration data, or a weight.

        Args:
            tensor: Its name, as in `plan.tensors`, `graph.tensors`, or `<layer>/<weight>`; quantized or not.
        """
        return self.histograms([tensor])[0]

    def histograms(self, tensors: Sequence[str]) -> tuple[Histogram, ...]:
        """Count the values of several tensors in one pass over the data.

        Args:
            tensors: Their names; see `histogram`.
        """
        if not tensors:
            raise BenchError("Name at least one tensor. Received: tensors=[]")
        plan = self.plan
        with self._jobs.run("histogram") as job:
            return self._work.histograms(plan, job, list(tensors))

    def take_over_metrics(self, measured: Sequence[Metric], report: Any) -> None:
        """Replace what was measured by what a folder held; `load` calls this.

        Args:
            measured: The metrics.
            report: The `SensitivityReport`, or None.
        """
        self._metrics = {metric.name: metric for metric in measured}
        self._sensitivity = report
        if self._coloring not in (*COLORINGS, *self.metrics):
            self._coloring = "plan"
        for event in ("metrics", "sensitivity"):
            self._tell(event)

    def _keep_metric(self, metric: Metric) -> Metric:
        self._metrics[metric.name] = metric
        self._tell("metrics")
        return metric


def decided(plan: Any) -> list[str]:
    """Return the layers that spec, cases and defaults quantize, without those where only the target asks for a pair.

    Args:
        plan: A `PlacementPlan`.
    """
    chosen = {plan.graph.node(name).layer for name, decision in plan.decisions.items() if not decision.is_float}
    placed = {placement.layer for placement in plan.placements}
    return [layer for layer in plan.graph.layers if layer in chosen and layer in placed]


def metric_from_dict(data: Mapping[str, Any]) -> Metric:
    """Rebuild a metric from `Metric.to_dict`.

    Args:
        data: What `to_dict` returned.
    """
    return Metric(**data)


def report_from_dict(data: Mapping[str, Any] | None) -> qdq.SensitivityReport | None:
    """Rebuild a `SensitivityReport`, or None.

    Args:
        data: What `SensitivityReport.to_dict` returned, or None.
    """
    return None if data is None else qdq.SensitivityReport.from_dict(data)
