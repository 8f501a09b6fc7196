"""Weights alone, 4 bits in blocks: what GPTQ gives over nearest rounding, the size of files, the time of MatMulNBits.

Two tables: error and accuracy of models of matrix products, and time and size of single products in ONNX Runtime.

    python benchmarks/weights_alone.py [--data FILE.npz] [--sizes 256x256,1024x1024,4096x4096] [--rounds 7]

`FILE.npz` holds x_train, y_train, x_test, y_test of small images in bytes; without it scikit-learn's digits are taken.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import onnxruntime
from keras import layers

import qdq_workbench as qdq

ONE_THREAD = 1


def images(path: str | None) -> tuple[np.ndarray, ...]:
    """Return training and test images as rows of pixels from 0 to 1, with labels."""
    if path:
        from qdq_workbench.cli.demo.data import load_images

        found = load_images(path).scaled()
        parts, scale = [found.x_train, found.y_train, found.x_test, found.y_test], 1.0
    else:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(x))
        x, y = x[order].reshape(-1, 8, 8, 1), y[order]
        parts, scale = [x[:1300], y[:1300], x[1300:], y[1300:]], 16.0
    train, y_train, test, y_test = (np.asarray(part) for part in parts)
    return train.astype("float32") / scale, y_train.ravel(), test.astype("float32") / scale, y_test.ravel()


def perceptron(shape: tuple[int, ...]) -> keras.Model:
    """Return a network of Dense layers with ReLUs."""
    image = keras.Input(shape, name="image")
    x = layers.Flatten()(image)
    for index, units in enumerate((512, 256, 128)):
        x = layers.Dense(units, activation="relu", name=f"dense{index}")(x)
    return keras.Model(image, layers.Dense(10, name="head")(x), name="perceptron")


def transformer(shape: tuple[int, ...]) -> keras.Model:
    """Two blocks of attention over the rows of an image."""
    image = keras.Input(shape, name="image")
    x = layers.Reshape((shape[0], shape[1] * shape[2]))(image)
    x = layers.Dense(96, name="rows")(x)
    x = x + layers.Embedding(shape[0], 96, name="places")(keras.ops.arange(shape[0]))
    for index in range(2):
        y = layers.LayerNormalization(name=f"norm{index}a")(x)
        x = x + layers.MultiHeadAttention(3, 32, name=f"attention{index}")(y, y)
        y = layers.LayerNormalization(name=f"norm{index}b")(x)
        y = layers.EinsumDense("abc,cd->abd", output_shape=(None, 192), activation="gelu", name=f"up{index}")(y)
        x = x + layers.EinsumDense("abc,cd->abd", output_shape=(None, 96), name=f"down{index}")(y)
    return keras.Model(image, layers.Dense(10, name="head")(layers.GlobalAveragePooling1D()(x)), name="transformer")


def trained(make: Callable[[tuple[int, ...]], keras.Model], data: tuple[np.ndarray, ...], epochs: int) -> keras.Model:
    """Return a trained classifier."""
    keras.utils.set_random_seed(0)
    x, y, *_ = data
    model = make(x.shape[1:])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-3), loss)
    model.fit(x, y, batch_size=64, epochs=epochs, verbose=0)
    return model


def scores(model: keras.Model, wanted: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Return top-1 accuracy, agreement with the float model, and the signal over the error of its outputs in dB."""
    found = model.predict(x, batch_size=256, verbose=0)
    noise = np.sum((found - wanted) ** 2)
    sqnr = 10 * np.log10(np.sum(wanted**2) / noise) if noise else np.inf
    return (
        100 * float(np.mean(found.argmax(-1) == y)),
        100 * float(np.mean(found.argmax(-1) == wanted.argmax(-1))),
        float(sqnr),
    )


