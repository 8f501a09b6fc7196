"""The export pane tells of this export, not of the one before, and helps with a folder that does not exist."""

import pathlib
from types import SimpleNamespace

import pytest
from small_benches import stopped_when

import qdq_workbench as qdq
from qdq_widgets.errors import BenchBusyError, BenchError
from qdq_widgets.exports import BenchExport
from qdq_widgets.panes.export import ExportPane, verdict_html
from qdq_widgets.panes.files import FilesPane
from qdq_widgets.snapshots import Snapshot
from qdq_workbench.verification import certificate, verify
from qdq_workbench.verification.verify import verify_model


@pytest.fixture
def pane(calibrated, tmp_path):
    pane = calibrated.view.pane(ExportPane)
    calibrated.view.work.open(ExportPane)
    pane.verify.value, pane.floats.value, pane.target.value = False, "float32", ""
    pane.path.value = str(tmp_path / "first.onnx")
    return pane


def run(pane):
    pane.run.click()
    assert pane.bench.jobs.wait(120)


def test_a_failed_export_takes_back_the_verdict_of_the_one_before(pane, tmp_path, monkeypatch):
    run(pane)
    assert "first.onnx" in pane._verdict.value
    assert f"Of the present state: {tmp_path / 'first.onnx'}" in pane._verdict.value

    def refuse(*_, **__):
        assert "Exporting ..." in pane._verdict.value
        raise qdq.QDQError("no such kernel")

    monkeypatch.setattr(qdq, "export_tflite", refuse)
    pane.path.value = str(tmp_path / "second.tflite")
    run(pane)
    assert "no such kernel" in pane.errors.message
    assert "Not exported: " in pane._verdict.value
    assert "first.onnx" not in pane._verdict.value
    assert "first.onnx" in pane._files.value  # it is there all the same
    pane.path.value = str(tmp_path / "third.onnx")
    run(pane)
    assert pane.errors.message == ""
    assert "Not exported" not in pane._verdict.value
    assert "third.onnx" in pane._verdict.value


def test_a_missing_folder_is_made_with_one_click(pane, tmp_path):
    path = tmp_path / "new" / "deep" / "model.onnx"
    pane.path.value = str(path)
    run(pane)
    assert pane.errors.message == ""
    assert not path.parent.exists()
    assert pane.offer.widget.layout.display == ""
    assert str(path.parent) in pane.offer._text.value
    pane.offer.make_it.click()
    assert pane.bench.jobs.wait(120)
    assert pane.errors.message == ""
    assert path.exists()
    assert pane.offer.widget.layout.display == "none"


def test_the_offer_goes_with_another_path_and_says_what_cannot_be_made(pane, tmp_path):
    (tmp_path / "file").write_text("")
    pane.path.value = str(tmp_path / "file" / "deeper" / "model.onnx")
    run(pane)
    pane.offer.make_it.click()
    assert "cannot be made" in pane.errors.message
    pane.path.value = str(tmp_path / "nowhere" / "model.onnx")
    run(pane)
    pane.path.value = "model.onnx"
    assert pane.offer.widget.layout.display == "none"


def test_the_report_offers_it_too(calibrated, tmp_path):
    pane = calibrated.view.pane(FilesPane)
    pane.page.value = str(tmp_path / "pages" / "report.html")
    pane.report.click()
    assert pane.errors.message == ""
    pane.offer.make_it.click()
    assert (tmp_path / "pages" / "report.html").exists()


def test_half_precision_is_chosen_and_named(pane):
    pane.floats.value = "float16"
    run(pane)
    assert pane.errors.message == ""
    assert (pane.bench.exports[-1].report.float_type, pane.bench.exports[-1].format[-9:]) == ("float16", ", float16")
    assert ", float16" in pane._files.value


def test_integers_for_firmware_and_a_c_header(pane, tmp_path):
    pane.path.value, pane.target.value = str(tmp_path / "model.npz"), "onnxruntime"
    run(pane)
    assert pane.errors.message == ""
    done = pane.bench.exports[-1]
    assert (done.format, done.passed) == ("integers for firmware", None)
    assert done.pairs == len(done.plan.tensors)
    assert done.report.c_header == tmp_path / "model.h"
    assert "#include <stdint.h>" in (tmp_path / "model.h").read_text()
    assert "qdq-workbench docs firmware" in pane._verdict.value
    arguments = f"q_model, {str(done.path)!r}, target='onnxruntime', c_header={str(tmp_path / 'model.h')!r}"
    assert f"qdq.files.save_firmware({arguments})" in pane.bench.to_code()


