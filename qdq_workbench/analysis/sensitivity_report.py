"""The report of a sensitivity sweep: one value per layer, ranked, and the specification that follows from it."""

from __future__ import annotations

import dataclasses
import html
import math
import numbers
from collections.abc import Mapping
from typing import Any, ClassVar

from qdq_workbench._documents import LoadedReport, json_number
from qdq_workbench._files import rebuilt
from qdq_workbench.errors import SpecError
from qdq_workbench.spec.quantization_spec import QuantizationSpec
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig

_FORMAT = "qdq-workbench/sensitivity-report"
MODES = ("one_on", "one_off")


@dataclasses.dataclass(frozen=True)
class SensitivityEntry:
    """The metric of one layer.

    Args:
        layer: Path of the layer.
        value: The metric with only this layer quantized ("one_on"), or with all layers but this one ("one_off").
        unit: The metric's unit, such as "dB".
        float_value: The metric of the float model.
        quantized_value: The metric with every layer quantized.
        input_indices: Which inputs of the layer the plan quantizes.
        quantize_weight: Whether the plan quantizes its weights.
        quantize_output: Whether the plan gives its output a pair.
        settings: The quantizer settings that the plan gives it, by the name of a call: what
            `LayerQuantizeConfig.get_config` returns, empty for a call without any. Empty if no call has settings; None
            if they are not known, as in reports of earlier versions.
    """

    layer: str
    value: float
    unit: str
    float_value: float
    quantized_value: float
    input_indices: tuple[int, ...] = ()
    quantize_weight: bool = False
    quantize_output: bool = False
    settings: Mapping[str, Mapping[str, Any]] | None = dataclasses.field(default=None, hash=False)


