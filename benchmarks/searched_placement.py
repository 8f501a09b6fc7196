"""The placement that `search` finds beside plain quantization, `AutoQDQCase` and ONNX Runtime's `quantize_static`.

    python benchmarks/searched_placement.py --model resnet8.keras --data cifar10_jpeg.npz --output rows.json
    python benchmarks/searched_placement.py --network mobilenet_v2 --size 96 --output rows.json
    python benchmarks/searched_placement.py --model large.keras --data cifar10_jpeg.npz --samples 1000 --held-out 2000
    python benchmarks/searched_placement.py --report --output rows.json   # the tables of all rows, and the picture

Accuracy is top-1 of the exported files on test images that nobody calibrates or searches with; for a network without
trained weights (`--network`: random, with the normalizations' statistics taken from data) it is the agreement with the
float model's top-1, on random images. Times are ratios within one run: all files take turns, batch 1, and the float
file takes part twice: its distance from itself is the noise. The search looks for the least time at which the accuracy
is at most `--loss` below that of the float model.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import tempfile
import textwrap
import time
from collections.abc import Callable

import keras
import numpy as np
import onnxruntime
from file_outputs import outputs_of
from networks import APPLICATIONS, application
from onnx_speed import Batches, runner, turn
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from ptq_accuracy import images_of

import qdq_workbench as qdq

PICTURE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "images" / "search.png"
CALIBRATION = 256
TARGET = "onnxruntime"


@dataclasses.dataclass(frozen=True)
class Problem:
    """A network, samples to calibrate and search with, and held-out samples to judge with."""

    name: str
    model: keras.Model
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def trained(model: pathlib.Path, data: pathlib.Path, samples: int, held_out: int) -> Problem:
    """Return a trained network for JPEGs, which are enlarged to what it reads."""
    found = keras.models.load_model(model, compile=False)
    size = found.input_shape[1]
    x, y = images_of(data, "train", samples, size)
    x_test, y_test = images_of(data, "test", held_out, size)
    return Problem(model.stem, found, x, y.astype(np.int64), x_test, y_test.astype(np.int64))


def untrained(name: str, size: int, samples: int) -> Problem:
    """Return a network with random weights, warmed up on random images, which labels them itself."""
    keras.utils.set_random_seed(0)
    model = application(APPLICATIONS[name], size)
    generator = np.random.default_rng(0)
    coarse = generator.normal(size=(samples + 512, size // 8, size // 8, 3)).astype(np.float32)
    images = np.repeat(np.repeat(coarse, 8, axis=1), 8, axis=2)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0  # the statistics of one batch, whatever they start from
    model(images[:128], training=True)
    labels = np.argmax(model.predict(images, batch_size=32, verbose=0), axis=-1)
    return Problem(f"{name}, {size}x{size}", model, images[512:], labels[512:], images[:512], labels[:512])


class Comparison:
    """Writes the files of all rows and compares them.

    Args:
        problem: The network and its samples.
        folder: Where files are written.
        loss: How far the accuracy may be below that of the float model.
        threads: Threads of ONNX Runtime.
    """

    def __init__(self, problem: Problem, folder: pathlib.Path, loss: float, threads: int) -> None:
        self.problem, self.folder, self.loss, self.threads = problem, folder, loss, threads
        self.float = qdq.export_float_onnx(problem.model, folder / "float.onnx", target="onnxruntime")
        self.found: qdq.results.SearchResult | None = None
        self.seconds = 0.0

    def files(self) -> dict[str, pathlib.Path]:
        """Return the file of every row."""
        makers: dict[str, Callable[[], pathlib.Path]] = {
            "plain quantization": lambda: self._quantized("plain"),
            "AutoQDQCase": lambda: self._quantized("auto", qdq.AutoQDQCase()),
            "search": self._searched,
            "quantize_static": self._static,
        }
        return {"FP32": self.float, "FP32 again": self.float, **{name: make() for name, make in makers.items()}}

    def _quantized(self, name: str, *cases: qdq.CustomQDQInsertionCase) -> pathlib.Path:
        q_model = qdq.quantize_model(self.problem.model, custom_qdq_cases=list(cases), target=TARGET)
        qdq.calibrate(q_model, self.problem.x[:CALIBRATION], verbose=False)
        return qdq.export_onnx(q_model, self.folder / f"{name}.onnx").path

    def _searched(self) -> pathlib.Path:
        x, y, model = self.problem.x, self.problem.y, self.problem.model
        started = time.perf_counter()
        self.found = qdq.search(
            model,
            (x, y),
            plan=qdq.plan_placement(model, target=TARGET),
            calibration_data=x[:CALIBRATION],
            objective="ms",
            max_loss=self.loss,
            cases="auto",
            pairs=True,
            share="patterns",
            threads=self.threads,
            verbose=False,
        )
        self.seconds = time.perf_counter() - started
        print(self.found.summary(), flush=True)
        return qdq.export_onnx(self.found.q_model, self.folder / "search.onnx").path

    def _static(self) -> pathlib.Path:
        path = self.folder / "static.onnx"
        name = onnxruntime.InferenceSession(self.float, providers=["CPUExecutionProvider"]).get_inputs()[0].name
        quantize_static(
            self.float,
            path,
            Batches(name, self.problem.x[:CALIBRATION]),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return path

    def accuracy(self, path: pathlib.Path) -> float:
        """Return the share of held-out images that a file labels as they are."""
        x, y = self.problem.x_test, self.problem.y_test
        return float(np.mean(np.argmax(outputs_of(path, x), axis=-1) == y))

    def turns(self, files: dict[str, pathlib.Path], rounds: int) -> dict[str, list[float]]:
        """Return the seconds of all turns; files take turns, in another order every round."""
        calls = {name: runner(path, self.problem.x_test[:1], self.threads) for name, path in files.items()}
        found: dict[str, list[float]] = {name: [] for name in calls}
        order = list(calls)
        for number in range(rounds + 1):
            for name in np.random.default_rng(number).permutation(order):
                found[name].append(turn(calls[name]))
        return {name: seconds[1:] for name, seconds in found.items()}

    def rows(self, rounds: int) -> dict:
        """Return everything that was measured."""
        files = self.files()
        turns = self.turns(files, rounds)
        accuracies = {name: self.accuracy(path) for name, path in files.items() if name != "FP32 again"}
        reference = np.array(turns["FP32"])
        rows = {}
        for name, path in files.items():
            ratios = np.sort(np.array(turns[name]) / reference)
            rows[name] = {
                "accuracy": accuracies.get(name, accuracies["FP32"]),
                "ms": 1e3 * float(np.median(turns[name])),
                "ratio": float(np.median(ratios)),
                "quartiles": [float(np.quantile(ratios, share)) for share in (0.25, 0.75)],
                "least": 1e3 * float(min(turns[name])),
                "bytes": path.stat().st_size,
            }
        assert self.found is not None
        steps = [
            {
                "accuracy": step.accuracy,
                "ms": step.ms,
                "bytes": step.weight_bytes,
                "case": step.case,
                "changed": len(step.levels),
                "found": (step.case, step.levels) == (self.found.best.case, self.found.best.levels),
            }
            for step in self.found.history
        ]
        found = {"reason": self.found.reason, "best": self.found.best.label, "floor": self.found.search_floor}
        return {
            "rows": rows,
            "held_out": len(self.problem.y_test),
            "samples": len(self.problem.y),
            "search": {**found, "seconds": self.seconds, "steps": steps},
            "load": os.getloadavg()[0],
            "threads": self.threads,
            "rounds": rounds,
        }


def table(name: str, found: dict) -> str:
    """Return the rows of one network as Markdown."""
    search, size = found["search"], found["rows"]["FP32"]["bytes"]
    text = (
        f"{found['held_out']:,} held-out images; {found['threads']} thread(s), {found['rounds']} rounds, load "
        f"{found['load']:.1f}. The search took {search['seconds'] / 60:.0f} min for {len(search['steps'])} placements "
        f"on {found['samples']:,} samples. Found: {textwrap.shorten(search['best'], 160)}. {search['reason']}"
    )
    lines = [
        f"### {name}",
        "",
        text,
        "",
        "| file | accuracy | ms / FP32, median (quartiles) | least ms | bytes / FP32 |",
        "|---|---|---|---|---|",
    ]
    for row, values in found["rows"].items():
        low, high = values["quartiles"]
        lines.append(
            f"| {row} | {100 * values['accuracy']:.2f} % | {values['ratio']:.3f} ({low:.3f} to {high:.3f}) | "
            f"{values['least']:.4f} | {values['bytes'] / size:.3f} |"
        )
    return "\n".join(lines)


def draw(found: dict[str, dict], picture: pathlib.Path) -> None:
    """Draw everything that the searches tried: accuracy over time."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(5 * len(found), 4), layout="constrained", squeeze=False)
    for (name, data), panel in zip(found.items(), axes[0], strict=True):
        steps = sorted((step for step in data["search"]["steps"] if step["ms"]), key=lambda step: step["ms"])
        front = [s for i, s in enumerate(steps) if all(s["accuracy"] > other["accuracy"] for other in steps[:i])]
        cases = dict.fromkeys(step["case"] or "as planned" for step in steps)
        for case in cases:
            own = [step for step in steps if (step["case"] or "as planned") == case]
            panel.plot([s["ms"] for s in own], [100 * s["accuracy"] for s in own], "o", alpha=0.6, label=case)
        panel.step([s["ms"] for s in front], [100 * s["accuracy"] for s in front], "k-", where="post", linewidth=0.9)
        best = next(step for step in steps if step["found"])
        panel.plot(best["ms"], 100 * best["accuracy"], "*", color="#d55e00", markersize=15, label="found")
        panel.axhline(100 * data["search"]["floor"], color="gray", linestyle=":", linewidth=1)
        panel.set(title=name, xlabel="ms per run in ONNX Runtime", ylabel="%, on the samples of the search")
        panel.legend()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=100)
    print(f"drew {picture}")


