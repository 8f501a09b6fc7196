"""Accuracy of the files of one trained network: what each treatment keeps at each width, and how long it takes.

    python benchmarks/accuracy_table.py --model vit.keras --data cifar10_jpeg.npz --output vit.jsonl
    python benchmarks/accuracy_table.py --model MobileNetV2 --weights imagenet --data ILSVRC --images 2000
    python benchmarks/accuracy_table.py --output vit.jsonl --report vit.md

`--model` is a file of Keras, or with `--weights` a network of `keras.applications`; `--data` one of those of
`samples.py`, such as a folder of pictures by class.

Each cell quantizes the same float model for ONNX Runtime and gives the top-1 of the exported, verified file there on
the test samples; a seed chooses those to calibrate with and the order of training. A cell is one JSON line; a run that
was stopped goes on where it was when `--output` is the same. `benchmarks/train_networks.py` trains the networks.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from file_outputs import outputs_of
from samples import Prepare, class_folders, samples_of

import qdq_workbench as qdq
from qdq_workbench.correction import (
    clip_weights,
    correct_biases,
    equalize_scales,
    estimate_statistics,
    gptq_weights,
    learn_rounding,
    smooth_scales,
    weights_alone,
)
from qdq_workbench.placement.targets import get_target
from qdq_workbench.transforms import split_attention

WIDTHS = {"W8A8": (8, 8), "W4A8": (4, 8), "W4A4": (4, 4)}
ALONE = "W4, weights alone"
CALIBRATION, LEARNING = 256, 1024


def float_model(arguments: argparse.Namespace) -> tuple[keras.Model, Prepare | None]:
    """Return the model of the command line, and what its pictures are put through before it reads them."""
    if arguments.weights is None:
        return keras.models.load_model(arguments.model, compile=False), None
    build = getattr(keras.applications, arguments.model, None)
    if build is None:
        raise SystemExit(
            "With --weights, --model must be a network of keras.applications, such as MobileNetV2. "
            f"Received: {arguments.model!r}"
        )
    from_imagenet = arguments.weights == "imagenet"
    classes = 1000 if from_imagenet else len(class_folders(pathlib.Path(arguments.data)))
    shape = None if arguments.size is None else (arguments.size, arguments.size, 3)
    try:
        model = build(weights=arguments.weights, input_shape=shape, classes=classes)
    except Exception as error:  # Keras raises its own kinds for what cannot be fetched or does not fit
        told = "neither in Keras's cache (~/.keras/models) nor can they be fetched" if from_imagenet else "not of it"
        raise SystemExit(
            f"The weights {arguments.weights!r} of {arguments.model} are {told}: {error}\nPass --weights "
            f"FILE.weights.h5 of {'them' if from_imagenet else f'a network of {classes} classes'}."
        ) from error
    return model, sys.modules[build.__module__].preprocess_input


class Network:
    """A float model, made ready, with the samples.

    Args:
        arguments: The command line's.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        model, prepare = float_model(arguments)
        self.unfolded = split_attention(model)
        self.model = split_attention(qdq.fold_batch_norm(model))
        pictures = {"size": model.input_shape[1], "classes": model.output_shape[-1], "prepare": prepare}
        self.test, self.labels = samples_of(arguments.data, "test", arguments.images, **pictures)
        self.pool, self.pool_labels = samples_of(arguments.data, "train", arguments.pool, **pictures)

    def plan(self, model: keras.Model, width: str) -> qdq.PlacementPlan:
        """Return the plan of a width: every layer has it, the first and the last too."""
        weight_bits, activation_bits = WIDTHS[width]
        target = get_target("onnxruntime")
        weight = target.weight.replace(num_bits=weight_bits)
        activation = target.activation.replace(num_bits=activation_bits)
        target = dataclasses.replace(target, weight=weight, activation=activation)
        return qdq.plan_placement(model, custom_qdq_cases=[qdq.AutoQDQCase(target)], target=target)

    def images(self, seed: int, count: int) -> np.ndarray:
        """Return random training samples."""
        return self.pool[np.random.default_rng(seed).permutation(len(self.pool))[:count]]

    def quantized(self, model: keras.Model, width: str, seed: int) -> keras.Model:
        """Return the calibrated model of a width."""
        q_model = qdq.quantize_model(model, plan=self.plan(model, width))
        qdq.calibrate(q_model, self.images(seed, CALIBRATION), "mse", verbose=False)
        return q_model

    def file_accuracy(self, q_model: keras.Model) -> float:
        """Return the top-1 of the exported file in ONNX Runtime, in percent."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.onnx"
            qdq.export_onnx(q_model, path)
            qdq.verify_onnx(path, q_model, data=self.test[:64]).raise_if_failed()
            found = outputs_of(path, self.test).argmax(-1)
        return 100 * float((found == self.labels).mean())


def calibrated(network: Network, width: str, seed: int) -> keras.Model:
    """Ranges alone."""
    return network.quantized(network.model, width, seed)


def smoothed(network: Network, width: str, seed: int) -> keras.Model:
    """Scales moved from activations into weights."""
    model = smooth_scales(network.model, network.images(seed, CALIBRATION), plan=network.plan(network.model, width))
    return network.quantized(model, width, seed)


def equalized(network: Network, width: str, seed: int) -> keras.Model:
    """Channels of neighbouring convolutions made equally wide."""
    return network.quantized(equalize_scales(network.model), width, seed)


def clipped(network: Network, width: str, seed: int) -> keras.Model:
    """Outlying weights cut, biases corrected by measured means."""
    model = clip_weights(network.model, "mse", plan=network.plan(network.model, width))
    model = correct_biases(model, network.images(seed, CALIBRATION), plan=network.plan(model, width))
    return network.quantized(model, width, seed)


def rounded(network: Network, width: str, seed: int) -> keras.Model:
    """Rounding of the clipped weights learned from images without labels."""
    model = clip_weights(network.model, "mse", plan=network.plan(network.model, width))
    q_model = network.quantized(model, width, seed)
    images, granularity = network.images(seed, LEARNING), network.arguments.granularity
    learn_rounding(q_model, images, granularity=granularity, reference=network.model, seed=seed, verbose=False)
    return q_model


def trained(network: Network, width: str, seed: int) -> keras.Model:
    """Fine-tuned with labels."""
    return fitted(network, network.model, width, seed)


def trained_unfolded(network: Network, width: str, seed: int) -> keras.Model:
    """Fine-tuned with labels, batch normalizations folded at the export only: their statistics move in training."""
    return fitted(network, network.unfolded, width, seed)


def trained_anew(network: Network, width: str, seed: int) -> keras.Model:
    """The same, with the statistics taken anew behind the training."""
    q_model = fitted(network, network.unfolded, width, seed)
    estimate_statistics(q_model, network.images(seed, LEARNING), verbose=False)
    return q_model


def fitted(network: Network, model: keras.Model, width: str, seed: int) -> keras.Model:
    """Return the quantized model of a width, fine-tuned with labels."""
    keras.utils.set_random_seed(seed)
    q_model = network.quantized(model, width, seed)
    arguments = network.arguments
    schedule = keras.optimizers.schedules.CosineDecay(arguments.rate, arguments.epochs * -(-len(network.pool) // 32))
    q_model.compile(keras.optimizers.Adam(schedule), "sparse_categorical_crossentropy")
    q_model.fit(network.pool, network.pool_labels, batch_size=32, epochs=arguments.epochs, verbose=0)
    return q_model


def alone(network: Network, width: str, seed: int) -> keras.Model:  # noqa: ARG001 - no data are needed
    """Blocks of 32 weights, rounded to the nearest."""
    return qdq.quantize_model(network.model, "partial", weights_alone(network.model), target="onnxruntime")


def alone_by_gptq(network: Network, width: str, seed: int) -> keras.Model:
    """Blocks of 32 weights, rounded by GPTQ."""
    q_model = alone(network, width, seed)
    gptq_weights(q_model, network.images(seed, CALIBRATION), seed=seed, verbose=False)
    return q_model


Treatment = Callable[[Network, str, int], keras.Model]
TREATMENTS: dict[str, Treatment] = {
    "calibrated": calibrated,
    "smoothed scales": smoothed,
    "equalized scales": equalized,
    "clipped weights, corrected biases": clipped,
    "learned rounding": rounded,
    "trained with labels": trained,
    "trained with labels, not folded": trained_unfolded,
    "trained with labels, not folded, statistics anew": trained_anew,
}
TREATMENTS_ALONE: dict[str, Treatment] = {"nearest": alone, "GPTQ": alone_by_gptq}


def measure(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Measure the cells that are missing, one JSON line each; those of the first seed come first."""
    network = Network(arguments)
    known = {(row["width"], row["treatment"], row["seed"]) for row in rows}
    cells = [(width, name) for name in TREATMENTS for width in WIDTHS] + [(ALONE, name) for name in TREATMENTS_ALONE]
    wanted = [(*cell, seed) for seed in range(arguments.seeds) for cell in cells]
    if not rows:
        _keep(arguments, rows, {"width": "FP32", "treatment": "", "seed": 0, "accuracy": _float_accuracy(network)})
    for width, name, seed in wanted:
        chosen = not arguments.only or name in arguments.only or f"{width}/{name}" in arguments.only
        if (width, name, seed) in known or not chosen:
            continue
        started, processor = time.perf_counter(), time.process_time()
        q_model = (TREATMENTS_ALONE if width == ALONE else TREATMENTS)[name](network, width, seed)
        row = {"width": width, "treatment": name, "seed": seed, "seconds": round(time.perf_counter() - started, 1)}
        row["processor_seconds"] = round(time.process_time() - processor, 1)
        _keep(arguments, rows, {**row, "accuracy": round(network.file_accuracy(q_model), 2)})


