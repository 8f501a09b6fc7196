"""The report of a profile, of times made up: what it says, compares and advises."""

import dataclasses
import json
import pathlib

import pytest

from qdq_workbench.errors import DataError, QDQError
from qdq_workbench.profiling.latency import Gain, LatencyReport, LayerLatency, OtherLatency


def made_up(int8, floats, speedup, high=None):
    """A report with given times, in ms by layer."""

    def one(ms, **more):
        entries = tuple(LayerLatency(name, value, 0.0, ("Conv",)) for name, value in ms.items())
        rest = (OtherLatency("runtime", "", 0.0, 0.0),)
        total = sum(ms.values())
        return LatencyReport(
            pathlib.Path("f.onnx"),
            entries,
            rest,
            total,
            dict.fromkeys((50, 90, 99), total),
            1,
            1,
            1,
            "1.0",
            0.0,
            **more,
        )

    return one(int8, baseline=one(floats), speedup=speedup, speedup_interval=(speedup, high or speedup))


def test_runs_that_are_mostly_outside_the_kernels_are_said_to_tell_no_layers():
    usual = made_up({"a": 1.0}, {"a": 2.0}, 2.0)
    assert usual.short_run_remark == ""
    tiny = dataclasses.replace(usual.baseline, path=pathlib.Path("tiny.onnx"))
    tiny = dataclasses.replace(tiny, others=(OtherLatency("runtime", "", 0.02, 0.95),))

    for report in (tiny, dataclasses.replace(usual, baseline=tiny)):
        assert "95% of a run of tiny.onnx is spent outside the kernels" in report.short_run_remark
        assert "such as 32 (batch)" in report.short_run_remark
        assert report.short_run_remark in report.summary()
        assert report.to_dict()["short_run_remark"] == report.short_run_remark


def test_a_file_that_is_not_faster_is_said_to_be_so_with_the_layers_that_lose():
    slow = made_up({"a": 1.0, "b": 3.0, "c": 2.0}, {"a": 2.0, "b": 1.0, "c": 1.0}, 0.67)
    assert "not 2 % faster" in slow.remark
    assert slow.remark.index("b (2.0") < slow.remark.index("c (1.0")
    assert "a (" not in slow.remark
    assert slow.remark.endswith('The ways out are on the page "My INT8 file is not faster" (qdq-workbench docs speed).')
    assert slow.remark in slow.summary()
    assert slow.gains[0] == Gain(("a",), 1.0, 2.0)
    assert "2 % faster" in made_up({"a": 1.0}, {"a": 1.019}, 1.019).remark
    assert made_up({"a": 1.0}, {"a": 1.02}, 1.02).remark == ""


def test_a_measurement_that_cannot_tell_says_so():
    unsure = made_up({"a": 1.0}, {"a": 1.0}, 1.0, high=1.1)
    faster = dataclasses.replace(unsure, speedup=3.51, speedup_interval=(0.86, 6.15))
    for report in (unsure, faster):
        assert "does not show" in report.remark
        assert "deploy" not in report.remark


def test_what_to_deploy_is_named_and_left_open_for_a_file_of_another_target():
    slow = made_up({"a": 2.0}, {"a": 1.0}, 0.5)
    assert "deploy the baseline, f.onnx. Slower than in the baseline: a" in slow.remark
    assert slow.target_remark == ""
    other = dataclasses.replace(slow, target="tensorrt")
    assert "in a runtime that it was not exported for" in other.remark
    assert "deploy the baseline" not in other.remark
    assert "Leave them in float" not in other.remark
    assert other.target_remark.startswith("f.onnx was exported for tensorrt. ONNX Runtime runs it as it is")
    assert other.target_remark in other.summary()
    beside = dataclasses.replace(slow, baseline=dataclasses.replace(slow.baseline, target="litert"))
    assert "f.onnx was exported for litert" in beside.summary()


def layer(name, ms=1.0, fused=()):
    return LayerLatency(name, ms, 0.5, ("Conv",), fused)


def beside(here, there, **more):
    """A report of these layers with a baseline of those."""
    usual = made_up({}, {}, 1.0)
    baseline = dataclasses.replace(usual.baseline, layers=tuple(there), path=pathlib.Path("float.onnx"))
    return dataclasses.replace(usual, layers=tuple(here), baseline=baseline, **more)


