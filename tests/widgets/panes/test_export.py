"""The export pane tells of this export, not of the one before, and helps with a folder that does not exist."""

import pytest
from small_benches import stopped_when

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.panes.export import ExportPane
from qdq_widgets.panes.files import FilesPane


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
