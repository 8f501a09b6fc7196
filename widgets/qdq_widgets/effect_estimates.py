"""Estimates of the effect of a plan change on score, file size and time, from earlier measurements only."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import qdq_workbench as qdq
from qdq_widgets.metrics import weight_bytes

# Kernels of ONNX Runtime: QLinearConv, QGemm, ConvInteger, MatMulIntegerToFloat; not QuantizeLinear.
_INTEGER_KERNEL = re.compile(r"^Q[A-Z]|Integer")
_STATES = ("int8", "float")


@dataclasses.dataclass(frozen=True)
class Figure:
    """The effect of a plan change on one quantity.

    Args:
        change: The change of the quantity, in its unit; None if it is not known.
        value: Its value after the change; None if it is not known.
        unit: "points" (of 100), "B", "ms", or that of a metric such as "dB".
        measured: Whether it was measured; else it is an estimate.
        basis: The data that it was computed from.
    """

    change: float | None
    value: float | None = None
    unit: str = ""
    measured: bool = False
    basis: str = ""


@dataclasses.dataclass(frozen=True)
class Effect:
    """The effect of the last change of the plan.

    Args:
        label: The change.
        score: The change of the score; None if it is not known.
        size: The change of the file's size.
        time: The change of the time per run in ONNX Runtime.
        state: "estimated", "measuring" while measurements run, or "measured".
        metric: The metric of the score.
        note: Why something could not be measured; empty otherwise.
        higher_is_better: Whether a higher score is better.
    """

    label: str
    score: Figure | None = None
    size: Figure | None = None
    time: Figure | None = None
    state: Literal["estimated", "measuring", "measured"] = "estimated"
    metric: str = ""
    note: str = ""
    higher_is_better: bool = True


def estimated_size(before: qdq.PlacementPlan, after: qdq.PlacementPlan) -> Figure:
    """Return the change of the weights' bytes in the file."""
    sizes = [sum(weight_bytes(plan).values.values()) for plan in (before, after)]
    return Figure(sizes[1] - sizes[0], None, "B", basis="bytes of the weights under both plans")


def estimated_time(
    before: Mapping[str, str], after: Mapping[str, str], report: qdq.LatencyReport | None
) -> Figure | None:
    """Return the change of the time per run, from the gains in a profile; None if they do not cover the change.

    `before` and `after` are the statuses "int8", "partial" or "float" by layer; the profile is of any plan of the
    model, with the float file as baseline.
    """
    if report is None or report.baseline is None:
        return None
    changed = {layer for layer, status in after.items() if before.get(layer, status) != status}
    on_integers = {entry.layer for entry in report.layers if all(map(_INTEGER_KERNEL.search, entry.kernels))}
    total, known = 0.0, set[str]()
    for gain in report.gains:
        here = changed.intersection(gain.layers)
        states = {(before[layer], after[layer]) for layer in here}
        # A gain is one number for all its layers, and known only where the profiled plan ran them on integers.
        if not here or len(states) != 1 or not on_integers.intersection(gain.layers):
            continue
        was, now = states.pop()
        if was in _STATES and now in _STATES:
            total += gain.gain_ms if now == "float" else -gain.gain_ms
            known |= here
    # A layer without a time of its own, such as a folded normalization, runs with one that has one.
    timed = {layer for gain in report.gains for layer in gain.layers}
    if changed and (not known or (changed & timed) - known):
        return None
    return Figure(total, None, "ms", basis=f"the gains of layers in the last profile ({report.path.name})")


def estimated_score(
    before: qdq.PlacementPlan, after: qdq.PlacementPlan, report: qdq.SensitivityReport | None
) -> Figure | None:
    """Return the change of the score, from the last sensitivity sweep; None if it does not cover the change.

    The errors of the layers are assumed to be independent: for the signal-to-noise ratio their noise powers are added,
    for other metrics the differences of the metric.
    """
    if report is None:
        return None
    entries = {entry.layer: entry for entry in report.entries}
    diff = before.diff(after)
    # The sweep tells nothing of sites that it did not switch.
    untold = {p.layer for p in (*diff.added, *diff.removed) if p.site not in report.sites and p.author != "target"}
    placements = [*diff.added, *diff.removed, *(new for _, new in diff.changed)]
    rows: list[tuple[Any, bool]] = []
    for layer in dict.fromkeys(placement.layer for placement in placements):
        own = [placement for placement in placements if placement.layer == layer]
        if layer not in entries:
            # Sweeps leave out layers with pairs of the target alone: these follow from the layers around them.
            if any(placement.author != "target" for placement in own):
                return None
            continue
        states = [_state(plan.for_layer(layer), entries[layer], report.sites) for plan in (before, after)]
        # Two that are "partly" quantized may still differ.
        if "partly" in states or layer in untold:
            return None
        if states[0] != states[1]:
            rows.append((entries[layer], states[1] == "on"))
    change = _combined(rows, report) if rows else None
    if change is None or not math.isfinite(change):
        return None
    scale, unit = (100.0, "points") if report.metric == "accuracy" and not report.own_metric else (1.0, report.unit)
    basis = f"the last sensitivity sweep ({report.metric}, {report.samples} samples), layers taken as independent"
    return Figure(scale * change, None, unit, basis=basis)


def _state(layer: Any, entry: Any, sites: Sequence[str]) -> str:
    """Return whether a plan quantizes the sites of a layer that the sweep switched: "on", "off" or "partly"."""
    inputs = entry.input_indices if "input" in sites else ()
    wanted = (inputs, "weight" in sites and entry.quantize_weight, "output" in sites and entry.quantize_output)
    found = (
        tuple(index for index in layer.input_indices if index in inputs),
        layer.quantize_weight and wanted[1],
        layer.quantize_output and wanted[2],
    )
    if found == wanted:
        return "on"
    return "partly" if any(found) else "off"


def _combined(rows: list[tuple[Any, bool]], report: qdq.SensitivityReport) -> float | None:
    """Return the change of the metric when some layers become quantized (True) or float (False)."""
    if report.metric != "sqnr" or report.own_metric:
        one_on = report.mode == "one_on"
        # The change when the layer becomes quantized: in the float model (one_on), or the last one of all (one_off).
        harms = ((e.value - e.float_value if one_on else e.quantized_value - e.value, on) for e, on in rows)
        return sum(harm if on else -harm for harm, on in harms)
    # Noise per signal, 10^(-SQNR / 10). An entry's value holds its own noise (one_on), or all but its own (one_off).
    whole = _power(report.quantized_value)
    noise = whole
    for entry, on in rows:
        # `max` returns its first value where the comparison meets NaN.
        alone = _power(entry.value) if report.mode == "one_on" else max(whole - _power(entry.value), 0.0)
        noise += alone if on else -alone
    if whole <= 0.0 or noise <= 0.0:
        return None
    return -10.0 * math.log10(noise / whole)


def _power(decibels: float) -> float:
    return 10.0 ** (-decibels / 10.0)
