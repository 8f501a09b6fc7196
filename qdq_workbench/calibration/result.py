"""What a calibration found."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from qdq_workbench.errors import DataError

_FORMAT = "qdq-workbench/calibration-result"


@dataclasses.dataclass(frozen=True)
class CalibrationResult:
    """The range of every activation tensor of a model.

    Args:
        method: The calibration method.
        settings: Its settings, such as `{"percentile": 99.9}`.
        ranges: Lowest and highest value per tensor, in the units of the tensor.
        batches: How many batches were read.
        samples: How many samples they held.
    """

    method: str
    settings: Mapping[str, Any]
    ranges: Mapping[str, tuple[float, float]]
    batches: int
    samples: int

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON-compatible dictionary."""
        ranges = {name: list(ends) for name, ends in self.ranges.items()}
        return {"format": _FORMAT, "version": 1, **dataclasses.asdict(self), "ranges": ranges}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CalibrationResult:
        """Rebuild a result from `to_dict`.

        Args:
            data: What `to_dict` returned.

        Raises:
            DataError: If the dictionary is not a calibration result of this version.
        """
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT or data.get("version") != 1:
            raise DataError(
                "The dictionary is not a calibration result of this version; make one with calibrate(...).to_dict(). "
                f"Received: {data.get('format') if isinstance(data, Mapping) else type(data).__name__!r}"
            )
        ranges = {name: (float(low), float(high)) for name, (low, high) in data["ranges"].items()}
        fields = {key: data[key] for key in ("method", "settings", "batches", "samples")}
        return cls(**fields, ranges=ranges)

    def summary(self) -> str:
        """Return the ranges as a text table."""
        width = max((len(name) for name in self.ranges), default=0)
        lines = [f"{name.ljust(width)}  {low: .6g} .. {high:.6g}" for name, (low, high) in self.ranges.items()]
        head = f"Calibration by {self.method} on {self.samples} samples in {self.batches} batches"
        return "\n".join([head, *lines])
