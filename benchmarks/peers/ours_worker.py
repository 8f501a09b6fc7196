"""QDQ Workbench: ranges frozen after calibration, and moving averages."""

import keras
import numpy as np
from architectures import build
from serve import Calls, cloned, compiled, serve, step_of

import qdq_workbench as qdq


def prepare(name: str, batch: int) -> tuple[Calls, Calls]:
    """Return what is measured."""
    source = build(keras, name)
    data = np.random.default_rng(1).normal(size=(batch, *source.input_shape[1:])).astype("float32")
    models = {"float": keras.models.clone_model(source), "float again": keras.models.clone_model(source)}
    for label, freeze in (("quantized, ranges frozen", True), ("quantized, moving average", False)):
        models[label] = qdq.quantize_model(source, target="onnxruntime")
        qdq.calibrate(models[label], data, verbose=False, freeze=freeze)
    steps = {label: step_of(compiled(keras, model), batch) for label, model in models.items()}
    return steps, {"clone": lambda: cloned(keras, source), "convert": lambda: qdq.quantize_model(source)}


serve(prepare)
