"""The tools around the benchmarks: what `compare.py` calls worse, and when `scaling.py` leaves a point out."""

import argparse
import importlib
import json
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from project import ROOT


@pytest.fixture
def benchmark(monkeypatch):
    """Return a function that imports a benchmark as its own folder sees it."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return importlib.import_module


def test_every_record_is_listed():
    listed = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")

    records = sorted(path.name for path in (ROOT / "benchmarks/results").glob("*.md"))
    assert [name for name in records if f"(results/{name})" not in listed] == []


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


def test_words_are_the_same_every_time_and_differ_between_the_splits(benchmark):
    words = benchmark("spoken_words").words
    (x, y), (again, _), (other, labels) = words("train", 200), words("train", 200), words("test", 200)
    assert x.shape == (200, 49, 10, 1)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, again)
    assert not np.isin(other.reshape(200, -1)[:, 0], x.reshape(200, -1)[:, 0]).any()
    assert set(y) == set(labels) == set(range(10))


def folder_of(folder, names, count, split="val"):
    """Write pictures, each of one colour that tells its class, and a file that is none."""
    for number, name in enumerate(names):
        place = folder / split / name
        place.mkdir(parents=True)
        for index in range(count):
            image = np.full((12 + index, 20, 3), 20 * number + index, np.uint8)
            (place / f"{index}.png").write_bytes(tf.io.encode_png(image).numpy())
        (place / "notes.txt").write_text("no picture")
    return folder


def test_pictures_are_read_by_class_and_a_fifth_is_kept_to_calibrate(benchmark, tmp_path):
    samples_of = benchmark("samples").samples_of
    folder = folder_of(tmp_path, ["cat", "dog"], 10)
    x, y = samples_of(str(folder), "test", 100, size=8)
    kept, labels = samples_of(str(folder), "train", 100, size=8, prepare=lambda images: images / 2)
    assert x.shape == (16, 8, 8, 3)
    assert len(kept) == 4
    np.testing.assert_array_equal(x.mean((1, 2, 3)) >= 20, y == 1)
    np.testing.assert_array_equal(kept.mean((1, 2, 3)) >= 10, labels == 1)
    assert not np.isin(2 * kept[:, 0, 0, 0], x[:, 0, 0, 0]).any()
    folder_of(folder, ["cat", "dog"], 3, "train")
    assert len(samples_of(str(folder), "train", 100, size=8)[0]) == 6
    assert len(samples_of(str(folder), "test", 7, size=8)[0]) == 7


def test_classes_of_a_part_of_the_folders_are_their_names(benchmark, tmp_path):
    samples = benchmark("samples")
    _, y = samples.samples_of(str(folder_of(tmp_path / "numbers", ["3", "7"], 5)), "test", 100, size=8, classes=10)
    assert set(y) == {3, 7}
    folder = str(folder_of(tmp_path / "names", ["cat", "dog"], 5))
    with pytest.raises(SystemExit, match=r"knows 10 classes, the data have 2 folders.*'cat'"):
        samples.samples_of(folder, "test", 100, size=8, classes=10)
    with pytest.raises(SystemExit, match="Expected a folder of pictures per class"):
        samples.samples_of(str(tmp_path / "names" / "val" / "cat"), "test", 100)
    with pytest.raises(SystemExit, match="must be a file, a folder of pictures, or 'words'"):
        samples.samples_of(str(tmp_path / "missing"), "test", 100)


def test_weights_of_an_application_are_those_of_a_file(benchmark, tmp_path):
    table = benchmark("accuracy_table")
    data = str(folder_of(tmp_path, ["cat", "dog"], 5))
    made = keras.applications.MobileNet(weights=None, input_shape=(32, 32, 3), classes=2)
    made.save_weights(tmp_path / "own.weights.h5")

    def options(**changed):
        given = {"model": "MobileNet", "weights": str(tmp_path / "own.weights.h5"), "size": 32, "data": data}
        return argparse.Namespace(**{**given, **changed})

    model, prepare = table.float_model(options())
    images = np.full((1, 32, 32, 3), 255.0, np.float32)
    np.testing.assert_array_equal(model(images), made(images))
    assert prepare(images.copy()).max() == 1.0
    with pytest.raises(SystemExit, match=r"weights '.*none' of MobileNet are not of it"):
        table.float_model(options(weights=str(tmp_path / "none")))
    with pytest.raises(SystemExit, match=r"must be a network of keras\.applications.*'MobileNot'"):
        table.float_model(options(model="MobileNot"))


def test_the_table_gives_means_with_their_spread_and_processor_minutes(benchmark):
    told = [
        {"width": "FP32", "treatment": "", "seed": 0, "accuracy": 90.0},
        {"width": "W4A8", "treatment": "calibrated", "seed": 0, "accuracy": 80.0, "processor_seconds": 60},
        {"width": "W4A8", "treatment": "calibrated", "seed": 1, "accuracy": 81.0, "processor_seconds": 120},
        {"width": "W4, weights alone", "treatment": "GPTQ", "seed": 0, "accuracy": 89.5, "processor_seconds": 6},
    ]
    text = benchmark("accuracy_table").report(told)
    assert "| calibrated | - | 80.50 (80.00 to 81.00); 1.5 min | - |" in text
    assert "W4, weights alone, blocks of 32, GPTQ: 89.50; 0.1 min." in text
