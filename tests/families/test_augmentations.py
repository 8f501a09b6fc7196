"""Layers that change images at random do nothing at inference: no file holds them, no verdict calls them float."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.graph.kinds import KINDS

IMAGES = np.random.default_rng(0).uniform(0, 255, (4, 8, 8, 3)).astype("float32")
BASE = layers.RandomFlip.__mro__[1]  # Keras has no public name for it
ARGUMENTS = ((), (0.2,), (4, 4), (0.2, 0.2), (4,))


def preprocessing_of_images():
    """Return Keras's classes of layers that prepare or change images."""
    found = {name: getattr(layers, name) for name in dir(layers) if isinstance(getattr(layers, name), type)}
    return {name: kind for name, kind in found.items() if issubclass(kind, BASE) and kind is not BASE}


def made(kind):
    for arguments in ARGUMENTS:
        try:
            layer = kind(*arguments)
            layer(IMAGES[:1], training=False)
        except (TypeError, ValueError):
            continue
        return layer
    raise AssertionError(f"None of the arguments fits {kind.__name__}")


# RandomCrop promises another size, but at inference Keras 3 returns the image as it is.
@pytest.mark.parametrize("name", sorted(preprocessing_of_images().keys() - {"RandomCrop"}))
def test_what_does_nothing_at_inference_vanishes(name):
    found = keras.ops.convert_to_numpy(made(preprocessing_of_images()[name])(IMAGES, training=False))
    assert (found.shape == IMAGES.shape and np.array_equal(found, IMAGES)) == KINDS[name].vanishes


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_the_file_and_the_verdicts_are_without_them(dtype, tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), dtype=dtype, name="image")
    x = layers.RandomContrast(0.5, name="contrast")(layers.RandomFlip(name="flip")(image))
    x = layers.RandomZoom(0.2, name="zoom")(layers.Conv2D(4, 3, activation="relu", name="first")(x))
    x = layers.Conv2D(4, 3, activation="relu", name="second")(x)
    model = keras.Model(image, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D(name="pool")(x)))
    images = IMAGES.astype(dtype)

    found = qdq.explain(model, "onnxruntime")
    assert found.coverage["layers"] == 1
    assert {found.for_layer(name).rule for name in ("flip", "contrast", "zoom")} == {"ORT-VANISHES"}
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, images, verbose=False)
    q_model.compile(keras.optimizers.SGD(1e-6), "mse")
    q_model.fit(images, np.zeros((4, 3)), epochs=1, verbose=0)  # there they do something
    qdq.export_onnx(q_model, tmp_path / "m.onnx")
    qdq.verify_onnx(tmp_path / "m.onnx", q_model, data=images).raise_if_failed()
    operators = [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node]
    assert [operators.count(kind) for kind in ("QuantizeLinear", "Conv", "Cast")] == [4, 2, int(dtype == "uint8")]
