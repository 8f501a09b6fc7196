"""What it gains that layers which TensorFlow computes in many steps are one operator, or one kernel, in the file.

python benchmarks/whole_operators.py [--rounds 12] [--threads 1] [--runtime onnxruntime|openvino]

Every network is exported twice, with the passes that restore such layers and without them. Both files take turns in the
runtime; the ratio and its 95 % interval are those of `profile_onnx`. Weights are random: only times are told.
"""

import argparse
import contextlib
import dataclasses
import importlib
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import keras
import numpy as np
from keras import layers

import qdq_workbench as qdq

PASSES = ("restore_layer_normalizations", "restore_rms_normalizations", "restore_gelus")


def transformer() -> keras.Model:
    """Four pre-norm blocks of a small vision transformer: 64 tokens, 192 features, 3 heads."""
    tokens = keras.Input((64, 192))
    x = tokens
    for block in range(4):
        normed = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.MultiHeadAttention(3, 64, name=f"attention{block}")(normed, normed)
        x = x + layers.Dense(192)(layers.Dense(768, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(x)))
    return qdq.transforms.split_attention(keras.Model(tokens, x))


def decoder_layers() -> keras.Model:
    """Four blocks of RMS normalization and a gated product, as in Llama, without their attention."""
    tokens = keras.Input((64, 192))
    x = tokens
    for _ in range(4):
        rms = layers.RMSNormalization()
        normed = rms(x)
        rms.scale.assign(np.linspace(0.5, 1.5, 192))
        gate = layers.Dense(512, activation="silu", use_bias=False)(normed)
        x = x + layers.Dense(192, use_bias=False)(gate * layers.Dense(512, use_bias=False)(normed))
    return keras.Model(tokens, x)


def convnext() -> keras.Model:
    """Four blocks of ConvNeXt: depthwise 7x7, layer normalization, two products with a GELU."""
    image = keras.Input((28, 28, 96))
    x = image
    for _ in range(4):
        hidden = layers.LayerNormalization(epsilon=1e-6)(layers.DepthwiseConv2D(7, padding="same")(x))
        x = layers.Add()([x, layers.Dense(96)(layers.Dense(384, activation="gelu")(hidden))])
    return keras.Model(image, x)


def normalized_convolutions() -> keras.Model:
    """Six convolutions, each with a layer normalization over the channels and a ReLU."""
    image = keras.Input((32, 32, 32))
    x = image
    for _ in range(6):
        x = layers.ReLU()(layers.LayerNormalization()(layers.Conv2D(32, 3, padding="same")(x)))
    return keras.Model(image, x)


NETWORKS: tuple[Callable[[], keras.Model], ...] = (
    transformer,
    decoder_layers,
    convnext,
    normalized_convolutions,
)


@contextlib.contextmanager
def in_steps() -> Iterator[None]:
    """Export without the passes, inside the block."""
    building = importlib.import_module("qdq_workbench.export.build_onnx")
    known = building.FLOAT
    left = tuple(graph_pass for graph_pass in known.passes if graph_pass.name not in PASSES)
    building.FLOAT = dataclasses.replace(known, passes=left)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        building.FLOAT = known  # type: ignore[attr-defined]


def main() -> None:
    """Print a table row per network and file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runtime", choices=("onnxruntime", "openvino"), default="onnxruntime")
    options = parser.parse_args()
    print("| network | file | in steps, ms | whole, ms | times as fast (95 %) | the file beside itself |")
    print("|---|---|---|---|---|---|")
    for build in NETWORKS:
        keras.utils.set_random_seed(0)
        model = build()
        data = np.random.default_rng(0).normal(size=(4, *model.input_shape[1:])).astype(np.float32)
        q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target=options.runtime)
        qdq.calibrate(q_model, data, verbose=False)
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("FP32", "INT8"):
                paths = [pathlib.Path(folder) / f"{kind}{number}.onnx" for number in range(2)]
                for path, form in zip(paths, (contextlib.nullcontext, in_steps), strict=True):
                    with form():
                        if kind == "INT8":
                            qdq.export_onnx(q_model, path)
                        else:
                            qdq.files.export_float_onnx(model, path)
                report = qdq.profiling.profile_onnx(
                    paths[0],
                    data[:1],
                    threads=options.threads,
                    rounds=options.rounds,
                    baseline=paths[1],
                    runtime=options.runtime,
                )
                low, high = report.speedup_interval or (0.0, 0.0)
                steps_ms = 0.0 if report.baseline is None else report.baseline.total_ms
                print(
                    f"| {build.__name__} | {kind} | {steps_ms:.3f} | {report.total_ms:.3f} | {report.speedup:.2f} "
                    f"({low:.2f} to {high:.2f}) | within {report.noise:.1%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
