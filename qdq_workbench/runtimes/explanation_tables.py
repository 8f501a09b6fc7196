"""An explanation as a table: plain text for terminals, HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from qdq_workbench._tables import html_table, text_table, wrapped
from qdq_workbench.runtimes.low_coverage import why_low

if TYPE_CHECKING:
    from qdq_workbench.runtimes.explanation import Explanation

_SEARCH = 'search(..., objective="ms") tries placements and times their files'
_NO_GAIN = "none would gain 2 % in float by more than the noise of the measurement"
_EDGES = (
    "At the edges of islands, these may be faster in float: their own kernels are, by more than the moved conversion "
    "is estimated to take (changes of layout are not counted). explanation.without_losses(edges=True) leaves them in "
    f"float; measure that file, or {_SEARCH}:"
)


def explanation_as_text(explanation: Explanation) -> str:
    """Return an explanation as text: the status of every layer with its reason and fix."""
    rows = [
        (entry.layer, entry.class_name, entry.status, entry.rule, f"{entry.reason}{_below(entry.fix_text)}")
        for entry in explanation.layers
    ]
    head = [
        f"Target {explanation.target}: {_counts(explanation)}",
        *why_low(explanation.layers, explanation.plan),
        *_on_fixes(explanation),
        *_on_losses(explanation),
        *(line for build in explanation.builds for line in build.lines()),
    ]
    table = text_table(("layer", "class", "status", "rule", "reason, and fix"), rows)
    return "\n".join([*map(wrapped, head), table])


def explanation_as_html(explanation: Explanation) -> str:
    """Return an explanation as an HTML fragment; all names are escaped, because they come from the user's model."""
    rows = [
        (entry.layer, entry.class_name, entry.status, entry.rule, entry.reason, entry.fix_text)
        for entry in explanation.layers
    ]
    table = html_table(("layer", "class", "status", "rule", "reason", "fix"), rows)
    title = f"{explanation.target}: {_counts(explanation)}"
    told = "".join(
        f"<p>{html.escape(line)}</p>"
        for line in (*why_low(explanation.layers, explanation.plan), *_on_fixes(explanation), *_on_losses(explanation))
    )
    return f"<div><p><b>{html.escape(title)}</b></p>{told}{table}</div>"


def _nothing_to_fix(explanation: Explanation) -> str:
    """Return a sentence if no specification brings more layers to INT8; else ""."""
    if any(entry.fix for entry in explanation.layers):
        return ""
    rest = [entry for entry in explanation.layers if entry.status != "int8"]
    if not rest:
        return f"Every layer runs in INT8 on {explanation.target}; there is nothing to fix."
    advised = sum(bool(entry.advice) for entry in rest)
    way = f"; a change of the model helps {advised} of them: explanation.summary() says how" if advised else ""
    return f"No specification brings more layers to INT8 (in float or partial: {len(rest)}){way}."


def _nothing_lost(explanation: Explanation) -> str:
    """Return a sentence if no island is a loss; else ""."""
    if explanation.losses:
        return ""
    slower = [island for island in explanation.islands if island.gain_ms < 0]
    line = "Measured, island by island (layers between which integers flow): none costs more than it saves"
    if not slower:
        return f"{line}."
    return (
        f"{line}, by more than the noise of the measurement and 0.5 % of a run. Within those: "
        f"{'; '.join(map(str, slower))}."
    )


def _below(fix: str) -> str:
    return f"\nfix: {fix}" if fix else ""


def _counts(explanation: Explanation) -> str:
    counts = ", ".join(f"{number} {status}" for status, number in explanation.counts.items() if number)
    shares = ", ".join(f"{100 * share:.1f} % of {name}" for name, share in explanation.coverage.items())
    return f"{counts or 'no layers'}; INT8: {shares}"


def _on_fixes(explanation: Explanation) -> Iterator[str]:
    """Yield a line on how to apply the fixes, or that there are none."""
    fixable = sum(bool(entry.fix) for entry in explanation.layers)
    if fixable:
        helped = f"{fixable} layer{'s' * (fixable != 1)}"
        yield f"Fixes: a specification helps {helped}; explanation.apply_fixes() returns it."
    elif explanation.layers:
        yield _nothing_to_fix(explanation)


def _on_losses(explanation: Explanation) -> list[str]:
    """Return the lines on the measurement: whole islands first, then the layers at their edges."""
    if not explanation.islands:
        return []
    lines = [_nothing_lost(explanation)]
    if explanation.losses:
        cost = "Measured: these cost more than they save; explanation.without_losses() leaves them in float:"
        lines = [cost, *(f"  {island}" for island in explanation.losses)]
    if explanation.edge_losses:
        return [*lines, _EDGES, *(f"  {edge}" for edge in explanation.edge_losses)]
    judged = [edge for edge in explanation.edges if not edge.is_loss]
    if not judged:
        return [*lines, f"No layer was judged alone; {_SEARCH}."]
    names = ", ".join(edge.layers[0] for edge in judged)
    return [
        *lines,
        f"Judged alone at the edges: {names}; {_NO_GAIN}. Others were not; {_SEARCH}.",
    ]
