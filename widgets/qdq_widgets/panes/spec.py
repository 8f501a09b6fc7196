"""The spec pane: every entry of the specification with its effect; add, remove, load and save entries."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

import qdq_workbench as qdq
from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.errors import BenchError
from qdq_widgets.pane import Pane, button, row, text_html
from qdq_widgets.replacing import Rows
from qdq_widgets.settings import settings_text

SHOWN_ENTRIES = 100
_KINDS = {"layer name": "exact", "class": "class", "glob": "glob", "regular expression": "regex"}


class SpecPane(Pane):
    """Shows and edits the specification, without the graph."""

    title = "Spec"

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.filter = widgets.Text(placeholder="Filter entries", layout={"width": "180px"})
        self.filter.observe(lambda _: self.refresh(), "value")
        self._summary = widgets.HTML()
        self._list = widgets.VBox(layout={"max_height": "260px", "overflow": "auto"})
        self.rows = Rows(self._list, self._make_row, self._fill_row)
        self.name = widgets.Text(placeholder="conv1, Conv2D, block*_conv", layout={"width": "210px"})
        self.kind = widgets.Dropdown(options=list(_KINDS), layout={"width": "140px"})
        self.kind.tooltip = "What the name is: of a layer, of a class, or a pattern"
        self.inputs = _check("input", on=True)
        self.weight = _check("weight", on=True)
        self.output = _check("output", on=False)
        self.indices = widgets.Text(placeholder="inputs: all, or 0, 2", layout={"width": "150px"})
        self.add = button("Add", self._add, icon="plus", style="primary")
        self.path = widgets.Text(value="spec.yaml", layout={"width": "210px"})
        self.load = button("Load", self._load, icon="folder-open", tooltip="Replace the spec by the file's")
        self.save = button("Save", self._save, icon="save")
        return [
            row(self.filter, self._summary),
            self._list,
            widgets.HTML('<div class="qdq-heading">Add an entry</div>'),
            row(self.name, self.kind),
            row(self.inputs, self.weight, self.output, self.indices, self.add),
            widgets.HTML('<div class="qdq-heading">File (YAML or JSON)</div>'),
            row(self.path, self.load, self.save),
        ]

    def refresh(self) -> None:
        """Show the entries of the present state."""
        wanted = self.filter.value.strip().lower()
        entries = [(i, e) for i, e in enumerate(self.bench.state.spec.layers) if wanted in e.name.lower()]
        self._effects = entry_effects(self.bench.plan)
        self.rows.show(entries[:SHOWN_ENTRIES])
        hidden = len(entries) - SHOWN_ENTRIES
        count = len(self.bench.state.spec.layers)
        text = f"{count} entr{'y' if count == 1 else 'ies'}" + (f", {hidden} not shown: filter" if hidden > 0 else "")
        if not self.bench.state.spec.layers:
            text = "No entries: the defaults of the layer classes and the cases decide."
        self._summary.value = text_html(text, "qdq-muted")

    def _make_row(self, number: int) -> Any:
        remove = button("", lambda: self._remove(self.rows.items[number][0]), icon="trash")
        return widgets.HBox([remove, widgets.HTML()], layout={"align_items": "center", "grid_gap": "6px"})

    def _fill_row(self, shown: Any, item: tuple[int, Any]) -> None:
        (position, entry), (remove, label) = item, shown.children
        count, replaced = self._effects.get(f"spec[{position}]", (0, ()))
        effect = f"decides {count} layer{'' if count == 1 else 's'}" if count else "decides nothing: overruled"
        if replaced:
            effect += f", replaced {', '.join(replaced)}"
        remove.tooltip = f"Remove entry {position}"
        label.value = (
            f'<span class="qdq-muted">spec[{position}]</span> <b>{html.escape(entry.label)}</b> '
            f'{html.escape(entry_text(entry))} <span class="qdq-muted">{html.escape(effect)}</span>'
        )

    @shows_errors
    def _add(self) -> None:
        kind = _KINDS[self.kind.value]
        self.bench.add_entry(
            self.name.value.strip(),
            is_keras_class=kind == "class",
            match="exact" if kind == "class" else kind,
            quantize_input=self.inputs.value,
            quantize_weight=self.weight.value,
            quantize_output=self.output.value,
            quantization_index=parse_indices(self.indices.value),
        )
        self.name.value = ""

    @shows_errors
    def _remove(self, position: int) -> None:
        self.bench.remove_entry(position)

    @shows_errors
    def _load(self) -> None:
        self.bench.set_spec(qdq.QuantizationSpec.load(self.path.value))

    @shows_errors
    def _save(self) -> None:
        self.bench.spec.save(self.path.value)
        self._summary.value = text_html(f"Saved to {self.path.value}", "qdq-muted")


def parse_indices(text: str) -> list[int] | None:
    """Return the input numbers in a text such as "0, 2"; None for all, if the text is empty or "all".

    Raises:
        BenchError: If the text is something else.

    Example:
        >>> parse_indices("0, 2"), parse_indices("all")
        ([0, 2], None)
    """
    cleaned = text.strip().lower()
    if cleaned in ("", "all"):
        return None
    try:
        return [int(part) for part in cleaned.replace(";", ",").split(",")]
    except ValueError as error:
        raise BenchError(
            f"Inputs are numbers from 0 on, separated by commas, or nothing for all. Received: {text!r}"
        ) from error


def entry_text(entry: Any) -> str:
    """Return the sites that a `LayerConfig` quantizes, with its settings, in words."""
    settings = settings_text(entry.quantize_config)
    if not (entry.quantize_input or entry.quantize_weight or entry.quantize_output):
        return "stays in float"
    parts = []
    if entry.quantize_input:
        parts.append("inputs" if entry.quantization_index is None else f"inputs {entry.quantization_index}")
    parts += ["weights"] * entry.quantize_weight + ["output"] * entry.quantize_output
    return " + ".join(parts) + (f" ({settings})" if settings else "")


def entry_effects(plan: Any) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return, per author, the number of calls that it decides, and the authors that it replaced there."""
    effects: dict[str, tuple[int, tuple[str, ...]]] = {}
    for decision in plan.decisions.values():
        count, replaced = effects.get(decision.author, (0, ()))
        effects[decision.author] = (count + 1, tuple(dict.fromkeys((*replaced, *decision.replaced))))
    return effects


def _check(text: str, *, on: bool) -> Any:
    return widgets.Checkbox(value=on, description=text, indent=False, layout={"width": "auto"})
