"""A ReLU with a largest value is one Clip in the file, and vanishes into the kernel before it."""

import keras
import numpy as np
from keras import layers
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.verification import count_integer_kernels


def test_a_relu_with_a_largest_value_is_one_clip(tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    x = layers.ReLU(max_value=0.5, name="relu")(layers.Conv2D(4, 3, name="conv")(image))
    model = keras.Model(image, layers.Conv2D(4, 3, name="last")(x))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    assert qdq.verify_onnx(path, q_model, samples(model)).passed
    assert count_integer_kernels(path).counts["Conv"] == (2, 2)
    assert qdq.explain(q_model).for_layer("relu").rule == "ORT-FUSED"
    assert float(np.max(q_model.activation_ranges()["relu"][1])) <= 0.5
