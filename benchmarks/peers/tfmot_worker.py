"""TensorFlow Model Optimization: `quantize_model` with its default 8-bit scheme, on Keras 2."""

import tensorflow_model_optimization as tfmot
import tf_keras as keras
from architectures import build
from serve import Calls, cloned, compiled, serve, step_of


def prepare(name: str, batch: int) -> tuple[Calls, Calls]:
    """Return what is measured."""
    source = build(keras, name)
    convert = tfmot.quantization.keras.quantize_model
    models = {
        "float": keras.models.clone_model(source),
        "float again": keras.models.clone_model(source),
        "quantized": convert(source),
    }
    steps = {label: step_of(compiled(keras, model), batch) for label, model in models.items()}
    return steps, {"clone": lambda: cloned(keras, source), "convert": lambda: convert(source)}


serve(prepare)
