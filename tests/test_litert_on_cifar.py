"""The LiteRT file of MLPerf Tiny's ResNet-8 on real images."""

import cifar
import pytest
from litert_models import litert

import qdq_workbench as qdq
from qdq_workbench.export.litert.tflite_run import run_tflite

IMAGES = 500


@pytest.fixture(scope="module", params=[8, 16], ids=["W8A8", "W8A16"])
def answers(request, tmp_path_factory):
    """Return the classes that the quantized model and the interpreter give to test images, and the right ones."""
    q_model = qdq.quantize_model(cifar.trained_network(), target=litert(activation_bits=request.param))
    qdq.calibrate(q_model, cifar.images("train", 512)[0], verbose=False)
    report = qdq.export_tflite(q_model, tmp_path_factory.mktemp("litert") / "model.tflite")
    x, labels = cifar.images("test", IMAGES)
    (theirs,) = run_tflite(report.path.read_bytes(), {q_model.plan.graph.inputs[0]: x}).values()
    ours = q_model.predict(x, batch_size=100, verbose=0)
    return request.param, report, ours.argmax(-1), theirs.argmax(-1), labels


def test_every_convolution_and_sum_runs_on_integers(answers):
    operators = answers[1].operators
    assert {name: operators[name] for name in ("CONV_2D", "ADD")} == {"CONV_2D": (9, 9), "ADD": (3, 3)}


def test_the_interpreter_is_as_accurate_as_the_quantized_model(answers):
    """Its kernels round a step apart here and there, so single images may change sides; as many win as lose."""
    bits, _, ours, theirs, labels = answers
    assert abs((ours == labels).mean() - (theirs == labels).mean()) <= (0.01 if bits == 8 else 0.004)
    assert (ours == theirs).mean() >= (0.95 if bits == 8 else 0.996)
