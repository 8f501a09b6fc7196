"""NVIDIA's TensorFlow quantization toolkit: `quantize_model` with its defaults, where somebody installed it."""

from architectures import build
from serve import Calls, cloned, compiled, serve, step_of
from tensorflow import keras
from tensorflow_quantization.quantize import quantize_model


def prepare(name: str, batch: int) -> tuple[Calls, Calls]:
    """Return what is measured."""
    source = build(keras, name)
    models = {
        "float": keras.models.clone_model(source),
        "float again": keras.models.clone_model(source),
        "quantized": quantize_model(source),
    }
    steps = {label: step_of(compiled(keras, model), batch) for label, model in models.items()}
    return steps, {"clone": lambda: cloned(keras, source), "convert": lambda: quantize_model(source)}


serve(prepare)
