"""The result of a calibration."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from qdq_workbench._documents import read_document
from qdq_workbench._files import rebuilt, write_text
from qdq_workbench.calibration.observers import Histogram, make_observer
from qdq_workbench.calibration.observers.power_of_two import kind_of_rounding, rounded_up
from qdq_workbench.errors import DataError
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_FORMAT = "qdq-workbench/calibration-result"


@dataclasses.dataclass(frozen=True)
class CalibrationResult:
    """The range of every activation tensor of a model.

    Args:
        method: The calibration method.
        settings: Its settings, such as `{"percentile": 99.9}`.
        ranges: Lowest and highest value per tensor, in the units of the tensor. If readers of a tensor have pairs on
            different grids, the ranges of the further pairs are included as `<tensor>@2`.
        batches: The number of batches read.
        samples: The number of samples in them.
        states: The observer's statistics per tensor, JSON-compatible, for `merge`; without the tensors of fixed range.
            Empty for results of earlier versions.
        in_training: If the moving statistics of batch normalizations are far from the data: per affected tensor its
            range at inference and its range in training, on the first samples. Empty otherwise.
    """

    method: str
    settings: Mapping[str, Any]
    ranges: Mapping[str, tuple[float, float]]
    batches: int
    samples: int
    states: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    in_training: Mapping[str, tuple[tuple[float, float], tuple[float, float]]] = dataclasses.field(default_factory=dict)

    @property
    def histograms(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """By tensor, the counts (B,) and edges (B + 1,) of its histogram, if one was collected.

        Methods based on histograms always collect them, others with `calibrate(..., histograms=True)`.
        """
        states = {name: state["histogram"] for name, state in self.states.items() if "histogram" in state}
        found = {name: Histogram.from_state(state) for name, state in states.items()}
        return {name: (histogram.counts, histogram.edges) for name, histogram in found.items()}

    def merge(self: CalibrationResult | Iterable[CalibrationResult], *others: Any) -> CalibrationResult:
        """Return the result that one pass over all data, in the order of the arguments, would have given.

        Calibrate on parts of the data, save the results, and merge them: `first.merge(second, third)` or
        `CalibrationResult.merge([first, second, third])`. Only a moving average depends on the order.

        Args:
            *others: Results of the same method and settings for the same model, or lists of them.

        Raises:
            DataError: If method, settings, tensors or grids differ, or a result lacks the states for merging.
        """
        results = list(_flat([self, *others]))
        if not results:
            raise DataError("There is nothing to merge; pass at least one calibration result. Received: an empty list")
        first = results[0]
        for other in results[1:]:
            _check_same_calibration(first, other)
        states: dict[str, Mapping[str, Any]] = {}
        ranges = dict(first.ranges)
        for name in first.states:
            ranges[name], states[name] = _merged(first, name, [result.states[name] for result in results])
        return dataclasses.replace(
            first,
            ranges=ranges,
            states=states,
            batches=sum(result.batches for result in results),
            samples=sum(result.samples for result in results),
            # Reversed, so that of several entries for a tensor the first result's is kept.
            in_training={name: ends for result in reversed(results) for name, ends in result.in_training.items()},
        )

    def save(self, path: str | pathlib.Path) -> None:
        """Write the result to a JSON file, atomically.

        Args:
            path: File name ending in `.json`.

        Raises:
            DataError: If the name has another suffix.
            OutputPathError: If the file cannot be written.
        """
        _check_suffix(path)
        write_text(path, json.dumps(self.to_dict()) + "\n")

    @classmethod
    def load(cls, path: str | pathlib.Path) -> CalibrationResult:
        """Read a result that `save` wrote.

        Args:
            path: File name ending in `.json`.

        Raises:
            DataError: If the file name has another suffix, or the file holds no calibration result of this version.
            FileAccessError: If the file cannot be read.
        """
        _check_suffix(path)
        made_by = "CalibrationResult.save"
        return read_document(path, cls.from_dict, what="calibration result", made_by=made_by, error=DataError)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON-compatible dictionary."""
        unsettled = {name: [list(found), list(trained)] for name, (found, trained) in self.in_training.items()}
        return {
            **({"in_training": unsettled} if unsettled else {}),
            "format": _FORMAT,
            "version": 1,
            "method": self.method,
            "settings": dict(self.settings),
            "ranges": {name: list(ends) for name, ends in self.ranges.items()},
            "batches": self.batches,
            "samples": self.samples,
            "states": {name: dict(state) for name, state in self.states.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CalibrationResult:
        """Rebuild a result from `to_dict`.

        Args:
            data: The dictionary of `to_dict`.

        Raises:
            DataError: If the dictionary is not a calibration result of this version.
        """

        def build(data: Mapping[str, Any]) -> CalibrationResult:
            ranges = {name: (float(low), float(high)) for name, (low, high) in data["ranges"].items()}
            fields = {key: data[key] for key in ("method", "settings", "batches", "samples")}
            unsettled = {
                name: ((float(low), float(high)), (float(least), float(most)))
                for name, ((low, high), (least, most)) in data.get("in_training", {}).items()
            }
            return cls(**fields, ranges=ranges, states=dict(data.get("states", {})), in_training=unsettled)

        return rebuilt(data, build, what="calibration result", made_by="calibrate(...)")

    def summary(self) -> str:
        """Return the ranges as a text table."""
        width = max((len(name) for name in self.ranges), default=0)
        lines = [f"{name.ljust(width)}  {low: .6g} .. {high:.6g}" for name, (low, high) in self.ranges.items()]
        head = f"Calibration by {self.method} on {self.samples} samples in {self.batches} batches"
        return "\n".join([head, *lines])


def method_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the method itself from those of a result: all except `power_of_two`."""
    return {key: value for key, value in settings.items() if key != "power_of_two"}


def _merged(
    result: CalibrationResult, name: str, states: list[Mapping[str, Any]]
) -> tuple[tuple[float, float], Mapping[str, Any]]:
    """Return the range and the state of one tensor, merged from its states in all parts."""
    spec = QuantizerSpec.from_dict(dict(states[0]["spec"]))
    observer = make_observer(result.method, name, spec, **method_settings(result.settings))
    for state in states:
        observer.absorb(dict(state))
    ends = observer.range()
    kind = kind_of_rounding(result.settings.get("power_of_two"))
    merged = {**observer.state(), "spec": spec.to_dict()}
    if "histogram" in states[0] and "histogram" not in merged:
        histogram = Histogram.from_state(states[0]["histogram"])
        for state in states[1:]:
            histogram.merge(Histogram.from_state(state["histogram"]))
        merged["histogram"] = histogram.state()
    return ends if kind is None else rounded_up(ends, spec, kind), merged


def _flat(items: Iterable[Any]) -> Iterator[CalibrationResult]:
    """Yield the results in `items`, some of which may be lists of results."""
    for item in items:
        if isinstance(item, CalibrationResult):
            yield item
        elif isinstance(item, Iterable) and not isinstance(item, (str, bytes, Mapping)):
            yield from _flat(item)
        else:
            raise DataError(f"Only calibration results can be merged. Received: {type(item).__name__}")


def _check_same_calibration(first: CalibrationResult, other: CalibrationResult) -> None:
    for what in ("method", "settings"):
        mine, theirs = getattr(first, what), getattr(other, what)
        if mine != theirs:
            raise DataError(
                "Calibration results can be merged when they come from one method with the same settings. "
                f"Received: {what} {mine!r} and {theirs!r}"
            )
    differing = sorted(set(first.ranges) ^ set(other.ranges))
    if differing:
        raise DataError(
            "Calibration results can be merged when they are of one model; these have different tensors. "
            f"Received: {differing[:3]} in only one of them"
        )
    kept = [set(result.states) for result in (first, other)]
    # A tensor without a state has a range that was known beforehand, or an observer that cannot be merged.
    fixed = {name for name in first.ranges if name not in first.states}
    changed = [name for name in fixed if first.ranges[name] != other.ranges[name]]
    specs = [name for name in kept[0] & kept[1] if first.states[name].get("spec") != other.states[name].get("spec")]
    if kept[0] != kept[1] or changed:
        raise DataError(
            "A calibration result lacks what merging needs: it was made by an earlier version, or the ranges that were "
            "known beforehand differ. Calibrate again with this version. "
            f"Received: {sorted((kept[0] ^ kept[1]) | set(changed))[:3]}"
        )
    if specs:
        raise DataError(
            "Calibration results can be merged when their tensors have the same grids: quantize with one target and "
            f"specification. Received: other grids for {specs[:3]}"
        )


def _check_suffix(path: str | pathlib.Path) -> None:
    if pathlib.Path(path).suffix.lower() != ".json":
        raise DataError(f"A calibration result is kept in a file that ends in .json. Received: path={str(path)!r}")
