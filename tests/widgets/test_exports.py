"""The files of a bench: what is written for which target, verified against which model, and whose file it then is."""

import pathlib
from types import SimpleNamespace

import pytest
from mock_graphs import chain

import qdq_workbench as qdq
from qdq_widgets.background import Jobs
from qdq_widgets.data import BenchData
from qdq_widgets.errors import BenchError
from qdq_widgets.events import Events
from qdq_widgets.exports import BenchExport, Exports
from qdq_widgets.snapshots import Snapshot, WorkMark

PLAN = qdq.plan_placement(chain(("Conv2D", "conv"), ("ReLU", "relu")), target="onnxruntime")


def report(**fields):
    usual = {
        "activations": 3,
        "weights": 2,
        "opset": 21,
        "float_type": "float32",
        "bytes": 99,
        "summary": lambda: "5 pairs",
    }
    return SimpleNamespace(**{**usual, **fields})


def verified(*, passed):
    return SimpleNamespace(passed=passed, summary=lambda: "all checks")


class Models:
    """A store with one quantized model, which remembers what it was told of files."""

    def __init__(self):
        self.q_model = SimpleNamespace(target="onnxruntime", plan=PLAN)
        self.work = Snapshot("calibrated", None, "ranges")
        self.files = []

    def get(self, plan):
        return self.q_model

    def snapshot(self, plan):
        return self.work

    def remember_file(self, plan, size, path):
        self.files.append((size, path))


@pytest.fixture
def calls(monkeypatch):
    """The calls of the library that an export makes, each by its name; none takes any time."""
    made = {}

    def stands_in(name, owner=qdq, done=None):
        def call(*given, **named):
            made[name] = (given, named)
            return done(*given, **named) if callable(done) else done

        monkeypatch.setattr(owner, name, call)

    stands_in("export_onnx", done=lambda _, path, **__: path.write_text("file") and report())
    stands_in("export_tflite", done=lambda _, path: path.write_text("file") and report())
    stands_in("save_firmware", qdq.files, lambda _, path, **__: path.write_text("file") and report())
    stands_in("verify_onnx", done=verified(passed=True))
    stands_in("retarget", done=lambda _, target: SimpleNamespace(target=target, plan=SimpleNamespace(target=target)))
    certificate = SimpleNamespace(save=lambda path: path.write_text("certificate"), report=verified(passed=True))
    stands_in("certify", done=certificate)
    stands_in("write_certificate_page", done=lambda _, page: page.write_text("page"))
    return made


@pytest.fixture
def exports():
    work = SimpleNamespace(models=Models(), data=BenchData(validation=([1, 2], [0, 0])), jobs=Jobs(lambda _: None))
    return Exports(SimpleNamespace(plan=PLAN), work, Events())


# ---------------------------------------------------------------------- one file


def test_a_file_says_its_pairs_its_format_and_its_verdict():
    done = BenchExport(pathlib.Path("a.onnx"), "tensorrt", report())
    assert (done.pairs, done.format, done.passed) == (5, "ONNX, opset 21", None)
    assert str(done) == "5 pairs\nnot verified"
    half = BenchExport(pathlib.Path("a.onnx"), "tensorrt", report(float_type="float16"), verified(passed=0))
    assert (half.format, half.passed, str(half)) == ("ONNX, opset 21, float16", False, "5 pairs\nall checks")
    assert str(BenchExport(pathlib.Path("a.onnx"), "x", report(), not_verified="It was stopped.")).endswith("stopped.")
    assert BenchExport(pathlib.Path("a.tflite"), "litert", report()).format == "LiteRT"
    assert BenchExport(pathlib.Path("a.npz"), "litert", report()).format == "integers for firmware"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("a.onnx", {"c_header": "a.h"}, r"name the file \.npz.*path='a.onnx', c_header='a.h'"),
        ("a.tflite", {"c_header": pathlib.Path("a.h")}, r"c_header='a.h'"),
        ("a.tflite", {"certificate": True}, r"leave it out for a \.tflite file.*certificate=True"),
        ("a.npz", {"certificate": True}, r"leave it out for a \.npz file"),
        ("a.npz", {"opset": 17}, "no opset and holds its floats in float32.*Received: opset=17$"),
        ("a.tflite", {"opset": 17, "float_type": "float16"}, "Received: opset=17, float_type='float16'$"),
        ("a.tflite", {"target": "tensorrt"}, "is for LiteRT.*target='tensorrt'"),
    ],
)
def test_arguments_that_do_not_suit_the_format_write_nothing(
    exports, calls, tmp_path, monkeypatch, name, arguments, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BenchError, match=message):
        exports.export(name, **arguments)
    assert calls == {}
    assert list(tmp_path.iterdir()) == exports.done == []
    assert exports._work.jobs.current is None


