"""Measurements of a bench: histograms, metrics per layer, sensitivity, and leaving sensitive layers in float."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import qdq_workbench as qdq
from qdq_widgets import metrics, toggles
from qdq_widgets.data import few_pairs
from qdq_widgets.errors import BenchError
from qdq_widgets.events import Events
from qdq_widgets.histograms import Histogram, count_values
from qdq_widgets.history import Step
from qdq_widgets.metrics import Metric
from qdq_widgets.plain_numbers import real, whole
from qdq_widgets.plans import Plans
from qdq_widgets.state import decided, plan_key
from qdq_widgets.work import Workshop

COLORINGS = ("precision", "plan", "rules")


class Measurements:
    """Measurements of the present plan, and the colours of the graph; a part of `Workbench`.

    Attributes:
        coloring: The colouring of the graph: one of `COLORINGS`, or the name of a metric.
        report: The `SensitivityReport` of the last sweep; None before.
    """

    def __init__(self, plans: Plans, work: Workshop, events: Events) -> None:
        self._plans, self._work, self._events = plans, work, events
        self._measured: dict[str, Metric] = {}
        self.coloring = COLORINGS[0]
        self.report: qdq.SensitivityReport | None = None

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics per layer by name, with the sizes that follow from the plan."""
        plan = self._plans.plan
        live = (metrics.parameters(plan), metrics.weight_bytes(plan))
        report = self._work.models.latency(plan)
        timed = {} if report is None else {metrics.LATENCY: metrics.latency(report, plan)}
        return {**{metric.name: metric for metric in live}, **self._measured, **timed}

    @property
    def own(self) -> list[Metric]:
        """The metrics per layer that were measured or set so far."""
        return list(self._measured.values())

    def color_by(self, what: str) -> None:
        """Set the colouring of the graph.

        Args:
            what: "plan" (what the plan quantizes), "precision" (what the target computes in INT8), "rules" (see
                `color_rules`), or the name of one of `metrics`.

        Raises:
            BenchError: If there is no such colouring or metric.
        """
        offered = self.metrics
        known = [*COLORINGS, *offered]
        if what not in known:
            raise BenchError(f"The graph can be coloured by {', '.join(map(repr, known))}. Received: what={what!r}")
        if what in offered and what not in metrics.LIVE:
            self._measured[what] = offered[what]  # kept when the plan changes, then shown as stale
        self.coloring = what
        self._events.tell("colors")

    def is_stale(self, metric: Metric) -> bool:
        """Return whether the plan has changed since a metric was measured.

        Args:
            metric: One of `metrics`.
        """
        return metric.about is not None and metric.about != plan_key(self._plans.plan)

    def set_metric(
        self,
        name: str,
        values: Mapping[str, float],
        unit: str = "",
        *,
        better: Literal["high", "low", ""] = "",
        scale: Literal["linear", "log"] = "linear",
    ) -> Metric:
        """Set a metric of your own, by which the graph can be coloured.

        Args:
            name: The name of the metric; an earlier metric of that name is replaced.
            values: Finite numbers by layer path, or by the name of a call such as `conv#1`; layers may be missing.
            unit: The unit, such as "ms".
            better: "high" or "low" if high or low values are better; else empty.
            scale: "log" if values differ by orders of magnitude.

        Raises:
            BenchError: If the name is taken, a value is not finite, or `better` or `scale` is something else.
            SpecError: If the model has no such layer.

        Example:
            `wb.set_metric("latency", {"conv1": 0.31, "conv2": 0.12}, "ms", better="low"); wb.color_by("latency")`
        """
        if not name.strip() or name in (*COLORINGS, *metrics.LIVE):
            raise BenchError(f"A metric needs a name of its own. Received: name={name!r}")
        values = {layer: real(value) for layer, value in values.items()}
        for layer, value in values.items():
            self._plans.planner.graph.calls(layer)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise BenchError(
                    f"The values of a metric are finite numbers; leave layers without one out. Received: {layer!r}: "
                    f"{value!r}"
                )
        if better not in ("high", "low", "") or scale not in ("linear", "log"):
            raise BenchError(f'better is "high", "low" or "", scale "linear" or "log". Received: {better!r}, {scale!r}')
        return self._keep_metric(Metric(name, values, unit, better, scale))

    def measure_sqnr(self) -> tuple[Metric, ...]:
        """Measure the signal to quantization noise ratio of every layer under the present plan, in dB.

        Returns:
            The metrics of the weights and of the outputs, which are also in `metrics`.

        Raises:
            BenchError: If the plan is not calibrated, or there are no data.
        """
        plan = self._plans.plan
        with self._work.jobs.run("SQNR") as job:
            job.report(None, "comparing the weights")
            q_model = self._work.models.get(plan)
            found = [metrics.weight_sqnr(q_model, plan_key(plan))]
            data, _ = self._work.data.for_calibration()
            found.append(metrics.output_sqnr(q_model, data, job, plan_key(plan)))
            job.raise_if_stopped()
        for metric in found:
            self._measured.pop(metric.name, None)  # measured last comes last
            self._keep_metric(metric)
        return tuple(found)

    def sensitivity(
        self, /, mode: str = "one_on", metric: str = "sqnr", *, samples: int = 128, **settings: Any
    ) -> qdq.SensitivityReport:
        """Measure the sensitivity of the layers to quantization, one at a time, on the validation data.

        Without validation data, those of the calibration are read.

        Args:
            mode: "one_on" (only this layer is quantized) or "one_off" (all but this one are).
            metric: "sqnr", "mse", "kl", "accuracy", or a function; see `qdq_workbench.sensitivity`.
            samples: Maximum number of samples to read, if the data are arrays.
            **settings: Further arguments of `qdq_workbench.sensitivity`.

        Returns:
            The `SensitivityReport`; its values are also in `metrics`. Layers with pairs that only the target requires
            are not measured: these pairs depend on the layers around them.
        """
        plan = self._plans.plan
        with self._work.jobs.run("sensitivity") as job:
            data = self._work.data.for_scoring()
            model, how = self._work.swept(plan, job, samples)
            settings = {"layers": decided(plan), **settings}
            report = qdq.sensitivity(model, few_pairs(data, samples), mode=mode, metric=metric, **how, **settings)
        self.report = report
        entries = {entry.layer: float(entry.value) for entry in report.entries if math.isfinite(entry.value)}
        # As in `SensitivityReport.harm`: a good score means a harmless layer if it alone is quantized (one_on), and a
        # harmful one if it alone is in float (one_off).
        harmful_is_high = report.higher_is_better == (report.mode == "one_off")
        better: Literal["high", "low"] = "low" if harmful_is_high else "high"
        self._measured.pop(metrics.SENSITIVITY, None)  # measured last comes last
        self._keep_metric(Metric(metrics.SENSITIVITY, entries, report.unit, better, about=plan_key(plan)))
        self._events.tell("sensitivity")
        return report

    def leave_in_float(self, layers: int | Sequence[str]) -> Step:
        """Leave layers in float: one undoable step that adds an entry for each.

        Args:
            layers: Paths of the layers; or the number of most sensitive layers in the last `sensitivity`.

        Raises:
            BenchError: If the layers are in float already, or a number is given before `sensitivity`.
        """
        label, keeps_inputs, keeps_weights = "leave in float", False, False
        layers = whole(layers)
        if isinstance(layers, int):
            if self.report is None:
                raise BenchError("Which layers are sensitive is not known yet. Find out: wb.sensitivity()")
            label = f"leave the {layers} most sensitive in float"
            entries = self.report.apply(top_k=layers).layers
            layers = [entry.name for entry in entries]
            keeps_inputs = any(entry.quantize_input for entry in entries)  # where only weights were swept
            keeps_weights = any(entry.quantize_weight for entry in entries)
        if not layers:
            raise BenchError(f"Name at least one layer. Received: layers={layers!r}")
        plans = self._plans
        with plans.lock:
            wishes = {}
            for node in (plans.planner.graph.calls(name)[0] for name in layers):
                wish = toggles.wish_of(plans.plan, node)
                inputs = wish.inputs if keeps_inputs else ()
                wishes[node.layer] = toggles.LayerWish(inputs, keeps_weights and wish.weight, output=False)
            state, plan = toggles.with_wishes(plans.planner, plans.state, plans.plan, wishes)
            if plan_key(plan) == plan_key(plans.plan):
                raise BenchError(f"This changes nothing: they are in float already. Received: {', '.join(wishes)}")
            return plans.push(f"{label}: {', '.join(wishes)}"[:200], state, plan)

    def histogram(self, tensor: str) -> Histogram:
        """Return the histogram of an activation, on a few samples of the calibration data, or of a weight.

        Args:
            tensor: The name of the tensor in `graph.tensors`, or `<layer>/<weight>`; quantized or not.

        Raises:
            BenchError: If there is no such tensor, or there are no data to read an activation from.
        """
        return self.histograms([tensor])[0]

    def histograms(self, tensors: Sequence[str]) -> tuple[Histogram, ...]:
        """Return the histograms of several tensors, from one pass over the data.

        Args:
            tensors: Their names; see `histogram`.

        Raises:
            BenchError: As for `histogram`.
        """
        if not tensors:
            raise BenchError("Name at least one tensor. Received: tensors=[]")
        plan = self._plans.plan
        with self._work.jobs.run("histogram") as job:
            models, data = self._work.models, self._work.data
            ranges = {} if models.calibration is None else models.calibration.ranges
            return count_values(models.present(plan), ranges, lambda: data.for_calibration()[0], job, list(tensors))

    def take_over_metrics(self, measured: Sequence[Metric], report: Any) -> None:
        """Replace the metrics and the sensitivity report (None: without one), for `load` and `continue_from`."""
        self._measured = {metric.name: metric for metric in measured}
        self.report = report
        if self.coloring not in (*COLORINGS, *self.metrics):
            self.coloring = COLORINGS[0]
        self._events.tell("metrics", "sensitivity")

    def _keep_metric(self, metric: Metric) -> Metric:
        self._measured[metric.name] = metric
        self._events.tell("metrics")
        return metric
