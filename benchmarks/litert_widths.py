"""LiteRT: accuracy and size of the files that a network gets with other widths, each in its interpreter.

Rows: float, W8A8, W8A16, W4A8 with nearest and learned rounding, weights alone with float and with hybrid kernels.

    python benchmarks/litert_widths.py NETWORK.keras IMAGES.npz [--images 2000] [--steps 500]

`IMAGES.npz` holds x_train, y_train, x_test, y_test, or JPEGs of them. Where `ai-edge-litert` is installed,
its interpreter runs the files as well, with XNNPACK.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import qdq_workbench as qdq
from qdq_workbench.cli.demo.data import load_images
from qdq_workbench.export.litert.tflite_run import run_tflite

CALIBRATION = 512


def target(weight_bits: int, activation_bits: int) -> Any:
    """Return LiteRT with weights and activations of these widths."""
    found = qdq.targets.get_target("litert")
    activation = found.activation
    if activation_bits == 16:
        activation = activation.replace(num_bits=16, symmetric=True)
    return dataclasses.replace(found, activation=activation, weight=found.weight.replace(num_bits=weight_bits))


def calibrated(model: keras.Model, x: np.ndarray, weight_bits: int, activation_bits: int) -> Any:
    """Return the model with both widths."""
    q_model = qdq.quantize_model(model, target=target(weight_bits, activation_bits))
    qdq.calibrate(q_model, x, verbose=False)
    return q_model


def learned(model: keras.Model, x: np.ndarray, steps: int) -> Any:
    """Return the model at 4-bit weights with learned rounding."""
    wanted = target(4, 8)
    folded = qdq.fold_batch_norm(model)
    q_model = qdq.quantize_model(qdq.correction.clip_weights(folded, "mse", target=wanted), target=wanted)
    qdq.calibrate(q_model, x, "mse", verbose=False)
    qdq.learn_rounding(q_model, x, reference=folded, steps=steps, verbose=False)
    return q_model


def weights_alone(model: keras.Model, bits: int) -> Any:
    """Return the model with the weights of all layers quantized, and nothing else."""
    folded = qdq.fold_batch_norm(model)
    config = qdq.spec.LayerQuantizeConfig(weight={"num_bits": bits, "symmetric": True, "narrow_range": True})
    spec = qdq.QuantizationSpec()
    spec.add([layer.name for layer in folded.layers if layer.weights], quantize_input=False, quantize_config=config)
    return qdq.quantize_model(folded, "partial", spec, target="litert")


def variants(model: keras.Model, x: np.ndarray, steps: int) -> Iterator[tuple[str, Any, bool]]:
    """Yield what is compared: its name, the quantized model, and whether hybrid kernels read its weights."""
    yield "W8A8", calibrated(model, x, 8, 8), False
    yield "W8A16", calibrated(model, x, 8, 16), False
    yield "W4A8", calibrated(model, x, 4, 8), False
    yield "W4A8, learned rounding", learned(model, x, steps), False
    for bits in (8, 4):
        alone = weights_alone(model, bits)
        yield f"weights alone, {bits} bits", alone, False
        yield f"weights alone, {bits} bits, hybrid kernels", alone, True


def in_litert(content: bytes, x: np.ndarray) -> np.ndarray | None:
    """Return the outputs of ai-edge-litert's interpreter, sample by sample; None without the package."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        return None
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    runner = interpreter.get_signature_runner()
    name = next(iter(runner.get_input_details()))
    return np.concatenate([next(iter(runner(**{name: row[None]}).values())) for row in x])


def main() -> None:
    """Print a table row per variant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("images")
    parser.add_argument("--images", dest="count", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    model = keras.models.load_model(options.network, compile=False)
    data = load_images(options.images)
    calibration = np.asarray(data.x_train[:CALIBRATION], np.float32)
    x, y = np.asarray(data.x_test[: options.count], np.float32), np.asarray(data.y_test[: options.count]).ravel()
    scores = model.predict(x, batch_size=100, verbose=0)
    floats = sum(variable.shape.num_elements() for variable in qdq.fold_batch_norm(model).weights) * 4
    print(
        "| | Keras | TensorFlow's interpreter | ai-edge-litert | same class as Keras | mean difference / size | bytes |"
    )
    print("|---|---|---|---|---|---|---|")
    print(f"| float | {100 * (scores.argmax(-1) == y).mean():.2f} | | | | | {floats} (weights alone) |")
    with tempfile.TemporaryDirectory() as folder:
        for name, q_model, hybrid in variants(model, calibration, options.steps):
            path = pathlib.Path(folder) / "model.tflite"
            report = qdq.export_tflite(q_model, path, dynamic_range=hybrid)
            ours = q_model.predict(x, batch_size=100, verbose=0)
            theirs = next(iter(run_tflite(path.read_bytes(), {q_model.plan.graph.inputs[0]: x}).values()))
            other = in_litert(path.read_bytes(), x)
            right = [ours, theirs] if other is None else [ours, theirs, other]
            shown = [f"{100 * (each.argmax(-1) == y).mean():.2f}" for each in right] + ["-"] * (3 - len(right))
            same = 100 * (ours.argmax(-1) == theirs.argmax(-1)).mean()
            apart = np.abs(ours - theirs).mean() / np.abs(ours).mean()
            print(f"| {name} | {' | '.join(shown)} | {same:.2f} | {apart:.2g} | {report.bytes} |", flush=True)


if __name__ == "__main__":
    main()
