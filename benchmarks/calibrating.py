"""Cost of a calibration pass, as a ratio to a pass of the float model over the same data.

python benchmarks/calibrating.py [resnet8 mobilenet_v2 resnet50]
"""

import functools
from collections.abc import Callable

import numpy as np
from networks import NETWORKS, arguments_for, chosen
from rounds import interleaved, print_ratios

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
        "float predict": functools.partial(source.predict, images, batch_size=BATCH, verbose=0)
    }
    for method in methods:
        calls[method] = functools.partial(
            qdq.calibrate, q_model, images, method=method, batch_size=BATCH, verbose=False
        )
    print_ratios(f"{name}, {shape[0]} images", interleaved(calls, rounds=3), "float predict")


def main() -> None:
    """Measure the networks named on the command line, or all of them."""
    parser = arguments_for(__doc__)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, help="which methods")
    arguments = parser.parse_args()
    for name in chosen(arguments):
        measure(name, arguments.methods)


if __name__ == "__main__":
    main()