@dataclasses.dataclass(frozen=True)
class SensitivityReport(LoadedReport):
    """How much the quantization of each layer changes a model's outputs; made by `sensitivity`.

    Args:
        model: Name of the model.
        mode: "one_on": only this layer is quantized; "one_off": all layers but this one are.
        metric: Name of the metric.
        unit: Its unit.
        higher_is_better: Whether a higher value is better.
        sites: The sites that were switched: "input", "weight", "output".
        entries: The layers in the order of the model.
        float_value: The metric of the float model.
        quantized_value: The metric with everything quantized.
        samples: How many samples were run.
        complete: Whether every layer was measured; False after a stop.
        fingerprint: Hash of the model, the plan, the data and the settings.
        own_metric: Whether the metric is the caller's own, which may be named like one of the library.
    """

    _what: ClassVar[str] = "sensitivity report"

    model: str
    mode: str
    metric: str
    unit: str
    higher_is_better: bool
    sites: tuple[str, ...]
    entries: tuple[SensitivityEntry, ...]
    float_value: float
    quantized_value: float
    samples: int
    complete: bool = True
    fingerprint: str = ""
    own_metric: bool = False

    def harm(self, entry: SensitivityEntry) -> float:
        """Return a score of the harm of a layer's quantization, to sort layers: higher is worse, infinite for NaN.

        Args:
            entry: One of the entries.
        """
        if math.isnan(entry.value):
            return math.inf
        # one_on: the worse the value with this layer alone, the more harm. one_off: the better the value without it.
        harmful_is_high = self.higher_is_better == (self.mode == "one_off")
        return entry.value if harmful_is_high else -entry.value

    def ranked(self) -> list[SensitivityEntry]:
        """Return the entries, the most sensitive layer first; equal ones in the order of the model."""
        return sorted(self.entries, key=lambda entry: -self.harm(entry))

    def apply(
        self, top_k: int | None = None, *, threshold: float | None = None, spec: QuantizationSpec | None = None
    ) -> QuantizationSpec:
        """Return the specification that keeps the most sensitive layers in float.

        Args:
            top_k: How many layers to keep in float, 0 to the number of measured layers.
            threshold: Keep in float every layer whose value is worse than this, in the unit of the metric: for
                "one_on" with SQNR, below this many dB. For "one_off", every layer whose return to float makes the
                model's value better than this.
            spec: The specification of the plan, to a copy of which the entries are added; None for an empty one.

        Returns:
            A specification for the same model, to be used with the mode and the cases of the plan. Only the sites that
            were swept are kept in float; the others stay quantized as in the plan that was measured, with its settings
            for the layer.

        Raises:
            SpecError: If not exactly one of `top_k` and `threshold` is given, `top_k` is out of its range,
                `threshold` is no number, or `spec` has a `quantize_config` that sites of a layer would need and a
                report of an earlier version does not know.

        Example:
            >>> values = {"a": 30.0, "b": 9.0}
            >>> entries = tuple(SensitivityEntry(name, value, "dB", 99.0, 9.0) for name, value in values.items())
            >>> report = SensitivityReport("net", "one_on", "sqnr", "dB", True, ("weight",), entries, 99.0, 9.0, 8)
            >>> [entry.name for entry in report.apply(top_k=1).layers]
            ['b']
        """
        if (top_k is None) == (threshold is None):
            raise SpecError(
                "Give either top_k, a number of layers, or threshold, a value of the metric. "
                f"Received: top_k={top_k!r}, threshold={threshold!r}"
            )
        chosen = self._first(top_k) if top_k is not None else self._beyond(threshold)
        result = QuantizationSpec() if spec is None else spec.copy()
        for entry in chosen:
            self._add(result, entry)
        return result

    def _add(self, spec: QuantizationSpec, entry: SensitivityEntry) -> None:
        """Add what keeps the swept sites of a layer in float: one entry, or one per call with other settings."""
        inputs = list(entry.input_indices) if "input" not in self.sites else []
        stays = {
            "activation": bool(inputs),
            "weight": entry.quantize_weight and "weight" not in self.sites,
            "output": entry.quantize_output and "output" not in self.sites,
        }
        if (
            entry.settings is None
            and any(stays.values())
            and any(each.quantize_config is not None for each in spec.layers)
        ):
            raise SpecError(
                "The report does not hold the quantizer settings of the layers, which the sites that were not swept "
                "need: it is of an earlier version. Run sensitivity(...) again. "
                f"Received: sites={self.sites!r}, a spec with a quantize_config"
            )
        # Settings of a site that stays in float would ask for weights or pairs that the layer has not.
        configs = {
            call: {site: value for site, value in config.items() if stays[site]}
            for call, config in (entry.settings or {}).items()
        }
        if all(config == next(iter(configs.values())) for config in configs.values()):
            configs = {entry.layer: next(iter(configs.values()), {})}
        for name, config in configs.items():
            spec.add(
                name,
                quantize_input=stays["activation"],
                quantization_index=inputs or None,
                quantize_weight=stays["weight"],
                quantize_output=stays["output"],
                quantize_config=LayerQuantizeConfig.from_config(config) if config else None,
            )

    def _first(self, top_k: Any) -> list[SensitivityEntry]:
        if isinstance(top_k, bool) or not hasattr(top_k, "__index__") or not 0 <= top_k <= len(self.entries):
            raise SpecError(
                f"top_k must be an integer from 0 to {len(self.entries)}, the number of measured layers. "
                f"Received: top_k={top_k!r}"
            )
        return self.ranked()[:top_k]

    def _beyond(self, threshold: Any) -> list[SensitivityEntry]:
        if isinstance(threshold, bool) or not isinstance(threshold, numbers.Real) or math.isnan(threshold):
            raise SpecError(f"threshold must be a number, a value of the metric. Received: threshold={threshold!r}")
        # Compared as harm, in which higher is worse for every metric and mode.
        limit = self.harm(dataclasses.replace(_ANY, value=float(threshold)))
        return [entry for entry in self.ranked() if self.harm(entry) > limit]

    def plot(self) -> Any:
        """Draw the ranking; see `qdq_workbench.report.sensitivity_figure`.

        Returns:
            A `plotly.graph_objects.Figure`.
        """
        import qdq_workbench

        return qdq_workbench.sensitivity_figure(self)

    def summary(self) -> str:
        """Return the ranking as a text table."""
        width = max((len(entry.layer) for entry in self.entries), default=0)
        rows = [
            f"{rank:>4}  {entry.layer.ljust(width)}  {_shown(entry.value):>10}"
            for rank, entry in enumerate(self.ranked(), start=1)
        ]
        return "\n".join([*self._heading(), *rows])

    def _heading(self) -> list[str]:
        what = "only this layer quantized" if self.mode == "one_on" else "all layers but this one quantized"
        better = "higher" if self.higher_is_better else "lower"
        unit = f", {self.unit}" if self.unit else ""
        ends = f"float {_shown(self.float_value)}, all quantized {_shown(self.quantized_value)}"
        head = [
            f"Sensitivity of {self.model}: {what}, {', '.join(self.sites)}, on {self.samples} samples",
            f"{self.metric}{unit} ({better} is better): {ends}",
        ]
        if not self.complete:
            head.append("The sweep was stopped: some layers are missing.")
        return head

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><td>{rank}</td><td>{html.escape(entry.layer)}</td><td>{_shown(entry.value)}</td></tr>"
            for rank, entry in enumerate(self.ranked(), start=1)
        )
        title = "<br>".join(html.escape(line) for line in self._heading())
        column = html.escape(f"{self.metric} {self.unit}".strip())
        return (
            f"<table><caption>{title}</caption><thead><tr><th>rank</th><th>layer</th><th>{column}</th></tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dictionary; infinite values and NaN are strings."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        entries = [
            {**{key: getattr(entry, key) for key in (*_OWN, "settings")}, "value": json_number(entry.value)}
            for entry in self.entries
        ]
        numbers = {key: json_number(fields[key]) for key in ("float_value", "quantized_value")}
        return {"format": _FORMAT, "version": 1, **fields, **numbers, "sites": list(self.sites), "entries": entries}

    @classmethod
    def from_dict(cls, data: Any) -> SensitivityReport:
        """Rebuild a report from `to_dict`.

        Args:
            data: A dictionary made by `to_dict`.

        Raises:
            DataError: If the dictionary is not a sensitivity report of this version.
        """

        def build(data: Mapping[str, Any]) -> SensitivityReport:
            fields = {field.name: data[field.name] for field in dataclasses.fields(cls) if field.name != "own_metric"}
            fields["own_metric"] = bool(data.get("own_metric", False))  # earlier versions do not write it
            base = {key: float(fields[key]) for key in ("float_value", "quantized_value")}
            entries = tuple(_entry_from_dict(item, {"unit": fields["unit"], **base}) for item in fields["entries"])
            return cls(**{**fields, **base, "entries": entries, "sites": tuple(fields["sites"])})

        return rebuilt(data, build, what="sensitivity report", made_by="sensitivity(...)")


_ANY = SensitivityEntry("", 0.0, "", 0.0, 0.0)


_OWN = ("layer", "value", "input_indices", "quantize_weight", "quantize_output")


def _entry_from_dict(item: Mapping[str, Any], common: Mapping[str, Any]) -> SensitivityEntry:
    own = {key: item[key] for key in _OWN}
    settings = item.get("settings")  # reports of earlier versions have none
    for config in ({} if settings is None else settings).values():
        LayerQuantizeConfig.from_config(config)  # raises an error for what is none
    more = {"input_indices": tuple(own["input_indices"]), "settings": settings, "value": float(own["value"])}
    return SensitivityEntry(**{**common, **own, **more})


def _shown(value: float) -> str:
    return f"{value:.5g}"
