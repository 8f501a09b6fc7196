"""Accuracy after post-training quantization: every calibration method, every corrector alone and all together.

    python benchmarks/ptq_accuracy.py --model resnet8.keras --data cifar10_jpeg.npz --output results.md

Top-1 on test images and agreement with the float model's top-1, mean and range over several random calibration
subsets of the training images, computed by the quantized Keras model on ONNX Runtime's grid. A run that was stopped
goes on where it was when `--output` is the same.
"""

import argparse
import dataclasses
import json
import pathlib
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import qdq_workbench as qdq
from qdq_workbench import mct
from qdq_workbench.correction import clip_weights, codebook_weights, correct_biases, equalize_scales, shift_negative
from qdq_workbench.placement.targets import get_target

METHODS: dict[str, dict] = {
    "minmax": {},
    "moving_average": {},
    "percentile 99.99": {"method": "percentile"},
    "percentile 99.9": {"method": "percentile", "percentile": 99.9},
    "mse": {},
    "mae": {},
    "lp, p = 3": {"method": "lp", "p": 3},
    "kl": {},
    "entropy": {},
    "power_of_two": {},
    "mse, scales of powers of two": {"method": "mse", "power_of_two": "scale"},
}
WIDTHS = {"W8A8": (8, 8, True), "W4A8": (4, 8, True), "W4A4": (4, 4, True), "W4A8, one scale per weight": (4, 8, False)}
Corrector = Callable[..., keras.Model]


def corrected_with(*steps: Corrector) -> Corrector:
    """Return the correctors one after the other, each with a plan of its own."""

    def run(model: keras.Model, images: np.ndarray, width: str) -> keras.Model:
        for step in steps:
            model = step(model, images, width)
        return model

    return run


def clip(model: keras.Model, images: np.ndarray, width: str) -> keras.Model:  # noqa: ARG001 - all take the same
    """Cut outlying weights."""
    return clip_weights(model, "mse", plan=plan_of(model, width))


def bias(model: keras.Model, images: np.ndarray, width: str) -> keras.Model:
    """Correct the biases by measured means."""
    return correct_biases(model, images, plan=plan_of(model, width))


def equalize(model: keras.Model, images: np.ndarray, width: str) -> keras.Model:  # noqa: ARG001 - all take the same
    """Make both ends of every channel equally wide."""
    return equalize_scales(model)


def shift(model: keras.Model, images: np.ndarray, width: str) -> keras.Model:  # noqa: ARG001 - all take the same
    """Let activations with a short negative side start at 0."""
    return shift_negative(model)


def lookup_table(model: keras.Model, images: np.ndarray, width: str) -> keras.Model:  # noqa: ARG001 - all take the same
    """Leave 16 levels of the int8 grid per scale."""
    return codebook_weights(model, 4, "lut", plan=plan_of(model, "W8A8"))


CORRECTORS: dict[str, Corrector] = {
    "none": corrected_with(),
    "scale equalization (ranges)": equalize,
    "weight clipping (mse)": clip,
    "bias correction (data)": bias,
    "all three": corrected_with(equalize, clip, bias),
    "clipping and bias correction": corrected_with(clip, bias),
    "lookup table of 16 levels": lookup_table,
}
# What a network of ReLUs gives no work to; for one of swishes, see `--swish`.
SHIFTING: dict[str, Corrector] = {
    "none": corrected_with(),
    "shift of the negative side": shift,
    "bias correction (data)": bias,
    "shift, clipping and bias correction": corrected_with(shift, clip, bias),
}


def plan_of(model: keras.Model, width: str) -> qdq.PlacementPlan:
    """Return the default plan of a model with the widths of one column."""
    weight_bits, activation_bits, per_axis = WIDTHS[width]
    target = get_target("onnxruntime")
    weight = target.weight.replace(num_bits=weight_bits)
    activation = target.activation.replace(num_bits=activation_bits)
    plan = qdq.plan_placement(model, target=dataclasses.replace(target, weight=weight, activation=activation))
    if per_axis:
        return plan
    placements = [
        dataclasses.replace(p, quantizer=p.quantizer.replace(axis=None)) if p.site == "weight" else p
        for p in plan.placements
    ]
    return dataclasses.replace(plan, placements=tuple(placements))


