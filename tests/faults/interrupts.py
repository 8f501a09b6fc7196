"""Ctrl-C at random moments of our calls, each followed by calls that must go as if nothing had been.

python tests/faults/interrupts.py --count 500 --seed 0
"""

from __future__ import annotations

import argparse
import collections
import gc
import importlib
import logging
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import traceback

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state

import qdq_workbench as qdq
from qdq_workbench.wrappers.float_only import computes_float

KINDS = ("quantize_model", "calibrate", "export_onnx", "verify_onnx", "retarget", "strip")


def network():
    """A model with normalizations to fold, a shared layer and a recurrent one: every way of rebuilding."""
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 2), name="image")
    x = keras.layers.Conv2D(3, 3, padding="same", use_bias=False, name="conv")(image)
    x = keras.layers.ReLU(name="relu")(keras.layers.BatchNormalization(name="bn")(x))
    x = keras.layers.Reshape((12, 9), name="rows")(x)
    shared = keras.layers.Dense(4, activation="swish", name="shared")
    x = keras.layers.Concatenate(name="joined")([shared(x), shared(x * 0.5)])
    return keras.Model(image, keras.layers.Dense(2, name="head")(keras.layers.GRU(3, name="gru")(x)))


class Trials:
    """Interrupts calls and compares what comes behind them with what came before the first interrupt.

    Args:
        folder: Where files are written.
        seed: Of the moments.
        kinds: The kinds of calls that will be interrupted.
    """

    def __init__(self, folder: pathlib.Path, seed: int, kinds: tuple[str, ...] = KINDS) -> None:
        self.folder, self.random = folder, random.Random(seed)  # noqa: S311 - no secrets
        self.counts: collections.Counter[str] = collections.Counter()
        self.model = network()
        self.images = np.random.default_rng(0).normal(size=(16, 6, 6, 2)).astype("float32")
        self.q_model = self._quantized()
        self.state = process_state()
        self.durations: dict[str, float] = {}
        self.expected = {}
        for kind in kinds:
            self.call(kind)
            self.expected[kind] = self.call(kind)

    def run(self, kind: str) -> str:
        """Interrupt one call at a random moment; return "interrupted" or "finished" (it was over before).

        Raises:
            AssertionError: If a later call or the process is disturbed.
        """
        outcome = self._interrupted(kind, self.random.uniform(0.0, self.durations[kind]))
        self.counts[f"{kind} {outcome}"] += 1
        assert process_state() == self.state, (process_state(), self.state)
        for later in (kind, "quantize_model"):
            assert same(self.call(later), self.expected[later]), f"{later} gives another result"
        left = [path.name for path in self.folder.iterdir() if path.name != "model.onnx"]
        assert not left, f"left behind: {left}"
        return outcome

    def call(self, kind: str) -> object:
        """Make a call and return what can be compared of its result; its time is what the next moment is drawn from."""
        started = time.monotonic()
        result: object = getattr(self, f"_{kind}")()
        self.durations[kind] = time.monotonic() - started
        return result

    def _interrupted(self, kind: str, delay: float) -> str:
        over = []
        timer = threading.Timer(delay, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        try:
            timer.start()
            self.call(kind)
            over.append(True)
            timer.cancel()
            timer.join()
        except KeyboardInterrupt:
            if not over:
                return "interrupted"
        return "finished"

    def _quantized(self) -> qdq.QuantizedModel:
        q_model = qdq.quantize_model(self.model, target="onnxruntime")
        qdq.calibrate(q_model, self.images, batch_size=4, verbose=False)
        return q_model

    def _quantize_model(self) -> object:
        q_model = qdq.quantize_model(self.model, target="onnxruntime")
        return q_model.plan.to_dict(), [value.numpy() for value in q_model.variables]

    def _calibrate(self) -> object:
        q_model = self.q_model
        if self.random.random() < 0.5:  # one that has no function yet
            q_model = qdq.retarget(q_model, "onnxruntime")
        ranges = qdq.calibrate(q_model, self.images, "percentile", batch_size=4, verbose=True).ranges
        return ranges, np.asarray(q_model(self.images))

    def _export_onnx(self) -> object:
        report = qdq.export_onnx(self.q_model, self.folder / "model.onnx")
        return report.path.read_bytes()

    def _verify_onnx(self) -> object:
        report = qdq.verify_onnx(self.folder / "model.onnx", self.q_model, self.images)
        return report.passed, [(check.name, check.passed) for check in report.checks]

    def _retarget(self) -> object:
        return [value.numpy() for value in qdq.retarget(self.q_model, "tensorrt").variables]

    def _strip(self) -> object:
        return np.asarray(qdq.strip(self.q_model, bake_weights=True)(self.images))


def process_state() -> dict[str, object]:
    """Return what belongs to the process and must be as it was."""
    keras_state = {key: getattr(global_state.GLOBAL_STATE_TRACKER, key, None) for key in (
        "stateless_scope", "symbolic_scope", "uninitialized_variables", "name_scope_stack", "autocast_scope",
        "current_call_ctx", "custom_objects_scope_dict",
    )}  # fmt: skip
    return {
        **{key: value or None for key, value in keras_state.items()},
        "collector": gc.isenabled(),
        "recursion": sys.getrecursionlimit(),
        "handler": signal.getsignal(signal.SIGINT),
        "eager": tf.executing_eagerly(),
        "functions run eagerly": tf.config.functions_run_eagerly(),
        "call of functions": type(tf.function(len)).__call__.__module__,
        "addition of Keras": importlib.import_module("keras.src.backend.tensorflow.numpy").add.__module__,
        "graph": isinstance(tf.compat.v1.get_default_graph(), tf.__internal__.FuncGraph),
        "float only": computes_float(),
        "levels": [logging.getLogger(name).level for name in ("tf2onnx", "tensorflow")],
        "umask": umask(),
    }


def umask() -> int:
    """Return the umask of the process."""
    current = os.umask(0)
    os.umask(current)
    return current


def same(one: object, other: object) -> bool:
    """Return whether two results are equal, arrays element by element."""
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else one == other


def main():
    """Run trials; exit status 1 where a later call was disturbed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="how many interrupts (default: 500)")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other moments (default: 0)")
    options = parser.parse_args()
    disturbed = []
    with tempfile.TemporaryDirectory() as name:
        trials = Trials(pathlib.Path(name), options.seed)
        print({kind: round(seconds, 2) for kind, seconds in trials.durations.items()}, flush=True)
        interrupted = 0
        while interrupted < options.count:
            often = [1.0 / trials.durations[kind] for kind in KINDS]
            (kind,) = trials.random.choices(KINDS, often)
            try:
                interrupted += trials.run(kind) == "interrupted"
            except Exception as error:  # noqa: BLE001 - whatever a disturbed process raises
                interrupted += 1
                disturbed.append(f"{kind}: {type(error).__name__}: {error}"[:500])
                print("DISTURBED", disturbed[-1], flush=True)
                traceback.print_exc(limit=-3)
                keras.backend.clear_session()
                trials = Trials(pathlib.Path(name), options.seed + interrupted)
            if interrupted % 50 == 0:
                print(interrupted, dict(trials.counts), flush=True)
    print(f"{interrupted} interrupts, {len(disturbed)} disturbed: {dict(sorted(trials.counts.items()))}")
    sys.exit(1 if disturbed else 0)


if __name__ == "__main__":
    main()
