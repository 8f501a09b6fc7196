"""Reading activation tensors: in float and as the quantized model computes them."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq


@pytest.fixture(scope="module")
def q_model():
    keras.utils.set_random_seed(0)
    image = keras.Input((4,), name="image")
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="relu", name="dense")], name="inner")
    model = keras.Model(image, layers.Dense(2, name="head")(inner(image)))
    made = qdq.quantize_model(model)
    qdq.calibrate(made, DATA, verbose=False)
    return made


DATA = np.random.default_rng(0).standard_normal((10, 4)).astype("float32")


def test_values_are_those_of_the_float_model_and_of_the_quantized_one(q_model):
    batches = list(qdq.tensor_values(q_model, DATA, compare=True, batch_size=4))
    assert [len(batch.float["head"]) for batch in batches] == [4, 4, 2]
    name = next(name for name in batches[0].float if name.startswith("inner"))
    assert set(batches[0].float) == {"image", "head", name}
    quantized = np.concatenate([batch.quantized["head"] for batch in batches])
    np.testing.assert_array_equal(quantized, q_model.predict(DATA, verbose=0))
    floats = np.concatenate([batch.float["head"] for batch in batches])
    np.testing.assert_allclose(floats, qdq.strip(q_model)(DATA), rtol=1e-6)
    assert not np.array_equal(floats, quantized)
    assert q_model.quantization_enabled


def test_steps_end_the_reading_and_nothing_is_compared_unasked(q_model):
    batches = list(qdq.tensor_values(q_model, DATA, ["image"], steps=1, batch_size=4))
    assert len(batches) == 1
    assert batches[0].quantized is None
    np.testing.assert_array_equal(batches[0].float["image"], DATA[:4])


def test_a_model_that_is_switched_off_is_compared_and_stays_off(q_model):
    wanted = [batch.quantized["head"] for batch in qdq.tensor_values(q_model, DATA, ["head"], compare=True)]
    q_model.quantization_enabled = False
    try:
        found = [batch.quantized["head"] for batch in qdq.tensor_values(q_model, DATA, ["head"], compare=True)]
        assert not q_model.quantization_enabled
        assert all(layer.bypassed for layer in q_model.quantizing_layers)
    finally:
        q_model.quantization_enabled = True
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("function", ["tensor_values", "correct_biases", "smooth_scales"])
def test_no_batch_beyond_steps_is_taken_from_an_iterator(q_model, function):
    batches = iter([DATA] * 4)
    if function == "tensor_values":
        list(qdq.tensor_values(q_model, batches, ["image"], steps=2))
    else:
        image = keras.Input((4,), name="image")
        norm = layers.LayerNormalization(name="norm")(image)
        getattr(qdq.correction, function)(keras.Model(image, layers.Dense(2, name="head")(norm)), batches, steps=2)
    assert len(list(batches)) == 2


def test_steps_are_counts(q_model):
    with pytest.raises(qdq.errors.DataError, match="steps must be an integer from 1 on"):
        qdq.tensor_values(q_model, DATA, steps=0)


def test_an_unknown_tensor_shows_the_nearest_names(q_model):
    with pytest.raises(qdq.SpecError, match="Did you mean 'head'"):
        qdq.tensor_values(q_model, DATA, ["heda"])
    with pytest.raises(qdq.errors.NotQuantizedError):
        qdq.tensor_values(qdq.strip(q_model), DATA)


def test_weights_are_those_of_the_float_model_by_the_names_of_the_plan(q_model):
    values = qdq.weight_values(q_model)
    assert {tensor.name for tensor in q_model.plan.tensors if tensor.kind == "weight"} <= set(values)
    kernel = qdq.strip(q_model).get_layer("head").kernel.numpy()
    np.testing.assert_array_equal(values["head/kernel"], kernel)
    codes = qdq.integer_weights(q_model)["head/kernel"]
    assert np.abs(codes.dequantize() - kernel).max() <= codes.scale.max() / 2 * (1 + 1e-6)
