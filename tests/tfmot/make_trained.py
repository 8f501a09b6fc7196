"""Train tiny networks with TensorFlow's own Model Optimization Toolkit and keep them beside what they predict.

    python tests/tfmot/make_trained.py tests/tfmot/trained.zip

Needs an environment of its own: tensorflow 2.21, tf-keras 2.21, tensorflow-model-optimization 0.8.1. In each `.npz`
of the archive x0... are inputs, y0... TFMOT's own predictions after training.
"""

import os
import pathlib
import shutil
import sys
import tempfile
import zipfile

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
import tensorflow_model_optimization as tfmot

layers, qk = tf.keras.layers, tfmot.quantization.keras
SHAPE = (8, 8, 2)


class FourBitDenseConfig(qk.QuantizeConfig):
    """The documentation's way to quantize a Dense layer with 4 bits."""

    def get_weights_and_quantizers(self, layer):
        quantizer = qk.quantizers.LastValueQuantizer(num_bits=4, symmetric=True, narrow_range=False, per_axis=False)
        return [(layer.kernel, quantizer)]

    def get_activations_and_quantizers(self, layer):
        quantizer = qk.quantizers.MovingAverageQuantizer(6, per_axis=False, symmetric=False, narrow_range=False)
        return [(layer.activation, quantizer)]

    def set_quantize_weights(self, layer, quantize_weights):
        layer.kernel = quantize_weights[0]

    def set_quantize_activations(self, layer, quantize_activations):
        layer.activation = quantize_activations[0]

    def get_output_quantizers(self, layer):
        return []

    def get_config(self):
        return {}


def residual():
    """Two branches from one input, fused patterns, an Add and two kinds of last activation."""
    image = layers.Input(SHAPE, name="image")
    x = layers.Conv2D(4, 3, padding="same", use_bias=False, name="conv")(image)
    x = layers.ReLU(name="relu")(layers.BatchNormalization(name="norm")(x))
    x = layers.DepthwiseConv2D(3, padding="same", name="depthwise")(x)
    x = layers.ReLU(6.0, name="relu6")(layers.BatchNormalization(name="norm2")(x))
    side = layers.Conv2D(4, 1, activation="relu", name="side")(image)
    x = layers.Activation("relu", name="act")(layers.Add(name="add")([x, side]))
    x = layers.Conv2DTranspose(3, 2, strides=2, name="up")(x)
    pooled = layers.GlobalAveragePooling2D(name="pool")(x)
    hidden = layers.Dense(4, activation="tanh", name="hidden")(pooled)
    outputs = [layers.Dense(3, activation="softmax", name="classes")(hidden), layers.Dense(1, name="size")(hidden)]
    return qk.quantize_model(tf.keras.Model(image, outputs, name="residual"))


def sequential():
    """A Sequential model, its layers quantized by default."""
    parts = [
        layers.Input(SHAPE, name="image"),
        layers.Conv2D(3, 3, activation="relu", name="conv"),
        layers.MaxPooling2D(name="pool"),
        layers.Dropout(0.1, name="dropout"),
        layers.Flatten(name="flat"),
        layers.Dense(3, activation="sigmoid", name="head"),
    ]
    return qk.quantize_model(tf.keras.Sequential(parts, name="sequential"))


def concatenated():
    """Two inputs of which one is quantized, a Concatenate, 4-bit weights by the n-bit scheme."""
    image, other = layers.Input(SHAPE, name="image"), layers.Input(SHAPE, name="other")
    left = layers.Conv2D(2, 3, padding="same", activation="relu", name="left")(image)
    right = layers.Conv2D(2, 3, padding="same", name="right")(other)
    x = layers.Concatenate(name="concat")([left, right])
    x = layers.AveragePooling2D(name="average")(x)
    outputs = layers.Dense(2, name="head")(layers.Flatten(name="flat")(x))
    model = tf.keras.Model([image, other], outputs, name="concatenated")
    scheme = qk.experimental.default_n_bit.DefaultNBitQuantizeScheme(num_bits_weight=4, num_bits_activation=8)
    return qk.quantize_apply(qk.quantize_annotate_model(model), scheme)


