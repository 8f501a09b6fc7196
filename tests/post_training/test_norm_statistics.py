"""Statistics of batch normalizations taken anew: exact, behind quantized layers, undone where it fails."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.correction import estimate_statistics
from qdq_workbench.errors import DataError

QUIET = {"verbose": False}


def norms_of(model):
    return [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]


def state_of(model):
    return [np.array(v) for norm in norms_of(model) for v in (norm.moving_mean, norm.moving_variance)]


@pytest.fixture(scope="module")
def samples():
    return np.random.default_rng(0).normal(2.0, 3.0, size=(50, 6, 6, 3)).astype("float32")


@pytest.fixture
def q_model(samples):
    keras.utils.set_random_seed(0)
    value = image = keras.Input((6, 6, 3), name="image")
    for name in ("first", "second"):
        value = layers.DepthwiseConv2D(3, name=name)(value)
        value = layers.ReLU(name=f"{name}_relu")(layers.BatchNormalization(name=f"{name}_norm")(value))
    model = keras.Model(image, layers.Dense(2, name="head")(layers.Flatten(name="flat")(value)))
    spec = qdq.QuantizationSpec()
    spec.add(["first", "second"], quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
    quantized = qdq.quantize_model(model, quantization_spec=spec)
    qdq.calibrate(quantized, samples, **QUIET)
    return quantized


@pytest.mark.parametrize("batch_size", [7, 50])
def test_each_normalization_gets_what_it_reads_behind_the_others(q_model, samples, batch_size):
    told = []
    count = estimate_statistics(
        q_model, samples, batch_size=batch_size, progress=lambda done, of, text: told.append((done, of, text))
    )

    assert count == 2
    assert told == [(1, 2, "first_norm"), (2, 2, "second_norm")]
    for norm in norms_of(q_model):
        read = np.asarray(keras.Model(q_model.inputs, norm.input)([samples], training=False), np.float64)
        np.testing.assert_allclose(norm.moving_mean, read.mean((0, 1, 2)), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(norm.moving_variance, read.var((0, 1, 2)), rtol=1e-5)


def test_a_layer_that_is_called_twice_and_channels_in_front():
    x = np.random.default_rng(1).normal(size=(16, 3, 4)).astype("float32")
    norm = layers.BatchNormalization(axis=1, name="norm")
    image = keras.Input((3, 4), name="image")
    model = keras.Model(image, layers.Add(name="sum")([norm(image), norm(layers.ReLU(name="relu")(image))]))

    assert estimate_statistics(model, x, **QUIET) == 1

    read = np.concatenate([x, np.maximum(x, 0.0)]).astype(np.float64)
    np.testing.assert_allclose(norm.moving_mean, read.mean((0, 2)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(norm.moving_variance, read.var((0, 2)), rtol=1e-5)


def padded_net(given):
    """Return a model of padded tokens: the mask comes from the embedding, or is given to the call."""
    keras.utils.set_random_seed(0)
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    hidden = layers.Embedding(10, 4, mask_zero=not given, name="table")(tokens)
    norm = layers.BatchNormalization(momentum=0.0, name="norm")
    hidden = norm(hidden, mask=keras.ops.not_equal(tokens, 0)) if given else norm(hidden)
    return keras.Model(tokens, layers.Dense(2, name="head")(hidden))


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("quantized", [False, True])
def test_padding_does_not_count(given, quantized):
    x = np.array([[1, 2, 3, 0, 0], [4, 5, 0, 0, 0], [9, 8, 7, 6, 0]])
    source = padded_net(given)
    model = qdq.quantize_model(source) if quantized else source
    if quantized:
        qdq.calibrate(model, x, **QUIET)
    estimate_statistics(model, x, batch_size=2, **QUIET)
    read = source.get_layer("table").embeddings.numpy()[1:]  # every token but the padding occurs once
    (norm,) = norms_of(model)
    np.testing.assert_allclose(norm.moving_mean, read.mean(axis=0), atol=2e-4 if quantized else 1e-6)
    np.testing.assert_allclose(norm.moving_variance, read.var(axis=0), rtol=2e-2 if quantized else 1e-5)
    if not quantized:
        model(x, training=True)  # without momentum the statistics are those of the batch
        np.testing.assert_allclose(norm.moving_mean, read.mean(axis=0), atol=1e-6)
    with pytest.raises(DataError, match="padding alone"):
        estimate_statistics(model, np.zeros_like(x), **QUIET)


def test_a_channel_of_padding_alone_keeps_its_statistics():
    keras.utils.set_random_seed(0)
    tokens = keras.Input((5,), dtype="int32", name="tokens")
    norm = layers.BatchNormalization(axis=1, name="norm")
    model = keras.Model(tokens, norm(layers.Embedding(10, 4, mask_zero=True, name="table")(tokens)))
    norm.moving_mean.assign([7.0] * 5)
    estimate_statistics(model, np.array([[1, 2, 3, 0, 0], [4, 5, 6, 0, 0]]), **QUIET)
    assert np.abs(norm.moving_mean.numpy()[:3]).max() < 1
    np.testing.assert_array_equal(norm.moving_mean[3:], 7.0)


def test_a_mask_belongs_to_the_first_axes():
    keras.utils.set_random_seed(0)
    steps = keras.Input((3, 4), name="steps")
    hidden = layers.TimeDistributed(layers.Reshape((2, 2, 1)), name="images")(layers.Masking(name="mask")(steps))
    norm = layers.BatchNormalization(name="norm")
    model = keras.Model(steps, norm(hidden))
    x = np.random.default_rng(0).normal(size=(8, 3, 4)).astype("float32")
    x[:, 2] = 0.0
    estimate_statistics(model, x, **QUIET)
    np.testing.assert_allclose(norm.moving_variance, [x[:, :2].var()], rtol=1e-4)


def test_normalizations_inside_a_nested_model():
    inside = keras.Input((4,))
    norm = layers.BatchNormalization(name="norm")
    inner = keras.Model(inside, norm(layers.ReLU(name="relu")(inside)), name="inner")
    image = keras.Input((4,), name="image")
    model = keras.Model(image, layers.Dense(2, name="head")(inner(image)))
    x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    assert estimate_statistics(model, x, **QUIET) == 1
    np.testing.assert_allclose(norm.moving_mean, np.maximum(x, 0.0).mean(axis=0), atol=1e-6)


def test_what_training_left_behind_comes_back(q_model, samples):
    """Weights moved, and the moving statistics did not follow: the normalized values have mean 0 and deviation 1."""
    kernel = q_model.get_layer("quant_second").layer.kernel
    kernel.assign(kernel * 1.5)
    estimate_statistics(q_model, samples, **QUIET)
    values = np.asarray(keras.Model(q_model.inputs, norms_of(q_model)[1].output)([samples], training=False))
    np.testing.assert_allclose(values.mean((0, 1, 2)), 0.0, atol=1e-3)
    np.testing.assert_allclose(values.std((0, 1, 2)), 1.0, atol=1e-2)


@pytest.mark.parametrize("error", [KeyboardInterrupt, DataError])
def test_what_goes_wrong_leaves_everything_as_it_was(q_model, samples, error):
    before = state_of(q_model)

    def stop(done, *_):
        if error is KeyboardInterrupt:
            raise KeyboardInterrupt

    bad = samples.copy()
    bad[3, 0, 0, 0] = np.nan if error is DataError else 0.0
    with pytest.raises(error):
        estimate_statistics(q_model, bad, progress=stop)
    assert all(np.array_equal(now, then) for now, then in zip(state_of(q_model), before, strict=True))


def test_data_that_can_be_read_once_are_refused_by_what_is_missing(q_model, samples):
    before = state_of(q_model)
    with pytest.raises(DataError, match="no data"):
        estimate_statistics(q_model, (batch for batch in (samples[:25], samples[25:])), **QUIET)
    assert all(np.array_equal(now, then) for now, then in zip(state_of(q_model), before, strict=True))
