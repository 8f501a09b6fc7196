"""The targets of the library for pickers and texts, and the statuses of layers on them."""

from __future__ import annotations

import collections
from typing import Any

import qdq_workbench as qdq

_COUNTED = {"int8": "in INT8", "partial": "partly in INT8", "float": "in float", "vanishes": "vanish"}


def target_title(name: str) -> str:
    """Return the title of a target, without what follows in brackets.

    Example:
        >>> target_title("tensorrt")
        'NVIDIA TensorRT'
    """
    return qdq.get_target(name).title.partition(" (")[0]


def target_options() -> list[tuple[str, str]]:
    """Return the options of a target picker: title and name of each target, sorted by title."""
    return sorted((target_title(name), name) for name in qdq.target_names())


def statuses(explanation: Any) -> dict[str, str]:
    """Return the status of every layer on the target: "int8", "partial" or "float"."""
    return {entry.layer: entry.status for entry in explanation.layers}


def execution_values(explanation: Any) -> dict[str, dict[str, str]]:
    """Return status and reason of every layer, as values of `graph_colors`; "vanishes" is a status of its own here."""
    return {entry.layer: {"status": shown_status(entry), "reason": reason_text(entry)} for entry in explanation.layers}


def shown_status(entry: Any) -> str:
    """Return the status of a `LayerExplanation`, or "vanishes" for a layer of which nothing is left to run.

    The library counts such a layer as INT8, because it costs nothing there; who looks at it takes that for a kernel.
    """
    # The library's rules with this ending are for layers that leave no operator.
    return "vanishes" if entry.rule.endswith("-VANISHES") else str(entry.status)


def layer_counts(graph: Any, explanation: Any) -> str:
    """Return the number of layers in all, by status on the target, and of the inputs, which have none."""
    counts = collections.Counter(shown_status(entry) for entry in explanation.layers)
    parts = [f"{counts[status]} {words}" for status, words in _COUNTED.items() if counts[status]]
    inputs = len(graph.layers) - len(explanation.layers)
    if inputs:
        parts.append(f"{inputs} input{'s' if inputs > 1 else ''}")
    return f"{len(graph.layers)} layers: {', '.join(parts)}"


def pair_counts(plan: Any) -> tuple[int, str]:
    """Return the number of pairs in all, and which of them the graph draws, as text."""
    weights = sum(tensor.kind == "weight" for tensor in plan.tensors)
    drawn = len(plan.tensors) - weights
    return len(plan.tensors), f"{drawn} on activations, which the graph draws and counts, and {weights} on weights"


def reason_text(entry: Any) -> str:
    """Return the reason of a `LayerExplanation`, with its advice if there is one."""
    return "; ".join(filter(None, (entry.reason, entry.advice)))


def verdicts(bench: Any) -> tuple[Any, str]:
    """Return the `Explanation` of a bench and an empty text.

    If the library has no rules for the target, the explanation has no layers and the text is the error.
    """
    try:
        return bench.explanation, ""
    except qdq.errors.TargetError as error:
        return qdq.Explanation(bench.plan.target, ()), str(error)
