"""The section of the sensitivity pane that searches the cheapest placement that is accurate enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import ErrorBox, shows_errors
from qdq_widgets.checkpoint_field import CheckpointField
from qdq_widgets.curves import is_share
from qdq_widgets.pane import button, kibibytes, row, table_html, text_html

_STARTS = (
    ("as planned", 0),  # not None, for which a dropdown shows no selection
    ("8 bits", 8),
    ("4 bits", 4),
    ("3 bits", 3),
    ("2 bits", 2),
)
_RAISES = (("8 bits, then float", (8,)), ("4, 8 bits, then float", (4, 8)), ("float only", ()))
_OBJECTIVES = (("least size", "bytes"), ("least time", "ms"), ("least float operations", "macs"))
_CHOICES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bits and float", {}),
    ("cases too", {"cases": "auto"}),
    ("cases and pairs too", {"cases": "auto", "pairs": True}),
)
_LOSS = 0.01  # the suggested floor is the float model's accuracy less this
_HINT = (
    "Raises the most sensitive layers until the accuracy reaches the floor, then looks for the best placement that "
    "keeps it. What is tried is built and measured on half of the samples; the other half confirms what is found. The "
    "plan changes only by the last button."
)


class SearchSection:
    """Runs `Workbench.search`, shows the placements that were tried, and applies the result.

    Args:
        bench: The `Workbench`.
        start: `Pane.start` of the pane.
        errors: The error box of the pane.
        checkpoint: The field for its file.
    """

    def __init__(
        self,
        bench: Any,
        start: Callable[[Callable[[], Any]], None],
        errors: ErrorBox,
        checkpoint: CheckpointField,
    ) -> None:
        self.bench, self._start, self.errors, self.checkpoint = bench, start, errors, checkpoint
        self.floor = widgets.BoundedFloatText(
            value=0.9, min=0.0, max=1.0, step=0.005, description="Accuracy ≥", layout={"width": "180px"}
        )
        self.floor.tooltip = "The share of right answers that the found placement has to reach, from 0 to 1"
        self.weights = widgets.Dropdown(options=_STARTS, description="Weights", layout={"width": "220px"})
        self.weights.tooltip = "How many bits the quantized weights start with"
        self.raises = widgets.Dropdown(options=_RAISES, description="Raise to", layout={"width": "260px"})
        self.objective = widgets.Dropdown(options=_OBJECTIVES, description="Find", layout={"width": "250px"})
        self.objective.tooltip = "What is made best; times are measured in ONNX Runtime, and take longer"
        self.choices = widgets.Dropdown(
            options=[label for label, _ in _CHOICES], description="Decide", layout={"width": "260px"}
        )
        self.choices.tooltip = (
            "Which decisions are tried: bits and float per layer; the insertion cases that change the plan; where the "
            "pairs of sums, products, pooling and activations are"
        )
        self.together = widgets.Checkbox(
            value=False, description="equal layers together", indent=False, layout={"width": "180px"}
        )
        self.together.tooltip = "One decision about all layers that are the same place of repeated blocks"
        self.samples = widgets.BoundedIntText(
            value=512, min=1, max=10**6, description="Samples", layout={"width": "170px"}
        )
        self.run = button("Search a placement", self._run, icon="search", style="primary")
        self.stop = button(
            "Stop", bench.jobs.stop, icon="stop", style="danger", tooltip="Stop after this placement; the best is kept"
        )
        self.use = button(
            "Use this placement", self._use, icon="check", tooltip="One undoable step: an entry per raised layer"
        )
        self._note = widgets.HTML()
        self._table = widgets.HTML()
        self._suggested: float | None = None
        self.widget = widgets.VBox(
            [
                widgets.HTML("<b>Search for mixed precision</b>"),
                row(self.objective, self.floor, self.weights, self.raises, self.samples),
                row(self.choices, self.together, checkpoint.field),
                row(self.run, self.stop, self.use),
                checkpoint.note,
                self._note,
                self._table,
            ]
        )

    def refresh(self) -> None:
        """Show the last result."""
        job, found = self.bench.jobs.current, self.bench.search_result
        self._suggest()
        self.run.disabled = job is not None
        self.stop.disabled = job is None
        self.use.disabled = job is not None or found is None
        if job is None:
            self.checkpoint.refresh()
        if found is None:
            self._note.value, self._table.value = text_html(_HINT, "qdq-muted"), ""
            return
        first, best = found.history[0], found.best
        sizes = f"weights {kibibytes(first.weight_bytes)} before, {kibibytes(best.weight_bytes)} found"
        scores = f"float {found.float_accuracy:.4f}, before {found.quantized_accuracy:.4f}, found {found.accuracy:.4f}"
        self._note.value = text_html(f"{found.reason} {found.metric.capitalize()}: {scores}; {sizes}.")
        rows = [
            (
                f"{place}{'*' if step.on_front else ''}",
                f"{step.accuracy:.4f}",
                kibibytes(step.weight_bytes),
                f"{step.float_macs:,}",
                "" if step.ms is None else f"{step.ms:.3f}",
                step.label,
            )
            for place, step in enumerate(found.history)
        ]
        head = ("* front", found.metric, "weights", "float MACs", "ms", "placement")
        table = table_html(head, rows)
        self._table.value = f"<details><summary>What was tried ({len(rows)})</summary>{table}</details>"

    def _suggest(self) -> None:
        """Set the floor a little below the float model's accuracy, once, when that becomes known."""
        curves = self.bench.curves
        scores = curves.fp32.metrics if curves.fp32 is not None else {}
        known = scores.get(curves.metric) if is_share(curves.metric) else None
        if known is not None and self._suggested is None:
            self._suggested = round(max(0.0, known - _LOSS), 4)
            self.floor.value = self._suggested

    @shows_errors
    def _run(self) -> None:
        floor, weights, bits = self.floor.value, (self.weights.value or None), self.raises.value
        how = {"samples": self.samples.value, "objective": self.objective.value, **dict(_CHOICES)[self.choices.value]}
        how.update(share="patterns" if self.together.value else None, **self.checkpoint.given)
        self._start(lambda: self.bench.search(floor, weight_bits=weights, bits=bits, **how))

    @shows_errors
    def _use(self) -> None:
        self.bench.apply_search()