def _float_accuracy(network: Network) -> float:
    found = network.model.predict(network.test, batch_size=250, verbose=0).argmax(-1)
    return round(100 * float((found == network.labels).mean()), 2)


def _keep(arguments: argparse.Namespace, rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
    rows.append(row)
    with arguments.output.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(f"{time.strftime('%H:%M:%S')}  {row}", flush=True)


def report(rows: list[dict[str, Any]]) -> str:
    """Return the table: mean (lowest to highest) of the seeds, and the processor minutes that one cell took."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["width"], row["treatment"]), []).append(row)
    reference = cells.pop(("FP32", ""))[0]["accuracy"]
    lines = [
        f"FP32: {reference:.2f} % top-1. Cells: the file in ONNX Runtime, and processor minutes for the treatment.",
        "",
        f"| Treatment | {' | '.join(WIDTHS)} |",
        "|---" * (1 + len(WIDTHS)) + "|",
    ]
    for name in TREATMENTS:
        found = [cells.get((width, name), []) for width in WIDTHS]
        if any(found):
            lines.append(f"| {name} | {' | '.join(map(_cell, found))} |")
    names = [name for name in TREATMENTS_ALONE if (ALONE, name) in cells]
    lines += [f"\n{ALONE}, blocks of 32, {name}: {_cell(cells[ALONE, name])}." for name in names]
    return "\n".join(lines) + "\n"


def _cell(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "-"
    values, minutes = [row["accuracy"] for row in rows], np.mean([row["processor_seconds"] for row in rows]) / 60
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{spread}; {minutes:.1f} min"


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a file of Keras, or a network of keras.applications where there are --weights")
    parser.add_argument("--weights", help="imagenet, or a file of its weights")
    parser.add_argument("--size", type=int, help="height and width that a network of keras.applications is built for")
    parser.add_argument("--data", help="see samples.py")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("build/accuracy_table.jsonl"))
    parser.add_argument("--report", type=pathlib.Path, help="write the table there")
    parser.add_argument("--images", type=int, default=5000, help="to test with")
    parser.add_argument("--pool", type=int, default=10_000, help="to calibrate and to train with")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=1, help="of the treatment that trains")
    parser.add_argument("--rate", type=float, default=1e-4, help="its learning rate at the start of the cosine")
    parser.add_argument("--granularity", default="block", choices=("layer", "block", "model"), help="learned rounding")
    parser.add_argument("--only", nargs="*", default=[], help="treatments, or cells such as 'W4A8/learned rounding'")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.output.read_text().splitlines()] if arguments.output.exists() else []
    if arguments.model is not None and arguments.data is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        measure(arguments, rows)
    elif not rows:
        print("Skipped: pass --model and --data to measure accuracy (see --help).")
        return
    if arguments.report:
        arguments.report.write_text(report(rows), encoding="utf-8")
    print(report(rows))


if __name__ == "__main__":
    main()
