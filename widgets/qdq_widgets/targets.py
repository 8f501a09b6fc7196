"""The targets that the library knows, for pickers and sentences; the list itself is the library's."""

from __future__ import annotations

from typing import Any

import qdq_workbench as qdq


def target_title(name: str) -> str:
    """Return a target's name as people know it.

    Args:
        name: The name that is passed as `target=`.

    Example:
        >>> target_title("tensorrt")
        'NVIDIA TensorRT'
    """
    return qdq.get_target(name).title.partition(" (")[0]


def target_options() -> list[tuple[str, str]]:
    """Return what a picker of targets offers: title and name of each, in the order of the titles."""
    return sorted((target_title(name), name) for name in qdq.target_names())


def statuses(explanation: Any) -> dict[str, str]:
    """Return what the target does with every layer: "int8", "partial" or "float".

    Args:
        explanation: The `Explanation`.
    """
    return {entry.layer: entry.status for entry in explanation.layers}


def execution_values(explanation: Any) -> dict[str, dict[str, str]]:
    """Return what the target does with every layer and why, as the graph takes values for its colours.

    Args:
        explanation: The `Explanation`.
    """
    return {entry.layer: {"status": entry.status, "reason": reason_text(entry)} for entry in explanation.layers}


def reason_text(entry: Any) -> str:
    """Return why a layer has its status, and what to change in the model where that helps.

    Args:
        entry: A `LayerExplanation`.
    """
    return "; ".join(filter(None, (entry.reason, entry.advice)))


def verdicts(bench: Any) -> tuple[Any, str]:
    """Return what the target will do with every layer, and an empty text; or why that is not known.

    Args:
        bench: The `Workbench`.

    Returns:
        The `Explanation`, without layers where the library has no rules for the target.
    """
    try:
        return bench.explanation, ""
    except qdq.errors.TargetError as error:
        return qdq.Explanation(bench.plan.target, ()), str(error)
