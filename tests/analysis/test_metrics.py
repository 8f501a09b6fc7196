"""Metrics: values worked out by hand, directions, and what they refuse."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from qdq_workbench.analysis import metrics
from qdq_workbench.analysis.metrics import METRICS, Metric, get_metric
from qdq_workbench.errors import DataError

OUTPUTS = arrays.arrays(np.float32, (4, 3), elements=st.floats(-8, 8, width=32))


def test_every_metric_states_unit_direction_and_has_a_docstring():
    units = {name: (metric.unit, metric.higher_is_better) for name, metric in METRICS.items()}

    assert units == {
        "sqnr": ("dB", True),
        "mse": ("", False),
        "kl": ("nats", False),
        "cosine": ("", True),
        "accuracy": ("", True),
    }
    assert all(metric.function.__doc__ for metric in METRICS.values())


@given(OUTPUTS)
def test_equal_outputs_have_the_best_value(outputs):
    best = {"sqnr": math.inf, "mse": 0.0, "kl": 0.0, "cosine": 1.0}

    for name, value in best.items():
        assert METRICS[name].measure([outputs], [outputs]) == pytest.approx(value)


@given(OUTPUTS, OUTPUTS)
def test_no_value_is_better_than_the_best(reference, outputs):
    assert METRICS["mse"].measure([reference], [outputs]) >= 0
    assert METRICS["kl"].measure([reference], [outputs]) >= -1e-9
    assert METRICS["cosine"].measure([reference], [outputs]) <= 1 + 1e-9


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e6])
def test_sqnr_is_relative(scale):
    reference = scale * np.array([[1.0, 2.0], [2.0, 4.0]], np.float32)
    outputs = reference + scale * np.array([[0.5, 0.0], [0.0, 0.0]], np.float32)

    assert metrics.sqnr(reference, outputs) == pytest.approx(10 * math.log10(25 / 0.25))


def test_sqnr_of_a_silent_reference():
    zeros, ones = np.zeros((2, 2)), np.ones((2, 2))

    assert metrics.sqnr(zeros, zeros) == math.inf
    assert metrics.sqnr(zeros, ones) == -math.inf
    assert metrics.cosine(zeros, zeros) == 1.0
    assert metrics.cosine(zeros, ones) == 0.0


def test_kl_of_logits_is_that_of_their_softmax():
    logits = np.array([[1.0, 3.0, -2.0]])
    changed = np.array([[1.5, 2.0, -2.0]])
    softmax = [np.exp(x) / np.exp(x).sum() for x in (logits, changed)]

    assert metrics.kl(logits, changed) == pytest.approx(metrics.kl(*softmax))
    assert metrics.kl(logits, logits + 5) == pytest.approx(0.0, abs=1e-12)


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    outputs: list
    labels: list
    share: float


@pytest.mark.parametrize(
    "row",
    [
        Row("classes", [[0.1, 0.9], [0.8, 0.2]], [1, 1], 0.5),
        Row("a column", [[0.1, 0.9], [0.8, 0.2]], [[1], [0]], 1.0),
        Row("one-hot", [[0.1, 0.9], [0.8, 0.2]], [[0, 1], [0, 1]], 0.5),
        Row("probabilities of one class", [[0.7], [0.3]], [1, 1], 0.5),
        Row("logits of one class", [[0.7], [-0.3]], [1, 0], 1.0),
        Row("pixels", [[[0.1, 0.9], [0.8, 0.2]]], [[1, 0]], 1.0),
    ],
    ids=lambda row: row.name,
)
def test_accuracy_is_the_share_of_right_predictions(row):
    outputs = np.array(row.outputs)

    assert METRICS["accuracy"].measure([outputs], [outputs], [np.array(row.labels)]) == row.share


def test_several_outputs_count_as_the_worst():
    reference = [np.ones((2, 2)), np.ones((2, 2))]
    outputs = [np.ones((2, 2)), np.full((2, 2), 1.1)]

    assert METRICS["mse"].measure(reference, outputs) == pytest.approx(0.01)
    assert METRICS["sqnr"].measure(reference, outputs) == pytest.approx(20.0)
    assert math.isnan(METRICS["mse"].measure(reference, [outputs[0], np.full((2, 2), np.nan)]))


def test_functions_are_metrics():
    def errors(reference, outputs, scale=1.0):
        return scale * float(np.abs(reference - outputs).sum())

    def hits(reference, outputs, labels):
        return float((outputs == labels).mean())

    errors.unit, errors.higher_is_better = "V", False
    one, other = get_metric(errors), get_metric(hits)

    assert (one.unit, one.higher_is_better, one.needs_labels) == ("V", False, False)
    assert one.measure([np.zeros(2)], [np.ones(2)]) == 2.0
    assert (other.higher_is_better, other.needs_labels) == (True, True)
    assert other.measure([np.zeros(2)], [np.ones(2)], [np.array([1, 0])]) == 0.5
    assert get_metric(one) is one


def test_a_function_gets_all_outputs_of_a_model_with_several():
    metric = get_metric(lambda reference, outputs: float(len(outputs)))

    assert metric.measure([np.zeros(2)] * 3, [np.ones(2)] * 3) == 3.0


@pytest.mark.parametrize(
    ("metric", "arguments", "says"),
    [
        ("accuracy", ([np.ones((2, 3))], [np.ones((2, 3))]), "labels"),
        ("accuracy", ([np.ones((2, 3))], [np.ones((2, 3))], [np.ones(5)]), "do not fit"),
        ("accuracy", ([np.ones((2, 1))], [np.ones((2, 1))], [np.array([1.0, 0.25])]), "regression.*such as 0.25"),
        ("accuracy", ([np.ones((2, 3))], [np.ones((2, 3))], [np.array([1.0, np.nan])]), "regression.*such as nan"),
        ("accuracy", ([np.ones((2, 3))] * 2, [np.ones((2, 3))] * 2, [np.ones(2)]), "labels for each"),
    ],
)
def test_labels_that_do_not_fit_are_named(metric, arguments, says):
    with pytest.raises(DataError, match=says):
        METRICS[metric].measure(*arguments)


@pytest.mark.parametrize("wrong", ["sqrn", 3, None])
def test_an_unknown_metric_is_named(wrong):
    with pytest.raises(DataError, match="A metric is one of"):
        get_metric(wrong)


@pytest.mark.parametrize("function", [lambda model: 1.0, lambda a, b, c, d: 1.0, lambda: 1.0])
def test_a_function_of_other_arguments_is_refused_before_the_sweep(function):
    with pytest.raises(DataError, match="another number of arguments"):
        get_metric(function)


def test_a_metric_is_a_value():
    assert Metric("m", "", metrics.mse) == Metric("m", "", metrics.mse)