def rounding_table(data: tuple[np.ndarray, ...], epochs: int, samples: int) -> None:
    """Print the error, accuracy and file size of every grid and rounding."""
    print("\n| Model | Weights | Rounding | Top-1 % | Agreement % | SQNR dB | Error of products | File kB (FP32) | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    x_train, _, x, y = data
    some = np.random.default_rng(0).permutation(len(x_train))[:samples]
    for make in (perceptron, transformer):
        model = qdq.transforms.split_attention(trained(make, data, epochs))
        wanted = model.predict(x, batch_size=256, verbose=0)
        folder = pathlib.Path(tempfile.mkdtemp())
        qdq.files.export_float_onnx(model, folder / "float.onnx")
        whole = (folder / "float.onnx").stat().st_size / 1e3
        top = 100 * float(np.mean(wanted.argmax(-1) == y))
        print(f"| {model.name} | FP32 | | {top:.2f} | | | | {whole:.0f} | |")
        for bits, block, symmetric in ((4, 32, True), (4, 32, False), (4, 128, True), (4, None, True), (3, 32, True)):
            for how in ("nearest", "GPTQ", "GPTQ, ordered"):
                spec = qdq.correction.weights_alone(model, bits, block, symmetric=symmetric)
                q_model = qdq.quantize_model(model, "partial", spec, target="onnxruntime")
                began, told = time.perf_counter(), ""
                if how != "nearest":
                    report = qdq.correction.gptq_weights(
                        q_model, x_train[some], activation_order="ordered" in how, verbose=False
                    )
                    ratios = [unit.learned_error / unit.nearest_error for unit in report.units if unit.kept]
                    told = f"{np.exp(np.mean(np.log(ratios))):.2f} of nearest's ({len(ratios)}/{len(report.units)})"
                seconds = time.perf_counter() - began
                written = qdq.export_onnx(q_model, folder / "q.onnx", opset=21)
                qdq.verify_onnx(written.path, q_model, x[:64]).raise_if_failed()
                top, agreement, sqnr = scores(q_model, wanted, x, y)
                values = f"blocks of {block}" if block else "channels"
                grid = f"{bits} bits, {values}{'' if symmetric else ', zero points'}"
                size = written.bytes / 1e3
                took = f"{seconds:.1f}" if told else ""
                figures = (f"{top:.2f}", f"{agreement:.2f}", f"{sqnr:.1f}", told, f"{size:.0f}", took)
                print(" | ".join([f"| {model.name}", grid, how, *figures, ""]).rstrip())


def session_of(path: pathlib.Path, level: str, threads: int) -> onnxruntime.InferenceSession:
    """Return a session with an accuracy level of MatMulNBits."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", level)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def median_ms(session: onnxruntime.InferenceSession, x: np.ndarray, repeats: int) -> float:
    """Return the median time of a run."""
    name = session.get_inputs()[0].name
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        session.run(None, {name: x})
        times.append(time.perf_counter() - began)
    return 1e3 * float(np.median(times))


def speed_table(sizes: list[tuple[int, int]], batches: tuple[int, ...], rounds: int) -> None:
    """Print the time of single products, as speed over FP32 in one run."""
    kinds = ("4 bits, int8 activations", "4 bits, float32", "8 bits, int8 activations")
    print(f"\n| Dense | Batch | FP32 ms | {' | '.join(kinds)} | kB of FP32, 4, 8 bits |")
    print("|---|---|---|---|---|---|---|")
    for inputs, units in sizes:
        source = keras.Input((inputs,), name="x")
        model = keras.Model(source, layers.Dense(units, name="dense")(source))
        folder = pathlib.Path(tempfile.mkdtemp())
        qdq.files.export_float_onnx(model, folder / "float.onnx")
        files = {0: folder / "float.onnx"}
        for bits in (4, 8):
            spec = qdq.correction.weights_alone(model, bits, 32)
            q_model = qdq.quantize_model(model, "partial", spec, target="onnxruntime")
            files[bits] = qdq.export_onnx(q_model, folder / f"{bits}.onnx").path
        levels = {"float": (0, "4"), "4 int8": (4, "4"), "4 float": (4, "1"), "8 int8": (8, "4")}
        sessions = {kind: session_of(files[bits], level, ONE_THREAD) for kind, (bits, level) in levels.items()}
        shown = ", ".join(f"{files[bits].stat().st_size / 1e3:.0f}" for bits in (0, 4, 8))
        for batch in batches:
            x = np.random.default_rng(0).normal(size=(batch, inputs)).astype("float32")
            repeats = max(5, min(200, int(4e8 / (inputs * units * batch))))
            measured = {kind: [] for kind in sessions}
            for _ in range(rounds):  # one kind after the other, so that a slow moment hits all
                for kind, session in sessions.items():
                    measured[kind].append(median_ms(session, x, repeats))
            base = float(np.median(measured["float"]))
            ratios = [
                f"{np.median([f / q for f, q in zip(measured['float'], measured[kind], strict=True)]):.2f}x"
                for kind in ("4 int8", "4 float", "8 int8")
            ]
            print(f"| {inputs}x{units} | {batch} | {base:.3f} | {' | '.join(ratios)} | {shown} |")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="small images, .npz; default: scikit-learn's digits")
    parser.add_argument("--sizes", default="256x256,768x768,1024x4096,4096x4096")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--samples", type=int, default=512, help="that GPTQ sees")
    parser.add_argument("--only", choices=("rounding", "speed"))
    options = parser.parse_args()
    if options.only != "speed":
        rounding_table(images(options.data), options.epochs, options.samples)
    if options.only != "rounding":
        sizes = [tuple(int(part) for part in size.split("x")) for size in options.sizes.split(",")]
        speed_table(sizes, tuple(int(batch) for batch in options.batches.split(",")), options.rounds)


if __name__ == "__main__":
    main()
