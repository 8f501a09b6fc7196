"""A plan as a table: plain text for terminals, HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qdq_workbench.placement.plan import PlacementPlan

_LOWERING = "In the file, where it is not one operator"
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
    """Return the plan as text: the pairs, what stays in float and why, and what the file holds of which calls."""
    activations = sum(tensor.kind == "activation" for tensor in plan.tensors)
    weights = len(plan.tensors) - activations
    head = (
        f"Plan for {plan.graph.name!r}: mode {plan.mode}, target {plan.target_label}; {len(plan.tensors)} Q/DQ pairs "
        f"({activations} activations, {weights} weights)"
    )
    quantized = _text_table(("layer", "what", "tensor", "grid", "author", "reason"), plan_rows(plan))
    remaining = _text_table(("layer", "what", "tensor", "stays in float because"), unquantized_rows(plan))
    text = f"{head}\n\nQuantized\n{quantized}\n\nNot quantized, of layers with weights or several inputs\n{remaining}"
    lowered = lowered_rows(plan)
    if not lowered:
        return text
    return f"{text}\n\n{_LOWERING}\n{_text_table(_LOWERED, lowered)}"


def plan_as_html(plan: PlacementPlan) -> str:
    """Return the plan as an HTML fragment; all names are escaped, because they are the user's text."""
    quantized = _html_table(("layer", "what", "tensor", "grid", "author", "reason"), plan_rows(plan))
    remaining = _html_table(("layer", "what", "tensor", "stays in float because"), unquantized_rows(plan))
    title = html.escape(
        f"{plan.graph.name}: mode {plan.mode}, target {plan.target_label}, {len(plan.tensors)} Q/DQ pairs"
    )
    rows = lowered_rows(plan)
    lowered = f"<details><summary>{_LOWERING} ({len(rows)})</summary>{_html_table(_LOWERED, rows)}"
    return (
        f"<div><p><b>{title}</b></p>{quantized}"
        f"<details><summary>Not quantized ({len(plan.unquantized)})</summary>{remaining}</details>"
        f"{lowered}</details></div>"
    )


def _text_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [tuple(head), *((*(_clip(cell) for cell in row[:-1]), row[-1]) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(text)


def _html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    header = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def _clip(cell: str, limit: int = 48) -> str:
    return cell if len(cell) <= limit else cell[: limit - 3] + "..."