def partly():
    """Two annotated layers, one of them by a config of the user's own; the others stay in float."""
    parts = [
        layers.Input(SHAPE, name="image"),
        layers.Conv2D(3, 3, activation="elu", name="conv"),
        layers.LayerNormalization(name="norm"),
        layers.Flatten(name="flat"),
        qk.quantize_annotate_layer(layers.Dense(4, activation="relu", name="hidden"), FourBitDenseConfig()),
        qk.quantize_annotate_layer(layers.Dense(2, name="head")),
    ]
    with qk.quantize_scope({"FourBitDenseConfig": FourBitDenseConfig}):
        return qk.quantize_apply(tf.keras.Sequential(parts, name="partly"))


def with_fixed_ends():
    """Known ranges of input and output, two weights in a row without a pair between them."""
    image = layers.Input(SHAPE, name="image")
    x = layers.SeparableConv2D(3, 3, activation="relu", name="separable")(image)
    outputs = layers.Dense(2, name="head")(layers.GlobalAveragePooling2D(name="pool")(x))
    model = qk.quantize_model(tf.keras.Model(image, outputs, name="fixed"))
    model = qk.fix_input_output_range(model, input_min=-4.0, input_max=4.0, output_min=-1.0, output_max=2.0)
    return tf.keras.Model(model.inputs, model.outputs, name="fixed")


def trained(model):
    """Train a model for some steps on noise; return inputs and what it predicts."""
    generator = np.random.default_rng(0)
    inputs = [generator.normal(size=(64, *SHAPE)).astype("float32") for _ in model.inputs]
    targets = [generator.random((64, output.shape[-1])).astype("float32") for output in model.outputs]
    model.compile(tf.keras.optimizers.SGD(0.05), "mse")
    for variable in model.variables:  # moving averages forget their start of -6 and 6 slowly
        if variable.name.endswith(("activation_min:0", "output_min:0")):
            variable.assign(tf.constant(-1.5))
        if variable.name.endswith(("activation_max:0", "output_max:0")):
            variable.assign(tf.constant(2.0))
    model.fit(inputs, targets, epochs=3, batch_size=8, verbose=0)
    x = {f"x{index}": part[:4] for index, part in enumerate(inputs)}
    found = model.predict(list(x.values()), verbose=0)
    found = found if isinstance(found, list) else [found]
    return {**x, **{f"y{index}": part for index, part in enumerate(found)}}


def save(model, folder, kinds):
    """Write a model in the formats asked for; of a SavedModel only what holds layers and variables."""
    name = model.name
    np.savez_compressed(folder / f"{name}.npz", **trained(model))
    if "h5" in kinds:
        model.save(folder / f"{name}.h5", include_optimizer=False)
    if "weights" in kinds:
        model.save_weights(folder / f"{name}_weights.h5")
    if "keras" in kinds:
        model.save(folder / f"{name}.keras")
    if "saved_model" in kinds:
        target = folder / f"{name}_saved_model"
        shutil.rmtree(target, ignore_errors=True)
        model.save(target, save_format="tf", include_optimizer=False)
        for path in [target / "saved_model.pb", target / "fingerprint.pb", target / "assets"]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def main():
    """Make all of them, and put them into one archive."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for make, kinds in (
            (residual, ("h5", "weights")),
            (sequential, ("h5", "weights", "keras", "saved_model")),
            (concatenated, ("h5",)),
            (partly, ("h5",)),
            (with_fixed_ends, ("h5",)),
        ):
            tf.keras.utils.set_random_seed(1)
            with qk.quantize_scope({"FourBitDenseConfig": FourBitDenseConfig}):
                save(make(), folder, kinds)
        with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                archive.write(path, path.relative_to(folder))


if __name__ == "__main__":
    main()
