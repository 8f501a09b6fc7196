"""The report of `learn_rounding` or `gptq_weights`: the error of each unit before and after, and weights left out."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping
from typing import Any, ClassVar

from qdq_workbench._documents import LoadedReport
from qdq_workbench._files import rebuilt

_FORMAT = "qdq-workbench/rounding-report"


@dataclasses.dataclass(frozen=True)
class RoundedUnit:
    """The layers whose rounding was learned together.

    Args:
        layers: Their paths in the float model.
        nearest_error: Mean squared error of the unit's outputs with nearest rounding, on held-out samples, or on all
            if fewer than 16 samples were given.
        learned_error: The same with the learned rounding.
        kept: Whether the learned rounding was kept, because its error is smaller.
        changed: Number of values with another integer than the nearest one.
        values: Number of values of the weights.
        seconds: Time that the unit took, in seconds.
        biases: The biases that were learned too, such as `stem/bias`; empty if the rounding was not kept.
    """

    layers: tuple[str, ...]
    nearest_error: float
    learned_error: float
    kept: bool
    changed: int
    values: int
    seconds: float
    biases: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class RoundingReport(LoadedReport):
    """The report of `learn_rounding` or `gptq_weights`.

    Args:
        model: Name of the model.
        granularity: "layer", "block" or "model".
        units: The units of layers that were learned together, in computing order.
        left_out: The quantized weights that were left out, each with the reason.
        settings: The settings, such as the number of steps; with "method" = "GPTQ" for `gptq_weights`.
        samples: Number of samples that were used.
        held_back: How many of them were held out, to evaluate the result.
        seconds: Total time in seconds.
        complete: Whether all units were learned; False after a stop.
    """

    _what: ClassVar[str] = "rounding report"

    model: str
    granularity: str
    units: tuple[RoundedUnit, ...]
    left_out: Mapping[str, str]
    settings: Mapping[str, Any]
    samples: int
    held_back: int
    seconds: float
    complete: bool = True

    @property
    def changed(self) -> float:
        """Share of the weights' values that have another integer than the nearest one, from 0 to 1."""
        return sum(unit.changed for unit in self.units) / max(1, sum(unit.values for unit in self.units))

    def summary(self) -> str:
        """Return the units as a text table."""
        told = f"{100 * self.changed:.1f} % of the weights changed, {self.samples} samples, {self.seconds:.0f} s"
        how = f"{self.settings['method']}'s rounding" if "method" in self.settings else "Learned rounding"
        head = [f"{how} of {self.model} by {self.granularity}: {len(self.units)} units, {told}"]
        if not self.complete:
            head.append("It was stopped: the layers behind those listed keep nearest rounding.")
        rows = [" ".join([*row, layers]) for row, layers in self._rows()]
        biases = [bias for unit in self.units for bias in unit.biases]
        also = [f"biases that learned too: {', '.join(biases)}"] * bool(biases)
        left_out = [f"left out: {weight}: {reason}" for weight, reason in self.left_out.items()]
        return "\n".join([*head, "   nearest    learned  changed      s  layers", *rows, *also, *left_out])

    def _rows(self) -> list[tuple[list[str], str]]:
        return [
            (
                [
                    f"{unit.nearest_error:>10.4g}",
                    f"{unit.learned_error:>10.4g}",
                    f"{100 * unit.changed / max(1, unit.values):>6.1f} %",
                    f"{unit.seconds:>6.1f}",
                ],
                ", ".join(unit.layers) + ("" if unit.kept else " (no better: nearest rounding stays)"),
            )
            for unit in self.units
        ]

    def _repr_html_(self) -> str:
        lines = self.summary().splitlines()
        title = html.escape(lines[0])
        cells = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in [layers, *row]) + "</tr>"
            for row, layers in self._rows()
        )
        columns = "".join(f"<th>{name}</th>" for name in ("layers", "nearest", "learned", "changed", "seconds"))
        return f"<table><caption>{title}</caption><thead><tr>{columns}</tr></thead><tbody>{cells}</tbody></table>"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dictionary."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        units = [
            {**dataclasses.asdict(unit), "layers": list(unit.layers), "biases": list(unit.biases)}
            for unit in self.units
        ]
        own = {"units": units, "left_out": dict(self.left_out), "settings": dict(self.settings)}
        return {"format": _FORMAT, "version": 1, **fields, **own}

    @classmethod
    def from_dict(cls, data: Any) -> RoundingReport:
        """Rebuild a report from `to_dict`.

        Args:
            data: A dictionary made by `to_dict`.

        Raises:
            DataError: If the dictionary is not a rounding report of this version.
        """

        def build(data: Mapping[str, Any]) -> RoundingReport:
            fields = {field.name: data[field.name] for field in dataclasses.fields(cls)}
            return cls(**{**fields, "units": tuple(unit_from_dict(unit) for unit in fields["units"])})

        return rebuilt(data, build, what="rounding report", made_by="learn_rounding(...)")


def unit_from_dict(data: Mapping[str, Any]) -> RoundedUnit:
    """Return a unit from its dictionary."""
    return RoundedUnit(**{**data, "layers": tuple(data["layers"]), "biases": tuple(data.get("biases", ()))})
