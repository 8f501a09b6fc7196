"""Causes at weights: which axis of a kernel reads the channels of its input."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import qdq_workbench as qdq

LAYERS = keras.layers


def transposed(image):
    return LAYERS.Conv2DTranspose(8, 3, name="wide")(image)


def einsum(image):
    return LAYERS.EinsumDense("abcd,def->abcef", output_shape=(6, 6, 8, 3), name="wide")(image)


@pytest.mark.parametrize(("layer", "inputs", "outputs"), [(transposed, 3, 2), (einsum, 0, 1)])
def test_dead_channels_are_those_of_the_input(layer, inputs, outputs):
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 8), name="image")
    model = keras.Model(image, LAYERS.Dense(2, name="head")(LAYERS.Flatten()(layer(image))))
    x = np.random.default_rng(0).normal(size=(64, 6, 6, 8)).astype("float32")
    x[..., 5] = 0.0
    wide = model.get_layer("wide")
    kernel = np.array(wide.kernel)
    # The weights of the output channel 5 are live, however wide they are.
    np.moveaxis(kernel, outputs, 0)[5] *= 40.0
    np.moveaxis(kernel, inputs, 0)[5] *= 0.0
    wide.kernel.assign(kernel)
    assert "dead_channels" not in [cause.kind for cause in qdq.diagnose(model, x, verbose=False).causes]

    np.moveaxis(kernel, outputs, 0)[5] /= 40.0
    np.moveaxis(kernel, inputs, 0)[5] = 40.0
    wide.kernel.assign(kernel)
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, x, verbose=False)
    found = qdq.diagnose(q_model, x, verbose=False)
    causes = [cause for cause in found.causes if cause.kind == "dead_channels"]
    assert [cause.tensor for cause in causes] == ["wide/kernel"]
    fixed = np.array(found.apply(causes[0], verbose=False).get_layer("quant_wide").layer.kernel)
    assert not np.moveaxis(fixed, inputs, 0)[5].any()
    assert np.moveaxis(fixed, inputs, 0)[:5].all()
