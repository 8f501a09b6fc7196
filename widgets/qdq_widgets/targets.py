"""The targets of the library for pickers and texts, and the statuses of layers on them."""

from __future__ import annotations

from typing import Any

import qdq_workbench as qdq


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
