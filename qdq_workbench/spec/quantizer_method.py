"""The method by which a quantizer finds its range: a name, or a user's own quantizer."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

#: The library's methods, each with its settings besides the grid.
METHODS: dict[str, tuple[str, ...]] = {
    "last_value": (),
    "moving_average": ("momentum",),
    "all_values": (),
    "fixed": ("init_min", "init_max"),
    "lsq": (),
}
METHOD_SETTINGS = tuple(sorted({setting for settings in METHODS.values() for setting in settings}))
CUSTOM = "custom"
#: The method of a weight whose grid was given with its integers, as by Keras; users cannot select it.
KEPT = "kept"


@dataclasses.dataclass(frozen=True)
class QuantizerMethod:
    """The method by which a quantizer finds the range of its grid.

    Args:
        name: One of `METHODS`, or "custom" for another class.
        settings: Its settings as JSON text: the constructor's arguments besides the grid, or, for "custom", the
            quantizer as Keras serializes it.

    Example:
        >>> QuantizerMethod.make("fixed", {"init_min": 0.0, "init_max": 1.0}).arguments["init_max"]
        1.0
    """

    name: str
    # Text and not a mapping, because methods are parts of dictionary keys (`Placement.pair_key`).
    settings: str = "{}"

    @classmethod
    def make(cls, name: str, arguments: Mapping[str, Any]) -> QuantizerMethod:
        """Return a method with JSON-compatible settings."""
        return cls(name, json.dumps(arguments, sort_keys=True))

    @property
    def arguments(self) -> dict[str, Any]:
        """The settings."""
        return dict(json.loads(self.settings))

    @property
    def label(self) -> str:
        """A short name for tables: the method, or the class of the user's quantizer."""
        return str(self.arguments.get("class_name", self.name)) if self.name == CUSTOM else self.name

    def to_dict(self) -> dict[str, Any]:
        """Return the method as a JSON-compatible dictionary."""
        return {"name": self.name, "settings": self.arguments}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> QuantizerMethod:
        """Rebuild a method from `to_dict`."""
        return cls.make(data["name"], data["settings"])
