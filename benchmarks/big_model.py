"""A model whose weights pass 2 GB: quantize, calibrate, export both ways, verify; seconds and peak memory of each step.

    python benchmarks/big_model.py [--width 10400] [--layers 5] [--folder build]

Needs about 16 GB of memory and 4 GB of disk at the defaults (541 million parameters, 2.16 GB in float). Not part of
`make bench`. Linux only.
"""

import argparse
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import qdq_workbench as qdq

_KIB_PER_GIB = 1024.0**2


def step(name: str, call: Callable[[], Any]) -> Any:
    """Run one step and print its time and its peak memory; an error is printed and is no end."""
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak counts from here
    started = time.perf_counter()
    try:
        result, said = call(), "done"
    except Exception as error:  # noqa: BLE001 - which steps fail is what is measured
        result, said = None, f"{type(error).__name__}: {str(error)[:200]}"
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    now, peak = (int(status.split(f"{field}:")[1].split()[0]) / _KIB_PER_GIB for field in ("VmRSS", "VmHWM"))
    seconds = time.perf_counter() - started
    print(f"{name}: {seconds:.1f} s, peak {peak:.1f} GiB, afterwards {now:.1f} GiB: {said}", flush=True)
    return result


def big(width: int, count: int) -> keras.Model:
    """Return a stack of wide dense layers."""
    x = image = keras.Input((width,), name="image")
    for index in range(count):
        x = keras.layers.Dense(width, activation="relu", name=f"dense_{index}")(x)
    return keras.Model(image, x)


def main() -> None:
    """Take every step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=10400)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--folder", default=None, help="where to write the files; a temporary one by default")
    options = parser.parse_args()
    data = np.random.default_rng(0).normal(size=(4, options.width)).astype(np.float32)
    folder = pathlib.Path(tempfile.mkdtemp(dir=options.folder))
    try:
        model = step("build the float model", lambda: big(options.width, options.layers))
        print(f"{model.count_params():,} parameters, {4 * model.count_params() / 1e9:.2f} GB")
        q_model = step("quantize_model", lambda: qdq.quantize_model(model, target="onnxruntime"))
        step("calibrate", lambda: qdq.calibrate(q_model, data, verbose=False))
        quantized, floating = folder / "int8.onnx", folder / "float.onnx"
        step("export_onnx", lambda: qdq.export_onnx(q_model, quantized))
        report = step("verify_onnx", lambda: qdq.verify_onnx(quantized, q_model, data))
        print("  passed" if report is not None and report.passed else f"  {report}")
        step("lint_onnx", lambda: qdq.lint_onnx(quantized))
        step("certify", lambda: qdq.certify(quantized, q_model, data))
        step("export_float_onnx", lambda: qdq.export_float_onnx(model, floating))
        step("run the float file in ONNX Runtime", lambda: compare(floating, model, data))
        for path in sorted(folder.iterdir()):
            print(f"  {path.name}: {path.stat().st_size / 1e9:.2f} GB")
    finally:
        shutil.rmtree(folder)


def compare(path: pathlib.Path, model: keras.Model, data: np.ndarray) -> None:
    """Print how far a file's outputs are from the model's."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = session.run(None, {session.get_inputs()[0].name: data})[0]
    expected = model.predict(data, verbose=0)
    print(f"  largest difference {np.abs(outputs - expected).max():.2g} of {np.abs(expected).max():.2g}")


if __name__ == "__main__":
    main()
