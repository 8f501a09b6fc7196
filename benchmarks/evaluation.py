"""Cost of evaluating the quantized model, as a ratio to the float model's, in one run.

python benchmarks/evaluation.py [resnet8 mobilenet_v2 resnet50]
"""

import functools

import keras
import numpy as np
from networks import NETWORKS, arguments_for, chosen, in_batches
from processor_time import print_both

import qdq_workbench as qdq

BATCH, BATCHES_PER_CALL = 32, 8


def measure(name: str) -> None:
    """Print the ratio for one network."""
    source = NETWORKS[name]()
    shape = (BATCH * BATCHES_PER_CALL, *source.input_shape[1:])
    images = np.random.default_rng(0).normal(size=shape).astype("float32")
    q_model = qdq.quantize_model(source, target="onnxruntime")
    qdq.calibrate(q_model, images[:BATCH], verbose=False)
    models = {"float": source, "float again": keras.models.clone_model(source), "quantized": q_model}
    data = in_batches(images, BATCH)
    calls = {key: functools.partial(model.predict, data, verbose=0) for key, model in models.items()}
    print_both(f"{name}, predict {shape[0]} images", calls, "float")


def main() -> None:
    """Measure the networks named on the command line, or all of them."""
    for name in chosen(arguments_for(__doc__).parse_args()):
        measure(name)


if __name__ == "__main__":
    main()
