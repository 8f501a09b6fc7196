"""A separable convolution in two halves computes the same and can run on integers."""

import keras
import numpy as np
from keras import layers
from small_models import flat, samples, shake

import qdq_workbench as qdq


def separable_net():
    keras.utils.set_random_seed(4)
    image = keras.Input((8, 8, 3), name="image")
    shared = layers.SeparableConv2D(
        3, 3, padding="same", depth_multiplier=2, activation="relu", bias_initializer="uniform", name="sep"
    )
    hidden = shared(shared(image))
    hidden = layers.SeparableConv2D(4, 3, strides=2, use_bias=False, name="last")(hidden)
    hidden = layers.BatchNormalization(name="norm")(hidden)
    line = layers.Reshape((9, 4), name="line")(hidden)
    line = layers.SeparableConv1D(2, 3, dilation_rate=2, name="line_sep", trainable=False)(line)
    return shake(keras.Model(image, line, name="separable_net"))


def test_the_halves_compute_the_same():
    model = separable_net()
    split = qdq.split_separable_convolutions(model)
    data = samples(model)
    np.testing.assert_array_equal(flat(split(data))[0], flat(model(data))[0])
    assert [layer.name for layer in split.layers] == [
        "image",
        "sep_depthwise",
        "sep_pointwise",
        "last_depthwise",
        "last_pointwise",
        "norm",
        "line",
        "line_sep_depthwise",
        "line_sep_pointwise",
    ]
    assert not split.get_layer("line_sep_depthwise").trainable
    assert split.get_layer("sep_pointwise").trainable


def test_the_regularizer_of_the_result_is_the_pointwise_half_s():
    image = keras.Input((8, 8, 3), name="image")
    layer = layers.SeparableConv2D(4, 3, activity_regularizer=keras.regularizers.L1(0.1), name="sep")
    model = keras.Model(image, layer(image))
    split = qdq.split_separable_convolutions(model)
    data = samples(model)
    split(data), model(data)
    (ours,), (theirs,) = split.losses, model.losses
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_the_halves_run_on_integers(tmp_path):
    model = separable_net()
    data = samples(model)
    convolutions = {}
    for either in (model, qdq.split_separable_convolutions(model)):
        q_model = qdq.quantize_model(either, target="onnxruntime")
        qdq.calibrate(q_model, data, verbose=False)
        report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
        verification = qdq.verify_onnx(report.path, q_model, data)
        assert verification.passed, verification.summary()
        convolutions[either is model] = verification.figures["integer_kernels"]["Conv"]
    assert convolutions[False] == [8, 8]
    assert convolutions[True][0] < 8
