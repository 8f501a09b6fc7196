"""LiteRT files of what TFMOT's tests convert: single layers, and trained networks beside Keras (docs/peer_tests.md)."""

import keras
import numpy as np
from keras import layers
from small_models import flat, samples

import qdq_workbench as qdq
from qdq_workbench import tfmot
from qdq_workbench.export.litert.tflite_run import make_interpreter, run_tflite

VECTORS = {
    "relu": layers.ReLU,
    "softmax": layers.Softmax,
    "dense": lambda: layers.Dense(2),
    "reshape": lambda: layers.Reshape((5, 1, 1)),
}
SEQUENCES = {
    "cropping": lambda: layers.Cropping1D(1),
    "padding": layers.ZeroPadding1D,
    "global average": layers.GlobalAveragePooling1D,
    "global maximum": layers.GlobalMaxPooling1D,
    "permute": lambda: layers.Permute((2, 1)),
}
IMAGES = {
    "conv": lambda: layers.Conv2D(4, 2),
    "transposed": lambda: layers.Conv2DTranspose(4, 2),
    "cropping": lambda: layers.Cropping2D(1),
    "nearest": lambda: layers.UpSampling2D(interpolation="nearest"),
    "bilinear": lambda: layers.UpSampling2D(interpolation="bilinear"),
    "padding": layers.ZeroPadding2D,
    "average": lambda: layers.AveragePooling2D(2),
    "global average": layers.GlobalAveragePooling2D,
    "global maximum": layers.GlobalMaxPooling2D,
    "maximum": lambda: layers.MaxPooling2D(2),
}
VOLUMES = {
    "cropping": lambda: layers.Cropping3D(1),
    "global average": layers.GlobalAveragePooling3D,
    "global maximum": layers.GlobalMaxPooling3D,
}


def test_files_of_single_layers_are_floats_at_their_ends_alone(tmp_path):
    """One file holds all layers, side by side: a float tensor between its ends would be some layer's."""
    inputs, outputs = [], []
    for shape, family in (((5,), VECTORS), ((4, 6), SEQUENCES), ((4, 6, 1), IMAGES), ((4, 4, 4, 1), VOLUMES)):
        inputs.append(keras.Input(shape, name=f"rank{len(shape)}"))
        outputs += [make()(inputs[-1]) for make in family.values()]
    q_model = tfmot.quantize_model(keras.Model(inputs, outputs), target="litert")
    qdq.calibrate(q_model, samples(q_model), verbose=False)
    file = qdq.export_tflite(q_model, tmp_path / "model.tflite").path.read_bytes()
    details = make_interpreter(file).get_tensor_details()
    floats = [detail["name"] for detail in details if detail["dtype"] is np.float32]
    assert len(floats) == len(inputs) + len(outputs), floats


def normed(tensor):
    return layers.ReLU()(layers.BatchNormalization()(tensor))


def networks_of_the_numerical_test():
    image, sequence, vector = (
        keras.Input(shape, name=name) for name, shape in (("image", (9, 9, 3)), ("sequence", (8, 3)), ("vector", (5,)))
    )
    stacked = image
    for strides in (1, 2, 2):
        stacked = layers.Conv2D(4, 2, strides=strides, activation="relu")(stacked)
    twice = layers.BatchNormalization()(layers.SeparableConv1D(5, 3)(sequence))
    outputs = {
        "conv": layers.Conv2D(2, 3, strides=2)(image),
        "dense": layers.Dense(3)(vector),
        "conv_relu": layers.ReLU()(layers.Conv2D(2, 3, strides=2, activation="relu")(image)),
        "stacked": stacked,
        "conv_norm": normed(layers.Conv2D(3, 3, strides=2)(image)),
        "depthwise_norm": normed(layers.DepthwiseConv2D(3, strides=2)(image)),
        "separable_norm": normed(layers.SeparableConv2D(5, 3, strides=2)(image)),
        "sequence_twice": normed(layers.SeparableConv1D(5, 3)(twice)),
        "nearest": layers.UpSampling2D((3, 4), interpolation="nearest")(image),
        "bilinear": layers.UpSampling2D((1, 5), interpolation="bilinear")(image),
        "transposed": layers.Conv2DTranspose(2, 3, strides=2)(image),
    }
    named = {name: layers.Activation("linear", name=f"{name}_end")(value) for name, value in outputs.items()}
    return keras.Model([image, sequence, vector], named)


def test_trained_networks_are_the_same_in_keras_and_litert(tmp_path):
    """Most within one step; LiteRT's bilinear upsampling, which TFMOT leaves out, rounds once more."""
    model = networks_of_the_numerical_test()
    q_model = tfmot.quantize_model(model, target="litert")
    x = samples(q_model)
    qdq.calibrate(q_model, x, verbose=False)
    q_model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=True)
    before = q_model.get_weights()
    q_model.train_on_batch(x, {name: np.zeros((16, *value.shape[1:])) for name, value in model.output.items()})
    assert any(not np.array_equal(*pair) for pair in zip(before, q_model.get_weights(), strict=True))
    file = qdq.export_tflite(q_model, tmp_path / "model.tflite").path.read_bytes()
    theirs = run_tflite(file, dict(zip(q_model.plan.graph.inputs, flat(x), strict=True)))
    for name, ours in q_model(x).items():
        values = np.asarray(ours)
        difference = np.abs(values - theirs[f"{name}_end"])
        assert difference.max() < 0.1, name  # what TFMOT allows
        steps = difference / np.diff(np.unique(values)).min()
        if name == "sequence_twice":  # its normalizations are not folded, and LiteRT keeps 8 bits of their constants
            assert steps.mean() < 0.5
        else:
            assert steps.max() < (2.01 if name == "bilinear" else 1.01), name
        assert len(np.unique(values)) > 3, name
