"""The default 8-bit scheme: which tensors have pairs, how weights are quantized, what is refused and left alone."""

import keras
import numpy as np
import pytest
from keras import layers
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench import tfmot
from qdq_workbench.errors import SpecError
from qdq_workbench.tfmot import quantizers
from qdq_workbench.tfmot.default_configs import Default8BitConvQuantizeConfig
from qdq_workbench.tfmot.trained_config import TrainedQuantizeConfig


def pairs(q_model):
    """Return the tensors that TFMOT's scheme gives a pair, without what the target adds."""
    return [p.tensor for p in q_model.plan.placements if p.site == "output" and p.author != "target"]


def chain(*parts, shape=(8, 8, 2)):
    return keras.Sequential([keras.Input(shape, name="image"), *parts])


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([layers.Conv2D(2, 3, name="conv")], ["conv"]),
        ([layers.Conv2D(2, 3, activation="relu", name="conv")], ["conv"]),
        ([layers.Conv2D(2, 3, activation="softmax", name="conv")], ["conv"]),
        ([layers.Conv2D(2, 3, activation="gelu", name="conv")], ["conv", "conv_gelu"]),
        ([layers.Conv2D(2, 3, name="conv"), layers.BatchNormalization(name="norm")], ["norm"]),
        ([layers.Conv2D(2, 3, name="conv"), layers.BatchNormalization(), layers.ReLU(name="relu")], ["relu"]),
        ([layers.DepthwiseConv2D(3, name="conv"), layers.ReLU(6.0, name="relu")], ["relu"]),
        ([layers.Conv2D(2, 3, name="conv"), layers.Activation("relu", name="relu")], ["relu"]),
        ([layers.Conv2D(2, 3, name="conv"), layers.Activation("tanh", name="tanh")], ["conv"]),
        ([layers.Conv2D(2, 3, activation="relu", name="conv"), layers.BatchNormalization(name="n")], ["conv", "n"]),
        ([layers.MaxPooling2D(name="pool"), layers.Flatten(), layers.Dense(2, name="head")], ["head"]),
        ([layers.AveragePooling2D(2, name="pool"), layers.Dropout(0.1)], ["pool"]),
        ([layers.SeparableConv2D(2, 3, name="conv"), layers.BatchNormalization(name="norm")], ["norm"]),
    ],
)
def test_outputs_of_chains(parts, expected):
    q_model = tfmot.quantize_model(keras.models.clone_model(chain(*parts)))
    assert pairs(q_model) == ["image", *expected]


def test_branches():
    image = keras.Input((8, 8, 2), name="image")
    left = layers.Conv2D(2, 1, name="left")(image)
    right = layers.Conv2D(2, 1, name="right")(image)
    joined = layers.Concatenate(name="concat")([left, right])
    third = layers.Conv2D(4, 1, name="third")(joined)
    added = layers.Add(name="add")([third, joined])
    q_model = tfmot.quantize_model(keras.Model(image, layers.ReLU(name="relu")(added)))
    assert pairs(q_model) == ["image", "concat", "third", "relu"]


@pytest.mark.parametrize(
    ("layer", "axis"),
    [
        (layers.Conv2D(3, 3, name="layer"), 3),
        (layers.DepthwiseConv2D(3, name="layer"), None),
        (layers.DepthwiseConv2D(3, depth_multiplier=2, name="layer"), 3),
        (layers.Conv2DTranspose(3, 3, name="layer"), None),
        (layers.Dense(3, name="layer"), None),
    ],
)
def test_weights(layer, axis):
    q_model = tfmot.quantize_model(chain(layer))
    grid = next(tensor.quantizer for tensor in q_model.plan.tensors if tensor.kind == "weight")
    assert grid == qdq.QuantizerSpec(8, signed=True, symmetric=True, narrow_range=True, axis=axis)


def test_activations_have_the_ranges_of_tfmot():
    q_model = tfmot.quantize_model(chain(layers.Conv2D(2, 3, name="conv")))
    image, conv = q_model.activation_quantizers
    assert isinstance(conv.quantizer, quantizers.MovingAverageQuantizer)
    assert conv.range == (-6.0, 6.0)
    assert (conv.spec.symmetric, conv.spec.num_bits, image.spec.symmetric) == (False, 8, False)
    x = np.full((1, 8, 8, 2), 2.0, np.float32)
    q_model(x, training=True)
    assert image.range == (2.0, 2.0)
    assert conv.range[1] == pytest.approx(6.0 - (6.0 - max(0.0, conv.range[1])) * 0.001, abs=0.01)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (layers.Conv2D(2, 3, activation="elu", name="layer"), "Conv2D with activation 'elu'"),
        (layers.Activation("softplus", name="layer"), "softplus"),
        (layers.LayerNormalization(name="layer"), "LayerNormalization"),
    ],
)
def test_what_the_scheme_does_not_know_is_refused(layer, message):
    with pytest.raises(SpecError, match=message):
        tfmot.quantize_model(chain(layer))


def test_a_residual_network_is_calibrated_exported_and_verified(tmp_path):
    model = residual_net()
    annotated = tfmot.quantize_annotate_model(model)
    before = [np.array(w) for w in annotated.get_weights()]
    q_model = tfmot.quantize_apply(annotated)
    assert pairs(q_model) == ["image", "stem_relu", "norm", "relu", "pool", "head"]
    x = samples(model)
    qdq.calibrate(q_model, x, verbose=False)
    np.testing.assert_allclose(q_model(x), model(x), atol=0.1)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(report.path, q_model, x).raise_if_failed()
    q_model.compile("sgd", "mse")
    q_model.fit(x, np.zeros((16, 3)), verbose=0)
    for new, old in zip(annotated.get_weights(), before, strict=True):
        np.testing.assert_array_equal(new, old)


