"""Model Compression Toolkit: its quantization-aware training, one batch of representative data."""

import model_compression_toolkit as mct
import numpy as np
from architectures import build
from serve import Calls, beside_float, serve
from tensorflow import keras


def prepare(name: str, batch: int) -> tuple[Calls, Calls]:
    """Return what is measured."""
    source = build(keras, name)
    data = np.random.default_rng(1).normal(size=(batch, *source.input_shape[1:])).astype("float32")

    def convert() -> keras.Model:
        quantized, *_ = mct.qat.keras_quantization_aware_training_init_experimental(source, lambda: iter([[data]]))
        return quantized

    return beside_float(keras, source, batch, convert, "convert (with statistics of one batch)")


serve(prepare)
