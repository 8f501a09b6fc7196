"""Named variants of the plan, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.curves import Curves
from qdq_widgets.pane import Pane, button, kibibytes, percent, row, set_options, table_html


class VariantsPane(Pane):
    """Keeps states under names and compares them."""

    title = "Variants"
    events = ("variants", "curves", "job")

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.name = widgets.Text(placeholder="name of the present state", layout={"width": "230px"})
        self.keep = button("Keep", self._keep, icon="bookmark", style="primary")
        self.picker = widgets.Dropdown(layout={"width": "230px"})
        self.show = button("Go there", self._show, icon="history")
        self.measure = button("Measure all", self._measure, icon="tachometer",
                              tooltip="Score every variant on the validation data, and write a file to see its size")
        self._table = widgets.HTML()
        return [row(self.name, self.keep), self._table, row(self.picker, self.show, self.measure)]

    def refresh(self) -> None:
        """Show the variants."""
        variants = self.bench.variants
        self._table.value = variants_table(variants, self.bench.curves)
        set_options(self.picker, [variant.name for variant in variants])
        self.show.disabled = not variants
        self.measure.disabled = not variants or self.bench.jobs.current is not None

    @shows_errors
    def _keep(self) -> None:
        self.bench.keep_variant(self.name.value.strip())
        self.name.value = ""

    @shows_errors
    def _measure(self) -> None:
        self.start(self.bench.measure_variants)

    @shows_errors
    def _show(self) -> None:
        self.bench.show_variant(self.picker.value)


def variants_table(variants: Sequence[Any], curves: Curves) -> str:
    """Return variants side by side, as HTML; the float model, where it was scored, comes first.

    Args:
        variants: `Variant` objects.
        curves: The scores of the bench.
    """
    metric = next((variant.metric for variant in variants if variant.metric), "accuracy")
    rows: list[tuple[Any, ...]] = []
    if variants and curves.fp32 is not None and metric in curves.fp32.metrics:
        rows.append(("float model", f"{curves.fp32.metrics[metric]:.4f}", "", percent(0.0), 0, "FP32", ""))
    rows += [
        (
            variant.name,
            "" if variant.accuracy is None else f"{variant.accuracy:.4f}",
            "" if variant.size is None else kibibytes(variant.size),
            percent(variant.quantized / variant.computing) if variant.computing else "",
            variant.pairs,
            variant.stage,
            variant.state.target,
        )
        for variant in variants
    ]
    columns = ("variant", metric, "file", "int8 coverage", "Q/DQ pairs", "stage", "target")
    return table_html(columns, rows, empty="No variant yet: keep the present state under a name.")
