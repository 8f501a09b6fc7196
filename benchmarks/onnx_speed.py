"""INT8 against FP32 in ONNX Runtime: our file, and that of ONNX Runtime's own `quantize_static`, in one run.

python benchmarks/onnx_speed.py [resnet8 mobilenet_v2 resnet50] [--size 224] [--rounds 15]

Speeds are FP32 time / INT8 time (more is faster), sizes INT8 bytes / FP32 bytes (less is smaller). The FP32 file is the
same for both: batch normalizations folded, written by `export_float_onnx`. Batch 1, two threads.
"""

import argparse
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import keras
import numpy as np
import onnxruntime
from networks import application, resnet8
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from rounds import interleaved

import qdq_workbench as qdq

SAMPLES = 4


class Batches(CalibrationDataReader):
    """Feeds samples one by one to ONNX Runtime's quantizer."""

    def __init__(self, name: str, data: np.ndarray) -> None:
        self._samples: Iterator[dict[str, np.ndarray]] = iter([{name: sample[None]} for sample in data])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next sample, None at the end."""
        return next(self._samples, None)


def write_files(model: keras.Model, data: np.ndarray, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write the float file, ours, and two of quantize_static's."""
    paths = {"float": qdq.export_float_onnx(model, folder / "float.onnx")}
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)
    paths["ours"] = qdq.export_onnx(q_model, folder / "ours.onnx").path
    name = onnxruntime.InferenceSession(paths["float"], providers=["CPUExecutionProvider"]).get_inputs()[0].name
    for label, activation in (("static U8S8", QuantType.QUInt8), ("static S8S8", QuantType.QInt8)):
        paths[label] = folder / f"{label.replace(' ', '_')}.onnx"
        quantize_static(
            paths["float"],
            paths[label],
            Batches(name, data),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=activation,
            weight_type=QuantType.QInt8,
        )
    return paths


def runner(path: pathlib.Path, sample: np.ndarray) -> Callable[[], object]:
    """Return a function that runs a file once on one sample."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: sample}
    return lambda: session.run(None, feed)


def main() -> None:
    """Measure the networks named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["resnet8", "mobilenet_v2", "resnet50"])
    parser.add_argument("--size", type=int, default=224, help="image size of the networks of keras.applications")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    makers = {
        "resnet8": resnet8,
        "mobilenet_v2": lambda: application("MobileNetV2", options.size),
        "resnet50": lambda: application("ResNet50", options.size),
    }
    for name in options.networks:
        keras.utils.set_random_seed(0)
        model = makers[name]()
        data = np.random.default_rng(0).normal(size=(SAMPLES, *model.input_shape[1:])).astype(np.float32)
        with tempfile.TemporaryDirectory() as folder:
            paths = write_files(model, data, pathlib.Path(folder))
            before = os.getloadavg()[0]
            repeat = 20 if name == "resnet8" else 1
            seconds = interleaved({key: runner(path, data[:1]) for key, path in paths.items()}, options.rounds, repeat)
            sizes = {key: path.stat().st_size for key, path in paths.items()}
        print(f"{name}: FP32 {1e3 * seconds['float']:.2f} ms, {sizes['float'] / 2**20:.2f} MiB; load {before:.1f}")
        for key in ("ours", "static U8S8", "static S8S8"):
            speed, size = seconds["float"] / seconds[key], sizes[key] / sizes["float"]
            print(f"  {key:12} {speed:.2f} times as fast, {size:.3f} of the size", flush=True)


if __name__ == "__main__":
    main()
