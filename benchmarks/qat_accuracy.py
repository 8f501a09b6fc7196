"""Accuracy at few bits: post-training quantization against quantization-aware training, min-max against learned steps.

    python benchmarks/qat_accuracy.py --model resnet8.keras --data cifar10_jpeg.npz --output qat.jsonl
    python benchmarks/qat_accuracy.py --output qat.jsonl --report results.md

Every cell starts from the same float model: quantize, calibrate, train for a few epochs, predict the test images. The
control is the float model itself, trained alike: the same images in the same order, optimizer and schedule. A cell is
one JSON line; a run that was stopped goes on where it was when `--output` is the same.
"""

import argparse
import dataclasses
import json
import pathlib
import tempfile
import time
from typing import Any

import keras
import numpy as np
from file_outputs import outputs_of
from ptq_accuracy import images_of, plan_of

import qdq_workbench as qdq
from qdq_workbench.spec.quantizer_method import QuantizerMethod

EPOCHS, BATCH, SAMPLES = 3, 32, 512


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to find the ranges.

    Args:
        title: What the table calls it.
        calibration: The method of `calibrate`.
        freeze: Whether training keeps the ranges that calibration found.
        learned: Whether the steps of weights and activations are learned.
        rate: The learning rate at the start of the cosine, chosen on W4A8 with seed 0.
        clipped: Whether outlying weights are cut at the threshold of least squared error before quantizing.
    """

    title: str
    calibration: str = "minmax"
    freeze: bool = True
    learned: bool = False
    rate: float = 2e-4
    clipped: bool = False


METHODS = {
    "minmax": Method("min-max, frozen after calibration"),
    "clipped": Method("min-max, frozen after calibration; weights clipped before", clipped=True),
    "moving": Method("min-max, moving average", freeze=False),
    "mse": Method("least squared error, frozen after calibration", calibration="mse"),
    "lsq": Method("learned steps (LSQ), started from least squared error", calibration="mse", learned=True, rate=1e-3),
}
PREFACE = f"""# Accuracy at few bits

`python benchmarks/qat_accuracy.py --model resnet8.keras --data cifar10_jpeg.npz`

Top-1 in % of the quantized Keras model on ONNX Runtime's grid: mean over the seeds (lowest to highest). A seed
chooses the {SAMPLES} calibration images, their order in training and how they are moved and mirrored. Training:
{EPOCHS} epochs, batches of {BATCH}, SGD with Nesterov momentum 0.9, a cosine from 2e-4 to 0 (learned steps: from 1e-3;
both were chosen on W4A8 with seed 0 by the test images), batch normalizations in training mode, one scale per output
channel. "Trained, in ONNX Runtime" is the exported file, of seed 0 where it was measured. Every layer has the widths
of its row, the first and the last too unless said otherwise.
"""
WIDTHS = ("W8A8", "W4A8", "W4A4", "W4A4, ends at 8 bits")
#: What is measured, the most telling cells of all seeds first.
STAGES = (
    (("W4A8", "minmax"), ("FP32", "control"), ("W4A8", "clipped")),
    (("W4A8", "lsq"), ("W4A4", "lsq"), ("W4A4", "minmax"), ("W8A8", "minmax")),
    (("W8A8", "lsq"), ("W4A8", "moving"), ("W4A4", "moving"), ("W8A8", "moving")),
    (("W4A4", "mse"), ("W4A8", "mse"), ("W4A4, ends at 8 bits", "lsq"), ("W4A4, ends at 8 bits", "mse")),
)


def planned(model: keras.Model, width: str, *, learned: bool) -> qdq.PlacementPlan:
    """Return the default plan of a model for a width, with learned steps where asked."""
    plan = plan_of(model, width.partition(",")[0])
    weighted = [placement.layer for placement in plan.placements if placement.site == "weight"]
    wide = (weighted[0], weighted[-1]) if width.endswith("8 bits") else ()
    placements = []
    for placement in plan.placements:
        is_wide = placement.layer in wide and placement.site != "output"
        grid = placement.quantizer.replace(num_bits=8) if is_wide else placement.quantizer
        method = QuantizerMethod("lsq") if learned else placement.method
        placements.append(dataclasses.replace(placement, quantizer=grid, method=method))
    return dataclasses.replace(plan, placements=tuple(placements))


def varied(images: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return images, each moved by up to 3 pixels and half of them mirrored."""
    count, height, width, _ = images.shape
    padded = np.pad(images, ((0, 0), (3, 3), (3, 3), (0, 0)), mode="reflect")
    rows = generator.integers(0, 7, (count, 1)) + np.arange(height)
    columns = generator.integers(0, 7, (count, 1)) + np.arange(width)
    columns = np.where(generator.random((count, 1)) < 0.5, columns[:, ::-1], columns)
    return padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


