"""The verdict of a rule set on one layer, as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

Status = Literal["int8", "float", "partial"]
Fix = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Rule:
    """A row of a runtime's rule table.

    Args:
        id: Short name, such as `ORT-OUTPUT`.
        sentence: The rule as a sentence.
        documentation: Address of the runtime's documentation of it.
        version: The version of the runtime that the rule was checked against.
    """

    id: str
    sentence: str
    documentation: str
    version: str


@dataclasses.dataclass(frozen=True)
class LayerExplanation:
    """How a runtime executes one layer.

    Args:
        layer: Path of the layer.
        class_name: Its class.
        status: "int8", "float", or "partial" if only some calls of the layer run in INT8.
        rule: Id of the rule that decides.
        reason: The reason, in one sentence.
        documentation: Address of the documentation behind the rule.
        fix: The specification entries (arguments of `QuantizationSpec.add`) that would make it INT8; empty if it is
            already, or if no placement helps.
        macs: Multiply-accumulate operations of all its calls, for one sample.
        bytes: Bytes of its weights in float32.
        int8_bytes: Bytes, in float32, of those weights that are stored as integers.
        int8_macs: Multiply-accumulate operations of the calls that run in INT8, for one sample.
        advice: A change of the model that helps where no specification does; "" if none is known.
    """

    layer: str
    class_name: str
    status: Status
    rule: str
    reason: str
    documentation: str
    fix: tuple[Fix, ...] = ()
    macs: int = 0
    bytes: int = 0
    int8_bytes: int = 0
    int8_macs: int = 0
    advice: str = ""

    @property
    def fix_text(self) -> str:
        """The remedy that would make it INT8, as text: calls of `spec.add`, or a change of the model; "" for none.

        Example:
            >>> fix = {"name": "sum", "quantize_output": True}
            >>> LayerExplanation("sum", "Add", "float", "ORT-OUTPUT", "...", "https://...", (fix,)).fix_text
            "spec.add('sum', quantize_output=True)"
        """
        return "; ".join(_call(fix) for fix in self.fix) or self.advice


def _call(fix: Fix) -> str:
    others = "".join(f", {name}={value!r}" for name, value in fix.items() if name != "name")
    return f"spec.add({fix['name']!r}{others})"