def test_a_layer_is_found_under_its_own_name_before_those_that_are_fused():
    report = beside([layer("conv", fused=("relu", "add")), layer("add")], [])

    assert report.for_layer("relu") is report.layers[0]
    assert report.for_layer("add") is report.layers[1]
    with pytest.raises(QDQError, match=r"No kernel of f\.onnx computes a layer of that name.*relu"):
        report.for_layer("rel")


def test_the_slowest_layer_is_ranked_first_and_equal_ones_keep_their_order():
    report = beside([layer("a"), layer("b", 2.0), layer("c"), layer("d", 0.5)], [])

    assert [entry.layer for entry in report.ranked()] == ["b", "a", "c", "d"]


def test_gains_join_what_shares_a_kernel_in_either_file_over_several_steps():
    here = [layer("a", 1.0, ("b",)), layer("c", 2.0), layer("d", 4.0), layer("e", 8.0)]
    there = [layer("a", 1.0), layer("b", 3.0, ("c",)), layer("d", 9.0), layer("f", 0.5)]

    assert beside(here, there).gains == (
        Gain(("d",), 4.0, 9.0),
        Gain(("a", "b", "c"), 3.0, 4.0),
        Gain(("f",), 0.0, 0.5),
        Gain(("e",), 8.0, 0.0),
    )
    assert beside(here, there).gains[-1].gain_ms == -8.0
    assert dataclasses.replace(beside(here, there), baseline=None).gains == ()


@pytest.mark.parametrize(
    ("rounds", "name"),
    [(None, "95 % interval"), (6, "95 % interval"), (5, "extremes of 5 rounds"), (1, "one round")],
)
def test_the_interval_of_few_rounds_is_called_what_it_is(rounds, name):
    report = dataclasses.replace(made_up({"a": 1.0}, {"a": 2.0}, 2.0, high=2.5), rounds=rounds)

    assert report.interval_name == name
    assert f"2.00 times as fast as f.onnx (2.000 ms); {name} 2.00 to 2.50;" in report.summary()


@pytest.mark.parametrize(("share", "batch", "remedy"), [(0.7, 4, "such as 32 (batch)"), (0.7, 5, "such as 40 (batch)")])
def test_a_remedy_for_short_runs_is_a_larger_batch(share, batch, remedy):
    usual = made_up({"a": 1.0}, {"a": 2.0}, 2.0)
    outside = (OtherLatency("pair", "p", 0.1, 0.25), OtherLatency("runtime", "", 1.0, share))

    assert remedy in dataclasses.replace(usual, others=outside, batch=batch).short_run_remark
    assert (
        dataclasses.replace(usual, others=(outside[0], OtherLatency("runtime", "", 1.0, 0.69))).short_run_remark == ""
    )


def test_no_advice_without_a_baseline_or_for_a_file_that_is_faster():
    slow = made_up({"a": 2.0}, {"a": 1.0}, 0.5)

    assert dataclasses.replace(slow, speedup=None).remark == ""
    assert dataclasses.replace(slow, speedup_interval=None).remark == ""
    assert dataclasses.replace(slow, speedup_interval=(1.02, 9.0)).remark == ""
    assert dataclasses.replace(slow, speedup_interval=(0.5, 1.02)).remark.startswith("This measurement does not show")
    assert dataclasses.replace(slow, speedup_interval=(0.5, 1.0199)).remark.startswith("The file is 0.50 times")


def test_at_most_four_slower_layers_are_named_and_none_if_all_gain():
    names = "abcdef"
    slow = made_up({name: 2.0 + place for place, name in enumerate(names)}, dict.fromkeys(names, 2.0), 0.5)

    assert (
        "Slower than in the baseline: f (5.0000 ms), e (4.0000 ms), d (3.0000 ms), c (2.0000 ms). Leave" in slow.remark
    )
    outside = made_up({"a": 1.0}, {"a": 1.5}, 0.5)
    assert "deploy the baseline, f.onnx. The ways out are on" in outside.remark
    unnamed = dataclasses.replace(outside, baseline=None)
    assert "deploy the baseline. The ways out are on" in unnamed.remark