# ---------------------------------------------------------------------- writing and verifying


def test_a_file_for_the_plans_target_is_that_of_the_plan(exports, calls, tmp_path):
    events = []
    exports._events.subscribe(events.append)
    done = exports.export(str(tmp_path / "a.onnx"))
    models = exports._work.models
    assert models.files == [(99, tmp_path / "a.onnx")]
    assert calls["export_onnx"][1] == {"target": "onnxruntime", "opset": None, "float_type": "float32"}
    (path, reference), named = calls["verify_onnx"]
    assert (path, reference, named) == (tmp_path / "a.onnx", models.q_model, {"data": [1, 2]})
    assert (done.target, done.plan, done.passed, done.replaced, done.certificate) == (
        "onnxruntime",
        PLAN,
        True,
        False,
        None,
    )
    assert done.given == {}
    assert exports.done == [done]
    assert events == ["export"]


def test_a_file_for_another_target_is_compared_with_the_model_that_it_was_exported_from(exports, calls, tmp_path):
    (tmp_path / "a.onnx").write_text("of before")
    done = exports.export(tmp_path / "a.onnx", "tensorrt", opset=17, float_type="float16")
    assert exports._work.models.files == []  # of which the store has one per plan
    assert calls["export_onnx"][1] == {"target": "tensorrt", "opset": 17, "float_type": "float16"}
    assert calls["verify_onnx"][0][1] is exports._work.models.q_model  # verification plans it for the file's target
    assert (done.target, done.plan.target, done.replaced) == ("tensorrt", "tensorrt", True)
    assert done.given == {"target": "tensorrt", "opset": 17, "float_type": "float16"}


@pytest.mark.parametrize("suffix", [".onnx", ".tflite", ".npz"])
def test_what_was_there_before_is_said_to_be_replaced(exports, calls, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    assert [exports.export(path).replaced for _ in range(2)] == [False, True]


def test_verification_can_be_left_out_and_its_failure_leaves_the_file(exports, calls, tmp_path, monkeypatch):
    done = exports.export(tmp_path / "a.onnx", verify=False, certificate=True)
    assert "verify_onnx" not in calls
    assert (done.passed, done.not_verified) == (None, "")
    assert done.certificate == tmp_path / "a.certificate.html"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.onnx": "file",
        "a.certificate.json": "certificate",
        "a.certificate.html": "page",
    }

    def refuse(*_, **__):
        raise qdq.errors.VerificationError("no such kernel")

    monkeypatch.setattr(qdq, "verify_onnx", refuse)
    done = exports.export(tmp_path / "b.onnx")
    assert (done.passed, done.not_verified) == (None, "It could not be verified: no such kernel")
    assert exports._work.models.files[-1] == (99, tmp_path / "b.onnx")


