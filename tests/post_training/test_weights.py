"""Clipped and clustered weights."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import layers
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.correction import clip_weights, codebook_weights, correct_biases, smooth_scales
from qdq_workbench.errors import QuantizerError, SpecError, UnsupportedModelError
from qdq_workbench.numerics import fake_quantize, qparams_from_range
from qdq_workbench.placement.targets import get_target
from qdq_workbench.post_training.codebook import cluster_centres
from qdq_workbench.quantizers.numerics import weight_range


def target_of(bits):
    target = get_target("tensorrt")
    return dataclasses.replace(target, weight=target.weight.replace(num_bits=bits))


def network():
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    hidden = layers.Conv2D(4, 3, name="conv")(image)
    model = keras.Model(image, layers.Dense(200, name="head")(layers.Flatten()(hidden)))
    generator = np.random.default_rng(0)
    for layer in model.layers:
        if hasattr(layer, "kernel"):
            layer.kernel.assign(generator.standard_t(3, layer.kernel.shape))
    return model


def errors(kernel, spec, power=2):
    """Return the error of quantizing a kernel, per scale."""
    quantized = fake_quantize(kernel, qparams_from_range(*weight_range(kernel, spec), spec))
    return quantized, lambda source: (np.abs(source - quantized) ** power).reshape(-1, kernel.shape[-1]).sum(axis=0)


@pytest.mark.parametrize(("method", "power"), [("mse", 2), ("mae", 1), ("lp", 4)])
def test_clipping_lowers_the_error_of_every_channel(method, power):
    model, target = network(), target_of(4)
    clipped = clip_weights(model, method, target=target, p=4)
    for name in ("conv", "head"):
        source = model.get_layer(name).kernel.numpy()
        spec = target.weight.replace(axis=-1)
        _, plain = errors(source, spec, power)
        _, better = errors(clipped.get_layer(name).kernel.numpy(), spec, power)
        assert (better(source) <= plain(source) * (1 + 1e-6)).all()
        assert better(source).sum() < 0.98 * plain(source).sum()
        assert np.abs(clipped.get_layer(name).kernel.numpy()).max() < np.abs(source).max()


def test_one_threshold_per_tensor():
    model = network()
    spec = qdq.QuantizationSpec()
    config = qdq.LayerQuantizeConfig(weight={"num_bits": 3, "per_axis": False})
    spec.add("head", quantize_config=config)
    plan = qdq.plan_placement(model, "partial", spec)
    clipped = clip_weights(model, plan=plan).get_layer("head").kernel.numpy()
    source = model.get_layer("head").kernel.numpy()
    threshold = np.abs(clipped).max()
    np.testing.assert_array_equal(clipped, np.clip(source, -threshold, threshold))
    assert threshold < np.abs(source).max()


def test_a_lookup_table_is_on_the_grid_of_the_file(tmp_path):
    model, bits = residual_net(), 2
    q_model = qdq.quantize_model(codebook_weights(model, bits), target="onnxruntime")
    for name, weight in qdq.integer_weights(q_model).items():
        if name.endswith("kernel"):
            counts = [len(np.unique(column)) for column in weight.codes.reshape(-1, weight.codes.shape[-1]).T]
            assert max(counts) <= 2**bits
    clustered = qdq.strip(q_model)
    baked = qdq.strip(q_model, bake_weights=True)
    for layer in ("stem", "conv", "head"):
        np.testing.assert_allclose(baked.get_layer(layer).kernel, clustered.get_layer(layer).kernel, rtol=1e-6)
    x = samples(model)
    qdq.calibrate(q_model, x, verbose=False)
    qdq.export_onnx(q_model, tmp_path / "lut.onnx")
    qdq.verify_onnx(tmp_path / "lut.onnx", q_model, x).raise_if_failed()


def test_centres_are_nearer_than_a_grid():
    model, bits = network(), 3
    source = model.get_layer("head").kernel.numpy()
    _, of_grid = errors(source, target_of(bits).weight.replace(axis=-1))
    for method in ("kmeans", "lut"):
        clustered = codebook_weights(model, bits, method).get_layer("head").kernel.numpy()
        assert all(len(np.unique(column)) <= 2**bits for column in clustered.T)
        assert np.square(source - clustered).sum() < 0.7 * of_grid(source).sum()


def test_centres_of_few_values_are_the_values():
    assert cluster_centres(np.array([3.0, 1.0, 3.0]), 4).tolist() == [1.0, 3.0]


def test_centres_are_a_fixed_point():
    values = np.random.default_rng(0).laplace(size=5000)
    centres = cluster_centres(values, 8)
    nearest = np.abs(values[:, None] - centres).argmin(axis=1)
    np.testing.assert_allclose([values[nearest == k].mean() for k in range(8)], centres, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (clip_weights, {"method": "kl"}, "method='kl'"),
        (codebook_weights, {"method": "table"}, "method='table'"),
        (codebook_weights, {"num_bits": 9}, "num_bits=9"),
        (codebook_weights, {"num_bits": 2.0}, "num_bits=2.0"),
    ],
)
def test_bad_arguments(function, arguments, message):
    with pytest.raises(QuantizerError, match=message):
        function(network(), **arguments)


@pytest.mark.parametrize("correct", [clip_weights, codebook_weights, correct_biases, smooth_scales])
def test_a_plan_has_its_own_target(correct):
    """The grids are those of the plan: another target beside it would change nothing."""
    model = network()
    plan = qdq.plan_placement(model, target="onnxruntime")
    arguments = (model, np.ones((2, *model.input_shape[1:]), "float32"))[: 2 if correct is smooth_scales else 1]
    with pytest.raises(SpecError, match=r"plan is made for one target.*'openvino', a plan for 'onnxruntime'"):
        correct(*arguments, plan=plan, target="openvino")
    assert isinstance(correct(*arguments, plan=plan, target="onnxruntime"), keras.Model)


@pytest.mark.parametrize("arguments", [{"candidates": 0}, {"candidates": 2.5}, {"method": "lp", "p": -1.0}, {"p": "2"}])
def test_settings_out_of_range_are_refused(arguments):
    with pytest.raises(QuantizerError, match=next(reversed(arguments))):
        clip_weights(network(), **arguments)


@pytest.mark.parametrize(
    "correct", [clip_weights, codebook_weights, qdq.correct_biases, qdq.equalize_scales, qdq.shift_negative]
)
def test_a_quantized_model_is_refused(correct):
    """Its weights stand behind Q/DQ layers: the correction would be of another model than the user trains."""
    with pytest.raises(UnsupportedModelError, match="quantized already"):
        correct(qdq.quantize_model(network()))
