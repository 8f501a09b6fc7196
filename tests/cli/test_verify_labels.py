"""`verify` with labels shows the accuracy of the file, beside that of the model."""

import json

import numpy as np
import onnx
import pytest

import qdq_workbench as qdq


@pytest.fixture
def labels(workplace, q_model):
    """Return the classes that the quantized model gives, of which the first quarter are made wrong."""
    outputs = qdq.load_model(workplace / q_model).predict(np.load(workplace / "images.npy"), verbose=0)
    found = outputs.argmax(axis=-1)
    found[:8] = (found[:8] + 1) % outputs.shape[-1]
    return found


def test_labels_in_the_data_or_beside_them_give_the_accuracy(cli, workplace, q_model, onnx_file, labels):
    images = np.load(workplace / "images.npy")
    np.savez(workplace / "labelled.npz", x=images, y=labels)
    np.save(workplace / "labels.npy", labels)
    code, out, errors = cli("verify", onnx_file, "--model", q_model, "--data", "labelled.npz", "--json")
    assert code == 0, errors
    score = json.loads(out)["score"]
    assert (score["model"], score["samples"], score["metric"]) == (0.75, 32, "accuracy")
    assert abs(score["value"] - 0.75) <= 2 / 32
    code, out, _ = cli("verify", onnx_file, "--data", "images.npy", "--labels", "labels.npy")
    assert code == 0
    assert f"accuracy of 32 samples: {score['value']:.4f} in ONNX Runtime" in out
    assert "in Keras" not in out


def test_data_without_labels_are_verified_as_ever(cli, q_model, onnx_file):
    code, out, _ = cli("verify", onnx_file, "--model", q_model, "--data", "images.npy", "--json")
    assert code == 0
    assert "score" not in json.loads(out)


def test_labels_that_are_no_classes_are_remarked_on_or_refused(cli, workplace, q_model, onnx_file):
    np.savez(workplace / "regression.npz", x=np.load(workplace / "images.npy"), y=np.linspace(0, 1, 32))
    code, out, _ = cli("verify", onnx_file, "--model", q_model, "--data", "regression.npz", "--json")
    assert (code, "score" in json.loads(out)) == (0, False)
    assert "the labels in the data give no accuracy" in json.loads(out)["remarks"][0]
    assert "note: the labels in the data give no accuracy" in cli("verify", onnx_file, "--data", "regression.npz")[2]
    np.save(workplace / "regression.npy", np.linspace(0, 1, 32))
    for options, says in (
        (("--data", "images.npy", "--labels", "regression.npy"), "not whole numbers"),
        (("--labels", "regression.npy"), "--data"),
        (("--data", "images.npy", "--labels", "regression.npy", "--certificate", "c.json"), "a certificate has none"),
        (("--data", "regression.npz", "--labels", "regression.npy"), "leave --labels out"),
    ):
        code, out, errors = cli("verify", onnx_file, *options)
        assert (code, out) == (2, "")
        assert says in " ".join(errors.split())


def test_a_file_that_does_not_run_is_reported_as_without_labels(cli, workplace, q_model, onnx_file, labels):
    file = onnx.load(workplace / onnx_file)
    next(node for node in file.graph.node if node.op_type == "Conv").op_type = "NoSuchOperation"
    onnx.save(file, workplace / "unknown.onnx")
    np.savez(workplace / "labelled.npz", x=np.load(workplace / "images.npy"), y=labels)
    np.save(workplace / "labels.npy", labels)
    for data in (("--data", "labelled.npz"), ("--data", "images.npy", "--labels", "labels.npy")):
        code, out, errors = cli("verify", "unknown.onnx", "--model", q_model, *data)
        assert code == 1, errors
        assert "NOT verified" in out
