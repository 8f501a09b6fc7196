"""The certificate: what it holds, that it goes through JSON, and that a changed file does not equal it."""

import dataclasses
import json

import onnx
import pytest
from qdq_files import FileMaker, save
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.cli.main import main
from qdq_workbench.errors import FileAccessError, VerificationError
from qdq_workbench.foreign import lint
from qdq_workbench.onnx_graph import model_files
from qdq_workbench.verification import verify


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A quantized model, samples, its file and the file's certificate."""
    folder = tmp_path_factory.mktemp("certificate")
    model = residual_net()
    data = samples(model)
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, folder / "model.onnx").path
    return q_model, data, path, qdq.certify(path, q_model, data)


def test_it_holds_what_was_found(made):
    q_model, certificate = made[0], made[-1]
    assert certificate.passed
    assert (certificate.file, certificate.target, certificate.opset) == ("model.onnx", "onnxruntime", 17)
    planned = {kind: {t.name for t in q_model.plan.tensors if t.kind == kind} for kind in ("activation", "weight")}
    assert set(certificate.pairs) == planned["activation"]
    assert set(certificate.weights) == planned["weight"]
    assert certificate.biases == 2  # that of the head is zero, and left out
    assert certificate.lsb["elements"] > 1000
    assert certificate.lsb["worst"] <= 1
    assert certificate.agreement is not None
    assert certificate.integer_kernels["Conv"] == (2, 2)
    assert certificate.lint == ()
    assert len({certificate.sha256, certificate.graph_sha256, certificate.plan_sha256, certificate.data_sha256}) == 4
    assert {"onnx", "numpy"} <= set(certificate.written_with) & set(certificate.checked_with)
    (low, high), (start, end) = certificate.pairs["image"]["range"], q_model.activation_ranges()["image"]
    assert abs(low - start) < 0.02 * (end - start)
    assert abs(high - end) < 0.02 * (end - start)


def test_it_goes_through_json(made, tmp_path):
    certificate = made[-1]
    loaded = qdq.Certificate.load(certificate.save(tmp_path / "model.json"))
    assert loaded == certificate
    assert (certificate.report.passed, loaded.report) == (True, None)
    assert loaded.to_dict() == certificate.to_dict()
    assert loaded.differences(certificate) == []
    json.loads((tmp_path / "model.json").read_text())


def test_a_changed_file_does_not_equal_it(made, tmp_path):
    path, certificate = made[2], made[-1]
    changed = onnx.load(path)
    scale = next(tensor for tensor in changed.graph.initializer if tensor.name.endswith("/scale") and not tensor.dims)
    value = onnx.numpy_helper.to_array(scale) * 2
    scale.CopyFrom(onnx.numpy_helper.from_array(value, scale.name))
    onnx.save(changed, tmp_path / "model.onnx")
    again = qdq.certify(tmp_path / "model.onnx")
    assert not again.passed
    differences = certificate.differences(again)
    assert {"sha256 differs", "graph_sha256 differs", "pairs differs", "check 'structure' gave False"} <= set(
        differences
    )


def test_the_page_escapes_names_and_needs_no_network(made, tmp_path):
    certificate = made[-1]
    hostile = "<img src=x onerror=alert(1)>"
    evil = dataclasses.replace(certificate, file=hostile, float_nodes=(hostile,), lint=(hostile,))
    page = qdq.write_certificate_page(evil, tmp_path / "model.html").read_text()
    assert hostile not in page
    assert page.count("&lt;img src=x") == 4
    assert "http" not in page.replace("http-equiv", "")
    plain = qdq.write_certificate_page(certificate, tmp_path / "plain.html").read_text()
    for words in (certificate.sha256, "Verified: every check holds.", "GlobalAveragePool", "one step"):
        assert words in plain


def test_a_file_of_others_has_none(tmp_path):
    maker = FileMaker()
    path = save(maker.model(maker.conv(maker.pair("x", "in"), "conv")), tmp_path / "model.onnx")
    with pytest.raises(VerificationError, match="carries no plan"):
        qdq.certify(path)
    with pytest.raises(FileAccessError):
        qdq.certify(tmp_path / "missing.onnx")
    (tmp_path / "wrong.json").write_text("{}")
    with pytest.raises(VerificationError, match="not a certificate"):
        qdq.Certificate.load(tmp_path / "wrong.json")
    (tmp_path / "text.json").write_text("text")
    with pytest.raises(VerificationError, match="is a JSON file"):
        qdq.Certificate.load(tmp_path / "text.json")


def test_the_command_writes_it_and_computes_it_again(made, tmp_path, capsys):
    path, stored = made[2], tmp_path / "model.json"
    assert main(["verify", str(path), "--certificate", str(stored)]) == 0
    assert stored.exists()
    assert stored.with_suffix(".html").exists()
    assert main(["verify", str(path), "--certificate", str(stored)]) == 0
    assert "equals the certificate" in capsys.readouterr().out
    content = json.loads(stored.read_text())
    stored.write_text(json.dumps({**content, "sha256": "0"}))
    assert main(["verify", str(path), "--certificate", str(stored), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["differences"] == ["sha256 differs"]


def test_the_file_is_parsed_once_and_left_as_it_was_read(made, monkeypatch):
    q_model, data, path, certificate = made
    loaded = []

    def load(*args, **kwargs):
        loaded.append(whole(*args, **kwargs))
        return loaded[-1]

    whole = model_files.read_model
    monkeypatch.setattr(lint, "read_model", load)
    monkeypatch.setattr(verify, "read_model", load)
    again = qdq.certify(path, q_model, data)
    assert again.differences(certificate) == []
    assert len(loaded) == 1
    assert loaded[0] == whole(path, in_place_of_litert="")


def test_a_file_that_is_written_during_the_checks_is_not_the_one_that_was_checked(made, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(made[2].read_bytes())

    def batches():
        path.write_bytes(b"another export")
        yield made[1]

    assert qdq.certify(path, made[0], batches()).sha256 == made[-1].sha256


def test_what_a_failed_installation_left_behind_is_no_package(made, tmp_path, monkeypatch):
    """Pip renames what it removes to "~umpy", and leaves it there if it is interrupted."""
    (tmp_path / "~umpy-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert qdq.certify(made[2]).checked_with == made[-1].checked_with
