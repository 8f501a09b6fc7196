"""The decision of the spec, the cases and the defaults about one node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Decision:
    """The user-level decision about one node, before the additions of a target.

    Args:
        input_indices: Which inputs are quantized.
        quantize_weight: Whether the known weights of the layer are quantized.
        quantize_output: Whether the output is.
        author: "default", "spec[2]" or a case's class name.
        reason: The reason, in one sentence.
        replaced: The authors that were overruled.
        settings: The layer's own quantizer settings (see `placement.settings`); None for the target's defaults.
        overrides: By output tensor, the settings of every pair on it, which take precedence over those of its readers;
            "float" if it is not quantized.
    """

    input_indices: tuple[int, ...]
    quantize_weight: bool
    quantize_output: bool
    author: str
    reason: str
    replaced: tuple[str, ...] = ()
    settings: Mapping[str, Any] | None = None
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def is_float(self) -> bool:
        """Whether the decision leaves the whole node in float."""
        return not (self.input_indices or self.quantize_weight or self.quantize_output)

    @property
    def is_explicit(self) -> bool:
        """Whether a spec or a case decided, rather than a default."""
        return self.author != "default"

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as a JSON-compatible dictionary."""
        fields = dataclasses.asdict(self)
        if self.settings is None:
            del fields["settings"]
        if not self.overrides:
            del fields["overrides"]
        return fields

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Decision:
        """Rebuild a decision from `to_dict`."""
        return cls(**{**data, "input_indices": tuple(data["input_indices"]), "replaced": tuple(data["replaced"])})