def test_what_a_form_does_not_have_is_refused_before_anything_is_written(calibrated, tmp_path):
    with pytest.raises(BenchError, match="no opset"):
        calibrated.export(tmp_path / "model.npz", opset=17)
    with pytest.raises(BenchError, match=r"name the file \.npz"):
        calibrated.export(tmp_path / "model.onnx", c_header=tmp_path / "model.h")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["stopped.onnx", "stopped.tflite", "stopped.npz"])
def test_an_export_that_is_stopped_writes_nothing_and_is_no_error(pane, tmp_path, name):
    path = tmp_path / name
    path.write_text("of before")
    before = len(pane.bench.exports)
    pane.path.value, pane.target.value = str(path), "onnxruntime" if path.suffix == ".npz" else ""
    with stopped_when(pane.bench, lambda job: "writing" in job.text):
        run(pane)
    assert pane.errors.message == ""
    assert f"Stopped, not exported: {path}" in pane._verdict.value
    assert pane.bench.view.status.value.startswith('<div class="qdq-muted">Stopped: export')
    assert (path.read_text(), len(pane.bench.exports)) == ("of before", before)
    assert [other.name for other in tmp_path.iterdir()] == [name]
    run(pane)
    assert "Stopped" not in pane._verdict.value
    assert len(pane.bench.exports) == before + 1


@pytest.mark.parametrize("word", ["verifying", "certifying"])
def test_a_stop_while_the_file_is_verified_leaves_the_file(pane, tmp_path, word):
    pane.verify.value = pane.certificate.value = True
    with stopped_when(pane.bench, lambda job: word in job.text):
        run(pane)
    assert pane.errors.message == ""
    done = pane.bench.exports[-1]
    assert done.path == tmp_path / "first.onnx"
    assert done.path.exists()
    assert done.certificate is None
    assert ("verification was stopped" in pane._verdict.value) is (word == "verifying")
    assert (done.passed is True) is (word == "certifying")
    pane.certificate.value = False


def test_a_certified_file_is_verified_once(calibrated, tmp_path, monkeypatch):
    done = []
    for module in (verify, certificate):
        monkeypatch.setattr(module, "verify_model", lambda *given: done.append(1) or verify_model(*given))
    file = calibrated.export(tmp_path / "model.onnx", certificate=True)
    assert len(done) == 1
    assert file.passed
    kept = qdq.Certificate.load(tmp_path / "model.certificate.json")
    assert [check["detail"] for check in kept.checks] == [check.detail for check in file.verification.checks]
    calibrated.export(tmp_path / "model.onnx", verify=False, certificate=True)
    assert len(done) == 2


# ---------------------------------------------------------------------- the form and the list, without a model


def done(name="a.onnx", *, passed=True, **fields):
    report = SimpleNamespace(
        activations=3, weights=2, opset=21, float_type="float32", bytes=2048, summary=lambda: "5 <pairs>"
    )
    checks = [
        SimpleNamespace(name="outputs", passed=True, detail="equal"),
        SimpleNamespace(name="pairs", passed=bool(passed), detail="<missing>"),
    ]
    verification = (
        None if passed is None else SimpleNamespace(passed=passed, checks=checks, processor_remark="", form_remark="")
    )
    return BenchExport(pathlib.Path(name), "onnxruntime", report, verification, **fields)


class FakeJobs(SimpleNamespace):
    """Jobs that run at once, or refuse because another one runs."""

    def __init__(self, *, busy=False):
        super().__init__(current=None, last=None, busy=busy)

    def start(self, work, on_error):
        if self.busy:
            raise BenchBusyError("The bench is busy with: fine-tuning.")
        work()


def pane_of(*exports, stage="planned", file=None, busy=False):
    """Return a drawn pane of a bench that notes what it is asked to export."""
    asked = []
    bench = SimpleNamespace(
        graph=SimpleNamespace(name="my net"),
        jobs=FakeJobs(busy=busy),
        exports=list(exports),
        snapshot=Snapshot(stage, file=file),
        stage=stage,
        export=lambda *given, **named: asked.append((given, named)),
        asked=asked,
        view=SimpleNamespace(compare=lambda *sides: asked.append(sides)),
    )
    pane = ExportPane(bench)
    pane.ensure_built()
    pane.refresh()
    return pane


