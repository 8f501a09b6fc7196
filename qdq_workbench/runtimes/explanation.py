"""The answer to "which layers will run in INT8, and why not the others?"."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from qdq_workbench.errors import SpecError, nearest_names

Status = Literal["int8", "float", "partial"]


@dataclasses.dataclass(frozen=True)
class Rule:
    """A row of a runtime's rule table.

    Args:
        id: Short name, such as `ORT-OUTPUT`.
        sentence: What the rule says.
        documentation: Where the runtime's makers say so.
        version: The version of the runtime that the rule was checked against.
    """

    id: str
    sentence: str
    documentation: str
    version: str


@dataclasses.dataclass(frozen=True)
class LayerExplanation:
    """What a runtime does with one layer.

    Args:
        layer: Path of the layer.
        class_name: Its class.
        status: "int8", "float", or "partial" where some calls or parts of the layer run in INT8.
        rule: Id of the rule that decides.
        reason: Why, in one sentence.
        documentation: Address of the documentation behind the rule.
        fix: The specification entries (arguments of `QuantizationSpec.add`) that would make it INT8; empty where
            it is already, or where no placement helps.
    """

    layer: str
    class_name: str
    status: Status
    rule: str
    reason: str
    documentation: str
    fix: tuple[Mapping[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What a runtime does with every layer of a plan.

    Args:
        target: Name of the target.
        layers: One entry per layer, in graph order.
    """

    target: str
    layers: tuple[LayerExplanation, ...]

    def for_layer(self, name: str) -> LayerExplanation:
        """Return the entry of one layer.

        Args:
            name: Path of the layer.

        Raises:
            SpecError: If there is no such layer; the message shows the nearest names.
        """
        for entry in self.layers:
            if entry.layer == name:
                return entry
        hint = nearest_names(name, [entry.layer for entry in self.layers])
        raise SpecError(f"The plan has no layer of that name. {hint} Received: name={name!r}")

    @property
    def counts(self) -> dict[str, int]:
        """How many layers have each status."""
        counts = {"int8": 0, "partial": 0, "float": 0}
        for entry in self.layers:
            counts[entry.status] += 1
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as a JSON-compatible dictionary."""
        layers = [{**dataclasses.asdict(entry), "fix": [dict(item) for item in entry.fix]} for entry in self.layers]
        return {"target": self.target, "counts": self.counts, "layers": layers}

    def summary(self) -> str:
        """Return the explanation as a text table."""
        rows = [(entry.layer, entry.class_name, entry.status, entry.rule, entry.reason) for entry in self.layers]
        head = ("layer", "class", "status", "rule", "reason")
        widths = [min(40, max(len(row[i]) for row in [head, *rows])) for i in range(4)]
        lines = [
            "  ".join(cell[:width].ljust(width) for cell, width in zip(row, widths, strict=False)) + "  " + row[4]
            for row in [head, *rows]
        ]
        counts = ", ".join(f"{number} {status}" for status, number in self.counts.items() if number)
        return "\n".join([f"Target {self.target}: {counts or 'no layers'}", *lines])
