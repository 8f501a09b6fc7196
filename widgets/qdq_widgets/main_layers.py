"""The layers that a report names first: those outside INT8, the most sensitive ones, and those that take time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qdq_widgets.metrics import SENSITIVITY
from qdq_widgets.pane import percent, table_html, text_html
from qdq_widgets.targets import reason_text, verdicts

COUNT = 10
_OF_EACH = 3  # of the measured kinds; layers outside INT8 take the rows that are left
_NOTABLE_SHARE = 0.01  # of a run
_STATUS = {"float": "in float", "partial": "partly in INT8"}
_SWEPT = {"one_on": "with only this layer quantized", "one_off": "with all layers but this one quantized"}
Reasons = dict[str, list[str]]


def main_layers_html(bench: Any) -> str:
    """Return the table with its heading, as HTML: layer, share of the multiply-accumulates, and why it is named."""
    explanation, unknown = verdicts(bench)
    total = sum(entry.macs for entry in explanation.layers)
    work = {entry.layer: percent(entry.macs / total) for entry in explanation.layers if total}
    floats, named = main_layers(bench)
    rows = [(layer, work.get(layer, ""), "; ".join(reasons)) for layer, reasons in named.items()]
    columns = ("layer", "share of multiply-accumulates", "why it is here")
    known = "This target has no rules" if unknown else "Every layer runs in INT8"
    table = table_html(columns, rows, empty=f"{known}, and no sensitivity or time was measured.")
    left_out = [layer for layer in floats if layer not in named]
    note = f"{len(left_out)} more outside INT8, each with no more multiply-accumulates." if left_out else ""
    return f"<h2>Layers that matter</h2>{table}{text_html(note, 'qdq-muted') if note else ''}"


def main_layers(bench: Any) -> tuple[Reasons, Reasons]:
    """Return all layers outside INT8, and the `COUNT` layers that matter, both with reasons, in the order of the table.

    Layers outside INT8 come first, by the multiply-accumulates that they compute in float, then the most sensitive
    layers of the last sweep, then the slowest ones of the last profile. A layer has one row with all its reasons.
    """
    floats = dict(_outside_int8(bench))
    measured: Reasons = {}
    for layer, reason in (*_sensitive(bench), *_slow(bench)):
        measured.setdefault(layer, []).append(reason)
    first = list(floats)[: max(0, COUNT - len(measured.keys() - floats.keys()))]
    order = dict.fromkeys((*first, *measured))
    return floats, {layer: [*floats.get(layer, []), *measured.get(layer, [])] for layer in order}


def _outside_int8(bench: Any) -> Iterator[tuple[str, list[str]]]:
    explanation, _ = verdicts(bench)
    outside = [entry for entry in explanation.layers if entry.status in _STATUS]
    for entry in sorted(outside, key=lambda entry: entry.int8_macs - entry.macs):
        yield entry.layer, [f"{_STATUS[entry.status]}: {reason_text(entry)}"]


def _sensitive(bench: Any) -> Iterator[tuple[str, str]]:
    report = bench.sensitivity_report
    if report is None:
        return
    metric = bench.metrics.get(SENSITIVITY)
    stale = ", of an earlier plan" if metric is not None and bench.is_stale(metric) else ""
    for entry in report.ranked()[:_OF_EACH]:
        value = f"{entry.value:.4g} {entry.unit}".strip()
        yield entry.layer, f"sensitive: {report.metric} {value} {_SWEPT[report.mode]}{stale}"


def _slow(bench: Any) -> Iterator[tuple[str, str]]:
    report = bench.latency
    if report is None:
        return
    for entry in report.ranked()[:_OF_EACH]:
        if entry.share < _NOTABLE_SHARE:
            return
        yield entry.layer, f"takes time: {entry.ms:.3g} ms, {percent(entry.share)} of a run in {report.engine}"
