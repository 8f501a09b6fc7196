"""How costs grow: with the number of layers, with the batch, with the image size.

    python benchmarks/scaling.py [--lengths 50 200 800 3000] [--rounds 3] [--only layers batch size] [--plot]
    python benchmarks/scaling.py --minutes 12       # leaves out the points that would take longer, and says which

Times per layer, and training steps as ratios to the float step of the same run. `--plot` draws docs/images/scaling.png
from what was measured in this run and before (results/scaling.json holds it), with matplotlib.
"""

import argparse
import json
import os
import pathlib
import sys
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
DEEPEST = 20_000  # Keras follows a model's layers by recursion and fails at some 1,000 in a row with Python's own limit
STEEPEST = 1.3  # the power of the growth that the estimate of the next point reckons with


class Budget:
    """Decides whether there is time for a point, from what the one before it took.

    Args:
        minutes: How long everything may take.
    """

    def __init__(self, minutes: float) -> None:
        self._until = time.monotonic() + 60.0 * minutes

    def allows(self, what: str, size: int, before: tuple[int, float] | None) -> bool:
        """Return whether a point fits; say so where it does not.

        Args:
            what: The point, for the message.
            size: How large it is.
            before: Size and seconds of the point before, if there was one.
        """
        expected = 0.0 if before is None else before[1] * max(1.0, size / before[0]) ** STEEPEST
        left = max(self._until - time.monotonic(), 0.0)
        if expected > left:
            print(f"{what}: left out, it would take some {expected:.0f} s and {left:.0f} s are left", flush=True)
        return expected <= left


def timed(call: Callable[[], object], rounds: int) -> float:
    """Return the least seconds of several calls: on a busy machine the least is the truest."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def by_layers(lengths: list[int], rounds: int, budget: Budget) -> dict[str, dict[str, float]]:
    """Return seconds by step and number of layers."""
    found: dict[str, dict[str, float]] = {}
    data = np.random.default_rng(0).normal(size=(8, 8, 8, 4)).astype(np.float32)
    before: tuple[int, float] | None = None
    for length in sorted(lengths):
        if not budget.allows(f"{length} layers", length, before):
            break
        started = time.monotonic()
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
        before = (length, time.monotonic() - started)
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


def by_setting(values: tuple[int, ...], ratio: Callable[[int], float], what: str, budget: Budget) -> dict[str, float]:
    """Return the ratio by batch or image size."""
    found: dict[str, float] = {}
    before: tuple[int, float] | None = None
    for value in values:
        if not budget.allows(f"{what} {value}", value, before):
            break
        started = time.monotonic()
        found[str(value)] = ratio(value)
        print(f"MobileNetV2, {what} {value}: training step / float step {found[str(value)]:.2f}", flush=True)
        before = (value, time.monotonic() - started)
    return found


def plot(found: dict[str, dict], picture: pathlib.Path) -> None:
    """Draw what was measured."""
    from matplotlib import pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for name, points in found.get("layers", {}).items():
        counts = [int(count) for count in points]
        left.loglog(counts, list(points.values()), "o-", label=name)
    left.set(title="Seconds by layers", xlabel="layers", ylabel="seconds")
    measured = sorted({int(count) for points in found.get("layers", {}).values() for count in points})
    left.set_xticks(measured, labels=[str(count) for count in measured])
    left.minorticks_off()
    left.legend()
    for axes, key, label in ((middle, "batch", "images per step (64x64)"), (right, "size", "image size (batch 16)")):
        points = found.get(key, {})
        axes.plot([int(value) for value in points], list(points.values()), "o-")
        axes.axhline(1.0, color="gray", linewidth=0.8)
        axes.set(title="MobileNetV2: quantized step / float step", xlabel=label, ylim=(0.0, None))
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=100)
    print(f"drew {picture}")


def main() -> None:
    """Measure what was asked for, keep it, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[50, 200, 800, 3000], help="numbers of layers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=["layers", "batch", "size"], choices=["layers", "batch", "size"])
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="images per training step")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="heights and widths of the images")
    parser.add_argument("--minutes", type=float, default=12.0, help="when to stop; default: 12")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="the file that keeps the figures")
    parser.add_argument("--picture", type=pathlib.Path, default=PICTURE, help="the file that --plot draws")
    parser.add_argument("--plot", action="store_true", help="draw docs/images/scaling.png")
    options = parser.parse_args()
    budget = Budget(options.minutes)
    sys.setrecursionlimit(DEEPEST)
    found = json.loads(options.results.read_text(encoding="utf-8")) if options.results.exists() else {}
    parts: dict[str, Callable[[], dict]] = {
        "layers": lambda: by_layers(options.lengths, options.rounds, budget),
        "batch": lambda: by_setting(
            tuple(options.batches), lambda batch: step_ratio(batch, 64, options.rounds), "batch", budget
        ),
        "size": lambda: by_setting(
            tuple(options.sizes), lambda size: step_ratio(16, size, options.rounds), "image size", budget
        ),
    }
    for part in options.only:
        found[part] = parts[part]()
        found["load"] = [round(value, 1) for value in os.getloadavg()]
        options.results.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        plot(found, options.picture)


if __name__ == "__main__":
    main()
