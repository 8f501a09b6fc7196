"""A bench in a folder: what comes back of it, folders of earlier versions, and those that somebody broke."""

import contextlib
import json
import warnings
from types import SimpleNamespace

import pytest
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.curves import Scores
from qdq_widgets.errors import BenchError
from qdq_widgets.metrics import ELSEWHERE, Metric
from qdq_widgets.snapshots import CALIBRATED
from qdq_widgets.state import plan_key
from qdq_widgets.storage import _metric_from_dict, _metrics_to_dicts, _plain


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


# ---------------------------------------------------------------------- what comes back


class NotesCase(qdq.CustomQDQInsertionCase):
    """A case whose argument no file can hold."""

    def __init__(self, note):
        super().__init__()
        self.note = note

    def case(self, keras_model, qspec):
        return qspec


@pytest.fixture
def bench(model):
    return Workbench(model)


def changed(folder, into, *, without="", **parts):
    """Write the `bench.json` of a folder into another one, with some parts changed and one left out."""
    data = {**json.loads((folder / "bench.json").read_text()), **parts}
    data.pop(without, None)
    (into / "bench.json").write_text(json.dumps(data))
    return into


def test_every_step_comes_back_with_the_scores_of_its_calibrated_model(bench, tmp_path):
    for layer in ("conv", "head"):
        bench.toggle(layer, "weight")
    scores = Scores(0.5, {"accuracy": 0.75})
    bench._work.models.remember_scores(bench.history.steps[1].plan, CALIBRATED, scores)
    bench.undo()
    bench.undo()
    other = Workbench.load(bench.save(tmp_path))
    assert [step.label for step in other.history.steps] == [step.label for step in bench.history.steps]
    assert other.history.position == 0
    found = [other._work.models.scores(step.plan, CALIBRATED) for step in other.history.steps]
    assert found == [None, scores, None]


def test_colours_and_rules_come_back_and_folders_without_any_leave_those_of_the_bench(bench, tmp_path):
    bench.color_rules({"w=float": "#e69f00"})
    folder = bench.save(tmp_path)
    bench.color_by("plan")
    bench.load(changed(folder, tmp_path, without="colors"))
    assert (bench.coloring, bench.rules) == ("plan", {})


@pytest.mark.parametrize(("version", "known"), [(1, False), (2, True), (3, True), (4, False), ("3", False)])
def test_folders_of_two_versions_are_read(saved, bench, tmp_path, version, known):
    changed(saved[0], tmp_path, version=version)
    if known:
        bench.load(tmp_path)
        return
    with pytest.raises(BenchError, match=r"bench', version 2 or 3\. Received: directory="):
        bench.load(tmp_path)


def test_a_folder_of_the_version_without_the_work_on_variants_has_that_on_the_present_state(saved, bench, tmp_path):
    bench.load(changed(saved[0], tmp_path, without="work"))
    assert (bench.stage, bench.calibration.samples) == ("calibrated", 48)
    assert bench.variants[0].work.stage == "planned"
    bench.load(changed(saved[0], tmp_path, without="work", calibration=None, stage="planned"))
    assert (bench.stage, bench.calibration) == ("planned", None)
    with pytest.raises(BenchError, match=r"model of the bench cannot be loaded.*quantized.keras"):
        bench.load(changed(saved[0], tmp_path, without="work", stage="fine-tuned"))


def test_a_folder_without_a_state_says_so(saved, bench, tmp_path):
    with pytest.raises(BenchError, match=r"bench in the folder has no state\. Received: directory="):
        bench.load(changed(saved[0], tmp_path, steps=[]))


@pytest.mark.parametrize("name", ["../model.keras", "/etc/model.keras", "a/b.keras", "./a.keras"])
def test_a_folder_refers_to_no_file_outside(name):
    with pytest.raises(BenchError, match=f"lies outside of its folder. Received: file={name!r}"):
        _plain(name)
    assert _plain("variant-1.keras") == "variant-1.keras"


def test_a_save_removes_models_of_earlier_saves_alone(bench, tmp_path):
    for name in ("variant-0123.keras", "variant.keras", "notes-variant-1.keras", "variant-1.txt"):
        (tmp_path / name).write_text("")
    assert bench.save(tmp_path / "new" / "deep").is_dir()
    bench.save(tmp_path)
    found = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert found == {"bench.json", "model.keras", "variant.keras", "notes-variant-1.keras", "variant-1.txt"}


def test_what_is_in_the_way_of_a_folder_is_said(bench, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchError, match=r"cannot be written: .*exists\. .*Received: directory='.*file'"):
        bench.save(tmp_path / "file")


# ---------------------------------------------------------------------- metrics and their plans


def test_a_metric_is_kept_with_the_first_step_of_its_plan(model):
    bench = Workbench(model)
    keys = [plan_key(bench.plan)]
    for _ in range(2):
        bench.toggle("conv", "weight")
        keys.append(plan_key(bench.plan))
    steps = bench.history.steps
    metrics = [
        Metric("of no plan", {}),
        Metric("first", {}, about=keys[2]),  # the same as at the start
        Metric("second", {"conv": 1.0}, "dB", "low", about=keys[1]),
        Metric("elsewhere", {}, about="another key"),
    ]
    written = _metrics_to_dicts(metrics, steps)
    assert [item["step"] for item in written] == [None, 0, 1, -1]
    read = [_metric_from_dict(json.loads(json.dumps(item)), steps) for item in written]
    assert read == metrics
    assert [metric.about for metric in read] == [None, keys[0], keys[1], ELSEWHERE]
    del written[2]["step"]  # of an earlier version
    assert _metric_from_dict(written[2], steps).about is None


def test_steps_are_not_planned_for_metrics_of_no_plan():
    class Step(SimpleNamespace):
        @property
        def plan(self):
            pytest.fail("planned")

    assert _metrics_to_dicts([Metric("mine", {})], [Step()])[0]["step"] is None


# ---------------------------------------------------------------------- cases of the user's


def test_cases_that_no_file_can_hold_are_named_once_at_the_line_that_saves(bench, tmp_path):
    bench.apply_case(NotesCase(object()))
    bench.keep_variant("mine")
    bench.toggle("conv", "weight")
    with pytest.warns(UserWarning, match=r"arguments of NotesCase cannot be saved.*load\(folder, cases=") as found:
        bench.save(tmp_path)
    assert [warning.filename for warning in found if warning.category is UserWarning] == [__file__]
    with pytest.raises(BenchError, match=r"cases=\[NotesCase\(...\)\]"):
        Workbench.load(tmp_path)


def test_a_bench_that_loads_a_folder_knows_the_classes_of_its_own_cases(bench, tmp_path):
    bench.apply_case(NotesCase("a text"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        bench.save(tmp_path)
    bench.load(tmp_path)
    assert [case.note for case in bench.state.cases] == ["a text"]
    with pytest.raises(BenchError, match="NotesCase"):
        Workbench.load(tmp_path)