def images_of(path: pathlib.Path, split: str, count: int, size: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Return decoded images and labels of one split; images of 32x32 are enlarged where `size` is another."""
    data = np.load(path)
    encoded, offsets = data[f"jpeg_{split}"].tobytes(), data[f"off_{split}"]
    decoded = [
        tf.io.decode_jpeg(encoded[offsets[i] : offsets[i + 1]], dct_method="INTEGER_ACCURATE").numpy()
        for i in range(count)
    ]
    if size != 32:
        decoded = [tf.image.resize(image, (size, size)).numpy() for image in decoded]
    return np.stack(decoded).astype(np.float32), data[f"y_{split}"][:count]


def with_swish(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> keras.Model:
    """Return a model with swish in place of every ReLU, trained for five epochs."""

    def copy(layer: keras.layers.Layer) -> keras.layers.Layer:
        config = layer.get_config()
        if config.get("activation") == "relu":
            config["activation"] = "swish"
        return type(layer).from_config(config)

    keras.utils.set_random_seed(0)
    changed = keras.models.clone_model(model, clone_function=copy)
    changed.set_weights(model.get_weights())
    changed.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
    changed.fit(images, labels, batch_size=32, epochs=5, verbose=0)
    return changed


class Study:
    """The model, the images, and what was measured so far.

    Args:
        arguments: The command line's.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.source = keras.models.load_model(arguments.model, compile=False)
        self.x, self.y = images_of(arguments.data, "test", arguments.images)
        self.pool, labels = images_of(arguments.data, "train", 5000)
        if arguments.swish:
            self.source = with_swish(self.source, self.pool, labels)
        self.model = qdq.fold_batch_norm(self.source)
        self.seeds, self.samples = arguments.seeds, arguments.samples
        self.float_top1 = self.top1(self.source)
        self.store = arguments.output.with_suffix(".json") if arguments.output else None
        resumed = self.store is not None and self.store.exists()
        self.rows: dict[str, list[tuple[float, float]]] = json.loads(self.store.read_text()) if resumed else {}

    def top1(self, model: keras.Model) -> np.ndarray:
        """Return the classes that a model predicts for the test images."""
        return model.predict(self.x, batch_size=500, verbose=0).argmax(-1)

    def calibration_images(self, seed: int) -> np.ndarray:
        """Return a random subset of the training images."""
        return self.pool[np.random.default_rng(seed).permutation(len(self.pool))[: self.samples]]

    def is_known(self, name: str, seed: int) -> bool:
        """Return whether an earlier run has measured a row for a seed."""
        return len(self.rows.get(name, ())) > seed

    def measure(self, name: str, q_model: keras.Model) -> None:
        """Add the accuracy and the agreement of a quantized model to a row, and keep it."""
        found = self.top1(q_model)
        row = (100 * float((found == self.y).mean()), 100 * float((found == self.float_top1).mean()))
        self.rows.setdefault(name, []).append(row)
        if self.store is not None:
            self.store.write_text(json.dumps(self.rows, indent=1))
        print(f"{time.strftime('%H:%M:%S')}  {name}: {row[0]:.2f} (agreement {row[1]:.2f})", flush=True)

    def methods(self, width: str) -> None:
        """Measure every calibration method."""
        for seed in range(self.seeds):
            q_model = qdq.quantize_model(self.model, plan=plan_of(self.model, width))
            for name, settings in METHODS.items():
                if self.is_known(f"method|{width}|{name}", seed):
                    continue
                qdq.calibrate(q_model, self.calibration_images(seed), **{"method": name, **settings}, verbose=False)
                self.measure(f"method|{width}|{name}", q_model)

    def folding(self, width: str) -> None:
        """Measure the model as it is, with its batch normalizations."""
        name = f"corrector|{width}|none, batch normalizations not folded"
        for seed in range(self.seeds):
            if not self.is_known(name, seed):
                q_model = qdq.quantize_model(self.source, plan=plan_of(self.source, width))
                qdq.calibrate(q_model, self.calibration_images(seed), "mse", verbose=False)
                self.measure(name, q_model)

    def correctors(self, width: str, correctors: dict[str, Corrector] = CORRECTORS) -> None:
        """Measure every corrector."""
        for seed in range(self.seeds):
            images = self.calibration_images(seed)
            for name, corrector in correctors.items():
                table = corrector is lookup_table
                if self.is_known(f"corrector|{width}|{name}", seed) or (table and width != "W4A8"):
                    continue
                model = corrector(self.model, images, width)
                q_model = qdq.quantize_model(model, plan=plan_of(model, "W8A8" if table else width))
                qdq.calibrate(q_model, images, "mse", verbose=False)
                self.measure(f"corrector|{width}|{name}", q_model)

    def entry(self) -> None:
        """Measure MCT's entry."""
        for seed in range(self.seeds):
            images = self.calibration_images(seed)
            batches = [[images[start : start + 32]] for start in range(0, len(images), 32)]
            for name, config in (
                ("defaults", mct.DEFAULTCONFIG),
                ("defaults without bias correction", mct.QuantizationConfig(weights_bias_correction=False)),
            ):
                if self.is_known(f"entry|W8A8|{name}", seed):
                    continue
                q_model, _ = mct.keras_post_training_quantization(
                    self.source, lambda batches=batches: iter(batches), len(batches), config, INFO
                )
                self.measure(f"entry|W8A8|{name}", q_model)

    def report(self) -> str:
        """Return the tables."""
        lines = [f"FP32: {100 * float((self.float_top1 == self.y).mean()):.2f} % top-1 on {len(self.y)} images."]
        kinds = {"method": "Calibration method", "corrector": "Corrector (calibrated by mse)", "entry": "MCT's entry"}
        for kind, title in kinds.items():
            names = [name.split("|") for name in self.rows if name.startswith(kind)]
            widths = list(dict.fromkeys(width for _, width, _ in names))
            lines += ["", f"| {title} | {' | '.join(widths)} |", "|---" * (1 + len(widths)) + "|"]
            for name in dict.fromkeys(name for *_, name in names):
                cells = [self._cell(f"{kind}|{width}|{name}") for width in widths]
                lines.append(f"| {name} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def _cell(self, name: str) -> str:
        if name not in self.rows:
            return "-"
        accuracy, agreement = np.array(self.rows[name]).T
        return f"{accuracy.mean():.2f} ({accuracy.min():.2f} to {accuracy.max():.2f}); {agreement.mean():.1f}"


INFO = mct.FrameworkInfo(
    mct.DEFAULT_KERAS_INFO.kernel_ops,
    mct.DEFAULT_KERAS_INFO.activation_ops,
    [*mct.DEFAULT_KERAS_INFO.no_quantization_ops, keras.layers.Flatten],
    mct.DEFAULT_KERAS_INFO.kernel_channels_mapping,
    mct.DEFAULT_KERAS_INFO.activation_min_max_mapping,
    mct.DEFAULT_KERAS_INFO.layer_min_max_mapping,
)


def main() -> None:
    """Run the study and write the tables after every part of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--swish", action="store_true", help="put swish for ReLU, train, and measure shift_negative")
    arguments = parser.parse_args()
    if arguments.model is None or arguments.data is None:
        print("Skipped: pass --model and --data to measure accuracy (see --help).")
        return
    study = Study(arguments)
    parts: tuple[Callable[[], None], ...] = (
        lambda: study.methods("W8A8"),
        lambda: study.correctors("W4A8"),
        lambda: study.correctors("W8A8"),
        lambda: study.folding("W8A8"),
        lambda: study.folding("W4A8"),
        study.entry,
        lambda: study.methods("W4A8"),
        lambda: study.correctors("W4A8, one scale per weight"),
        lambda: study.methods("W4A4"),
    )
    if arguments.swish:
        parts = tuple(lambda width=width: study.correctors(width, SHIFTING) for width in ("W8A8", "W4A8", "W4A4"))
    for part in parts:
        part()
        if arguments.output:
            arguments.output.write_text(study.report())
    print(study.report())


if __name__ == "__main__":
    main()
