"""Quantized models for the tests of LiteRT files: other widths, weights alone, and how far a file may be from them."""

import dataclasses

import keras
import numpy as np
from keras import layers
from small_models import flat, samples, shake

import qdq_workbench as qdq
from qdq_workbench.export.litert.tflite_run import run_tflite


def litert(weight_bits=8, activation_bits=8):
    """LiteRT with other widths of weights and activations."""
    target = qdq.targets.get_target("litert")
    wide = {"num_bits": 16, "symmetric": True} if activation_bits == 16 else {"num_bits": activation_bits}
    return dataclasses.replace(
        target,
        activation=target.activation.replace(**wide),
        weight=target.weight.replace(num_bits=weight_bits),
    )


def mixed_net():
    """Every kernel with weights, a sum, a concatenation, and what has no int16 kernel."""
    keras.utils.set_random_seed(4)
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(6, 3, padding="same", use_bias=False, name="conv")(image)
    x = layers.ReLU(name="relu")(layers.BatchNormalization(name="norm")(x))
    side = layers.DepthwiseConv2D(3, padding="same", name="depthwise")(x)
    side = layers.Activation("sigmoid", name="gate")(side)
    x = layers.Concatenate(name="concat")([layers.Add(name="add")([x, side]), side])
    x = layers.Conv2DTranspose(4, 2, strides=2, name="transposed")(layers.MaxPooling2D(2, name="pool")(x))
    x = layers.Conv2D(4, 1, name="last")(layers.UpSampling2D(2, name="up")(x))
    x = layers.GlobalAveragePooling2D(name="mean")(layers.Activation("hard_silu", name="swish")(x))
    model = shake(keras.Model(image, layers.Dense(5, name="head")(x), name="mixed_net"))
    generator = np.random.default_rng(4)
    for layer in model.layers:
        if getattr(layer, "bias", None) is not None:
            layer.bias.assign(generator.normal(0, 0.3, layer.bias.shape))
    return model


def quantized(make, weight_bits=8, activation_bits=8):
    """A calibrated model on the grids of LiteRT."""
    model = make()
    q_model = qdq.quantize_model(model, target=litert(weight_bits, activation_bits))
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


def weights_alone(model, bits):
    """A model of whose layers the weights alone are quantized."""
    model = qdq.fold_batch_norm(model)
    names = [layer.name for layer in model.layers if layer.weights]
    spec = qdq.QuantizationSpec()
    weight = {"num_bits": bits, "symmetric": True, "narrow_range": True}
    spec.add(names, quantize_input=False, quantize_config=qdq.spec.LayerQuantizeConfig(weight=weight))
    return qdq.quantize_model(model, "partial", spec, target="litert")


def both(q_model, report, data=None):
    """The outputs of a model with one output, and those of its file."""
    data = samples(q_model, seed=5) if data is None else data
    (theirs,) = run_tflite(report.path.read_bytes(), {q_model.plan.graph.inputs[0]: np.asarray(data)}).values()
    return flat(q_model(data))[0], theirs
