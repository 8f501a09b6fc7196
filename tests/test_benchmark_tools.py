"""The tools around the benchmarks: what `compare.py` calls worse, and when `scaling.py` leaves a point out."""

import argparse
import importlib
import json
import sys

import pytest
from project import ROOT


@pytest.fixture
def benchmark(monkeypatch):
    """Return a function that imports a benchmark as its own folder sees it."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return importlib.import_module


def test_compare_flags_what_is_worse_than_the_margin(benchmark):
    stored = {"a: x / y": 1.0, "b: x / y": 1.0, "c: x / y": 1.0}
    found = {"a: x / y": 1.3, "b: x / y": 1.2, "c: x / y": 0.7, "d: x / y": 5.0}
    words = benchmark("compare").verdicts(found, stored, 0.25)
    assert [word for word, _ in words] == ["worse", "as before", "better", "new"]


def test_compare_goes_by_processor_time_and_not_by_noise(benchmark):
    found = {
        "net: quantized / float": 9.0,
        "net, processor time: quantized / float": 1.0,
        "net, processor time: float again / float": 9.0,
        "other: quantized / float": 1.0,
    }
    words = benchmark("compare").verdicts(found, dict.fromkeys(found, 1.0), 0.25)
    assert [(word, line.partition(": ")[0]) for word, line in words] == [
        ("as before", "net, processor time"),
        ("as before", "other"),
    ]


def test_compare_runs_a_benchmark_with_its_options_and_stores_what_it_recorded(benchmark, monkeypatch, tmp_path):
    compare = benchmark("compare")
    (tmp_path / "planning.py").write_text(
        "import json, os, sys\n"
        "open(os.environ['QDQ_BENCH_RATIOS'], 'w').write(json.dumps({' '.join(sys.argv[1:]): 2.0}))\n"
    )
    reference = tmp_path / "stored.json"
    reference.write_text('{"cores": 2, "ratios": {"kept": 1.0}}')
    monkeypatch.setattr(compare, "HERE", tmp_path)
    arguments = ["compare.py", "planning one --two 3", "--reference", str(reference)]
    monkeypatch.setattr(sys, "argv", [*arguments, "--store"])
    assert compare.main() == 0
    stored = json.loads(reference.read_text())
    assert stored["ratios"] == {"kept": 1.0, "one --two 3": 2.0}
    assert set(stored["runs"]["planning one --two 3"]) == {"date", "load"}
    reference.write_text('{"ratios": {"one --two 3": 1.0}}')
    monkeypatch.setattr(sys, "argv", arguments)
    assert compare.main() == 1


def test_compare_knows_the_benchmarks(benchmark):
    with pytest.raises(argparse.ArgumentTypeError, match=r"must start with one of quantizing.*'speed resnet8'"):
        benchmark("compare").command_line("speed resnet8")


def test_scaling_leaves_out_what_would_take_too_long(benchmark, capsys):
    budget = benchmark("scaling").Budget(minutes=1.0)
    assert budget.allows("first", 50, [])
    assert budget.allows("next", 100, [(50, 20.0)])
    assert capsys.readouterr().out == ""
    assert not budget.allows("last", 800, [(50, 5.0), (200, 20.0)])
    assert "last: left out" in capsys.readouterr().out


def test_scaling_does_not_multiply_what_a_point_costs_whatever_its_size(benchmark):
    scaling = benchmark("scaling")
    # 30 s of building and tracing and 0.1 s per image: not 16 times as long for 16 times the images.
    assert scaling.expected_seconds(64, [(1, 30.1), (4, 30.4)]) == pytest.approx(scaling.CAUTION * 36.4)
    assert scaling.expected_seconds(64, [(1, 31.0), (4, 30.0)]) == pytest.approx(scaling.CAUTION * 30.0)


def test_speed_of_files_is_the_least_turn_after_the_warm_up(benchmark, monkeypatch):
    speed = benchmark("onnx_speed")
    seconds = {"a": iter([0.5, 3.0, 2.0]), "b": iter([9.0, 4.0, 6.0])}
    monkeypatch.setattr(speed, "turn", lambda call: next(seconds[call()]))
    assert speed.least_turns({"a": lambda: "a", "b": lambda: "b"}, rounds=2) == {"a": 2.0, "b": 4.0}
