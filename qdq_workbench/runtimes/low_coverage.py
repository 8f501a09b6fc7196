"""The largest float parts of a model, for the summary of an explanation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qdq_workbench.placement.coverage import LOW, estimated_macs
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.runtimes.verdict import LayerExplanation

_SHOWN = 4
_SHARE = {"int8": 0.0, "partial": 0.5, "float": 1.0}
_WORDS = {"macs": "multiply-accumulate operations", "bytes": "bytes of weights"}


def why_low(layers: Sequence[LayerExplanation], plan: PlacementPlan | None) -> Iterator[str]:
    """Yield lines that name the causes where less than half of the products or of the weights is INT8."""
    parts: dict[str, list[tuple[float, float]]] = {
        "macs": _macs(layers, plan),
        "bytes": [(entry.bytes, entry.bytes - entry.int8_bytes) for entry in layers],
    }
    shares = {what: _ratio(amounts) for what, amounts in parts.items()}
    what = max(shares, key=lambda name: shares[name])
    if shares[what] <= LOW:
        return
    entries = [(entry, part) for entry, (_, part) in zip(layers, parts[what], strict=True)]
    total = sum(whole for whole, _ in parts[what])
    groups: dict[tuple[str, str], list[tuple[LayerExplanation, float]]] = {}
    for entry, amount in entries:
        if amount:
            groups.setdefault((entry.class_name, entry.rule), []).append((entry, amount))
    ordered = sorted(groups.items(), key=lambda item: -sum(amount for _, amount in item[1]))
    yield f"Low: {100 * shares[what]:.1f} % of the {_WORDS[what]} stay in float:"
    for (class_name, rule), found in ordered[:_SHOWN]:
        share = sum(amount for _, amount in found) / total
        first = found[0][0]
        shown = f"{first.layer!r}" if len(found) == 1 else f"{len(found)} layers such as {first.layer!r}"
        yield f"  {100 * share:.1f} %: {class_name} ({shown}; {rule}): {first.reason}{_advice(first)}"


def _macs(layers: Sequence[LayerExplanation], plan: PlacementPlan | None) -> list[tuple[float, float]]:
    """Return all multiply-accumulate operations of every layer, and those in float; unknown numbers are estimated."""
    found = []
    for entry in layers:
        graph = None if plan is None else plan.graph
        estimated = sum(estimated_macs(graph, call) for call in graph.calls(entry.layer)) if graph else 0
        amount = float(max(entry.macs, estimated))
        # Only a partial layer has calls of both kinds; where its operations are counted, they give the share.
        inexact = entry.macs == 0 or entry.status != "partial"
        share = _SHARE[entry.status] if inexact else 1 - entry.int8_macs / entry.macs
        found.append((amount, share * amount))
    return found


def _ratio(amounts: list[tuple[float, float]]) -> float:
    total = sum(whole for whole, _ in amounts)
    return sum(part for _, part in amounts) / total if total else 0.0


def _advice(entry: LayerExplanation) -> str:
    return "; apply_fixes() names it" if entry.fix else f"; {entry.advice}" if entry.advice else ""