def test_misuse_is_explained():
    model = chain(layers.Dense(2, name="head"))
    dense = layers.Dense(2)
    for attempt, message in [
        (lambda: tfmot.quantize_apply(model), "No layer of the model is annotated"),
        (lambda: tfmot.quantize_annotate_layer(model), "one Keras layer"),
        (lambda: tfmot.quantize_annotate_layer(tfmot.quantize_annotate_layer(dense)), "annotated yet"),
        (lambda: tfmot.quantize_annotate_layer(dense, quantize_config="8 bits"), "QuantizeConfig"),
        (lambda: tfmot.quantize_annotate_model(dense), "whole model"),
        (lambda: tfmot.quantize_apply(model, quantized_layer_name_prefix=3), "prefix"),
    ]:
        with pytest.raises(SpecError, match=message):
            attempt()


def test_an_annotated_model_is_saved_and_loaded(tmp_path):
    annotated = tfmot.quantize_annotate_model(chain(layers.Dense(2, name="head"), shape=(4,)))
    annotated.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert pairs(tfmot.quantize_apply(loaded)) == ["image", "head"]


BATCHES = [np.float32([-1.0, 2.0]), np.float32([-3.0, 0.5]), np.float32([0.25, 1.0])]


@pytest.mark.parametrize(
    ("quantizer", "expected"),
    [
        (quantizers.LastValueQuantizer(), [(-1, 2), (-3, 0.5), (0, 1)]),
        (quantizers.LastValueQuantizer(symmetric=True, narrow_range=True), [(-2, 2), (-3, 3), (-1, 1)]),
        (
            quantizers.LastValueQuantizer(symmetric=True),
            [(-2 * 256 / 254, 2), (-3, 3 * 254 / 256), (-256 / 254, 1)],
        ),
        (quantizers.AllValuesQuantizer(), [(-1, 2), (-3, 2), (-3, 2)]),
        (
            quantizers.MovingAverageQuantizer(),
            [(-6 + 5e-3, 6 - 4e-3), (-5.992005, 5.990504), (-5.986013, 5.985513)],
        ),
    ],
)
def test_ranges_follow_the_equations(quantizer, expected):
    variables = quantizer.build((None, 2), "x", keras.layers.Layer())
    start = (0.0, 0.0) if isinstance(quantizer, quantizers.AllValuesQuantizer) else (-6.0, 6.0)
    assert (float(variables["min_var"]), float(variables["max_var"])) == start
    for batch, ends in zip(BATCHES, expected, strict=True):
        quantizer(keras.ops.convert_to_tensor(batch), training=True, weights=variables)
        found = [float(variables[key]) for key in ("min_var", "max_var")]
        np.testing.assert_allclose(found, ends, rtol=1e-6)
    again = type(quantizer).from_config(quantizer.get_config())
    assert again == quantizer
    assert set(quantizer.get_config()) == {"num_bits", "per_axis", "symmetric", "narrow_range"}


def test_a_fixed_quantizer_honours_its_bits():
    quantizer = quantizers.FixedQuantizer(4, 0.0, 1.5, False)
    variables = quantizer.build((), "x", layers.Layer())
    values = quantizer(keras.ops.linspace(0.0, 2.0, 99), training=True, weights=variables)
    assert len(np.unique(values)) == 16
    assert type(quantizer).from_config(quantizer.get_config()) == quantizer


def test_a_depthwise_kernel_is_found_under_its_name_in_keras_2():
    layer = layers.DepthwiseConv2D(3, name="layer")
    layer.build((None, 8, 8, 2))
    kernel = layer.kernel
    for config in (
        Default8BitConvQuantizeConfig(["depthwise_kernel"], ["activation"], quantize_output=False),
        TrainedQuantizeConfig({"depthwise_kernel": quantizers.LastValueQuantizer(8)}),
    ):
        ((found, _),) = config.get_weights_and_quantizers(layer)
        assert found is kernel
        config.set_quantize_weights(layer, [kernel * 0.5])
        np.testing.assert_array_equal(layer.kernel, np.asarray(kernel) * 0.5)
        layer.kernel = kernel


def test_scopes_add_to_each_other():
    with tfmot.quantize_scope({"Outer": layers.Dense}), tfmot.quantize_scope({"Inner": layers.ReLU}):
        assert keras.saving.get_registered_object("Outer") is layers.Dense
        assert keras.saving.get_registered_object("Inner") is layers.ReLU
    assert keras.saving.get_registered_object("Outer") is None


def test_copies_begin_with_the_values_of_their_sources(monkeypatch):
    """For large layers, drawing values that are replaced at once takes longer than everything else."""
    image = keras.Input((4,), name="image")
    hidden = layers.Dense(3, name="hidden")(image)
    model = keras.Model(image, layers.Dense(2, activation="sigmoid", name="head")(hidden))
    draw, drawn = keras.initializers.GlorotUniform.__call__, []

    def noticed(self, shape, dtype=None):
        values = draw(self, shape, dtype)
        drawn.extend([shape] if hasattr(values, "numpy") else [])  # not where a call is traced for its shape alone
        return values

    monkeypatch.setattr(keras.initializers.GlorotUniform, "__call__", noticed)
    q_model = tfmot.quantize_apply(tfmot.quantize_annotate_model(model))
    assert drawn == []
    for ours, theirs in zip(qdq.strip(q_model).weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
