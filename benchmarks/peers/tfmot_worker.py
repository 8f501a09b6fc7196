"""TensorFlow Model Optimization: `quantize_model` with its default 8-bit scheme, on Keras 2."""

import tensorflow_model_optimization as tfmot
import tf_keras as keras
from architectures import build
from serve import Calls, beside_float, serve


def prepare(name: str, batch: int) -> tuple[Calls, Calls]:
    """Return what is measured."""
    source = build(keras, name)
    convert = tfmot.quantization.keras.quantize_model
    return beside_float(keras, source, batch, lambda: convert(source))


serve(prepare)
