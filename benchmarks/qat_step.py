"""Cost of a training step of the quantized model, as a ratio to the float model's, in one run.

    python benchmarks/qat_step.py [resnet8 mobilenet_v2 resnet50]

Rounds of both models are interleaved, the medians of their step times are divided. "float again" is the same float
model a second time: how far it is from 1 is the noise of the machine.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import argparse
import time
from collections.abc import Callable

import keras
import numpy as np
from keras import layers

import qdq_workbench as qdq

ROUNDS, STEPS, WARM_UP = 7, 4, 3


def resnet8() -> keras.Model:
    """MLPerf Tiny's ResNet-8 for images of 32x32, without trained weights."""
    image = keras.Input((32, 32, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same")(image)))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        y = layers.Conv2D(filters, 3, strides=stride, padding="same")(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(y))
        if stride > 1:
            x = layers.Conv2D(filters, 1, strides=stride, padding="same")(x)
        x = layers.ReLU()(layers.Add()([y, x]))
    x = layers.Flatten()(layers.AveragePooling2D(8)(x))
    return keras.Model(image, layers.Dense(10, activation="softmax")(x))


def application(name: str) -> keras.Model:
    """A network of keras.applications for images of 64x64, without trained weights."""
    return getattr(keras.applications, name)(weights=None, input_shape=(64, 64, 3), classes=10)


NETWORKS = {
    "resnet8": (resnet8, (32, 128)),
    "mobilenet_v2": (lambda: application("MobileNetV2"), (16,)),
    "resnet50": (lambda: application("ResNet50"), (16,)),
}


def compiled(model: keras.Model) -> keras.Model:
    """Compile a model for the measurement."""
    model.compile(keras.optimizers.SGD(1e-4), "sparse_categorical_crossentropy")
    return model


def step_time(model: keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    """Return the seconds per training step, over a few steps."""
    started = time.perf_counter()
    for _ in range(STEPS):
        model.train_on_batch(x, y)
    return (time.perf_counter() - started) / STEPS


def measure(make: Callable[[], keras.Model], batch: int) -> None:
    """Print the ratios for one network and batch size."""
    generator = np.random.default_rng(0)
    source = make()
    x = generator.normal(size=(batch, *source.input_shape[1:])).astype("float32")
    y = generator.integers(0, 10, batch)
    frozen = qdq.quantize_model(source, target="onnxruntime")
    qdq.calibrate(frozen, x, verbose=False)
    moving = qdq.quantize_model(source, target="onnxruntime")
    qdq.calibrate(moving, x, verbose=False, freeze=False)
    models = {
        "float": compiled(keras.models.clone_model(source)),
        "float again": compiled(keras.models.clone_model(source)),
        "quantized, ranges frozen": compiled(frozen),
        "quantized, moving average": compiled(moving),
    }
    for model in models.values():
        for _ in range(WARM_UP):
            model.train_on_batch(x, y)
    times = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            times[name].append(step_time(model, x, y))
    base = float(np.median(times["float"]))
    ratios = ", ".join(f"{name} {np.median(t) / base:.2f}" for name, t in times.items() if name != "float")
    print(f"batch {batch}: float step {1e3 * base:.0f} ms; ratios: {ratios}", flush=True)


def main() -> None:
    """Measure the networks named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", choices=[*NETWORKS, []], help="which networks; all by default")
    for name in parser.parse_args().networks or NETWORKS:
        make, batches = NETWORKS[name]
        for batch in batches:
            print(name, end=" ")
            measure(make, batch)


if __name__ == "__main__":
    main()
