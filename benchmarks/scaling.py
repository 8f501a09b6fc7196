"""How costs grow: with the number of layers, with the batch, with the image size.

    python benchmarks/scaling.py [--lengths 50 200 800 3000] [--rounds 3] [--only layers batch size] [--plot]

Times per layer, and training steps as ratios to the float step of the same run. `--plot` draws docs/images/scaling.png
from what was measured in this run and before (results/scaling.json holds it), with matplotlib.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Callable

import keras
import numpy as np
from networks import application, chain
from rounds import interleaved

import qdq_workbench as qdq

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results" / "scaling.json"
PICTURE = HERE.parent / "docs" / "images" / "scaling.png"
BATCHES, SIZES = (1, 4, 16, 64), (32, 64, 96, 128)


def timed(call: Callable[[], object], rounds: int) -> float:
    """Return the least seconds of several calls: on a busy machine the least is the truest."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def by_layers(lengths: list[int], rounds: int) -> dict[str, dict[str, float]]:
    """Return seconds by step and number of layers."""
    found: dict[str, dict[str, float]] = {}
    data = np.random.default_rng(0).normal(size=(8, 8, 8, 4)).astype(np.float32)
    for length in lengths:
        model = chain(length)
        graph = qdq.build_graph(model)
        q_model = qdq.quantize_model(model)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.onnx"
            steps: dict[str, Callable[[], object]] = {
                "planning": lambda graph=graph: qdq.plan_placement(graph),
                "quantize_model": lambda model=model: qdq.quantize_model(model),
                "calibration": lambda q=q_model: qdq.calibrate(q, data, verbose=False),
                "export": lambda q=q_model, path=path: qdq.export_onnx(q, path),
            }
            for name, step in steps.items():
                seconds = timed(step, rounds if length < 1000 or name == "planning" else 1)
                found.setdefault(name, {})[str(len(model.layers))] = seconds
                per_layer = 1e6 * seconds / len(model.layers)
                print(f"{len(model.layers)} layers, {name}: {seconds:.2f} s, {per_layer:.0f} us per layer", flush=True)
    return found


def step_ratio(batch: int, size: int, rounds: int) -> float:
    """Return the quantized training step of MobileNetV2 as a ratio to the float one."""
    source = application("MobileNetV2", size)
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(batch, size, size, 3)).astype("float32"), generator.integers(0, 10, batch)
    q_model = qdq.quantize_model(source, target="onnxruntime")
    qdq.calibrate(q_model, x, verbose=False)
    for model in (source, q_model):
        model.compile(keras.optimizers.SGD(1e-4), "sparse_categorical_crossentropy")
    steps = {
        "float": lambda: source.train_on_batch(x, y),
        "quantized": lambda: q_model.train_on_batch(x, y),
    }
    seconds = interleaved(steps, rounds, repeat=2)
    return seconds["quantized"] / seconds["float"]


def by_setting(values: tuple[int, ...], ratio: Callable[[int], float], what: str) -> dict[str, float]:
    """Return the ratio by batch or image size."""
    found = {}
    for value in values:
        found[str(value)] = ratio(value)
        print(f"MobileNetV2, {what} {value}: training step / float step {found[str(value)]:.2f}", flush=True)
    return found


def plot(found: dict[str, dict]) -> None:
    """Draw what was measured."""
    from matplotlib import pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for name, points in found.get("layers", {}).items():
        counts = [int(count) for count in points]
        left.loglog(counts, list(points.values()), "o-", label=name)
    left.set(title="Seconds by layers", xlabel="layers", ylabel="seconds")
    left.legend()
    for axes, key, label in ((middle, "batch", "images per step (64x64)"), (right, "size", "image size (batch 16)")):
        points = found.get(key, {})
        axes.plot([int(value) for value in points], list(points.values()), "o-")
        axes.axhline(1.0, color="gray", linewidth=0.8)
        axes.set(title="MobileNetV2: quantized step / float step", xlabel=label, ylim=(0.0, None))
    figure.savefig(PICTURE, dpi=100)
    print(f"drew {PICTURE.relative_to(HERE.parent)}")


def main() -> None:
    """Measure what was asked for, keep it, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[50, 200, 800, 3000], help="numbers of layers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=["layers", "batch", "size"], choices=["layers", "batch", "size"])
    parser.add_argument("--plot", action="store_true", help="draw docs/images/scaling.png")
    options = parser.parse_args()
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    parts: dict[str, Callable[[], dict]] = {
        "layers": lambda: by_layers(options.lengths, options.rounds),
        "batch": lambda: by_setting(BATCHES, lambda batch: step_ratio(batch, 64, options.rounds), "batch"),
        "size": lambda: by_setting(SIZES, lambda size: step_ratio(16, size, options.rounds), "image size"),
    }
    for part in options.only:
        found[part] = parts[part]()
        found["load"] = [round(value, 1) for value in os.getloadavg()]
        RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        plot(found)


if __name__ == "__main__":
    main()
