"""How a quantizer finds its range: by name, or as a quantizer of the user's own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

#: The library's methods, each with the settings that it takes beside the grid.
METHODS: dict[str, tuple[str, ...]] = {
    "last_value": (),
    "moving_average": ("momentum",),
    "all_values": (),
    "fixed": ("init_min", "init_max"),
    "lsq": (),
}
METHOD_SETTINGS = tuple(sorted({setting for settings in METHODS.values() for setting in settings}))
CUSTOM = "custom"
#: The grid that a weight was given with its integers, as by Keras; it is not asked for by name.
KEPT = "kept"


@dataclasses.dataclass(frozen=True)
class QuantizerMethod:
    """How a quantizer finds the range of its grid.

    Args:
        name: One of `METHODS`, or "custom" for a class outside of them.
        settings: Its settings as JSON text: the constructor's arguments beside the grid, or, for "custom", the
            quantizer as Keras serializes it.

    Example:
        >>> QuantizerMethod.make("fixed", {"init_min": 0.0, "init_max": 1.0}).arguments["init_max"]
        1.0
    """

    name: str
    settings: str = "{}"

    @classmethod
    def make(cls, name: str, arguments: Mapping[str, Any]) -> QuantizerMethod:
        """Return a method with settings.

        Args:
            name: Its name.
            arguments: Its settings, JSON-compatible.
        """
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
        """Rebuild a method from `to_dict`.

        Args:
            data: What `to_dict` returned.
        """
        return cls.make(data["name"], data["settings"])
