"""A plan as a table: plain text for terminals, HTML for notebooks."""

from __future__ import annotations

import html
import itertools
from typing import TYPE_CHECKING

from qdq_workbench._tables import html_table, text_table, wrapped

if TYPE_CHECKING:
    from qdq_workbench.placement.plan import PlacementPlan

_LOWERING = "In the file, where it is not one operator"
_AS_ABOVE = "as above"
_QUANTIZED = ("layer", "what", "tensor", "grid", "author", "reason")
_LOWERED = ("call", "class", "step", "because")


def plan_rows(plan: PlacementPlan) -> list[tuple[str, ...]]:
    """Return one row per placement: layer, what, tensor, grid, author, reason."""
    rows: list[tuple[str, ...]] = []
    for placement in plan.placements:
        what = {"input": f"input {placement.input_index}", "output": "output"}.get(
            placement.site, placement.weight or ""
        )
        method = "" if placement.method is None else f", {placement.method.label}"
        grid = f"{placement.quantizer.label}{method}"
        rows.append((placement.layer, what, placement.tensor, grid, placement.author, placement.reason))
    return rows


def unquantized_rows(plan: PlacementPlan) -> list[tuple[str, ...]]:
    """Return one row per value that stays in float: layer, what, tensor, reason."""
    return [(item.layer, item.what, item.tensor, item.reason) for item in plan.unquantized]


def lowered_rows(plan: PlacementPlan) -> list[tuple[str, ...]]:
    """Return one row per call that is not simply written to a file: call, class, step, reason."""
    nodes = plan.lowering.nodes.values()
    return [(n.node, plan.graph.node(n.node).class_name, n.step, n.reason) for n in nodes if n.step != "written"]


def plan_as_text(plan: PlacementPlan) -> str:
    """Return the plan as text: the pairs, the values that stay in float with the reason, and the lowering."""
    head = f"Plan for {plan.graph.name!r}: mode {plan.mode}, target {plan.target_label}; {_counts(plan)}"
    quantized = text_table(_QUANTIZED, _without_repeated_reasons(plan_rows(plan)))
    remaining = text_table(("layer", "what", "stays in float because"), _short_unquantized_rows(plan))
    text = (
        f"{wrapped(head)}\n\n{_title(plan)}\n{quantized}\n\n"
        f"Not quantized, of layers with weights or several inputs\n{remaining}"
    )
    lowered = lowered_rows(plan)
    if not lowered:
        return text
    return f"{text}\n\n{_LOWERING}\n{text_table(_LOWERED, lowered)}"


def _counts(plan: PlacementPlan) -> str:
    activations = sum(tensor.kind == "activation" for tensor in plan.tensors)
    return f"{len(plan.tensors)} Q/DQ pairs ({activations} activations, {len(plan.tensors) - activations} weights)"


def _title(plan: PlacementPlan) -> str:
    """Return the title of the table of pairs, which explains why it has more rows than there are pairs."""
    rows, pairs = len(plan.placements), len(plan.tensors)
    shared = f"{rows} places, which share {pairs} pairs: what reads one tensor reads one pair"
    return f"Quantized: {shared if rows != pairs else f'{rows} places, a pair for each'}"


def _without_repeated_reasons(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Replace a reason by "as above" if the row before has the same layer, author and reason."""
    found = []
    for before, row in itertools.pairwise([("",) * len(_QUANTIZED), *rows]):
        same = (before[0], *before[-2:]) == (row[0], *row[-2:])
        found.append((*row[:-1], _AS_ABOVE if same else row[-1]))
    return found


def _short_unquantized_rows(plan: PlacementPlan) -> list[tuple[str, ...]]:
    """Return the values that stay in float, one row per layer and reason."""
    grouped = itertools.groupby(plan.unquantized, key=lambda item: (item.layer, item.reason))
    return [
        (
            layer,
            ", ".join(
                item.what if item.tensor == f"{layer}/{item.what}" else f"{item.what} ({item.tensor})" for item in items
            ),
            reason,
        )
        for (layer, reason), items in grouped
    ]


def plan_as_html(plan: PlacementPlan) -> str:
    """Return the plan as an HTML fragment; all names are escaped, because users choose them."""
    quantized = html_table(_QUANTIZED, plan_rows(plan))
    remaining = html_table(("layer", "what", "tensor", "stays in float because"), unquantized_rows(plan))
    title = html.escape(f"{plan.graph.name}: mode {plan.mode}, target {plan.target_label}, {_counts(plan)}")
    rows = lowered_rows(plan)
    lowered = f"<details><summary>{_LOWERING} ({len(rows)})</summary>{html_table(_LOWERED, rows)}"
    return (
        f"<div><p><b>{title}</b></p><p>{html.escape(_title(plan))}</p>{quantized}"
        f"<details><summary>Not quantized ({len(plan.unquantized)})</summary>{remaining}</details>"
        f"{lowered}</details></div>"
    )
