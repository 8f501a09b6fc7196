"""The result of a calibration, made by hand: merging parts, files, and what does not belong together."""

import dataclasses
import json

import numpy as np
import pytest

from qdq_workbench.calibration.observers import Histogram, MinMaxObserver
from qdq_workbench.calibration.result import CalibrationResult, method_settings
from qdq_workbench.errors import DataError
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

GRID = QuantizerSpec(signed=False, symmetric=False)


def state_of(low, high, grid=GRID):
    observer = MinMaxObserver("x")
    observer.update([low, high])
    return {**observer.state(), "spec": grid.to_dict()}


def part(settings=None, samples=4, known=None, grid=GRID, **ends):
    """A result of one batch; the ranges in `known` have no state."""
    states = {name: state_of(*pair, grid) for name, pair in ends.items()}
    return CalibrationResult("minmax", settings or {}, {**(known or {}), **ends}, 1, samples, states)


A, B, C = part(x=(0.0, 2.0)), part(x=(-1.0, 1.0), samples=3), part(x=(0.5, 5.0), samples=1)


@pytest.mark.parametrize(
    "merged",
    [
        A.merge(B, C), A.merge([B, C]), A.merge(B).merge(C), CalibrationResult.merge([A, B, C]),
        CalibrationResult.merge(each for each in ((A, [B]), C)), A.merge((), B, C),
    ],
)  # fmt: skip
def test_parts_give_what_one_pass_would_have_given(merged):
    assert merged.ranges == {"x": (-1.0, 5.0)}
    assert (merged.batches, merged.samples, merged.method) == (3, 8, "minmax")
    assert merged.states["x"] == {"batches": 3, "low": -1.0, "high": 5.0, "spec": GRID.to_dict()}
    assert A.ranges == {"x": (0.0, 2.0)}, "the parts stay as they are"


def test_a_part_alone_is_its_own_result():
    assert A.merge() == A


@pytest.mark.parametrize(
    ("rounding", "high"), [(False, 5.0), (None, 5.0), (True, 8.0), ("threshold", 8.0), ("scale", 7.96875)]
)
def test_the_merged_range_is_rounded_as_those_of_the_parts(rounding, high):
    settings = {"power_of_two": rounding}

    assert part(settings, x=(0.0, 2.0)).merge(part(settings, x=(0.0, 5.0))).ranges == {"x": (0.0, high)}


def test_settings_of_the_method_are_without_the_rounding():
    assert method_settings({"percentile": 99.0, "power_of_two": "scale"}) == {"percentile": 99.0}
    assert method_settings({}) == {}


def test_a_range_that_was_known_beforehand_stays():
    first, second = (part(known={"head": (0.0, 1.0)}, x=ends) for ends in ((0.0, 1.0), (0.0, 3.0)))

    assert first.merge(second).ranges == {"head": (0.0, 1.0), "x": (0.0, 3.0)}
    other = dataclasses.replace(second, ranges={**second.ranges, "head": (0.0, 2.0)})
    with pytest.raises(DataError, match=r"ranges that were known beforehand differ.* Received: \['head'\]"):
        first.merge(other)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (dataclasses.replace(A, method="mse"), "from one method with the same settings.* method '(mse|minmax)' and"),
        (dataclasses.replace(A, settings={"power_of_two": True}), "settings.* Received: settings {.*} and {.*}"),
        (part(x=(0.0, 1.0), y=(0.0, 1.0)), r"different tensors. Received: \['y'\] in only one of them"),
        (part(a=(0, 1), b=(0, 1), c=(0, 1)), r"Received: \['a', 'b', 'c'\] in only one"),
        (dataclasses.replace(A, states={}), r"lacks what merging needs.* Received: \['x'\]"),
        (part(x=(0.0, 1.0), grid=QuantizerSpec(4)), r"the same grids.* Received: other grids for \['x'\]"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused_in_either_order(other, says):
    with pytest.raises(DataError, match=says):
        A.merge(other)
    with pytest.raises(DataError, match=says):
        other.merge(A)
    with pytest.raises(DataError, match=says):
        A.merge(B, other)


@pytest.mark.parametrize(
    ("wrong", "kind"), [(None, "NoneType"), ("a.json", "str"), ({}, "dict"), (3, "int"), ([b""], "bytes")]
)
def test_only_results_are_merged(wrong, kind):
    with pytest.raises(DataError, match=f"Only calibration results can be merged. Received: {kind}"):
        A.merge(wrong)


def test_there_must_be_something_to_merge():
    with pytest.raises(DataError, match="pass at least one calibration result"):
        CalibrationResult.merge(([], ()))


def with_histogram(values):
    histogram = Histogram(bins=4)
    histogram.add(np.array(values, np.float32))
    ends = float(min(values)), float(max(values))
    result = part(x=ends, y=(0.0, 1.0))
    return dataclasses.replace(
        result, states={**result.states, "x": {**result.states["x"], "histogram": histogram.state()}}
    )


def test_histograms_beside_the_states_are_added():
    merged = with_histogram([0.0, 1.0, 7.0]).merge(with_histogram([2.0, 7.5]), with_histogram([0.5]))

    assert merged.histograms.keys() == {"x"}
    counts, edges = merged.histograms["x"]
    values = [0.0, 1.0, 7.0, 2.0, 7.5, 0.5]
    np.testing.assert_array_equal(counts, np.histogram(values, edges)[0])
    assert len(edges) == len(counts) + 1


def test_of_several_remarks_on_statistics_the_first_is_kept():
    first = dataclasses.replace(A, in_training={"x": ((0.0, 1.0), (0.0, 9.0))})
    second = dataclasses.replace(B, in_training={"x": ((0.0, 1.0), (0.0, 2.0)), "y": ((0.0, 1.0), (0.0, 3.0))})

    found = A.merge(first, second).in_training
    assert found == {**second.in_training, **first.in_training}


def test_a_result_goes_through_a_file(tmp_path):
    result = dataclasses.replace(A.merge(B), in_training={"x": ((0.0, 1.0), (-0.5, 9.0))})
    result.save(tmp_path / "r.JSON")

    assert CalibrationResult.load(tmp_path / "r.JSON") == result
    assert "in_training" not in json.loads(json.dumps(A.to_dict()))


@pytest.mark.parametrize("name", ["r.yaml", "r", "json"])
def test_a_file_has_the_suffix_of_json(tmp_path, name):
    for attempt in (A.save, CalibrationResult.load):
        with pytest.raises(DataError, match=rf"ends in \.json.*{name}"):
            attempt(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_results_of_earlier_versions_have_no_states():
    data = A.to_dict()
    del data["states"]

    found = CalibrationResult.from_dict(data)
    assert (found.ranges, found.states, found.in_training, found.histograms) == (A.ranges, {}, {}, {})


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"format": "x"}, {"ranges": {"x": [0.0]}}, {"ranges": {"x": ["low", "high"]}}, {"ranges": 3}],
)
def test_what_is_no_result_is_refused(change):
    with pytest.raises(DataError, match="calibration result"):
        CalibrationResult.from_dict({**A.to_dict(), **change})


def test_the_summary_lists_every_range_in_columns():
    result = CalibrationResult("mse", {}, {"x": (-1.0, 2.5), "longer": (0.0, 1e-9)}, 2, 7)

    assert result.summary().splitlines() == [
        "Calibration by mse on 7 samples in 2 batches",
        "x       -1 .. 2.5",
        "longer   0 .. 1e-09",
    ]
    assert CalibrationResult("mse", {}, {}, 0, 0).summary() == "Calibration by mse on 0 samples in 0 batches"
