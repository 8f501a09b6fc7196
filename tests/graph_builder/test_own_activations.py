"""How activations that a user wrote begin, and what ONNX Runtime makes of the products in front of them."""

import itertools

import keras
import numpy as np
import onnx
import pytest
from agreement.statuses import compare
from keras import layers, ops

import qdq_workbench as qdq
from qdq_workbench.graph.activations import BEGINS, CLIP, SUM_AND_CLIP
from qdq_workbench.graph_builder.own_activations import beginning


def raised(x):
    return ops.relu(x) + 1.0


def shifted(x):
    return ops.relu6(x + 3.0) * 0.5


def read_twice(x):
    cut = ops.relu(x)
    return cut * cut + cut


def clipped(x):
    return 2.0 * ops.clip(x, -1.0, 1.0)


def gated(x):
    return x * ops.relu(x)


def refused(x):
    raise TypeError(x)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (raised, CLIP),
        (clipped, CLIP),
        (shifted, SUM_AND_CLIP),
        (read_twice, None),
        (gated, None),
        (refused, None),
        (lambda x: x + 3.0, None),
        (ops.relu, None),
        (keras.activations.hard_sigmoid, None),
        (None, None),
    ],
)
def test_what_a_function_begins_with(function, found):
    assert beginning(function) == ({} if found is None else {BEGINS: found})


def test_products_in_front_of_them_run_as_is_said(tmp_path):
    inputs = [keras.Input((4,), name="row"), keras.Input((6, 4), name="steps")]
    outputs = []
    for x, units, biased, own in itertools.product(inputs, (1, 2), (True, False), (True, False)):
        for function in (raised, read_twice, *([shifted] if own else [])):
            name = f"{x.name}_{units}_{biased}_{own}_{function.__name__}"
            settings = {"use_bias": biased, "bias_initializer": "normal"}
            y = layers.Dense(units, activation=function if own else None, name=name, **settings)(x)
            outputs.append(y if own else layers.Activation(function, name=f"{name}_behind")(y))
    outputs.append(layers.Dense(3, name="last")(outputs[0]))
    q_model = qdq.quantize_model(keras.Model(inputs, outputs), target="onnxruntime")
    data = [np.random.default_rng(0).normal(size=(8, *x.shape[1:])).astype("float32") for x in inputs]
    qdq.calibrate(q_model, data, verbose=False)
    explanation = qdq.explain(q_model)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    compared, differing = compare(explanation, onnx.load(path), tmp_path)
    assert compared > len(outputs)
    assert differing == []
    assert "begins with a ReLU" in explanation.summary()