def test_remarks_are_all_that_apply_in_their_order():
    slow = made_up({"a": 2.0}, {"a": 1.0}, 0.5)
    outside = (OtherLatency("runtime", "", 1.0, 0.9),)
    every = dataclasses.replace(slow, target="tensorrt", saturates=True, others=outside)

    assert every.remarks == (every.target_remark, every.processor_remark, every.short_run_remark, every.remark)
    assert slow.remarks == (slow.remark,)
    assert made_up({"a": 1.0}, {"a": 2.0}, 2.0).remarks == ()


def test_the_summary_lists_the_slowest_layer_first_then_the_rest_in_columns():
    report = dataclasses.replace(
        made_up({}, {}, 1.0),
        layers=(LayerLatency("a", 0.5, 0.125, ("Conv", "Relu"), ("relu",)), LayerLatency("long", 3.0, 0.75, ("Gemm",))),
        others=(OtherLatency("pair", "p", 0.25, 0.0625), OtherLatency("runtime", "", 0.25, 0.0625)),
        baseline=None, percentiles={50: 4.0, 90: 4.5, 99: 5.25}, runs=7, batch=2, noise=0.0125, threads=None,
    )  # fmt: skip

    head = "f.onnx: 4.000 ms per run (90 % below 4.500, 99 % below 5.250), 7 runs of batch 2, "
    assert report.summary().splitlines() == [
        f"{head}ONNX Runtime's own number of threads, ONNX Runtime 1.0",
        "noise (the same file measured twice): 1.2%",
        *report.remarks,
        "    3.0000 ms   75.0%  long  Gemm",
        "    0.5000 ms   12.5%  a     Conv, Relu           with relu",
        "    0.2500 ms    6.2%  p     Q/DQ that stays",
        "    0.2500 ms    6.2%        outside the kernels",
    ]
    assert "threads: 3, LiteRT 1.0" in dataclasses.replace(report, threads=3, engine="LiteRT").summary()


def test_gains_are_listed_behind_the_layers():
    lines = beside([layer("a", 1.0, ("bb",)), layer("c", 2.0)], [layer("a", 2.0), layer("bb", 0.5), layer("c", 1.0)])

    assert lines.summary().splitlines()[-3:] == [
        "Against the baseline, layers that share a kernel in either file together:",
        "   +1.5000 ms  a + bb  2.5000 -> 1.0000 ms",
        "   -1.0000 ms  c       1.0000 -> 2.0000 ms",
    ]


def test_reports_of_earlier_versions_can_be_read():
    data = beside([layer("a", fused=("b",))], [layer("a")], rounds=3, target="litert", saturates=True).to_dict()
    for name in ("engine", "rounds", "target", "saturates"):
        del data[name]

    found = LatencyReport.from_dict(json.loads(json.dumps(data)))

    assert (found.engine, found.rounds, found.target, found.saturates) == ("ONNX Runtime", None, None, False)
    assert found.layers == (layer("a", fused=("b",)),)
    assert (found.path, found.percentiles[99], found.speedup_interval) == (pathlib.Path("f.onnx"), 0, (1.0, 1.0))
    assert found.baseline.path == pathlib.Path("float.onnx")


def test_a_report_without_a_baseline_goes_through_json():
    alone = dataclasses.replace(made_up({"a": 1.0}, {}, 1.0), baseline=None, speedup=None, speedup_interval=None)

    assert LatencyReport.from_dict(json.loads(json.dumps(alone.to_dict()))) == alone
    assert alone.to_dict()["gains"] == []


@pytest.mark.parametrize("change", [{"format": "other"}, {"version": 2}, {"layers": [{"layer": "a"}]}, {"baseline": 3}])
def test_what_is_no_report_is_refused(change):
    with pytest.raises(DataError, match="latency report"):
        LatencyReport.from_dict({**made_up({"a": 1.0}, {}, 1.0).to_dict(), **change})


def test_a_written_gain_has_its_difference():
    (gain,) = beside([layer("a")], [layer("a", 3.0)]).to_dict()["gains"]

    assert gain == {"layers": ("a",), "ms": 1.0, "baseline_ms": 3.0, "gain_ms": 2.0}
