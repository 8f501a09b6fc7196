"""Cost of `quantize_model`, as a ratio to `clone_model` plus `set_weights`, and its peak memory.

python benchmarks/quantizing.py
"""

import gc
import multiprocessing
import pathlib

import keras
from networks import application
from rounds import interleaved, print_ratios

import qdq_workbench as qdq

NETWORKS = {"MobileNetV2": 64, "ResNet50": 64, "EfficientNetB7": 64}
_KIB_PER_MIB = 1024.0


def cloned(model: keras.Model) -> keras.Model:
    """Copy a model the way Keras offers."""
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    return copy


def measure(name: str) -> None:
    """Print the ratio for one network."""
    model = application(name, NETWORKS[name])
    plan = qdq.plan_placement(model)
    candidates = {
        "clone_model + set_weights": lambda: cloned(model),
        "quantize_model": lambda: qdq.quantize_model(model),
        "quantize_model with a plan": lambda: qdq.quantize_model(model, plan=plan),
    }
    rounds = 3 if name == "EfficientNetB7" else 5
    print_ratios(name, interleaved(candidates, rounds), "clone_model + set_weights")


def resident(field: str) -> float:
    """Return a figure of this process's memory in MiB: `VmRSS` now, `VmHWM` its peak. Linux only."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split(f"{field}:")[1].split()[0]) / _KIB_PER_MIB


def peak(name: str, copy: str, queue: multiprocessing.Queue) -> None:
    """Put the growth of the process's peak memory, in MiB, that one way of copying causes."""
    model = application(name, NETWORKS[name])
    gc.collect()
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak counts from here
    before = resident("VmRSS")
    kept = cloned(model) if copy == "clone" else qdq.quantize_model(model)
    queue.put((resident("VmHWM") - before, kept.count_params()))


def measure_memory(name: str) -> None:
    """Print by how much copying a model raises the peak memory of a fresh process."""
    context = multiprocessing.get_context("spawn")
    growth = {}
    for copy in ("clone", "quantize"):
        queue = context.Queue()
        process = context.Process(target=peak, args=(name, copy, queue))
        process.start()
        growth[copy], parameters = queue.get()
        process.join()
    print(
        f"{name}: {4 * parameters / 2**20:.0f} MiB of parameters; peak memory grows by {growth['clone']:.0f} MiB for "
        f"clone_model + set_weights, by {growth['quantize']:.0f} MiB for quantize_model",
        flush=True,
    )


def main() -> None:
    """Measure every network."""
    for name in NETWORKS:
        measure(name)
    measure_memory("EfficientNetB7")


if __name__ == "__main__":
    main()
