"""Two small networks of keras.applications the whole way; `benchmarks/keras_applications.py` takes all of them."""

import keras
import numpy as np
import pytest

import qdq_workbench as qdq

NETWORKS = {
    "MobileNetV2": ({"alpha": 0.35}, "tensorrt"),
    "MobileNetV3Small": ({"alpha": 0.35}, "onnxruntime"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_plan_quantize_train_export_verify(name, tmp_path):
    settings, target = NETWORKS[name]
    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, input_shape=(32, 32, 3), classes=5, **settings)
    data = np.random.default_rng(0).uniform(0, 255, (4, 32, 32, 3)).astype("float32")
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, data, verbose=False)
    ranges = q_model.activation_ranges()
    q_model.compile("sgd", "sparse_categorical_crossentropy")
    assert np.isfinite(q_model.train_on_batch(data, np.array([0, 1, 2, 3])))
    assert q_model.activation_ranges() == ranges

    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert report.pairs == len(q_model.plan.tensors)
    verification = qdq.verify_onnx(report.path, q_model, data)
    assert verification.passed, verification.summary()
    assert qdq.lint_onnx(report.path).findings == ()
    if target == "onnxruntime":
        integer, every = verification.figures["integer_kernels"]["Conv"]
        assert integer == every > 0
