"""NVIDIA's TensorFlow quantization toolkit: `quantize_model` with its defaults, where somebody installed it."""

from architectures import build
from serve import Calls, beside_float, serve
from tensorflow import keras
from tensorflow_quantization.quantize import quantize_model


def prepare(name: str, batch: int) -> tuple[Calls, Calls]:
    """Return what is measured."""
    source = build(keras, name)
    return beside_float(keras, source, batch, lambda: quantize_model(source))


serve(prepare)
