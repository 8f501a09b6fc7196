"""`make fuzz`: random models until the time is up; prints what was tried and every failure as a program."""

from __future__ import annotations

import argparse
import collections
import contextlib
import logging
import os
import pathlib
import sys
import tempfile
import time
import traceback
import warnings

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import hypothesis
import keras
from fuzz import invariants
from fuzz.graphs import data_of, programs
from fuzz.specs import specs
from hypothesis import strategies as st

import qdq_workbench as qdq

logging.getLogger("tensorflow").setLevel(logging.ERROR)
TARGETS = ("tensorrt", "onnxruntime", "openvino")


def main():
    """Try models; exit status 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="when to stop (default: 10)")
    parser.add_argument("--count", type=int, default=10**9, help="how many models at most")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other models (default: 0)")
    parser.add_argument("--steps", type=int, default=16, help="steps per model at most (default: 16)")
    options = parser.parse_args()
    campaign = Campaign(options)
    campaign.run()
    sys.exit(1 if campaign.failures else 0)


class Campaign:
    """Counts what was tried and keeps what failed, one program per kind of failure."""

    def __init__(self, options):
        self.options = options
        self.until = time.monotonic() + 60 * options.minutes
        self.tried = 0
        self.whole = 0
        self.layers = collections.Counter()
        self.refusals = collections.Counter()
        self.failures = {}

    def run(self):
        batch = 0
        while not self._is_over():
            self._batch(self.options.seed * 10**6 + batch)
            batch += 1
            keras.backend.clear_session()
        print(f"{self.tried} models tried, {self.whole} taken the whole way, {len(self.failures)} kinds of failure")
        print(f"{sum(self.layers.values())} nodes of {len(self.layers)} classes")
        for text, count in self.refusals.most_common():
            print(f"refused by name {count} times: {text}")

    def _batch(self, seed):
        """Draw twenty models; failures are noted, never raised, so that the next ones are still drawn."""

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=20,
            deadline=None,
            database=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(programs(self.options.steps // 4, self.options.steps, hard=True), st.data())
        def attempt(program, data):
            if not self._is_over():
                self._attempt(program, data)

        try:
            attempt()
        except hypothesis.errors.Flaky:  # where the time runs out, nothing more is drawn of a program
            if not self._is_over():
                raise

    def _is_over(self):
        return time.monotonic() >= self.until or self.tried >= self.options.count

    def _attempt(self, program, data):
        self.tried += 1
        target = spec = None
        try:
            kept = program.under_its_policy() if program.seed % 2 else contextlib.nullcontext()
            with warnings.catch_warnings(), contextlib.ExitStack() as stack:
                warnings.simplefilter("ignore")
                model = program.build()
                stack.enter_context(kept)
                graph = qdq.build_graph(model)
                self.layers.update(node.class_name for node in graph.nodes)
                spec = data.draw(specs(graph, hard=True))
                target = data.draw(st.sampled_from(TARGETS))
                compiled = data.draw(st.booleans())
                with tempfile.TemporaryDirectory() as folder:
                    path = pathlib.Path(folder)
                    q_model = invariants.check_model(
                        model, spec, target, path, program.seed, compiled=compiled, hard=True
                    )
                if q_model is not None:
                    self.whole += 1
                    if self.tried % 4 == 0:
                        invariants.check_training(model, q_model, data_of(model, program.seed))
                    if self.tried % 7 == 0:
                        with tempfile.TemporaryDirectory() as folder:
                            invariants.check_litert(q_model, pathlib.Path(folder))
                if self.tried % 5 == 0:
                    with tempfile.TemporaryDirectory() as folder:
                        invariants.check_broken(model, spec, target, pathlib.Path(folder), program.seed)
        except (hypothesis.errors.StopTest, hypothesis.errors.UnsatisfiedAssumption):
            raise
        except qdq.QDQError as error:
            if isinstance(error, REFUSALS) or any(words in str(error) for words in UNTRANSLATABLE):
                self.refusals[f"{type(error).__name__}: {str(error)[-120:]}"] += 1
            else:
                self._failed(program, target, spec, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._failed(program, target, spec, error)
        if self.tried % 20 == 0:
            print(f"... {self.tried} models, {len(self.failures)} kinds of failure", flush=True)

    def _failed(self, program, target, spec, error):
        where = traceback.extract_tb(error.__traceback__)
        ours = [f"{pathlib.Path(f.filename).name}:{f.name}" for f in where if "site-packages" not in f.filename]
        kind = f"{type(error).__name__} in {' > '.join(ours[-2:])}: {_essence(error)}"
        known = self.failures.get(kind)
        if known is None or len(program.code) < len(known):
            self.failures[kind] = program.code
            print(f"FAILED {kind}\n  {str(error)[:600]}\ntarget={target!r}\nspec={spec and spec.to_dict()}")
            print(repr(program), flush=True)


#: What may be refused: a model or data that cannot be quantized, said so by name. An export that fails is a finding,
#: unless it names an operation that ONNX has no form for, or a tensor that Keras gives a wrong shape.
REFUSALS = (qdq.errors.UnsupportedModelError, qdq.errors.DataError, qdq.errors.SpecError)

UNTRANSLATABLE = ("no ONNX form", "shape than Keras says")


def _essence(error):
    """The first words of a message, without names and figures: one finding is reported once."""
    words = [word for word in str(error).split() if word.isalpha()]
    return " ".join(words[:12])


if __name__ == "__main__":
    main()
