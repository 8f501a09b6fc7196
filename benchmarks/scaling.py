"""How costs grow: with the number of layers, with the batch, with the image size.

    python benchmarks/scaling.py [--lengths 50 200 800 3000] [--rounds 3] [--only layers batch size] [--plot]
    python benchmarks/scaling.py --minutes 12       # leaves out the points that would take longer, and says which
    python benchmarks/scaling.py --only layers batch --rounds 2 --minutes 8 --plot    # 3,000 layers, batches of 1 to 64

Times per layer, and training steps as ratios to the float step of the same run. From 1,000 layers on every step runs
once, and the ranges are set instead of calibrated. `--plot` draws docs/images/scaling.png with matplotlib, of what was
measured in this run and before (results/scaling.json holds it).
"""

import argparse
import functools
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import keras
import numpy as np
from networks import application, chain
from rounds import interleaved

import qdq_workbench as qdq
from qdq_workbench.wrappers.qdq import QuantizeDequantize

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results" / "scaling.json"
PICTURE = HERE.parent / "docs" / "images" / "scaling.png"
BATCHES, SIZES = (1, 4, 16, 64), (32, 64, 96, 128)
DEEPEST = 20_000  # Keras follows a model's layers by recursion and fails at some 1,000 in a row with Python's own limit
LONG = 1000  # layers: from here on every step runs once
CAUTION = 1.3  # how much longer a point may take than the ones before it say
STEPS = 64  # images per turn of training steps, at least two steps


class Budget:
    """Decides whether there is time for a point, from what the ones before it took.

    A point costs something whatever its size (building, tracing), so its time is read off a line through the last two
    points. After a single one it counts as about as long as that.

    Args:
        minutes: How long everything may take.
    """

    def __init__(self, minutes: float) -> None:
        self._until = time.monotonic() + 60.0 * minutes

    def allows(self, what: str, size: int, before: list[tuple[int, float]]) -> bool:
        """Return whether a point fits; say so where it does not.

        Args:
            what: The point, for the message.
            size: How large it is.
            before: Size and seconds of the points before it.
        """
        expected = expected_seconds(size, before)
        left = max(self._until - time.monotonic(), 0.0)
        if expected > left:
            print(f"{what}: left out, it would take some {expected:.0f} s and {left:.0f} s are left", flush=True)
        return expected <= left


def expected_seconds(size: int, before: list[tuple[int, float]]) -> float:
    """Return how long a point should take, with some caution; 0 for the first one."""
    if not before:
        return 0.0
    last_size, last = before[-1]
    if len(before) == 1:
        return CAUTION * last
    earlier_size, earlier = before[-2]
    growth = max(last - earlier, 0.0) / (last_size - earlier_size)
    return CAUTION * (last + growth * (size - last_size))


def timed(call: Callable[[], object], rounds: int) -> float:
    """Return the least seconds of several calls: on a busy machine the least is the truest."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def layer_steps(model: keras.Model, path: pathlib.Path) -> dict[str, Callable[[], object]]:
    """Return the steps of a model, to be called in their order.

    Args:
        model: The float model.
        path: The file that the export writes.
    """
    data = np.random.default_rng(0).normal(size=(8, 8, 8, 4)).astype(np.float32)
    graph, made = qdq.build_graph(model), {}

    def quantize() -> None:
        made["model"] = qdq.quantize_model(model)

    def export() -> None:
        if len(model.layers) >= LONG:
            for layer in made["model"].layers:
                if isinstance(layer, QuantizeDequantize):
                    layer.set_range(-4.0, 4.0)
        qdq.export_onnx(made["model"], path)

    steps: dict[str, Callable[[], object]] = {
        "planning": lambda: qdq.plan_placement(graph),
        "quantize_model": quantize,
        "calibration": lambda: qdq.calibrate(made["model"], data, verbose=False),
        "export": export,
    }
    if len(model.layers) >= LONG:
        del steps["calibration"]  # tracing the model would be most of the time of a first pass
    return steps


def by_layers(lengths: list[int], rounds: int, budget: Budget) -> dict[str, dict[str, float]]:
    """Return seconds by step and number of layers."""
    found: dict[str, dict[str, float]] = {}
    before: list[tuple[int, float]] = []
    for length in sorted(lengths):
        if not budget.allows(f"{length} layers", length, before):
            break
        started = time.monotonic()
        model = chain(length)
        with tempfile.TemporaryDirectory() as folder:
            for name, step in layer_steps(model, pathlib.Path(folder) / "model.onnx").items():
                seconds = timed(step, rounds if length < LONG or name == "planning" else 1)
                found.setdefault(name, {})[str(len(model.layers))] = seconds
                per_layer = 1e6 * seconds / len(model.layers)
                print(f"{len(model.layers)} layers, {name}: {seconds:.2f} s, {per_layer:.0f} us per layer", flush=True)
        before.append((length, time.monotonic() - started))
    return found


@functools.cache
def both_models(size: int) -> tuple[keras.Model, keras.Model]:
    """Return MobileNetV2 for images of a size, and the same quantized."""
    source = application("MobileNetV2", size)
    q_model = qdq.quantize_model(source, target="onnxruntime")
    qdq.calibrate(q_model, np.random.default_rng(0).normal(size=(4, size, size, 3)).astype("float32"), verbose=False)
    return source, q_model


def step_ratio(batch: int, size: int, rounds: int) -> float:
    """Return the quantized training step of MobileNetV2 as a ratio to the float one."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(batch, size, size, 3)).astype("float32"), generator.integers(0, 10, batch)
    models = dict(zip(("float", "quantized"), both_models(size), strict=True))
    for model in models.values():  # compiled anew: a step that has seen two batch sizes is traced for any
        model.compile(keras.optimizers.SGD(1e-4), "sparse_categorical_crossentropy")
    steps = {name: functools.partial(model.train_on_batch, x, y) for name, model in models.items()}
    seconds = interleaved(steps, rounds, repeat=max(2, STEPS // batch))
    return seconds["quantized"] / seconds["float"]


def by_setting(values: tuple[int, ...], ratio: Callable[[int], float], what: str, budget: Budget) -> dict[str, float]:
    """Return the ratio by batch or image size."""
    found: dict[str, float] = {}
    before: list[tuple[int, float]] = []
    for value in values:
        if not budget.allows(f"{what} {value}", value, before):
            break
        started = time.monotonic()
        found[str(value)] = ratio(value)
        print(f"MobileNetV2, {what} {value}: training step / float step {found[str(value)]:.2f}", flush=True)
        before.append((value, time.monotonic() - started))
    return found


def _plot_layers(axes: "Axes", found: dict[str, dict[str, float]]) -> None:
    for name, points in found.items():
        axes.loglog([int(count) for count in points], list(points.values()), "o-", label=name)
    axes.set(title="Seconds by layers", xlabel="layers", ylabel="seconds")
    measured = sorted({int(count) for points in found.values() for count in points})
    axes.set_xticks(measured, labels=[str(count) for count in measured])
    axes.minorticks_off()
    axes.legend()


def plot(found: dict[str, dict], picture: pathlib.Path) -> None:
    """Draw what was measured."""
    from matplotlib import pyplot as plt

    steps = {"batch": "images per step (64x64)", "size": "image size (batch 16)"}
    shown = [key for key in ("layers", *steps) if key in found]
    size = (13 / 3 * len(shown) + 2, 4)
    figure, places = plt.subplots(1, len(shown), figsize=size, layout="constrained", squeeze=False)
    for key, axes in zip(shown, places[0], strict=True):
        if key == "layers":
            _plot_layers(axes, found[key])
            continue
        label, points = steps[key], found[key]
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
