"""The accuracy of a model in a search: the metric on samples, or the user's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from qdq_workbench.analysis.metrics import Metric, number
from qdq_workbench.analysis.samples import Samples
from qdq_workbench.analysis.sweep import Traces, model_outputs

#: Returns the metric of a model, given the model and the float model.
Judge = Callable[[keras.Model, keras.Model | None], float]


def judge_of(samples: Samples, metric: Metric, traces: Traces | None = None) -> Judge:
    """Return the function that measures the metric of a model on samples.

    Args:
        samples: The samples.
        metric: The metric.
        traces: The traces of models that another judge runs too.
    """
    traces = traces or Traces()
    reference: list[Any] = []

    def judge(model: keras.Model, float_model: keras.Model | None) -> float:
        # At the first call: a resumed search with nothing left to measure runs no model.
        if not reference:
            reference.extend(model_outputs(float_model, samples, traces))
        outputs = reference if model is float_model else model_outputs(model, samples, traces)
        return metric.measure(reference, outputs, samples.labels)

    return judge


def judge_by(evaluate: Callable[[keras.Model], float]) -> Judge:
    """Return the function that calls the user's `evaluate` or `confirm`."""
    name = name_of(evaluate, "evaluate")
    return lambda model, _: number(evaluate(model), f"The function {name!r}")


def name_of(function: Callable[..., Any], otherwise: str) -> str:
    """Return the name of a user's function; `otherwise` for an object without one."""
    return str(getattr(function, "__qualname__", otherwise))
