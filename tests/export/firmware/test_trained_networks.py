"""Trained networks in firmware: the demo's on digits; MLPerf Tiny's ResNet-8 on photographs."""

import cifar
import keras
import numpy as np
import pytest
from firmware_nets import IS_X86, differing, document, run_file, tensors_in

import qdq_workbench as qdq
from qdq_workbench.cli.demo.data import load_images
from qdq_workbench.cli.demo.network import residual_network
from qdq_workbench.export.firmware import interpreter

pytestmark = pytest.mark.skipif(not IS_X86, reason="ONNX Runtime's other kernels add and average in fixed point")


def check(q_model, images, labels, folder, least):
    """Compare the interpreter with ONNX Runtime, and its two forms with each other; return the accuracy of both."""
    qdq.files.save_firmware(q_model, folder / "model.npz")
    qdq.export_onnx(q_model, folder / "model.onnx")
    held, inputs = document(folder / "model.npz"), {q_model.inputs[0].name: images}

    floats = interpreter.run(folder / "model.npz", inputs)
    integers = interpreter.run(folder / "model.npz", inputs, fixed_point=True)

    made = {node["outputs"][0] for node in held["nodes"]} & tensors_in(folder / "model.onnx")
    names = sorted(name for name in made if name.endswith("/quantized"))
    theirs = run_file(folder / "model.onnx", inputs, names)
    assert {name: differing(floats[name], theirs[name]) for name in names} == dict.fromkeys(names, 0)
    assert len(names) > 10
    ((output, tensor),) = held["outputs"].items()
    scores = run_file(folder / "model.onnx", inputs, [output])[output]
    np.testing.assert_allclose(floats[tensor], scores, rtol=0, atol=1e-6)
    assert (floats[tensor].argmax(-1) == labels).mean() >= least
    assert (integers[tensor].argmax(-1) == floats[tensor].argmax(-1)).mean() >= 0.97


@pytest.mark.parametrize("target", ["onnxruntime", "litert"])
def test_digits(digits, target, tmp_path):
    q_model, images, labels = digits
    q_model = q_model if target == q_model.target else qdq.retarget(q_model, target)

    check(q_model, images, labels, tmp_path, least=0.9)


@pytest.fixture(scope="module")
def digits():
    """Train the demo's network for a moment; return it quantized, with images and labels that it has not seen."""
    data = load_images().scaled()
    keras.utils.set_random_seed(0)
    model = residual_network(data.x_train.shape[1:], data.classes)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(data.x_train, data.y_train, batch_size=32, epochs=2, verbose=0)
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    qdq.calibrate(q_model, data.x_train[:256], verbose=False)
    return q_model, data.x_test[:300].astype(np.float32), data.y_test[:300]


def test_resnet8_on_cifar(tmp_path):
    q_model = qdq.quantize_model(cifar.trained_network(), target="onnxruntime")
    qdq.calibrate(q_model, cifar.images("train", 256)[0], verbose=False)
    check(q_model, *cifar.images("test", 100), tmp_path, least=0.78)