@pytest.mark.parametrize(
    ("word", "left_out"),
    [("writing", {"certify", "write_certificate_page"}), ("verifying", {"write_certificate_page"})],
)
def test_a_stop_that_comes_too_late_for_a_step_leaves_out_those_behind_it(exports, calls, tmp_path, word, left_out):
    def listen(_):
        job = exports._work.jobs.current
        if job is not None and word in job.text:
            job.stop()

    exports._work.jobs = Jobs(listen)
    done = exports.export(tmp_path / "a.onnx", certificate=True)
    assert {"certify", "write_certificate_page"} - calls.keys() == left_out
    assert (done.path.read_text(), done.certificate) == ("file", None)
    assert exports.done == [done]


def test_a_litert_file_has_the_grids_of_litert(exports, calls, tmp_path):
    for target in (None, "litert"):
        done = exports.export(tmp_path / "a.tflite", target)
        assert (done.target, done.plan.target) == ("litert", "litert")
        assert "TensorFlow's interpreter" in done.not_verified
    exports._work.models.q_model = SimpleNamespace(target="litert", plan="its own")
    assert exports.export(tmp_path / "a.tflite").plan == "its own"


def test_firmware_has_the_grids_of_the_target_that_was_asked_for(exports, calls, tmp_path):
    done = exports.export(tmp_path / "a.npz")
    assert calls["save_firmware"][1] == {"target": None, "c_header": None}
    assert (done.target, done.plan) == ("onnxruntime", PLAN)
    assert exports.export(tmp_path / "a.npz", "onnxruntime").plan is PLAN
    done = exports.export(tmp_path / "a.npz", "litert", c_header=str(tmp_path / "a.h"))
    assert calls["save_firmware"][1] == {"target": "litert", "c_header": tmp_path / "a.h"}
    assert done.target == "litert"
    assert done.given == {"target": "litert", "c_header": str(tmp_path / "a.h")}
    assert "verify_onnx" not in calls


# ---------------------------------------------------------------------- whose files they are


def test_files_belong_to_the_ranges_and_weights_that_they_hold(exports, calls, tmp_path):
    first = exports.export(tmp_path / "a.onnx")
    exports._work.models.work = Snapshot("calibrated", None, "other ranges")
    second = exports.export(tmp_path / "b.onnx")
    assert exports.exports_of(PLAN) == [second]
    exports._work.models.work = Snapshot("calibrated", None, "ranges")
    assert exports.exports_of(PLAN) == [first]
    assert exports.exports_of(qdq.plan_placement(PLAN.graph, target="tensorrt")) == []
    exports.done.append(BenchExport(tmp_path / "c.onnx", "x", report()))  # of an unknown model
    assert exports.exports_of(PLAN) == [first]


def test_a_bench_that_goes_on_with_another_knows_its_files_and_lists_its_own(exports, calls, tmp_path):
    benches = [Exports(exports._plans, exports._work, Events()) for _ in range(3)]
    found = []
    for number, bench in enumerate(benches):
        if number:
            bench.continue_from(benches[number - 1])
        found.append(bench.export(tmp_path / f"{number}.onnx"))
    assert benches[2].done == found[2:]
    assert benches[2].exports_of(PLAN) == found
    assert isinstance(found[0].mark, WorkMark)


def test_netron_shows_the_last_onnx_file(exports, calls, tmp_path, monkeypatch):
    monkeypatch.setattr("qdq_widgets.exports.shared_server", lambda: "server")
    monkeypatch.setattr("qdq_widgets.exports.NetronPage", lambda server, path: (server, path))
    with pytest.raises(BenchError, match=r"Export one first: wb.export\('model.onnx'\)"):
        exports.show_netron()
    exports.export(tmp_path / "a.tflite")
    with pytest.raises(BenchError, match="no file to show yet"):
        exports.show_netron()
    for name in ("a.onnx", "b.onnx", "c.npz"):
        exports.export(tmp_path / name)
    events = []
    exports._events.subscribe(events.append)
    assert exports.show_netron() == exports.page == ("server", tmp_path / "b.onnx")
    assert exports.show_netron("other.onnx") == ("server", "other.onnx")
    assert events == ["netron", "netron"]
