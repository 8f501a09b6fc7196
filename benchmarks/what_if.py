"""What a change of the plan does to score, size and time: how long the workbench takes to say so, in the kernel.

    python benchmarks/what_if.py [--model resnet8.keras --data cifar10_jpeg.npz] [--clicks 20]

From the toggle of a weight to the estimate, and to the measured values, which come when no other change follows for
a second. ResNet-8 with random weights and images without `--model` and `--data`; a calibrated model, a Keras
prediction of 512 samples, an exported file and its profile are behind each measured value.
"""

import argparse
import pathlib
import statistics
import time

import keras
import numpy as np
from networks import resnet8
from ptq_accuracy import images_of

from qdq_widgets import Workbench

SAMPLES = 512
PATIENCE = 60.0  # seconds


def main() -> None:
    """Toggle weights one by one, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--clicks", type=int, default=20)
    options = parser.parse_args()
    if options.model is None or options.data is None:
        model = resnet8()
        images = np.random.default_rng(0).uniform(0, 255, (SAMPLES, 32, 32, 3)).astype("float32")
        labels = np.argmax(model.predict(images, verbose=0), axis=-1)
    else:
        model = keras.models.load_model(options.model, compile=False)
        images, labels = images_of(options.data, "test", SAMPLES)
    model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    validation = (images, labels.astype("int64"))
    bench = Workbench(model, target="onnxruntime", validation_data=validation, calibration_data=images[:128])
    bench.calibrate()
    bench.evaluate()
    bench.effects.measuring = True
    layers = list(dict.fromkeys(p.layer for p in bench.plan.placements if p.site == "weight"))
    told, measured = [], []
    for number in range(options.clicks):
        started = time.perf_counter()
        bench.toggle(layers[number % len(layers)], "weight")
        told.append(time.perf_counter() - started)
        while bench.effects.present.state != "measured":
            if time.perf_counter() > started + PATIENCE:
                raise SystemExit(f"nothing was measured: {bench.effects.present}")
            time.sleep(0.005)
        measured.append(time.perf_counter() - started)
    for name, seconds in (("estimate", told), ("measured values", measured)):
        low, high = 1e3 * min(seconds), 1e3 * max(seconds)
        print(f"{name:16} {1e3 * statistics.median(seconds):8.0f} ms ({low:.0f} to {high:.0f})")
    print(f"of it, the pause that measuring waits for: {1e3 * bench.effects.pause:.0f} ms")


if __name__ == "__main__":
    main()
