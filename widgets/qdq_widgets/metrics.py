"""Metrics per layer by which the graph can be coloured: sizes, SQNR, sensitivity, times, and the user's own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

import qdq_workbench as qdq
from qdq_widgets.background import Job
from qdq_widgets.data import few_samples
from qdq_widgets.graph_tables import parameter_counts, weight_sizes
from qdq_widgets.state import PlanKey, plan_key

PARAMETERS = "parameters"
WEIGHT_BYTES = "weight bytes"
OUTPUT_SQNR = "SQNR of the output"
WEIGHT_SQNR = "SQNR of the weights"
SENSITIVITY = "sensitivity"
LATENCY = "time in ONNX Runtime"
LIVE = (PARAMETERS, WEIGHT_BYTES)  # these follow from the plan, at any time
COMPARED_SAMPLES = 32
ELSEWHERE: PlanKey = "a plan that is not in the history"
"""`about` of a metric whose plan was left before the bench was saved; equal to no `plan_key`."""
_FLOAT_BITS = 32


@dataclasses.dataclass(frozen=True)
class Metric:
    """One number per layer.

    Args:
        name: Its name.
        values: The numbers by layer path, or by the name of a call such as `conv#1`; layers may be missing.
        unit: The unit, such as "dB".
        better: "high" or "low" if high or low values are better; else empty.
        scale: "log" if values differ by orders of magnitude.
        about: The `plan_key` of the plan that it was measured on; None if it belongs to no plan.
    """

    name: str
    values: Mapping[str, float]
    unit: str = ""
    better: Literal["high", "low", ""] = ""
    scale: Literal["linear", "log"] = "linear"
    about: PlanKey = dataclasses.field(default=None, repr=False, compare=False)

    def legend(self, *, stale: bool = False) -> dict[str, Any]:
        """Return the legend for the graph; a stale metric is one of an earlier plan."""
        title = f"{self.name}, of an earlier plan" if stale else self.name
        legend = {"title": title, "unit": self.unit, "scale": self.scale}
        return {**legend, "better": self.better} if self.better else legend

    def ranked(self) -> list[tuple[str, float]]:
        """Return layers and values, the worst first; the highest first if neither end is better."""
        return sorted(self.values.items(), key=lambda item: item[1], reverse=self.better != "high")

    def to_dict(self) -> dict[str, Any]:
        """Return the metric as a JSON-compatible dictionary, without the plan that it was measured on."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "about"}
        return {**fields, "values": dict(self.values)}


def metric_from_dict(data: Mapping[str, Any]) -> Metric:
    """Rebuild a metric from the dictionary of `Metric.to_dict`."""
    return Metric(**data)


def parameters(plan: Any) -> Metric:
    """Return the number of parameters of every layer."""
    return Metric(PARAMETERS, dict(plan.graph.once(parameter_counts)), scale="log")


def weight_bytes(plan: Any) -> Metric:
    """Return the bytes of every layer's weights in the file; a value that the plan leaves in float takes four."""
    bits = {tensor.tensor: tensor.quantizer.num_bits for tensor in plan.tensors if tensor.kind == "weight"}
    sizes: dict[str, float] = {}
    for layer in plan.graph.once(parameter_counts):
        weights = plan.graph.once(weight_sizes)[layer]
        # Without scales and zero points.
        sizes[layer] = sum([count * bits.get(name, _FLOAT_BITS) for name, count in weights]) / 8
    return Metric(WEIGHT_BYTES, sizes, "B", "low", "log")


def latency(report: qdq.LatencyReport, plan: Any) -> Metric:
    """Return the time of every layer in the plan's file."""
    layers = set(plan.graph.layers)
    times = {entry.layer: entry.ms for entry in report.layers if entry.layer in layers}
    return Metric(LATENCY, times, "ms", "low", about=plan_key(plan))


def weight_sqnr(q_model: Any, about: PlanKey) -> Metric:
    """Return the SQNR of every layer's quantized weights in dB; `about` is the `plan_key` of the plan."""
    codes = qdq.integer_weights(q_model)
    placed = {p.tensor: p.layer for p in q_model.plan.placements if p.site == "weight"}
    sums: dict[str, _Sums] = {}
    for name, values in qdq.weight_values(q_model).items():
        # A weight that stays in float is a plain array among the codes.
        tensor = codes.get(name)
        if name in placed and tensor is not None and not isinstance(tensor, np.ndarray):
            sums.setdefault(placed[name], _Sums()).add(values, tensor.dequantize())
    return Metric(WEIGHT_SQNR, _finite(sums), "dB", "high", about=about)


def output_sqnr(q_model: Any, data: Any, job: Job, about: PlanKey) -> Metric:
    """Return the SQNR of every node's outputs in dB, for at most 32 samples, with the errors of all nodes before it."""
    graph = q_model.plan.graph
    producers = {name: node.name for node in graph.nodes for name in node.outputs}
    sums: dict[str, _Sums] = {}
    for batch in qdq.tensor_values(q_model, few_samples(data, COMPARED_SAMPLES), compare=True, steps=4, batch_size=8):
        for tensor, values in batch.float.items():
            sums.setdefault(producers[tensor], _Sums()).add(values, (batch.quantized or {})[tensor])
        job.report(None, "comparing the layers' outputs")
        if job.stop_requested:
            break
    return Metric(OUTPUT_SQNR, _finite(sums), "dB", "high", about=about)


class _Sums:
    """Sums of the squares of a signal and of its error."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def add(self, values: np.ndarray, rounded: np.ndarray) -> None:
        exact = values.astype(np.float64)
        self.signal += float(np.sum(exact**2))
        self.noise += float(np.sum((exact - rounded) ** 2))


def _finite(sums: Mapping[str, _Sums]) -> dict[str, float]:
    """Return the ratios in dB; layers without an error, or with an infinite one, are left out."""
    found = {name: item for name, item in sums.items() if item.signal > 0 and 0 < item.noise < math.inf}
    return {name: 10.0 * math.log10(item.signal / item.noise) for name, item in found.items()}