def main() -> None:
    """Measure one network, or report on all that were measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--network", choices=list(APPLICATIONS))
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--samples", type=int, default=6000, help="samples to search with")
    parser.add_argument("--held-out", type=int, default=5000, help="test images to judge with")
    parser.add_argument("--loss", type=float, default=0.005, help="most below the float model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--output", type=pathlib.Path, help="keeps what was measured, JSON")
    parser.add_argument("--report", action="store_true", help="print the tables and draw docs/images/search.png")
    options = parser.parse_args()
    output = options.output
    known = json.loads(output.read_text(encoding="utf-8")) if output and output.exists() else {}
    if options.report:
        print("\n\n".join(table(name, found) for name, found in known.items()))
        draw(known, PICTURE)
        return
    if options.network is None and (options.model is None or options.data is None):
        print("Skipped: pass --model and --data, or --network (see --help).")
        return
    if options.network:
        problem = untrained(options.network, options.size, options.samples)
    else:
        problem = trained(options.model, options.data, options.samples, options.held_out)
    with tempfile.TemporaryDirectory() as folder:
        found = Comparison(problem, pathlib.Path(folder), options.loss, options.threads).rows(options.rounds)
    print(table(problem.name, found))
    if output:
        output.write_text(json.dumps({**known, problem.name: found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
