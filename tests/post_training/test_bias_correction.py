"""Bias correction takes back the mean shift of quantized weights."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import layers
from small_models import nested_net, samples, shake

import qdq_workbench as qdq
from qdq_workbench.correction import correct_biases
from qdq_workbench.errors import DataError, SpecError
from qdq_workbench.placement.targets import get_target


def coarse(bits=3):
    target = get_target("tensorrt")
    return dataclasses.replace(target, weight=target.weight.replace(num_bits=bits))


def network():
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    hidden = layers.Conv2D(6, 3, padding="valid", use_bias=False, name="first")(image)
    hidden = layers.BatchNormalization(name="norm")(hidden)
    hidden = layers.ReLU(name="relu")(hidden)
    hidden = layers.DepthwiseConv2D(3, depth_multiplier=2, name="depthwise")(hidden)
    hidden = layers.Conv2D(5, 1, use_bias=False, name="point")(hidden)
    hidden = layers.GlobalAveragePooling2D(name="pool")(hidden)
    return shake(keras.Model(image, layers.Dense(4, name="head")(hidden), name="network"))


def mean_shifts(source, model, x, name):
    """Return how far the mean of a layer's output moves, per channel, when only that layer's weights are quantized."""
    spec = qdq.QuantizationSpec()
    spec.add(name, quantize_input=False)
    q_model = qdq.quantize_model(model, "partial", spec, target=coarse())
    means = []
    for net, layer in ((source, name), (q_model, f"quant_{name}")):
        values = keras.Model(net.inputs[0], net.get_layer(layer).output)(x).numpy()
        means.append(values.reshape(-1, values.shape[-1]).mean(axis=0))
    return np.abs(means[1] - means[0]).max()


@pytest.mark.parametrize("name", ["first", "depthwise", "point", "head"])
def test_the_mean_of_every_corrected_layer_is_right(name):
    model, x = network(), 1 + samples(network(), 64)
    spec = qdq.QuantizationSpec()
    spec.add(name, quantize_input=False)
    plan = qdq.plan_placement(model, "partial", spec, target=coarse())
    corrected = correct_biases(model, x, plan=plan)
    before, after = (mean_shifts(model, version, x, name) for version in (model, corrected))
    # Behind a kernel of several places the means are those of all places: right but for the borders.
    assert after < (0.1 if name in ("first", "depthwise") else 1e-3) * before


def test_from_batch_normalizations_alone():
    """Without data the mean behind the ReLU is that of a Gaussian; on data that follow it the shift shrinks."""
    model = network()
    x = samples(model, 256)
    values = keras.Model(model.inputs[0], model.get_layer("first").output)(x).numpy().reshape(-1, 6)
    model.get_layer("norm").moving_mean.assign(values.mean(axis=0))
    model.get_layer("norm").moving_variance.assign(values.var(axis=0))
    corrected = correct_biases(model, target=coarse())
    before, after = (mean_shifts(model, version, x, "depthwise") for version in (model, corrected))
    assert after < 0.3 * before
    np.testing.assert_array_equal(corrected.get_layer("head").bias, model.get_layer("head").bias)


def test_the_source_is_only_read_and_the_copy_differs_in_biases_alone():
    model = network()
    before = model.get_weights()
    corrected = correct_biases(model, samples(model), target=coarse())
    for ours, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for layer in model.layers:
        if hasattr(layer, "kernel"):
            np.testing.assert_array_equal(corrected.get_layer(layer.name).kernel, layer.kernel)
    assert corrected.get_layer("first").use_bias


def test_without_data_a_normalization_of_another_axis_tells_no_means():
    image = keras.Input((3, 4), name="image")
    hidden = layers.BatchNormalization(axis=1, name="norm")(image)
    model = keras.Model(image, layers.Conv1D(2, 1, name="head")(layers.ReLU(name="relu")(hidden)))
    np.testing.assert_array_equal(correct_biases(model, target=coarse()).get_layer("head").bias, 0.0)


@pytest.mark.parametrize("low_rank", [False, True])
def test_means_are_those_behind_an_adapted_normalization(low_rank):
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(3.0, 2.0, (64, 4)).astype("float32")
    norm = layers.Normalization(name="norm")
    norm.adapt(x)
    image = keras.Input((4,), name="image")
    hidden = layers.ReLU(name="relu")(norm(image))
    model = keras.Model(image, layers.Dense(3, use_bias=False, bias_initializer="ones", name="head")(hidden))
    if low_rank:  # the update is added to the rounded kernel
        head = model.get_layer("head")
        head.enable_lora(2)
        head.lora_kernel_b.assign(keras.ops.ones_like(head.lora_kernel_b))
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_input=False)
    corrected = correct_biases(model, x, plan=qdq.plan_placement(model, "partial", spec, target=coarse()))
    np.testing.assert_allclose(corrected.get_layer("norm")(x), norm(x), atol=1e-6)
    before, after = (mean_shifts(model, version, x, "head") for version in (model, corrected))
    assert after < 1e-3 * before


def test_steps_count_batches():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    x = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32) + np.arange(12, dtype=np.float32)[:, None]
    for steps, read in ((1, x[:4]), (2, x[:8]), (None, x)):
        found = correct_biases(model, x, target=coarse(), steps=steps, batch_size=4).layers[-1].bias
        wanted = correct_biases(model, read, target=coarse(), batch_size=4).layers[-1].bias
        np.testing.assert_array_equal(found, wanted)
        assert steps is None or not np.array_equal(found, correct_biases(model, x, target=coarse()).layers[-1].bias)


def test_shared_and_nested_layers():
    model = nested_net()
    corrected = correct_biases(model, samples(model), target=coarse())
    np.testing.assert_array_equal(corrected.get_layer("shared").bias, model.get_layer("shared").bias)
    assert not np.array_equal(corrected.get_layer("head").bias, model.get_layer("head").bias)


def test_bad_arguments():
    with pytest.raises(SpecError, match="another model"):
        correct_biases(network(), plan=qdq.plan_placement(nested_net()))
    with pytest.raises(DataError, match="does not fit"):
        correct_biases(network(), np.zeros((4, 3)))
    with pytest.raises(DataError, match="steps must be an integer from 1 on"):
        correct_biases(network(), samples(network()), steps=0)
    with pytest.raises(DataError, match="holds NaN or infinity"):
        correct_biases(network(), np.full((4, 8, 8, 3), np.nan, "float32"))
