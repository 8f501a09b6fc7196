"""What a rule set says about one layer, as plain data."""

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
        macs: Multiply-accumulate operations of all its calls, for one sample.
        bytes: Size of its weights in float32.
        int8_bytes: How much of that is stored as integers.
        int8_macs: The multiply-accumulate operations of the calls that run in INT8.
        advice: What to change in the model, where no specification helps but that does; "" for nothing known.
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
        """What would make it INT8, as text: the calls of `spec.add`, or what to change in the model; "" for nothing.

        Example:
            >>> fix = {"name": "sum", "quantize_output": True}
            >>> LayerExplanation("sum", "Add", "float", "ORT-OUTPUT", "...", "https://...", (fix,)).fix_text
            "spec.add('sum', quantize_output=True)"
        """
        return "; ".join(_call(fix) for fix in self.fix) or self.advice


def _call(fix: Fix) -> str:
    others = "".join(f", {name}={value!r}" for name, value in fix.items() if name != "name")
    return f"spec.add({fix['name']!r}{others})"
