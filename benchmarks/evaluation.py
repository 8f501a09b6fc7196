"""Cost of evaluating the quantized model, as a ratio to the float model's, in one run.

python benchmarks/evaluation.py [resnet8 mobilenet_v2 resnet50]

The times by the clock say little: TensorFlow ends the iterator of arrays with a wait (see `networks.in_batches`).
"""

import functools

import keras
import numpy as np
from networks import NETWORKS, arguments_for, chosen
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
    calls = {
        key: functools.partial(model.predict, images, batch_size=BATCH, verbose=0) for key, model in models.items()
    }
    print_both(f"{name}, predict {shape[0]} images", calls, "float")


def main() -> None:
    """Measure the networks named on the command line, or all of them."""
    for name in chosen(arguments_for(__doc__).parse_args()):
        measure(name)


if __name__ == "__main__":
    main()
