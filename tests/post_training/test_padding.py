"""Corrections that read data do not depend on what stands at padded positions, unless a layer reads it."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.correction import correct_biases, gptq_weights, learn_rounding, smooth_scales
from qdq_workbench.errors import DataError

X = np.array([[1 + (place * 5 + step) % 15 if step <= place % 4 else 0 for step in range(8)] for place in range(24)])


def net(padding=0.0, *, readers="Dense"):
    """Return a model of padded tokens; what its table holds for a padded one."""
    keras.utils.set_random_seed(0)
    tokens = keras.Input((8,), dtype="int32", name="tokens")
    hidden = layers.Embedding(16, 6, mask_zero=True, embeddings_initializer="normal", name="table")(tokens)
    hidden = layers.Dense(6, activation="relu", name="first")(hidden)
    second = layers.Dense(4, name="second") if readers == "Dense" else layers.Conv1D(4, 1, name="second")
    model = keras.Model(tokens, second(hidden))
    table = model.get_layer("table").embeddings
    table.assign(np.concatenate([np.full((1, 6), padding) * np.arange(-2, 4), 20 * table.numpy()[1:]]))
    model.get_layer("first").kernel.assign(model.get_layer("first").kernel * np.linspace(0.2, 3.0, 6))
    return model


def quantized(padding):
    model = net(padding)
    coarse = qdq.LayerQuantizeConfig(weight={"num_bits": 3})
    spec = qdq.QuantizationSpec()
    spec.add("second", quantize_config=coarse, quantize_input=False)
    return qdq.quantize_model(model, "partial", spec, target="onnxruntime")


def biases(padding, x=X, **kwargs):
    return correct_biases(net(padding, **kwargs), x).get_layer("second").bias.numpy()


def gains(padding, x=X):
    return smooth_scales(net(padding), x).get_layer("second").kernel.numpy()


def matrix(padding, x=X):
    report = gptq_weights(q_model := quantized(padding), x, verbose=False)
    return [q_model.get_layer("quant_second").layer.kernel.numpy(), report.units[0].nearest_error]


def learned(padding, x=X):
    report = learn_rounding(q_model := quantized(padding), x, steps=5, verbose=False)
    return [q_model.get_layer("quant_second").layer.bias.numpy(), report.units[0].nearest_error]


@pytest.mark.parametrize("correction", [biases, gains, matrix, learned])
def test_what_stands_at_padded_positions_does_not_count(correction):
    for one, other in zip(correction(0.0), correction(0.1), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore:Layer .second. .of type Conv1D. was passed:UserWarning")
def test_a_convolution_reads_padding():
    one, other = (biases(padding, readers="Conv1D") for padding in (0.0, 0.1))
    assert np.abs(one - other).max() > 1e-6


@pytest.mark.parametrize("correction", [biases, gains])
def test_padding_alone_is_refused(correction):
    with pytest.raises(DataError, match="padding alone"):
        correction(0.0, np.zeros_like(X))
