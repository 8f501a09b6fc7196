"""Tensors with one value: found where a layer makes one, and nowhere else."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers, ops
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.constant_tensors import constant_tensors


def gain_of_zeros(x, name="norm", **settings):
    """The result of a normalization over all axes that is ones, whatever is normalized."""
    return layers.LayerNormalization(
        axis=(1, 2), gamma_initializer="zeros", beta_initializer="ones", name=name, **settings
    )(x)


def dense(x, name="dense", units=4, **settings):
    return layers.Dense(units, name=name, **settings)(x)


def constants_of(make, shape=(6, 3), spec=None, batch=None, target="litert"):
    keras.utils.set_random_seed(0)
    x = keras.Input(batch_shape=(batch, *shape), name="x")
    model = keras.Model(x, make(x))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    qdq.calibrate(q_model, samples(model)[:batch], verbose=False)
    before = [np.array(variable) for variable in q_model.variables]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = constant_tensors(q_model)
    assert all(map(np.array_equal, before, q_model.variables))
    return found


#: What makes constants -> their names.
MAKERS = {
    "gain of zeros": (gain_of_zeros, ["norm"]),
    "a factor": (lambda x: layers.Rescaling(0.0, offset=0.5, name="scaled")(dense(x)), ["scaled"]),
    "one channel": (lambda x: layers.Softmax(name="softmax")(dense(x, units=1)), ["softmax"]),
    "bounds": (layers.ReLU(max_value=0.0, name="relu"), ["relu"]),
    "itself": (lambda x: layers.Subtract(name="nothing")([x, x]), ["nothing"]),
    "moved": (lambda x: layers.Flatten(name="flat")(gain_of_zeros(x)), ["norm", "flat"]),
    "computed": (lambda x: dense(ops.tanh(gain_of_zeros(x))), ["norm", "tanh", "dense"]),
    "product": (
        lambda x: layers.Multiply(name="product")([dense(x, units=3), ops.subtract(gain_of_zeros(x), 1.0)]),
        ["norm", "subtract", "product"],
    ),
    "sum": (lambda x: layers.Add(name="sum")([x, gain_of_zeros(x)]), ["norm"]),
}


@pytest.mark.filterwarnings("ignore:(?s).*a softmax over axis")  # of Keras, whenever the model is called
@pytest.mark.parametrize("name", MAKERS)
def test_what_no_input_changes_is_found(name):
    make, names = MAKERS[name]
    found = constants_of(make)
    assert [tensor.rstrip("_0123456789") for tensor in found.values] == names


def test_values_are_those_behind_the_pairs_before_them():
    spec = qdq.QuantizationSpec()
    fixed = qdq.LayerQuantizeConfig(activation={"quantizer": "fixed", "init_min": -60.0, "init_max": 67.5})
    spec.add("tanh", quantize_input=True, quantize_config=fixed)
    found = constants_of(
        lambda x: layers.Activation("tanh", name="tanh")(gain_of_zeros(x)), spec=spec, target="tensorrt"
    )
    np.testing.assert_array_equal(found.values["norm"], 1.0)
    ((pair, rounded),) = found.rounded.items()
    step = 67.5 / 127
    assert pair == "norm"
    np.testing.assert_allclose(rounded, 2 * step, rtol=1e-6)
    np.testing.assert_allclose(found.values["tanh"], np.tanh(2 * step), rtol=1e-6)


#: What looks like a constant, to a glance or for some inputs, and is none.
OTHERS = {
    "zeros in one channel": lambda x: layers.LayerNormalization(name="norm")(x) * np.float32([0, 0, 1]),
    "a quantized weight of zeros": lambda x: dense(x, kernel_initializer="zeros"),
    "a normalization in a quantized weight": lambda x: layers.BatchNormalization(gamma_initializer="zeros")(
        dense(x, use_bias=False)
    ),
    "a sign": ops.sign,
    "a scale that is taken out": layers.UnitNormalization(name="unit"),
    "positive numbers": layers.ReLU(name="relu"),
    "negative numbers": layers.ReLU(negative_slope=1.0, max_value=0.0, name="relu"),
    "a wide range": lambda x: ops.maximum(x, 1000.0),
    "the variance over the batch": lambda x: ops.var(x, axis=0, keepdims=True),
    "the means of a batch": lambda x: layers.BatchNormalization(name="norm")(x, training=True),
    "a size that no other batch has": lambda x: ops.reshape(ops.reshape(x, (-1, 3)), (-1, 6, 3)),
    "a dropout": layers.Dropout(0.9, name="drop"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_an_input_changes_is_not(name):
    assert not constants_of(OTHERS[name]).values


def test_an_axis_of_an_open_length_may_have_more_than_one_element():
    x = keras.Input((None, 1), name="x")
    model = keras.Model(x, ops.var(x, axis=1))
    q_model = qdq.quantize_model(model, target="litert")
    qdq.calibrate(q_model, np.ones((2, 5, 1), "float32"), verbose=False)
    assert not constant_tensors(q_model).values


def test_a_batch_of_one_has_no_variance():
    assert list(constants_of(OTHERS["the variance over the batch"], batch=1).values)
