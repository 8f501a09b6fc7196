"""What the first convolution gains by INT8: files with it in INT8 and in float, beside FP32, in turns.

    python benchmarks/first_convolution.py [--rounds 24] [--threads 1] [--networks color32 gray28]

A convolution that reads an image of 1 to 3 channels has few values per window: the integer kernel of ONNX Runtime's CPU
provider copies its windows into rows first, which costs more than it saves there, and the float one reads such images
directly. Left in float, the conversion to integers moves behind it, to a tensor that is larger in most networks.
"""

import argparse
import os
import pathlib
import tempfile

import keras
import numpy as np
from keras import layers
from rounds import record

import qdq_workbench as qdq

STEM = ("stem", "stem_norm", "stem_relu")
# Name -> size of the image, its channels, stride of the first convolution, filters of all.
NETWORKS = {
    "color32": (32, 3, 1, (16, 16, 32, 64)),
    "color64, stride 2": (64, 3, 2, (16, 32, 64)),
    "color96, stride 2": (96, 3, 2, (32, 64, 128)),
    "gray28": (28, 1, 1, (16, 32, 64)),
    "8 channels, 32": (32, 8, 1, (16, 16, 32, 64)),
}


def network(name: str) -> keras.Model:
    """A small network of convolutions of 3x3, the first one called "stem"."""
    size, channels, stride, filters = NETWORKS[name]
    x = image = keras.Input((size, size, channels), name="image")
    for place, count in enumerate(filters):
        label = "stem" if place == 0 else f"conv{place}"
        stride = stride if place == 0 else 1 if place == 1 else 2
        x = layers.Conv2D(count, 3, strides=stride, padding="same", use_bias=False, name=label)(x)
        x = layers.BatchNormalization(name=f"{label}_norm")(x)
        x = layers.ReLU(name=f"{label}_relu")(x)
    return keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)), name="net")


def stem_in_float() -> qdq.QuantizationSpec:
    """Return the spec that leaves the first convolution in float."""
    spec = qdq.QuantizationSpec()
    for layer in STEM:
        spec.add(layer, quantize_input=False, quantize_weight=False, quantize_output=False)
    return spec


def written(
    model: keras.Model, path: pathlib.Path, data: np.ndarray, spec: qdq.QuantizationSpec | None
) -> qdq.QuantizedModel:
    """Write the file of a plan for ONNX Runtime and return its model."""
    q_model = qdq.quantize_model(
        model, quantization_spec=spec, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime"
    )
    qdq.calibrate(q_model, data, verbose=False)
    qdq.export_onnx(q_model, path)
    return q_model


def measure(name: str, folder: pathlib.Path, rounds: int, threads: int) -> None:
    """Print the ratios of one network, and what `explain` says of its first convolution."""
    model = network(name)
    data = np.random.default_rng(0).uniform(size=(16, *model.input_shape[1:])).astype(np.float32)
    q_model = written(model, folder / "int8.onnx", data, None)
    written(model, folder / "float_stem.onnx", data, stem_in_float())
    qdq.files.export_float_onnx(model, folder / "float.onnx", target="onnxruntime")
    settings = {"threads": threads, "rounds": rounds}
    beside = qdq.profiling.profile_onnx(folder / "int8.onnx", baseline=folder / "float.onnx", **settings)
    stem = next(gain for gain in beside.gains if "stem" in gain.layers)
    moved = qdq.profiling.profile_onnx(folder / "float_stem.onnx", baseline=folder / "int8.onnx", **settings)
    edge = next(edge for edge in qdq.explain(q_model, latency=beside).edges if "stem" in edge.layers)
    low, high = moved.speedup_interval
    print(
        f"{name}: FP32 / INT8 {beside.speedup:.2f}; kernel of the first convolution, INT8 / float "
        f"{stem.ms / stem.baseline_ms:.2f}; all INT8 / first convolution in float {moved.speedup:.2f} ({low:.2f} to "
        f"{high:.2f}); the file beside itself within {moved.noise:.1%}; explain: "
        f"{'may lose' if edge.is_loss else 'no loss'}, "
        f"estimated {beside.total_ms / (beside.total_ms + edge.gain_ms):.2f}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    record({f"{name}: first convolution in float / all INT8": 1 / moved.speedup})


def main() -> None:
    """Measure the networks named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    keras.utils.set_random_seed(0)
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, pathlib.Path(folder), options.rounds, options.threads)


if __name__ == "__main__":
    main()
