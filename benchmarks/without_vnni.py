"""What ONNX Runtime makes of INT8 files on a processor without VNNI, and what each remedy costs.

    python benchmarks/without_vnni.py --model resnet8.keras --data cifar10_jpeg.npz

Top-1 of the files on the test images, and FP32 time / INT8 time (batch 1, one thread, turns of 50 ms, median of the
rounds): weights of 8 bits with default settings, with exact sums, and weights of 7 bits with default settings.
"""

import argparse
import dataclasses
import pathlib
import statistics
import tempfile
import time

import keras
import numpy as np
import onnxruntime
from ptq_accuracy import images_of

import qdq_workbench as qdq
from qdq_workbench.onnx_graph.processor import EXACT_SUMS, kernels_saturate

CALIBRATION, TURN = 512, 0.05


def session_of(path: pathlib.Path, *, exact: bool) -> onnxruntime.InferenceSession:
    """Return a session with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if exact:
        options.add_session_config_entry(EXACT_SUMS, "1")
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])


def accuracy(session: onnxruntime.InferenceSession, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of right answers."""
    name = session.get_inputs()[0].name
    answers = [session.run(None, {name: images[i : i + 250]})[0].argmax(-1) for i in range(0, len(images), 250)]
    return float((np.concatenate(answers) == labels).mean())


def seconds(session: onnxruntime.InferenceSession, image: np.ndarray) -> float:
    """Return the time of a run, from one turn."""
    feed, calls, start = {session.get_inputs()[0].name: image}, 0, time.perf_counter()
    while time.perf_counter() - start < TURN:
        session.run(None, feed)
        calls += 1
    return (time.perf_counter() - start) / calls


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    if options.model is None or options.data is None:
        print("Skipped: pass --model and --data (see --help).")
        return
    model = keras.models.load_model(options.model, compile=False)
    calibration, (images, labels) = (
        images_of(options.data, "train", CALIBRATION)[0],
        images_of(options.data, "test", 5000),
    )
    print(f"ONNX Runtime {onnxruntime.__version__}; default kernels saturate here: {kernels_saturate()}")
    with tempfile.TemporaryDirectory() as folder:
        float_path = qdq.export_float_onnx(model, pathlib.Path(folder) / "float.onnx")
        sessions = {"FP32": session_of(float_path, exact=False), "FP32 again": session_of(float_path, exact=False)}
        for bits in (8, 7):
            target = qdq.targets.get_target("onnxruntime")
            target = dataclasses.replace(target, weight=target.weight.replace(num_bits=bits))
            q_model = qdq.quantize_model(model, target=target)
            qdq.calibrate(q_model, calibration, verbose=False)
            path = qdq.export_onnx(q_model, pathlib.Path(folder) / f"{bits}.onnx").path
            sessions[f"weights of {bits} bits"] = session_of(path, exact=False)
            sessions[f"weights of {bits} bits, exact sums"] = session_of(path, exact=True)
        times: dict[str, list[float]] = {name: [] for name in sessions}
        for number in range(options.rounds):
            for name in list(sessions)[:: 1 if number % 2 else -1]:
                times[name].append(seconds(sessions[name], images[:1]))
        print("| file | top-1 | FP32 time / its time |\n|---|---|---|")
        for name, session in sessions.items():
            ratio = statistics.median(a / b for a, b in zip(times["FP32"], times[name], strict=True))
            print(f"| {name} | {100 * accuracy(session, images, labels):.2f} % | {ratio:.2f} |")


if __name__ == "__main__":
    main()