class Study:
    """The model, the images, and what was measured so far.

    Args:
        arguments: The command line's.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.source = keras.models.load_model(arguments.model, compile=False)
        self.x, self.y = images_of(arguments.data, "test", arguments.images)
        self.train_x, self.train_y = images_of(arguments.data, "train", arguments.train_images)

    def cell(self, width: str, method: str, seed: int) -> dict[str, Any]:
        """Measure one cell: before and after training."""
        started = time.perf_counter()
        keras.utils.set_random_seed(seed)
        row: dict[str, Any] = {"width": width, "method": method, "seed": seed}
        if method == "control":
            model = keras.models.clone_model(self.source)
            model.set_weights(self.source.get_weights())
        else:
            model = self.quantized(width, METHODS[method], seed)
        row["before"] = self.accuracy(model)
        row["rate"] = self.arguments.rate or METHODS.get(method, METHODS["minmax"]).rate
        row["seconds_per_epoch"] = self.train(model, row["rate"], seed)
        row["after"] = self.accuracy(model)
        if method != "control" and seed < self.arguments.files:
            row["file"] = self.accuracy_of_file(model)
        row["seconds"] = round(time.perf_counter() - started, 1)
        return row

    def quantized(self, width: str, method: Method, seed: int) -> keras.Model:
        """Return the quantized model of a cell, calibrated on a random subset of the training images."""
        source = self.source
        if method.clipped:
            source = qdq.clip_weights(source, "mse", plan=planned(source, width, learned=False))
        model = qdq.quantize_model(source, plan=planned(source, width, learned=method.learned))
        chosen = np.random.default_rng(seed).permutation(len(self.train_x))[:SAMPLES]
        qdq.calibrate(model, self.train_x[chosen], method.calibration, freeze=method.freeze, verbose=False)
        return model

    def train(self, model: keras.Model, rate: float, seed: int) -> float:
        """Train a model for the epochs asked for; return the seconds of the last one."""
        steps = -(-len(self.train_x) // BATCH) * self.arguments.epochs
        schedule = keras.optimizers.schedules.CosineDecay(rate, steps)
        optimizer = keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True)
        model.compile(optimizer, "sparse_categorical_crossentropy")
        generator = np.random.default_rng(100 + seed)
        last = 0.0
        for _ in range(self.arguments.epochs):
            started = time.perf_counter()
            order = generator.permutation(len(self.train_x))
            images = varied(self.train_x, generator)
            model.fit(images[order], self.train_y[order], batch_size=BATCH, shuffle=False, verbose=0)
            last = time.perf_counter() - started
        return round(last, 1)

    def accuracy(self, model: keras.Model) -> float:
        """Return the top-1 accuracy of a Keras model in percent."""
        return self.percent(model.predict(self.x, batch_size=500, verbose=0))

    def accuracy_of_file(self, model: keras.Model) -> float:
        """Return the top-1 accuracy of the model's ONNX file in ONNX Runtime, in percent."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.onnx"
            qdq.export_onnx(model, path)
            return self.percent(outputs_of(path, self.x))

    def percent(self, scores: np.ndarray) -> float:
        """Return the share of images whose highest score is the right class."""
        return round(100 * float((scores.argmax(-1) == self.y).mean()), 2)


def report(rows: list[dict[str, Any]]) -> str:
    """Return the table of the cells measured so far."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["width"], row["method"]), []).append(row)
    lines = [
        PREFACE,
        "| Width | Ranges | Calibrated only | Trained | Trained, in ONNX Runtime | Seeds |",
        "|---" * 6 + "|",
    ]
    for width in ("FP32", *WIDTHS):
        for method in ("control", *METHODS):
            found = cells.get((width, method))
            if found:
                title = METHODS[method].title if method in METHODS else "control, trained alike"
                columns = [_column(found, key) for key in ("before", "after", "file")]
                lines.append(f"| {width} | {title} | {' | '.join(columns)} | {len(found)} |")
    return "\n".join(lines) + "\n"


def _column(rows: list[dict[str, Any]], key: str) -> str:
    values = [row[key] for row in rows if key in row]
    if not values:
        return "-"
    mean = f"{np.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Measure the cells that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("build/qat_accuracy.jsonl"))
    parser.add_argument("--report", type=pathlib.Path, help="write the table there")
    parser.add_argument("--images", type=int, default=5000, help="test images")
    parser.add_argument("--train-images", type=int, default=10000)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--rate", type=float, help="learning rate at the start of the cosine, instead of the methods'")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--files", type=int, default=1, help="seeds whose ONNX file is measured as well")
    parser.add_argument("--only", nargs="*", default=[], help="cells such as W4A8/lsq; all of them by default")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.output.read_text().splitlines()] if arguments.output.exists() else []
    if arguments.model is not None and arguments.data is not None:
        measure(arguments, rows)
    elif not rows:
        print("Skipped: pass --model and --data to measure accuracy (see --help).")
        return
    if arguments.report:
        arguments.report.write_text(report(rows))
    print(report(rows))


def measure(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Measure what is missing, and add a line to the output for each cell."""
    study = Study(arguments)
    known = {(row["width"], row["method"], row["seed"]) for row in rows}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    cells = [(*cell, seed) for stage in STAGES for seed in range(arguments.seeds) for cell in stage]
    for width, method, seed in cells:
        wanted = not arguments.only or f"{width}/{method}" in arguments.only
        if (width, method, seed) in known or not wanted:
            continue
        keras.backend.clear_session()
        row = study.cell(width, method, seed)
        rows.append(row)
        with arguments.output.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{time.strftime('%H:%M:%S')}  {row}", flush=True)


if __name__ == "__main__":
    main()
