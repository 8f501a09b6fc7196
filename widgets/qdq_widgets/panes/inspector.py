"""The inspector: description of a layer, its placements with their reasons, and the switches of its sites."""

from __future__ import annotations

import collections
import html
import math
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.graph_tables import node_places, parameter_counts
from qdq_widgets.grid_values import grid_values, known_ranges
from qdq_widgets.layer_groups import GroupSite, classes_text, example_of, group_sites, group_table
from qdq_widgets.layer_values import LayerValues
from qdq_widgets.pane import Pane, button, filled_columns, row, table_html, text_html
from qdq_widgets.quantized_after import quantized_after
from qdq_widgets.quantizer_controls import QuantizerControls
from qdq_widgets.settings import grid_text
from qdq_widgets.state import site_text
from qdq_widgets.targets import layer_counts, reason_text, shown_status, target_title, verdicts
from qdq_widgets.toggles import blocked_reason

_COLUMNS = ("site", "grid", "values", "scale group", "why")
_STATUS_WORDS = {
    "int8": "runs in INT8",
    "partial": "runs partly in INT8",
    "float": "runs in float",
    "vanishes": "has nothing of it to run",
}


class InspectorPane(Pane):
    """Shows the layers that are selected in the graph."""

    title = "Inspector"
    events = ("plan", "selection", "calibration", "stage")

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self._names: tuple[str, ...] = ()
        self._kind: tuple[str, ...] = ()  # of the switches: ("node", number of sites) or ("group",)
        self._kinds: dict[tuple[str, ...], Any] = {self._kind: widgets.VBox()}
        self._fixes: tuple[str, ...] = ()
        self._showing = False
        self._head = widgets.HTML()
        self.switches = self._kinds[self._kind]
        self._switches = widgets.VBox([self.switches])
        self._verdict = widgets.HTML()
        self._fix = button("Make it INT8", self._apply_fix, icon="magic", style="success")
        self._like = button("Apply to all of this class", self._apply_like, icon="clone")
        self._details = widgets.HTML()
        self.quantizers = QuantizerControls(self._configure)
        self._preview = button(
            "Show in the graph", self._show_fix, icon="eye", tooltip="Draw what the fix would change"
        )
        self._buttons = row(self._fix, self._preview, self._like)
        self.values = LayerValues(self.bench, self.start)
        shown = [self._switches, self._verdict, self._buttons, self.values.widget, self.quantizers.widget]
        return [self._head, *shown, self._details]

    def show(self, names: Sequence[str]) -> None:
        """Show other nodes; for several, each switch shows how many of them are quantized, and applies to all."""
        self._names = tuple(names)
        self.refresh()

    def refresh(self) -> None:
        """Show the selected layers under the present plan."""
        known = self.bench.graph.once(node_places)
        self._names = tuple(name for name in self._names if name in known)
        if not self._names:
            self._show_nothing()
            return
        self._buttons.layout.display = self.switches.layout.display = ""
        if len(self._names) > 1:
            self._show_several()
            return
        node = self.bench.graph.node(self._names[0])
        self._show_head(node.name, node.class_name)
        self._show_switches(node)
        self._show_verdict(node)
        self.quantizers.show(self.bench, node)
        self._details.value = _details(self.bench.graph, self.bench.plan, node, known_ranges(self.bench))
        self.values.show(node)
        self._like.layout.display = ""
        self._like.tooltip = f"Quantize every {node.class_name} as this one is"

    def _show_several(self) -> None:
        """Show the switches, statuses and quantizers of several selected layers, and a table of them."""
        graph, names = self.bench.graph, self._names
        explanation, _ = verdicts(self.bench)
        layers = {graph.node(name).layer for name in names}
        entries = [entry for entry in explanation.layers if entry.layer in layers]
        calls = f", {len(names)} calls" if len(layers) < len(names) else ""
        self._show_head(f"{len(layers)} layer{'s' * (len(layers) != 1)}{calls}", classes_text(graph, names))
        self._show_group_switches(group_sites(self.bench, names))
        self._verdict.layout.display = "" if entries else "none"
        self._verdict.value = _group_verdict(target_title(self.bench.plan.target), entries)
        self._fixes = tuple(entry.layer for entry in entries if entry.fix)
        self._fix.layout.display = self._preview.layout.display = "" if self._fixes else "none"
        self._fix.description = f"Fix {len(self._fixes)} of them"
        self._fix.tooltip = f"Quantize what is missing of {', '.join(self._fixes)[:200]}"
        self._like.layout.display = "none"
        self.values.show(None)
        example = example_of(graph, names)
        self.quantizers.show(self.bench, example, f"As {example.name} has them; a change goes to all {len(names)}.")
        self._details.value = group_table(self.bench, names, explanation)

    def _show_head(self, title: str, text: str) -> None:
        self._head.value = f'<div class="qdq-title">{html.escape(title)}</div>{text_html(text, "qdq-muted")}'

    def _show_nothing(self) -> None:
        whole = table_html(("", ""), _model_rows(self.bench))
        self._head.value = (
            f'<div class="qdq-title">{html.escape(self.bench.graph.name)}</div>'
            '<div class="qdq-muted">Click a layer to see and change how it is quantized.</div>'
        )
        self._details.value = whole
        for shown in (self._verdict, self._buttons, self.switches, self.quantizers.widget):
            shown.layout.display = "none"
        self.values.show(None)

    def _sites(self, node: Any) -> list[tuple[str, int | None, str, bool]]:
        """Return site, index, label and whether it is quantized, for every switch of a node."""
        plan = self.bench.plan
        sites: list[tuple[str, int | None, str, bool]] = []
        for index, tensor in enumerate(node.inputs):
            label = f"input {index}" if len(node.inputs) > 1 else "input"
            on = plan.input_placement(node.name, index) is not None
            sites.append(("input", index, f"{label} ← {tensor}", on))
        sites.append(("weight", None, "weights", plan.for_layer(node.layer).quantize_weight))
        output = any(plan.output_placement(tensor) is not None for tensor in node.outputs)
        sites.append(("output", None, "output, for all readers", output))
        return sites

    def _show_switches(self, node: Any) -> None:
        """Update the switches; nodes with the same number of inputs share them, which keeps the keyboard focus."""
        sites = self._sites(node)
        self._use_switches(("node", str(len(sites))), [(site, index) for site, index, _, _ in sites])
        self._showing = True  # not the user's click
        try:
            for shown, (site, index, label, on) in zip(self.switches.children, sites, strict=True):
                toggle, note = shown.children
                reason = blocked_reason(self.bench.planner, self.bench.plan, node, site, index)
                toggle.value, toggle.disabled = on, bool(reason)
                toggle.tooltip = reason or f"Switch {label}"
                after = None if on or site != "output" else quantized_after(self.bench.plan, node)
                state = "quantized" if on else "float" if after is None else f"quantized after {after}"
                note.value = (
                    f'<span class="qdq-switch-label">{html.escape(label)}</span> '
                    f'<span class="qdq-muted">{state}{". " + html.escape(reason) if reason else ""}</span>'
                )
        finally:
            self._showing = False

    def _show_group_switches(self, sites: Sequence[GroupSite]) -> None:
        # Not those of a node, which have an index per input.
        self._use_switches(("group",), [(item.site, None) for item in sites])
        self._showing = True  # not the user's click
        try:
            for shown, item in zip(self.switches.children, sites, strict=True):
                toggle, note = shown.children
                toggle.value, toggle.disabled = item.is_on, not (item.able or item.on)
                toggle.tooltip = f"Switch the {item.label} of all selected layers"
                note.value = (
                    f'<span class="qdq-switch-label">{html.escape(item.label)}</span> '
                    f'<span class="qdq-muted">{html.escape(item.state)}</span>'
                )
        finally:
            self._showing = False

    def _use_switches(self, kind: tuple[str, ...], places: Sequence[tuple[str, int | None]]) -> None:
        """Show the switches of a kind in place of others, which stay: JupyterLab keeps even widgets that are closed."""
        if kind not in self._kinds:
            self._kinds[kind] = widgets.VBox([self._switch(kind, site, index) for site, index in places])
            self._switches.children = (*self._switches.children, self._kinds[kind])
        if kind != self._kind:
            self.switches.layout.display = "none"
            self._kind, self.switches = kind, self._kinds[kind]
        self.switches.layout.display = ""

    def _switch(self, kind: tuple[str, ...], site: str, index: int | None) -> Any:
        letter = site[0].upper()
        toggle = widgets.ToggleButton(description=letter, layout={"width": "34px"})
        toggle.add_class(f"qdq-badge-{letter.lower()}")
        toggle.observe(lambda change: self._toggle(kind, site, index, change["new"]), "value")
        return widgets.HBox([toggle, widgets.HTML()], layout={"align_items": "center", "grid_gap": "6px"})

    def _toggle(self, kind: tuple[str, ...], site: str, index: int | None, on: bool) -> None:
        # A click may come late, on switches that other ones have replaced by then.
        if self._showing or kind != self._kind:
            return
        step = self._try_toggle(site, index, on)
        if step is None:  # refused: set the switch back
            self.refresh()

    @shows_errors
    def _try_toggle(self, site: str, index: int | None, on: bool) -> Any:
        if len(self._names) == 1:
            return self.bench.toggle(self._names[0], site, index, on=on)
        [item] = [item for item in group_sites(self.bench, self._names) if item.site == site]
        return self.bench.toggle(list(item.able if on else item.on), site, on=on)

    def _configure(self, site: str, setting: str, value: Any) -> None:
        if self._try_configure(site, {setting: value} if setting else {}) is None:
            self.refresh()  # refused: set the picker back

    @shows_errors
    def _try_configure(self, site: str, settings: dict[str, Any]) -> Any:
        return self.bench.configure(list(self._names), site, **settings)

    def _show_verdict(self, node: Any) -> None:
        target = target_title(self.bench.plan.target)
        found = [entry for entry in verdicts(self.bench)[0].layers if entry.layer == node.layer]
        self._verdict.layout.display = "" if found else "none"
        if not found:
            self._fix.layout.display = self._preview.layout.display = "none"
            return
        entry = found[0]
        self._fixes = (entry.layer,)
        self._fix.description = "Quantize what is missing" if entry.status == "int8" else "Make it INT8"
        status = shown_status(entry)
        words = _STATUS_WORDS.get(status, status)
        self._verdict.value = (
            f'<div class="qdq-verdict qdq-{html.escape(status)}"><b>{html.escape(target)} '
            f"{words}</b><br>{html.escape(reason_text(entry))} "
            f'<span class="qdq-muted">[{html.escape(entry.rule)}]</span> {_link(entry.documentation)}</div>'
        )
        self._fix.layout.display = self._preview.layout.display = "" if entry.fix else "none"
        self._fix.tooltip = "Add to the spec: " + "; ".join(_fix_text(fix) for fix in entry.fix)

    @shows_errors
    def _apply_fix(self) -> None:
        self.bench.apply_fix(*self._fixes)

    @shows_errors
    def _show_fix(self) -> None:
        self.bench.view.preview(self.bench.state_with_fix(*self._fixes))

    @shows_errors
    def _apply_like(self) -> None:
        self.bench.apply_like(self._names[-1])


