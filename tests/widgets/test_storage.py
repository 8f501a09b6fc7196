"""Folders of benches whose bench.json somebody broke: a named error, and the bench that reads it stays as it was."""

import contextlib
import json

import pytest
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    bench = Workbench(tiny_model(), calibration_data=tiny_data()[0])
    bench.apply_case(qdq.ResNetV1QDQCase())
    bench.calibrate()
    bench.keep_variant("mine")
    return bench.save(tmp_path_factory.mktemp("benches") / "bench"), bench


KEYS = ("steps", "position", "variants", "curves", "calibration", "stage", "metrics", "sensitivity")


@pytest.mark.parametrize("key", KEYS)
def test_a_part_that_is_missing_or_of_another_kind(saved, key, tmp_path):
    folder, bench = saved
    data = json.loads((folder / "bench.json").read_text())
    assert set(KEYS) <= set(data)
    before = bench.plan
    for value in ("missing", 7, [1], {"x": 1}, [{"label": "a", "state": {}}]):
        broken = {name: part for name, part in data.items() if name != key}
        (tmp_path / "bench.json").write_text(json.dumps(broken if value == "missing" else {**broken, key: value}))
        with contextlib.suppress(qdq.QDQError):
            bench.load(tmp_path)
            assert value != "missing"
    (tmp_path / "bench.json").write_text(json.dumps({name: part for name, part in data.items() if name != key}))
    with pytest.raises(BenchError, match=rf"bench in the folder is damaged.*{key}.*Received: directory="):
        bench.load(tmp_path)
    assert bench.plan == before


@pytest.mark.parametrize("text", ["", "{", "[" * 50_000, "null"])
def test_what_is_no_bench_at_all(saved, text, tmp_path):
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(BenchError, match="holds no bench"):
        saved[1].load(tmp_path)


def test_a_model_that_is_cut_off(saved, tmp_path):
    folder, _ = saved
    content = (folder / "model.keras").read_bytes()
    (tmp_path / "bench.json").write_bytes((folder / "bench.json").read_bytes())
    (tmp_path / "model.keras").write_bytes(content[: len(content) // 2])
    with pytest.raises(BenchError, match=r"model of the bench cannot be loaded.*cut off"):
        Workbench.load(tmp_path)
