"""Accuracy and cost of learned rounding: granularities at W4A8 and W4A4, in Keras and of the exported file.

    python benchmarks/learned_rounding.py --model resnet8.keras --data cifar10_jpeg.npz --output rounding.md

The protocol is that of `ptq_accuracy.py`: batch normalizations folded, weights clipped (mse), calibrated by mse on 256
random training images, on ONNX Runtime's grid. The rounding learns from `--samples` training images without labels.
A run that was stopped goes on where it was when `--output` is the same.
"""

import argparse
import json
import pathlib
import tempfile
import time

import keras
import numpy as np
from file_outputs import outputs_of
from ptq_accuracy import images_of, plan_of

import qdq_workbench as qdq
from qdq_workbench.correction import clip_weights, learn_rounding

WIDTHS = ("W4A8", "W4A4")
GRANULARITIES = ("layer", "block", "model")


class Study:
    """The model, the images, and what was measured so far.

    Args:
        arguments: The command line's.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.model = qdq.fold_batch_norm(keras.models.load_model(arguments.model, compile=False))
        self.x, self.y = images_of(arguments.data, "test", arguments.images)
        self.pool, _ = images_of(arguments.data, "train", arguments.pool)
        self.float_top1 = self.model.predict(self.x, batch_size=500, verbose=0).argmax(-1)
        self.store = arguments.output.with_suffix(".json") if arguments.output else None
        resumed = self.store is not None and self.store.exists()
        self.rows: dict[str, dict[str, float]] = json.loads(self.store.read_text()) if resumed else {}

    def measure(self, width: str, granularity: str, seed: int) -> None:
        """Learn once and measure the model and its file."""
        name = f"{width}|{granularity}|{seed}"
        if name in self.rows:
            return
        arguments = self.arguments
        order = np.random.default_rng(seed).permutation(len(self.pool))
        clipped = clip_weights(self.model, "mse", plan=plan_of(self.model, width)) if arguments.clip else self.model
        q_model = qdq.quantize_model(clipped, plan=plan_of(clipped, width))
        qdq.calibrate(q_model, self.pool[order[:256]], "mse", verbose=False)
        before = self.right(q_model.predict(self.x, batch_size=500, verbose=0))
        wall, processor = time.perf_counter(), time.process_time()
        settings = json.loads(arguments.settings)
        reference = {"reference": self.model} if arguments.clip else {}
        report = learn_rounding(
            q_model,
            self.pool[order[: arguments.samples]],
            granularity=granularity,
            seed=seed,
            verbose=False,
            **reference,
            **settings,
        )
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        top1 = q_model.predict(self.x, batch_size=500, verbose=0)
        row = {
            "nearest": before,
            "learned": self.right(top1),
            "agreement": 100 * float((top1.argmax(-1) == self.float_top1).mean()),
            "file": self.right(self.file_outputs(q_model)),
            "seconds": wall,
            "processor": processor,
            "changed": 100 * report.changed,
        }
        self.rows[name] = row
        if self.store is not None:
            self.store.write_text(json.dumps(self.rows, indent=1))
        print(f"{time.strftime('%H:%M:%S')}  {name}: {row}", flush=True)
        print(report.summary(), flush=True)

    def right(self, outputs: np.ndarray) -> float:
        """Return the top-1 accuracy of outputs in percent."""
        return 100 * float((outputs.argmax(-1) == self.y).mean())

    def file_outputs(self, q_model: keras.Model) -> np.ndarray:
        """Return the outputs of the exported file in ONNX Runtime, which must pass verification."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.onnx"
            qdq.export_onnx(q_model, path)
            qdq.verify_onnx(path, q_model, data=self.x[:64]).raise_if_failed()
            return outputs_of(path, self.x, 500)

    def report(self) -> str:
        """Return the table."""
        how = f"{self.arguments.samples} images without labels to learn from, settings {self.arguments.settings}"
        columns = ("Width", "Granularity", "Nearest", "Learned", "Agreement with FP32", "File")
        columns += ("Wall s", "Processor s", "Changed %")
        lines = [
            f"FP32: {100 * float((self.float_top1 == self.y).mean()):.2f} % top-1 on {len(self.y)} images; {how}.",
            "",
            f"| {' | '.join(columns)} |",
            "|---" * len(columns) + "|",
        ]
        for width, granularity in dict.fromkeys(tuple(name.split("|")[:2]) for name in self.rows):
            rows = [row for name, row in self.rows.items() if name.startswith(f"{width}|{granularity}|")]
            keys = ("nearest", "learned", "agreement", "file", "seconds", "processor", "changed")
            cells = [_cell([row[key] for row in rows]) for key in keys]
            lines.append(f"| {width} | {granularity} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def _cell(values: list[float]) -> str:
    mean = f"{np.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Run the study and write the table after every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--pool", type=int, default=5000, help="training images that subsets are drawn from")
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--widths", nargs="+", default=WIDTHS)
    parser.add_argument("--granularities", nargs="+", default=GRANULARITIES)
    parser.add_argument("--no-clip", dest="clip", action="store_false", help="do not clip the weights before")
    parser.add_argument("--settings", default="{}", help="further arguments of learn_rounding, JSON")
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.model is None or arguments.data is None:
        print("Skipped: pass --model and --data to measure accuracy (see --help).")
        return
    study = Study(arguments)
    for seed in range(arguments.seeds):
        for width in arguments.widths:
            for granularity in arguments.granularities:
                study.measure(width, granularity, seed)
                if arguments.output:
                    arguments.output.write_text(study.report())
    print(study.report())


if __name__ == "__main__":
    main()