def _group_verdict(target: str, entries: Sequence[Any]) -> str:
    counts = collections.Counter(map(shown_status, entries))
    shown = set(counts) - {"vanishes"} or {"vanishes"}
    status = shown.pop() if len(shown) == 1 else "partial"
    words = "; ".join(
        f"{count} {_STATUS_WORDS.get(key, key).replace('runs', 'run').replace('has', 'have')}"
        for key, count in counts.items()
    )
    return f'<div class="qdq-verdict qdq-{status}"><b>{html.escape(target)}</b>: {html.escape(words)}</div>'


def _link(address: str) -> str:
    """Return a link to an https address; empty for others, since no address may run a script."""
    if not address.startswith("https://"):
        return ""
    shown = html.escape(address, quote=True)
    return f'<a href="{shown}" target="_blank" rel="noopener noreferrer">documentation</a>'


def _fix_text(fix: Any) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in dict(fix).items())


def _model_rows(bench: Any) -> list[tuple[str, str]]:
    plan = bench.plan
    activations = sum(tensor.kind == "activation" for tensor in plan.tensors)
    explanation, unknown = verdicts(bench)
    total, _, counts = layer_counts(bench.graph, explanation).partition(" layers: ")
    return [
        ("layers", total),
        ("parameters", f"{sum(bench.graph.once(parameter_counts).values()):,}"),
        ("Q/DQ pairs", f"{activations} activations, {len(plan.tensors) - activations} weights"),
        (target_title(plan.target), "" if unknown else counts),
    ]