def test_the_form_starts_with_a_file_named_after_the_model_and_every_choice_left_to_the_bench(tmp_path):
    pane = pane_of()
    assert pane.path.value == "my_net_int8.onnx"
    pane.path.value = f"  {tmp_path / 'a.onnx'} "
    pane.run.click()
    form = {"opset": None, "float_type": "float32", "verify": True, "certificate": False, "c_header": None}
    assert pane.bench.asked == [((str(tmp_path / "a.onnx"), None), form)]


def test_the_form_hands_on_what_was_chosen(tmp_path):
    pane = pane_of()
    pane.path.value, pane.target.value, pane.opset.value = str(tmp_path / "a.npz"), "litert", 17
    pane.floats.value, pane.verify.value, pane.certificate.value = "bfloat16", False, True
    pane.run.click()
    ((given, named),) = pane.bench.asked
    assert given == (str(tmp_path / "a.npz"), "litert")
    assert named == {
        "opset": 17,
        "float_type": "bfloat16",
        "verify": False,
        "certificate": True,
        "c_header": str(tmp_path / "a.h"),
    }


@pytest.mark.parametrize(
    ("stage", "text"), [("planned", "Not calibrated yet"), ("corrected", "the present plan is corrected, so it can be")]
)
def test_before_the_first_file_it_says_whether_there_can_be_one(stage, text):
    pane = pane_of(stage=stage)
    assert text in pane._verdict.value
    assert (pane._files.value, pane._beside_row.layout.display) == ("", "none")


def test_files_are_listed_the_newest_first_with_what_was_found():
    pane = pane_of(
        done("a.onnx"), done("b.onnx", passed=None), done("c.onnx", passed=False), file=pathlib.Path("b.onnx")
    )
    assert "FAILED its verification: c.onnx" in pane._verdict.value
    assert "Of the present state: b.onnx" in pane._verdict.value
    words = ("c.onnx", "FAILED", "b.onnx", "not verified", "a.onnx", "passed")
    places = [pane._files.value.index(f">{word}<") for word in words]
    assert places == sorted(places)
    assert ">2.0 KiB<" in pane._files.value
    assert "The present state has not been exported yet." in pane_of(done())._verdict.value


def test_a_file_of_the_present_state_can_be_compared_although_this_bench_wrote_none():
    pane = pane_of(file=pathlib.Path("a.onnx"))
    assert pane._beside_row.layout.display == ""
    pane.beside_file.click()
    pane.beside_runtime.click()
    assert pane.bench.asked == [("plan", "file"), ("plan", "onnxruntime")]
    pane.bench.jobs.current = SimpleNamespace(label="fine-tuning")
    pane.refresh()
    assert pane.run.disabled
    assert pane.offer.make_it.disabled
    assert pane.beside_file.disabled
    assert pane.beside_runtime.disabled
    assert "Exporting" not in pane._verdict.value


def test_a_file_that_was_not_begun_is_not_said_to_have_failed(tmp_path):
    pane = pane_of(done(), busy=True)
    pane.path.value = str(tmp_path / "b.onnx")
    pane.run.click()
    assert "busy with: fine-tuning" in pane.errors.message
    pane.refresh()
    assert "Not exported" not in pane._verdict.value
    pane.bench.jobs.busy = False
    pane.run.click()  # begun, and nothing was written
    pane.refresh()
    assert "<b>Not exported: " in pane._verdict.value
    assert "Below are the files of earlier exports." in pane._verdict.value


@pytest.mark.parametrize(
    ("passed", "status", "words"),
    [
        (True, "int8", "Verified: a.onnx"),
        (False, "failed", "FAILED its verification: a.onnx"),
        (None, "partial", "Written, not verified: a.onnx"),
    ],
)
def test_the_verdict_is_that_of_the_verification(passed, status, words):
    page = verdict_html(done(passed=passed))
    assert f'<div class="qdq-verdict qdq-{status}"><b>{words}</b><div>5 &lt;pairs&gt;</div><ul></ul></div>' in page
    assert ("<table" in page) is (passed is not None)


def test_failed_checks_come_first_and_notes_are_listed():
    page = verdict_html(done(passed=False))
    assert page.index("&lt;missing&gt;") < page.index("equal")
    noted = done(not_verified="<stopped>", replaced=True, certificate=pathlib.Path("a.html"))
    noted.verification.processor_remark = "sums may saturate"
    noted.verification.form_remark = "Some layers have another form"
    assert verdict_html(noted).partition("<ul>")[2].partition("</ul>")[0] == (
        "<li>&lt;stopped&gt;</li><li>An earlier file of this name was replaced.</li><li>Note: sums may saturate</li>"
        "<li>Note: Some layers have another form</li>"
        "<li>Certificate: a.html, and as JSON beside it</li>"
    )
