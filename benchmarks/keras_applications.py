"""Every model of keras.applications through every step, each in its own process; writes docs/keras_applications.md.

    python benchmarks/keras_applications.py [--only MobileNetV2 ...] [--results FOLDER]

Weights are random (weights=None), images small, classes 10. For both targets: plan, quantize, calibrate, export,
verify; one training step. A model that is done already (its JSON file is in the folder) is not run again. Times go to
results/keras_applications.md.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras
    import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "keras_applications.md"
RECORD = ROOT / "benchmarks" / "results" / "keras_applications.md"
TARGETS = ("tensorrt", "onnxruntime")
SIZES = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71}
SAMPLES = 8
TIME_LIMIT = 3600


def names() -> list[str]:
    """Every model of keras.applications, the smaller ones first."""
    import keras

    every = [name for name, value in vars(keras.applications).items() if callable(value) and name[0].isupper()]
    return sorted(every, key=lambda name: (_heaviness(name), name))


def _heaviness(name: str) -> int:
    """A rough order, so that the first failure comes early."""
    heavy = ("NASNetLarge", "XLarge", "Large", "V2L", "B7", "B6", "V2M", "B5", "152", "VGG")
    return next((len(heavy) - place for place, part in enumerate(heavy) if name.endswith(part)), 0)


def run_one(name: str) -> dict:
    """Take one model the whole way and return the figures."""
    import keras
    import numpy as np

    import qdq_workbench as qdq

    keras.utils.set_random_seed(0)
    size = SIZES.get(name, 64)
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10)
    data = np.random.default_rng(0).uniform(0, 255, (SAMPLES, size, size, 3)).astype("float32")
    figures: dict = {"size": size, "parameters": model.count_params(), "nodes": len(qdq.build_graph(model).nodes)}
    folder = pathlib.Path(os.environ["FOLDER_OF_FILES"])
    for target in TARGETS:
        figures[target] = _one_target(model, data, target, folder / f"{name}.onnx")
    figures["gigabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 1)
    return figures


def _one_target(model: "keras.Model", data: "np.ndarray", target: str, path: pathlib.Path) -> dict:
    import numpy as np

    import qdq_workbench as qdq

    seconds = {}
    clock = time.perf_counter()

    def lap(step: str) -> None:
        nonlocal clock
        seconds[step] = round(time.perf_counter() - clock, 1)
        clock = time.perf_counter()

    q_model = qdq.quantize_model(model, target=target)
    lap("quantize")
    qdq.calibrate(q_model, data, batch_size=4, verbose=False)
    lap("calibrate")
    qdq.export_onnx(q_model, path)
    lap("export")
    report = qdq.verify_onnx(path, q_model, data)
    lap("verify")
    size = path.stat().st_size + sum(other.stat().st_size for other in path.parent.glob(f"{path.name}.*"))
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    explanation = qdq.explain(q_model.plan, target)
    with_weights = {p.layer for p in q_model.plan.placements if p.site == "weight"}
    found = {
        "pairs": len(q_model.plan.tensors),
        "verified": report.passed,
        "failed": [str(check.detail) for check in report.checks if not check.passed],
        "lsb": report.figures.get("lsb"),
        "kernels": report.figures.get("integer_kernels"),
        "explained": explanation.counts,
        "weighted": [sum(explanation.for_layer(n).status == "int8" for n in with_weights), len(with_weights)],
        "megabytes": round(size / 2**20, 1),
    }
    if target == "tensorrt":
        q_model.compile("sgd", "sparse_categorical_crossentropy")
        found["loss"] = float(q_model.train_on_batch(data[:2], np.array([1, 2])))
        lap("training step")
    return {**found, "seconds": seconds}


def run_all(chosen: list[str], results: pathlib.Path) -> None:
    """Run what is not done yet, one process at a time."""
    results.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        done = results / f"{name}.json"
        if done.exists():
            continue
        command = [sys.executable, __file__, "--worker", name]
        environment = {**os.environ, "FOLDER_OF_FILES": str(results)}
        started = time.perf_counter()
        try:
            process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT)  # noqa: S603, PLW1510
        except subprocess.TimeoutExpired:
            print(f"{name}: no result after {TIME_LIMIT} s")
            continue
        if process.returncode:
            print(f"{name}: FAILED\n{process.stderr[-1500:]}", flush=True)
            continue
        figures = json.loads(process.stdout.splitlines()[-1])
        figures["seconds"] = round(time.perf_counter() - started)
        done.write_text(json.dumps(figures, indent=1) + "\n")
        verdict = "verified" if all(figures[target]["verified"] for target in TARGETS) else "NOT VERIFIED"
        print(f"{name}: {verdict}, {figures['seconds']} s, {figures['gigabytes']} GB", flush=True)


HEAD = """# keras.applications

