"""INT8 against FP32 in ONNX Runtime: our file, and that of ONNX Runtime's own `quantize_static`, in one run.

    python benchmarks/onnx_speed.py [resnet8 mobilenet_v2 resnet50] [--size 224] [--rounds 15] [--threads 1 2]

Speeds are FP32 time / INT8 time (more is faster), sizes INT8 bytes / FP32 bytes (less is smaller). The FP32 file is the
same for both: batch normalizations folded, written by `export_float_onnx`. Batch 1; ResNet-8, a tenth of a millisecond,
with batch 8 too. A turn is the median of some 50 ms of calls, the figure the least turn: what disturbs a call lasts
longer than the smallest network.

The threads of a session go on spinning for a while after a run, and take the cores from the session whose turn is next:
with four sessions on two cores that made up most of the time of small networks. So they stop at the end of a run here.
"""

import argparse
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np
import onnxruntime
from networks import application, resnet8
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from rounds import record

import qdq_workbench as qdq

SAMPLES = 4
TURN = 0.05  # seconds of calls
BATCHES = {"resnet8": (1, 8)}


class Batches(CalibrationDataReader):
    """Feeds samples one by one to ONNX Runtime's quantizer."""

    def __init__(self, name: str, data: np.ndarray) -> None:
        self._samples: Iterator[dict[str, np.ndarray]] = iter([{name: sample[None]} for sample in data])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next sample, None at the end."""
        return next(self._samples, None)


def with_biases(model: keras.Model) -> keras.Model:
    """Draw the biases of a network that was not trained: files leave out those of 0, and would be too small."""
    generator = np.random.default_rng(0)
    for layer in model.layers:
        bias = layer.beta if isinstance(layer, keras.layers.BatchNormalization) else getattr(layer, "bias", None)
        if bias is not None:
            bias.assign(0.1 * generator.normal(size=bias.shape))
    return model


def write_files(model: keras.Model, data: np.ndarray, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write the float file, ours, and two of quantize_static's."""
    paths = {"float": qdq.export_float_onnx(model, folder / "float.onnx", target="onnxruntime")}
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


def runner(path: pathlib.Path, samples: np.ndarray, threads: int) -> Callable[[], object]:
    """Return a function that runs a file once on some samples."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: samples}
    return lambda: session.run(None, feed)


def turn(call: Callable[[], object]) -> float:
    """Return the median seconds of a call, over the calls of one turn."""
    seconds, until = [], time.perf_counter() + TURN
    while not seconds or time.perf_counter() < until:
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def least_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the seconds of the least turn of every candidate; they take turns, after one that does not count."""
    turns: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            turns[name].append(turn(call))
    return {name: min(seconds[1:]) for name, seconds in turns.items()}


def compare_files(name: str, paths: Mapping[str, pathlib.Path], data: np.ndarray, rounds: int, threads: int) -> None:
    """Print how fast the files of one network are beside the float one, on some images and threads."""
    what = f"{name}, batch {len(data)}, {threads} thread{'s' * (threads > 1)}"
    seconds = least_turns({key: runner(path, data, threads) for key, path in paths.items()}, rounds)
    print(f"{what}: FP32 {1e3 * seconds['float']:.2f} ms; load {os.getloadavg()[0]:.1f}")
    for key in list(paths)[1:]:
        print(f"  {key:12} {seconds['float'] / seconds[key]:.2f} times as fast", flush=True)
    best = min(seconds["static U8S8"], seconds["static S8S8"])
    record({f"{what}: our INT8 file / float": seconds["ours"] / seconds["float"]})
    record({f"{what}: our INT8 file / quantize_static": seconds["ours"] / best})


def main() -> None:
    """Measure the networks named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["resnet8", "mobilenet_v2", "resnet50"])
    parser.add_argument("--size", type=int, default=224, help="image size of the networks of keras.applications")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    makers = {
        "resnet8": resnet8,
        "mobilenet_v2": lambda: application("MobileNetV2", options.size),
        "resnet50": lambda: application("ResNet50", options.size),
    }
    for name in options.networks:
        keras.utils.set_random_seed(0)
        model = with_biases(makers[name]())
        data = np.random.default_rng(0).normal(size=(SAMPLES, *model.input_shape[1:])).astype(np.float32)
        with tempfile.TemporaryDirectory() as folder:
            paths = write_files(model, data, pathlib.Path(folder))
            sizes = {key: path.stat().st_size / paths["float"].stat().st_size for key, path in paths.items()}
            print(f"{name}, bytes / FP32: {', '.join(f'{key} {size:.3f}' for key, size in sizes.items())}")
            record({f"{name}, bytes of the INT8 file / float": sizes["ours"]})
            for threads in options.threads:
                for batch in BATCHES.get(name, (1,)):
                    images = np.resize(data, (batch, *data.shape[1:]))
                    compare_files(name, paths, images, options.rounds, threads)


if __name__ == "__main__":
    main()
