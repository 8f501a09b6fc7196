"""A small residual network to search on, and a stopwatch that a rule stands in for."""

import dataclasses
import types
import unittest.mock
from typing import Any

import keras
from keras import layers

import qdq_workbench as qdq
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
