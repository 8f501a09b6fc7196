"""Arguments of the wrong kind for `sensitivity`, `search`, `diagnose` and `explain`: a named error with a remedy."""

import functools

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import DataError, QDQError, SpecError, UnbuiltModelError, UnsupportedModelError


@pytest.fixture(scope="module")
def small():
    keras.utils.set_random_seed(0)
    image = keras.Input((4,), name="image")
    model = keras.Model(image, layers.Dense(3, name="head")(layers.Dense(4, name="hidden")(image)))
    x = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    return model, (x, np.arange(16) % 3)


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"evaluate": "accuracy"}, DataError, "evaluate must be a function"),
        ({"stop": True}, DataError, "stop must be a function"),
        ({"progress": 3}, DataError, "progress must be a function"),
        ({"ranking": "head"}, DataError, "ranking must be a SensitivityReport"),
        ({"spec": "head"}, SpecError, "spec must be the QuantizationSpec"),
        ({"accuracy_floor": np.array([0.5, 0.6])}, DataError, "accuracy_floor must be a number"),
        ({"n_jobs": "two"}, DataError, "n_jobs must be an integer"),
        ({"steps": 0}, DataError, "steps must be an integer from 1 on"),
    ],
    ids=str,
)
def test_search_says_what_it_takes(small, wrong, error, said):
    model, data = small
    with pytest.raises(error, match=said) as caught:
        qdq.search(model, data, verbose=False, **{"accuracy_floor": 0.5, **wrong})
    assert "Received: " in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"layers": "head"}, r"layers must be a list of layer names"),
        ({"layers": 3}, r"layers must be a list of layer names"),
        ({"layers": [None]}, "Known names: 'head', 'hidden'"),
        ({"layers": ["heat"]}, "Did you mean 'head'"),
        ({"stop": "later"}, "stop must be a function"),
        ({"n_jobs": 0}, "n_jobs must be an integer"),
        ({"steps": "all"}, "steps must be an integer"),
    ],
    ids=str,
)
def test_sensitivity_says_what_it_takes(small, wrong, said):
    model, (x, _) = small
    with pytest.raises(QDQError, match=said):
        qdq.sensitivity(model, x, verbose=False, **wrong)


@pytest.mark.parametrize("name", [3, None, ["head"]])
def test_names_that_are_no_text_are_not_found(small, name):
    with pytest.raises(SpecError, match="The plan has no layer of that name"):
        qdq.explain(small[0]).for_layer(name)


def test_layers_that_are_called_several_times_are_measured(small):
    """Such a model is not cut into segments, which Keras cannot make."""
    image, shared = keras.Input((4,), name="image"), layers.ReLU(name="shared")
    x = layers.Dense(4, name="first")(image)
    x = layers.Dense(4, name="second")(shared(x))
    model = keras.Model(image, layers.Dense(3, name="head")(shared(x)))
    report = qdq.sensitivity(model, small[1][0], verbose=False)
    assert [entry.layer for entry in report.entries] == ["first", "second", "head"]


class Subclassed(keras.Model):
    """A model without a graph."""

    def call(self, inputs):
        return inputs


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (Subclassed, UnsupportedModelError, "The model is subclassed"),
        (lambda: keras.Sequential([layers.Dense(3)]), UnbuiltModelError, "The Sequential model is not built"),
        (lambda: "model.keras", UnsupportedModelError, "A Keras 3 model .* was expected"),
    ],
    ids=["subclassed", "unbuilt", "no model"],
)
@pytest.mark.parametrize("measure", [qdq.sensitivity, qdq.diagnose, functools.partial(qdq.search, accuracy_floor=0.5)])
def test_models_that_cannot_be_measured_are_refused_as_everywhere(small, measure, make, error, said):
    _, data = small
    with pytest.raises(error, match=said) as caught:
        measure(make(), data, verbose=False)
    assert "Received: " in str(caught.value)
