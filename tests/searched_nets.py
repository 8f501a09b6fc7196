"""Networks to search on, and stopwatches and accuracies that a rule stands in for."""

import dataclasses
import itertools
import types
import unittest.mock
from typing import Any

import keras
import numpy as np
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.analysis import search as searching
from qdq_workbench.analysis import search_trials
from qdq_workbench.analysis.levels import FLOAT
from qdq_workbench.analysis.search_trials import Trials


@dataclasses.dataclass(frozen=True)
class Planned:
    """Stands in for the model of a plan where only the plan counts."""

    plan: Any


@dataclasses.dataclass(frozen=True)
class Residual:
    """A calibrated network with what a search of it needs."""

    q_model: Any
    model: Any
    data: Any
    ranking: Any

    def search(self, score=lambda plan: 1.0, **arguments):
        """Search with a score of plans in place of an accuracy: nothing is run, and only what is found is built."""

        def evaluate(model):
            return score(model.plan) if isinstance(model, Planned) else 1.0

        how = {"evaluate": evaluate, "ranking": self.ranking, "verbose": False, **arguments}
        with unittest.mock.patch.object(Trials, "_model_of", lambda trials, levels: Planned(trials.plan(levels))):
            return qdq.search(self.q_model, self.data, **how)


def residual_net():
    """Two equal residual blocks of convolutions, whose sums the defaults leave in float."""
    keras.utils.set_random_seed(5)
    x = image = keras.Input((6, 6, 2), name="image")
    x = layers.Conv2D(4, 3, padding="same", activation="relu", name="stem")(x)
    for block in ("a", "b"):
        y = layers.Conv2D(4, 3, padding="same", activation="relu", name=f"{block}_conv")(x)
        x = layers.Add(name=f"{block}_add")([x, layers.Conv2D(4, 3, padding="same", name=f"{block}_out")(y)])
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(image, layers.Dense(3, name="head")(x), name="residual")


def watch_of(rule, gains=()):
    """Return a stopwatch that a rule of the plan stands in for."""

    class Watch:
        def __init__(self, *_):
            pass

        def ms(self, model, **_):
            return rule(model.plan)

        def profile(self, _):
            return types.SimpleNamespace(gains=gains)

        def close(self):
            pass

    return Watch


def read(plan, layer):
    """Return which inputs of a layer are read quantized."""
    node = plan.graph.calls(layer)[0]
    return [i for i in range(len(node.inputs)) if plan.input_placement(node.name, i) is not None]


def measured_by(monkeypatch, accuracy_of_plan):
    """Let a function of the plan stand in for every measurement of accuracy; return the plans that it was asked for."""
    asked = []

    def known(plan):
        asked.append(plan)
        return accuracy_of_plan(plan)

    class Switched:
        def __init__(self, *_):
            pass

        def measure(self, plan):
            return known(plan)

    def judge_of(*_):
        return lambda model, float_model: 1.0 if model is float_model else known(model.plan)

    monkeypatch.setattr(searching, "SwitchedTrials", Switched)
    monkeypatch.setattr(searching, "judge_of", judge_of)
    return asked


class Clock:
    """A stopwatch that knows all times: layers gain from INT8 or lose, and every change of type between two costs.

    Args:
        seed: Of the gains.
        names: The layers, in their order.
    """

    def __init__(self, seed, names):
        generator = np.random.default_rng(seed)
        self.gains, self.change = generator.normal(0.2, 0.4, len(names)), 0.15
        self.told = self.gains + generator.normal(0.0, 0.05, len(names))
        self.timed = []
        self._names = names

    def __call__(self, *_):
        return self

    def of(self, floats):
        """Return the milliseconds of a run, given 1 for every layer in float."""
        changes = np.abs(np.diff(floats, axis=-1)).sum(-1)
        return 10.0 - (1 - floats) @ self.gains + self.change * changes

    def ms(self, model, **_):
        floats = np.array([not model.plan.for_layer(name).quantize_weight for name in self._names], int)
        self.timed.append(tuple(floats))
        return float(self.of(floats))

    def profile(self, _):
        return types.SimpleNamespace(
            gains=[types.SimpleNamespace(layers=(name,), ms=float(gain), baseline_ms=0.0)
                   for name, gain in zip(self._names, self.told, strict=True)]
        )  # fmt: skip

    def close(self):
        pass


class Chain:
    """A calibrated model of layers in a row, and the accuracies of all placements that it can have.

    Args:
        count: The number of layers, twelve at most.
    """

    def __init__(self, count):
        self._widths = (5, 3, 9, 4, 6, 2, 8, 7, 3, 5, 4, 6)[:count]
        self.names = [f"dense_{number}" for number in range(count)]
        self.every = np.array(list(itertools.product((0, 1), repeat=count)))  # 1 for a layer in float
        keras.utils.set_random_seed(1)
        value = image = keras.Input((4,), name="image")
        for name, width in zip(self.names, self._widths, strict=True):
            value = layers.Dense(width, name=name)(value)
        self._q_model = qdq.quantize_model(keras.Model(image, value), target="onnxruntime")
        self._x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
        qdq.calibrate(self._q_model, self._x, verbose=False)
        self._ranking = qdq.sensitivity(self._q_model, self._x, verbose=False)
        # What layers cost together is not the sum of what they cost alone.
        generator = np.random.default_rng(0)
        alone, together = generator.exponential(0.02, count), generator.normal(0.0, 0.004, (count, count))
        quantized = 1 - self.every
        self.accuracies = 1.0 - quantized @ alone - np.einsum("ni,ij,nj->n", quantized, together, quantized)

    def bytes_and_macs(self):
        """The bytes of weights and the operations in float of all placements, from the shapes alone."""
        kernels = np.array([before * after for before, after in itertools.pairwise((4, *self._widths))])
        return 4 * sum(self._widths) + (1 + 3 * self.every) @ kernels, self.every @ kernels

    def place(self, levels):
        """The row of `every` that has these levels."""
        return int("".join(str(int(levels.get(name) == FLOAT)) for name in self.names), 2)

    def find(self, monkeypatch, **wanted):
        """Search with the known accuracies."""

        def accuracy(plan):
            floats = {name: FLOAT for name in self.names if not plan.for_layer(name).quantize_weight}
            return float(self.accuracies[self.place(floats)])

        measured_by(monkeypatch, accuracy)
        how = {"metric": "cosine", "ranking": self._ranking, "verbose": False}
        return qdq.search(self._q_model, self._x, **how, **wanted)

    def timed(self, monkeypatch, seed, **wanted):
        """Search with a clock of some seed, without building a model per placement; return what is found, and it."""
        monkeypatch.setattr(search_trials, "replan", lambda q_model, plan: types.SimpleNamespace(plan=plan))
        clock = Clock(seed, self.names)
        monkeypatch.setattr(searching, "Stopwatch", clock)
        return self.find(monkeypatch, **wanted), clock