All models of `keras.applications` (Keras {keras}) with the default placement: no specification, no cases. Each is
planned, quantized, calibrated, exported and verified for TensorRT and for ONNX Runtime, and trained for one step.
Weights are random and images small (64x64; 75x75 for the Inceptions, 71x71 for Xception): the table describes
structure, not accuracy.

- **nodes**: calls in the graph. **pairs**: Q/DQ pairs, those of weights included, in the plan for TensorRT / ONNX
  Runtime.
- **conv** to **Concat**: integer kernels / all nodes of that kind, in the graph that ONNX Runtime makes of the
  file for `onnxruntime`: convolutions, matrix products (Gemm, MatMul), sums and products (Add, Mul), pooling.
- **TensorRT**: layers with quantized weights that `explain` predicts to run in INT8 / all of them. Separable
  convolutions (Xception, the NASNets) run in INT8 only as two layers each, which `split_separable_convolutions(model)`
  makes.
- **verified**: `verify_onnx` passes for both files, on {samples} images.

| model | parameters | nodes | pairs | conv | matrix | Add, Mul | pool | Concat | TensorRT | verified |
|---|---|---|---|---|---|---|---|---|---|---|
"""
TAIL = """
More kernels are formed with [`AutoQDQCase` and `split_activations`](runtime_coverage.md).
`python benchmarks/keras_applications.py` computes the table in some hours
([run times](../benchmarks/results/keras_applications.md)).
"""
TIMES = """# Run times of keras.applications

Seconds for all steps of `python benchmarks/keras_applications.py`, both targets, each model in its own process, with
ONNX Runtime {onnxruntime}.

| model | seconds |
|---|---|
"""
GROUPS = (
    ("Conv", "ConvTranspose"),
    ("Gemm", "MatMul"),
    ("Add", "Mul"),
    ("AveragePool", "GlobalAveragePool", "MaxPool", "ReduceMean"),
    ("Concat",),
)


def write_page(results: pathlib.Path) -> None:
    """Write the page and the record from all results there are."""
    import keras
    import onnxruntime

    rows, times = [], []
    missing = []
    for name in sorted(names()):
        file = results / f"{name}.json"
        if not file.exists():
            missing.append(name)
            continue
        figures = json.loads(file.read_text())
        rows.append(_row(name, figures))
        times.append(f"| {name} | {figures['seconds']} |")
    text = HEAD.format(keras=keras.__version__, samples=SAMPLES)
    text += "\n".join(rows) + "\n" + TAIL
    if missing:
        text += f"\nNot run yet ({len(missing)}; the command above runs what is missing): {', '.join(missing)}.\n"
    PAGE.write_text(text)
    RECORD.write_text(TIMES.format(onnxruntime=onnxruntime.__version__) + "\n".join(times) + "\n")


def _row(name: str, figures: dict) -> str:
    trt, ort = figures["tensorrt"], figures["onnxruntime"]
    kernels = [_share(ort["kernels"] or {}, group) for group in GROUPS]
    verified = "yes" if trt["verified"] and ort["verified"] else "no"
    cells = [
        name,
        f"{figures['parameters'] / 1e6:.1f} M",
        str(figures["nodes"]),
        f"{trt['pairs']} / {ort['pairs']}",
        *kernels,
        "/".join(map(str, trt["weighted"])),
        verified,
    ]
    return "| " + " | ".join(cells) + " |"


def _share(kernels: dict, group: tuple[str, ...]) -> str:
    integer = sum(kernels[op][0] for op in group if op in kernels)
    total = sum(kernels[op][1] for op in group if op in kernels)
    return f"{integer}/{total}" if total else "-"


def main() -> None:
    """Run the models, or one of them as a worker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="which models; all by default")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build" / "keras_applications")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(run_one(options.worker)))
        return
    run_all(options.only or names(), options.results.resolve())
    write_page(options.results.resolve())


if __name__ == "__main__":
    main()
