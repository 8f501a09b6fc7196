"""The inspector for several layers: switches with the number of quantized layers, and a table of the layers."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.pane import table_html, text_html
from qdq_widgets.targets import shown_status

SHOWN_LAYERS = 80
SHOWN_CLASSES = 5


@dataclasses.dataclass(frozen=True)
class GroupSite:
    """One switch for several layers.

    Args:
        site: "input", "weight" or "output".
        label: Its label.
        on: Calls whose site is quantized; switching off applies to them.
        able: Calls that switching on applies to.
    """

    site: str
    label: str
    on: tuple[str, ...]
    able: tuple[str, ...]

    @property
    def is_on(self) -> bool:
        """Whether all calls in `able` are quantized, so that a click switches off."""
        return bool(self.on) and set(self.able) <= set(self.on)

    @property
    def state(self) -> str:
        """The number of quantized calls, in words."""
        if not self.able and not self.on:
            return "none of these layers has any that can be quantized"
        return f"{len(set(self.on) & set(self.able))} of {len(self.able)} quantized"


def group_sites(bench: Any, names: Sequence[str]) -> list[GroupSite]:
    """Return the switches for several nodes.

    The switch of the inputs applies to layers with weights if there are any, as for a closed block of the graph: pairs
    before the normalizations and activations between two convolutions are not useful.
    """
    plan, reasons = bench.plan, bench.view.graph.disabled_reasons
    nodes = [bench.graph.node(name) for name in names]
    quantized = {placement.layer for placement in plan.placements if placement.site == "weight"}
    weighty = [node for node in nodes if (node.name, "weight") not in reasons]
    readers = [node for node in weighty or nodes if (node.name, "input") not in reasons]
    reads = "inputs of the layers with weights" if weighty and len(weighty) < len(nodes) else "inputs"
    writers = [node for node in nodes if (node.name, "output") not in reasons]
    return [
        GroupSite("input", reads, _names(node for node in nodes if _has_input(plan, node)), _names(readers)),
        GroupSite("weight", "weights", _names(n for n in weighty if n.layer in quantized), _names(weighty)),
        GroupSite(
            "output", "outputs, for all readers", _names(n for n in writers if _has_output(plan, n)), _names(writers)
        ),
    ]


def example_of(graph: Any, names: Sequence[str]) -> Any:
    """Return the node whose quantizers are shown for several: the last one with weights and inputs, else the last."""
    nodes = [graph.node(name) for name in names]
    return next((node for node in reversed(nodes) if node.weights and (node.inputs or len(nodes) == 1)), nodes[-1])


def classes_text(graph: Any, names: Sequence[str]) -> str:
    """Return the classes of several nodes with their counts, the most frequent first."""
    counts = collections.Counter(graph.node(name).class_name for name in names).most_common()
    shown = [f"{count} {name}" for name, count in counts[:SHOWN_CLASSES]]
    rest = sum(count for _, count in counts[SHOWN_CLASSES:])
    return ", ".join(shown + ([f"{rest} others"] if rest else []))


def group_table(bench: Any, names: Sequence[str], explanation: qdq.Explanation) -> str:
    """Return a table of nodes as HTML: the quantized sites of each, its status on the target, and the reason."""
    plan = bench.plan
    entries = {entry.layer: entry for entry in explanation.layers}
    quantized = {placement.layer for placement in plan.placements if placement.site == "weight"}
    rows = []
    for name in names[:SHOWN_LAYERS]:
        node = bench.graph.node(name)
        entry = entries.get(node.layer)
        sites = [("I", _has_input(plan, node)), ("W", node.layer in quantized), ("O", _has_output(plan, node))]
        on = " ".join(letter for letter, is_on in sites if is_on) or "none"
        rows.append((name, on, shown_status(entry) if entry else "", entry.reason if entry else ""))
    hidden = len(names) - len(rows)
    table = table_html(("layer", "quantized", "target", "why"), rows)
    return table + (text_html(f"{hidden} more layers", "qdq-muted") if hidden else "")


def _names(nodes: Any) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _has_input(plan: Any, node: Any) -> bool:
    return any(plan.input_placement(node.name, index) is not None for index in range(len(node.inputs)))


def _has_output(plan: Any, node: Any) -> bool:
    return any(plan.output_placement(tensor) is not None for tensor in node.outputs)
