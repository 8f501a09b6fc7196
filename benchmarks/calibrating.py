"""Cost of a calibration pass, as a ratio to a pass of the float model over the same data.

    python benchmarks/calibrating.py [resnet8 mobilenet_v2 resnet50]

Per method it prints the first call on a fresh model, which traces, as a ratio to the float model's first `predict`;
then further calls as ratios in time, and in processor time, which says more on a busy machine.
"""

import functools
import time
from collections.abc import Callable

import numpy as np
from networks import NETWORKS, arguments_for, chosen, in_batches
from processor_time import print_both
from rounds import print_ratios

import qdq_workbench as qdq

BATCH, BATCHES = 32, 16
METHODS = ("minmax", "moving_average", "percentile", "mse", "entropy")


def measure(name: str, methods: list[str]) -> None:
    """Print the ratios for one network."""
    source = NETWORKS[name]()
    shape = (BATCH * BATCHES, *source.input_shape[1:])
    images = np.random.default_rng(0).normal(size=shape).astype("float32")
    q_model = qdq.quantize_model(source)
    calls: dict[str, Callable[[], object]] = {
        "float predict": functools.partial(source.predict, in_batches(images, BATCH), verbose=0)
    }
    for method in methods:
        calls[method] = functools.partial(
            qdq.calibrate, q_model, images, method=method, batch_size=BATCH, verbose=False
        )
    title = f"{name}, {shape[0]} images"
    print_ratios(f"{title}, first call", {key: seconds(call) for key, call in calls.items()}, "float predict")
    print_both(title, calls, "float predict", rounds=3)


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    """Measure the networks named on the command line, or all of them."""
    parser = arguments_for(__doc__)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, help="which methods")
    arguments = parser.parse_args()
    for name in chosen(arguments):
        measure(name, arguments.methods)


if __name__ == "__main__":
    main()
