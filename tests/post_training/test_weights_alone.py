"""Weights alone have the widths that the page promises, and no others."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import SpecError


@pytest.fixture(scope="module")
def model():
    row = keras.Input((32,), name="row")
    return keras.Model(row, layers.Dense(4, name="head")(row))


@pytest.mark.parametrize("num_bits", [1, 9, 0, -4, True, 4.0, "4"])
def test_other_widths_are_refused(model, num_bits):
    with pytest.raises(SpecError, match=r"2 to 8 bits.*Received: num_bits="):
        qdq.correction.weights_alone(model, num_bits)


@pytest.mark.parametrize("num_bits", [2, 8, np.int64(4)])
def test_the_documented_ones_are_planned(model, num_bits):
    spec = qdq.correction.weights_alone(model, num_bits, None)
    (pair,) = qdq.plan_placement(model, "partial", spec, target="onnxruntime").tensors
    assert pair.quantizer.num_bits == num_bits
