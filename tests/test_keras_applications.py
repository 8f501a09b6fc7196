"""Two small networks of keras.applications the whole way; `benchmarks/keras_applications.py` takes all of them.

Each is taken without its last blocks, which repeat the kinds of the first ones, but with its head.
"""

import keras
import numpy as np
import pytest

import qdq_workbench as qdq

# The target, and how many sums of residual blocks are left.
NETWORKS = {"MobileNetV2": ("tensorrt", 3), "MobileNetV3Small": ("onnxruntime", 2)}


def shortened(model, sums):
    """Return a network with this many sums, and behind the last of them what is behind the last sum of the whole."""
    places = [place for place, layer in enumerate(model.layers) if isinstance(layer, keras.layers.Add)]
    assert sums < len(places)
    x = model.layers[places[sums - 1]].output
    for layer in model.layers[places[-1] + 1 :]:
        x = layer.from_config(layer.get_config())(x)
    return keras.Model(model.inputs, x, name=model.name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_plan_quantize_train_export_verify(name, tmp_path):
    target, sums = NETWORKS[name]
    keras.utils.set_random_seed(0)
    make = getattr(keras.applications, name)
    model = shortened(make(weights=None, input_shape=(32, 32, 3), classes=5, alpha=0.35), sums)
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
