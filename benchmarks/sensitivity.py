"""Cost of a sensitivity sweep per layer, as a ratio to a pass of the float model over the same data.

python benchmarks/sensitivity.py [resnet8 mobilenet_v2 resnet50]

"rebuilding" is what the same value costs without switches: quantize the model for one layer alone, trace it and run
it. "building and tracing once" is what a sweep needs before its first layer.
"""

import functools
import time

import numpy as np
from networks import NETWORKS, arguments_for, chosen
from rounds import interleaved, print_ratios

import qdq_workbench as qdq
from qdq_workbench.analysis.samples import read_samples
from qdq_workbench.analysis.sweep import Sweep, model_outputs

BATCH, BATCHES = 32, 8


def sweep_of(sweep: Sweep, mode: str) -> None:
    """Run every layer by itself; the base is kept already."""
    everything = frozenset(sweep.switches)
    for layer in dict(sweep.switches):
        own = frozenset(switch for switch in everything if switch[0] == layer)
        sweep.outputs(own if mode == "one_on" else everything - own)


def measure(name: str, rounds: int) -> None:
    """Print the ratios for one network."""
    source = NETWORKS[name]()
    shape = (BATCH * BATCHES, *source.input_shape[1:])
    images = np.random.default_rng(0).normal(size=shape).astype("float32")
    q_model = qdq.quantize_model(source)
    qdq.calibrate(q_model, images[:BATCH], verbose=False)
    samples = read_samples(q_model, images, BATCH)
    started = time.perf_counter()
    cut, whole = Sweep(q_model, samples), None
    building = time.perf_counter() - started
    whole = Sweep(q_model, samples, cache_bytes=0)
    layers = len(dict(cut.switches))
    first = next(iter(dict(cut.switches)))
    spec = qdq.QuantizationSpec()
    spec.add(first)
    calls = {"float predict": functools.partial(source.predict, images, batch_size=BATCH, verbose=0)}
    for mode, base in (("one_on", ()), ("one_off", cut.switches)):
        for label, sweep in (("", cut), (" without segments", whole)):
            sweep.keep(base)
            calls[f"{mode}{label}"] = functools.partial(sweep_of, sweep, mode)
    calls["rebuilding"] = lambda: model_outputs(qdq.quantize_model(source, "partial", spec), samples)
    seconds = {}
    for call, value in interleaved(calls, rounds).items():
        seconds[call] = value / layers if call.startswith("one_") else value
    print_ratios(f"{name}, {layers} layers, {shape[0]} images, per layer", seconds, "float predict")
    passes = building / seconds["float predict"]
    print(f"  building and tracing once {passes:.1f} passes, in {len(cut.cuts) + 1} segments", flush=True)


def main() -> None:
    """Measure the networks named on the command line, or all of them."""
    parser = arguments_for(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    options = parser.parse_args()
    for name in chosen(options):
        measure(name, options.rounds)


if __name__ == "__main__":
    main()
