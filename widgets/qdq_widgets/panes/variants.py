"""The variants pane: named variants of the plan, side by side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.curves import Curves
from qdq_widgets.pane import Pane, button, filled_columns, kibibytes, percent, row, set_options, table_html, text_html
from qdq_widgets.state import diff_rows

SHOWN_CHANGES = 60
_PRESENT = "the present state"
_STAGES = {"planned": "plan", "calibrated": "PTQ", "fine-tuned": "QAT"}


class VariantsPane(Pane):
    """Keeps states under names and compares them."""

    title = "Variants"
    events = ("variants", "curves", "job", "plan", "calibration", "stage")

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.name = widgets.Text(placeholder="name of the present state", layout={"width": "270px"})
        self.keep = button("Keep", self._keep, icon="bookmark", style="primary")
        self.picker = widgets.Dropdown(layout={"width": "230px"})
        self.picker.tooltip = "Variant"
        self.show = button("Go there", self._show, icon="history")
        self.measure = button(
            "Measure all",
            self._measure,
            icon="tachometer",
            tooltip="Score every variant on the validation data, and write a file to see its size and speed",
        )
        self._table = widgets.HTML()
        self.first = widgets.Dropdown(description="Compare", layout={"width": "250px"})
        self.second = widgets.Dropdown(description="with", layout={"width": "250px"})
        for picker in (self.first, self.second):
            picker.observe(lambda _: self._compare(), "value")
        self.select = button(
            "Select these layers", self._select, icon="crosshairs", tooltip="Select in the graph the layers that differ"
        )
        self.beside = button(
            "Side by side",
            self._beside,
            icon="columns",
            tooltip="Draw both graphs side by side, with their differences",
        )
        self.differences = widgets.HTML()
        self._differing: list[str] = []
        self._comparing = widgets.VBox([row(self.first, self.second, self.select, self.beside), self.differences])
        return [row(self.name, self.keep), self._table, row(self.picker, self.show, self.measure), self._comparing]

    def refresh(self) -> None:
        """Show the variants."""
        variants = self.bench.variants
        self._table.value = variants_table(variants, self.bench.curves)
        set_options(self.picker, [variant.name for variant in variants])
        self.show.disabled = not variants
        self.measure.disabled = not variants or self.bench.jobs.current is not None
        self._comparing.layout.display = "" if variants else "none"
        names = [variant.name for variant in variants]
        self.name.placeholder = f"name of the present state ({self._suggested()})"
        set_options(self.first, names)
        set_options(self.second, [(_PRESENT, ""), *((name, name) for name in names)])
        self._compare()

    @shows_errors
    def _keep(self) -> None:
        self.bench.keep_variant(self.name.value.strip() or self._suggested())
        self.name.value = ""

    def _suggested(self) -> str:
        """Return an unused variant name for the present state."""
        known = {variant.name for variant in self.bench.variants}
        stage = _STAGES.get(self.bench.stage, self.bench.stage)
        names = itertools.chain([stage], (f"{stage} {number}" for number in itertools.count(2)))
        return next(name for name in names if name not in known)

    @shows_errors
    def _measure(self) -> None:
        self.start(self.bench.measure_variants)

    @shows_errors
    def _show(self) -> None:
        self.bench.show_variant(self.picker.value)

    @shows_errors
    def _compare(self) -> None:
        if self.first.value is None:
            return
        diff = self.bench.compare(self.first.value, self.second.value or None)
        rows = diff_rows(diff)
        self._differing = list(dict.fromkeys(layer for _, layer, *_ in rows))
        self.select.disabled = not rows
        hidden = f" (the first {SHOWN_CHANGES} are shown)" if len(rows) > SHOWN_CHANGES else ""
        head = f"From {self.first.value} to {self.second.value or _PRESENT}: {diff.counts}{hidden}"
        table = table_html(("", "layer", "site", "grid", "why"), rows[:SHOWN_CHANGES], empty="The plans are the same.")
        self.differences.value = text_html(head, "qdq-heading") + table

    @shows_errors
    def _beside(self) -> None:
        present = self.second.value == ""
        variants = {variant.name: variant for variant in self.bench.variants}  # a variant may be called "plan"
        self.bench.view.compare(variants[self.first.value], "plan" if present else variants[self.second.value])

    @shows_errors
    def _select(self) -> None:
        self.bench.view.graph.select(self._differing)


def variants_table(variants: Sequence[Any], curves: Curves) -> str:
    """Return `Variant` objects as a table, as HTML; the float model comes first if it was scored."""
    metric = next((variant.metric for variant in variants if variant.metric), "accuracy")
    rows: list[tuple[Any, ...]] = []
    if variants and curves.fp32 is not None and metric in curves.fp32.metrics:
        measured = next((variant.latency.baseline for variant in variants if variant.latency is not None), None)
        time = "" if measured is None else f"{measured.total_ms:.3f} ms"
        rows.append(("float model", f"{curves.fp32.metrics[metric]:.4f}", "", time, percent(0.0), "", 0, "FP32", ""))
    rows += [
        (
            variant.name,
            "" if variant.accuracy is None else f"{variant.accuracy:.4f}",
            "" if variant.size is None else kibibytes(variant.size),
            "" if variant.latency is None else f"{variant.latency.total_ms:.3f} ms, x{variant.latency.speedup:.2f}",
            "" if variant.int8 is None else percent(variant.int8),
            f"{variant.quantized}/{variant.computing}",
            variant.pairs,
            variant.stage,
            variant.state.target,
        )
        for variant in variants
    ]
    columns: tuple[str, ...] = ("variant", metric, "file", "time", "in INT8", "layers", "pairs", "stage", "target")
    if len({variant.state.target for variant in variants}) == 1:  # one common target needs no column
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    empty = "No variant yet: keep the present state under a name."
    return table_html(*filled_columns(columns, rows), empty=empty, least=("layers", "pairs"))