def _details(graph: Any, plan: Any, node: Any, ranges: Any) -> str:
    """Return the decision about a node, its placements, and the description of the layer, as HTML."""
    shapes = [("reads", ", ".join(f"{name} {_shape(graph, name)}" for name in node.inputs) or "nothing")]
    shapes.append(("gives", ", ".join(_shape(graph, name) for name in node.outputs)))
    shapes += [(weight.name, f"{weight.shape}, {math.prod(weight.shape):,} values") for weight in node.weights]
    settings = [(key, str(value)) for key, value in node.settings.items()]
    decided = plan.for_layer(node.name)
    values = grid_values(plan, ranges)
    rows = [
        (site_text(p), grid_text(p), _values(values, p), p.scale_group or "", _why(p))
        for p in plan.placements
        if p.node == node.name or (p.site == "weight" and p.layer == node.layer)
    ]
    floats = [(item.what, item.reason) for item in plan.unquantized if item.layer == node.layer]
    parts = [
        '<div class="qdq-heading">Why</div>',
        text_html(f"{decided.author}: {decided.reason}"),
        table_html(*filled_columns(_COLUMNS, rows), empty="Nothing is quantized."),
    ]
    if floats:
        parts += ['<div class="qdq-heading">Stays in float</div>', table_html(("value", "reason"), floats)]
    in_file = [("in the file", _in_file(plan.lowering.nodes[node.name]))]
    parts += ['<div class="qdq-heading">Layer</div>', table_html(("", ""), [*shapes, *in_file, *settings])]
    return "".join(parts)


def _why(placement: Any) -> str:
    """Return author and reason of a placement, and the authors whose decisions it replaced."""
    replaced = f" (replaced {', '.join(placement.replaced)})" if placement.replaced else ""
    return f"{placement.author}: {placement.reason}{replaced}"


def _values(values: dict[str, list[str]], placement: Any) -> str:
    """Return scale, zero point and range of the pairs on a placement's tensor, if known; empty for weights."""
    return "; ".join(values.get(placement.tensor, ())) if placement.site != "weight" else ""


def _in_file(lowered: Any) -> str:
    """Return the operators of a call in the file, or why it has none, in a few words."""
    if not lowered.has_operators:
        return f"nothing: {lowered.reason}"
    why = f": {lowered.reason}" if lowered.reason else ""
    if lowered.operators is None:
        return f"what the converter makes of it{why}"
    return (", ".join(lowered.operators) or "one of its inputs") + why


def _shape(graph: Any, tensor: str) -> str:
    found = graph.tensors[tensor]
    return f"({', '.join('?' if size is None else str(size) for size in found.shape)}) {found.dtype}"
