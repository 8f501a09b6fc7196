"""What TFMOT's tests assert about marks, configs and quantizers, and no other test of ours does: docs/peer_tests.md."""

import keras
import numpy as np
import pytest
from keras import layers
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench import tfmot
from qdq_workbench.errors import SpecError, UnbuiltModelError, UnsupportedModelError
from qdq_workbench.tfmot import quantizers
from qdq_workbench.tfmot.default_configs import (
    Default8BitActivationQuantizeConfig,
    Default8BitConvQuantizeConfig,
    Default8BitOutputQuantizeConfig,
    Default8BitQuantizeConfig,
    NoOpQuantizeConfig,
)


def chain(*parts, shape=(5,)):
    return keras.Sequential([keras.Input(shape, name="x"), *parts])


def outputs_with_pairs(q_model):
    return [p.tensor for p in q_model.plan.placements if p.site == "output" and p.author != "target"]


# ---------------------------------------------------------------- annotating


def test_marks_change_no_value_and_are_put_once():
    config = NoOpQuantizeConfig()
    marked = tfmot.quantize_annotate_layer(layers.Dense(5, name="marked"), config)
    model = chain(layers.Dense(10, name="plain"), layers.Dropout(0.4), marked)
    assert model.built
    annotated = tfmot.quantize_annotate_model(model)
    plain, drop, again = annotated.layers[1:]
    assert {type(layer).__name__ for layer in (plain, drop, again)} == {"QuantizeAnnotate"}
    assert (plain.quantize_config, again.quantize_config) == (None, config)
    assert isinstance(again.layer, layers.Dense)
    x = samples(annotated)
    np.testing.assert_array_equal(annotated(x), model(x))


class Telling(layers.Layer):
    """Says whether it was told to train."""

    def call(self, inputs, training=None):
        return inputs + (1.0 if training else 0.0)


def test_a_marked_layer_is_told_whether_the_model_trains():
    marked = tfmot.quantize_annotate_layer(Telling())
    zeros = np.zeros((1, 2), "float32")
    assert [float(marked.call(zeros, training=mode)[0, 0]) for mode in (True, False)] == [1.0, 0.0]


@keras.saving.register_keras_serializable(package="peer_suites")
class Scaled(layers.Dense):
    """A layer of a user's own, which follows the rule of its parent."""


def test_a_mark_is_serialized_with_its_config():
    marked = tfmot.quantize_annotate_layer(layers.Dense(3), Default8BitQuantizeConfig(["kernel"], [], True))
    marked.build((None, 2))
    again = keras.layers.deserialize(keras.layers.serialize(marked))
    assert again.get_config() == marked.get_config()
    assert again.quantize_config == marked.quantize_config


class Subclassed(keras.Model):
    def call(self, inputs):
        return inputs


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (lambda: tfmot.quantize_model(layers.Dense(10)), SpecError),
        (lambda: tfmot.quantize_annotate_model(Subclassed()), UnsupportedModelError),
        (lambda: tfmot.quantize_apply(Subclassed()), UnsupportedModelError),
        (lambda: tfmot.quantize_apply(layers.Dense(10)), UnsupportedModelError),
        (
            lambda: tfmot.quantize_apply(keras.Sequential([tfmot.quantize_annotate_layer(layers.Dense(10))])),
            UnbuiltModelError,
        ),
    ],
)
def test_what_is_no_model_with_a_graph_is_refused(attempt, error):
    with pytest.raises(error, match="Received"):
        attempt()


def test_neither_marks_nor_pairs_take_a_compiled_state_along():
    model = chain(layers.Dense(3, name="a"))
    model.compile("sgd", "mse")
    annotated = tfmot.quantize_annotate_model(model)
    q_model = tfmot.quantize_apply(annotated)
    assert (model.compiled, annotated.compiled, q_model.compiled) == (True, False, False)
    assert annotated.built
    assert q_model.built


# ---------------------------------------------------------------- applying


def test_the_users_config_comes_before_the_schemes_and_the_weights_are_copies():
    own = Default8BitQuantizeConfig([], [], True)
    model = chain(
        tfmot.quantize_annotate_layer(layers.Dense(4, activation="relu", name="scheme")),
        tfmot.quantize_annotate_layer(layers.Dense(3, name="user"), own),
        tfmot.quantize_annotate_layer(Scaled(2, name="own")),
    )
    q_model = tfmot.quantize_apply(model)
    weights = [tensor.name for tensor in q_model.plan.tensors if tensor.kind == "weight"]
    assert weights == ["scheme/kernel", "own/kernel"]
    assert outputs_with_pairs(q_model) == ["x", "scheme", "user", "own"]
    for ours, theirs in zip(q_model.trainable_weights, model.trainable_weights, strict=True):
        assert ours is not theirs
        np.testing.assert_array_equal(ours, theirs)


def test_models_inside_the_model_are_entered_and_stay_in_float_without_a_mark():
    inner = keras.Sequential([keras.Input((5,)), layers.Dense(4, name="dense")], name="inner")
    whole = tfmot.quantize_model(chain(inner, layers.Dense(2, name="head")))
    assert outputs_with_pairs(whole) == ["x", "inner.dense", "head"]
    partly = tfmot.quantize_apply(chain(inner, tfmot.quantize_annotate_layer(layers.Dense(2, name="head"))))
    assert [tensor.name for tensor in partly.plan.tensors if tensor.kind == "weight"] == ["head/kernel"]


@pytest.mark.parametrize("marked", ["first", "second"])
def test_an_input_has_a_pair_where_a_marked_layer_reads_it(marked):
    parts = [layers.Dense(3, activation="relu", name=name) for name in ("first", "second")]
    q_model = tfmot.quantize_apply(
        chain(*(tfmot.quantize_annotate_layer(part) if part.name == marked else part for part in parts)),
        target="tensorrt",
    )
    assert outputs_with_pairs(q_model) == {"first": ["x", "first"], "second": ["first", "second"]}[marked]


def test_concatenations_of_concatenations_have_one_pair_at_the_end():
    image = keras.Input((3,), name="x")
    parts = [layers.Dense(3, name=f"dense{index}")(image) for index in range(4)]
    joined = layers.Concatenate(name="c1")(parts[:2])
    joined = layers.Concatenate(name="c2")([joined, parts[2]])
    joined = layers.Concatenate(name="c3")([joined, parts[3]])
    assert outputs_with_pairs(tfmot.quantize_model(keras.Model(image, joined))) == ["x", "c3"]


@pytest.mark.parametrize("make", [layers.Flatten, lambda: layers.Activation("relu")])
def test_what_stands_in_front_of_a_concatenation_has_no_pair_of_its_own(make):
    ends = [keras.Input((1, 2, 2), name=f"x{index}") for index in range(4)]
    left, right = (layers.Concatenate()([make()(end) for end in half]) for half in (ends[:2], ends[2:]))
    q_model = tfmot.quantize_model(keras.Model(ends, layers.Concatenate(name="joined")([left, right])))
    assert outputs_with_pairs(q_model) == ["x0", "x1", "x2", "x3", "joined"]


@pytest.mark.parametrize(
    ("layer", "shape", "synchronized"),
    [
        (lambda: layers.Dense(3, name="layer"), (5,), False),
        (lambda: layers.Conv2D(3, 2, name="layer"), (5, 5, 3), True),
        (lambda: layers.SeparableConv1D(3, 2, name="layer"), (5, 3), False),
    ],
)
def test_the_pair_stands_behind_the_last_of_what_is_fused(layer, shape, synchronized):
    norm = layers.BatchNormalization(synchronized=synchronized, name="norm")
    for behind in [], [layers.ReLU(6.0, name="relu")], [layers.Activation("relu", name="relu")]:
        q_model = tfmot.quantize_model(keras.models.clone_model(chain(layer(), norm, *behind, shape=shape)))
        assert outputs_with_pairs(q_model) == ["x", "relu" if behind else "norm"]


# ---------------------------------------------------------------- quantizers and configs


@pytest.mark.parametrize("kind", ["LastValueQuantizer", "MovingAverageQuantizer", "AllValuesQuantizer"])
@pytest.mark.parametrize(
    ("settings", "ends"),
    [
        ({"symmetric": False}, (-1.0, 0.5)),
        ({"symmetric": True, "narrow_range": True}, (-1.0, 1.0)),
        ({"symmetric": True, "narrow_range": False}, (-1.0, 254 / 256)),
    ],
)
def test_ranges_of_one_batch_by_symmetry(kind, settings, ends):
    quantizer = getattr(quantizers, kind)(**settings)
    variables = quantizer.build((None, 2), "x", layers.Layer())
    start = [float(variables[key]) for key in ("min_var", "max_var")]
    quantizer(keras.ops.convert_to_tensor([-1.0, 0.5]), training=True, weights=variables)
    share = 0.001 if kind == "MovingAverageQuantizer" else 1.0
    expected = [old + share * (new - old) for old, new in zip(start, ends, strict=True)]
    np.testing.assert_allclose([float(variables[key]) for key in ("min_var", "max_var")], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "layer", [layers.Conv2D(5, 2, name="layer"), layers.DepthwiseConv2D(2, depth_multiplier=5, name="layer")]
)
def test_kernels_have_a_range_for_every_slice_of_the_last_axis(layer):
    q_model = tfmot.quantize_model(chain(layer, shape=(5, 2, 3)))
    variables = q_model.wrappers[0]._weight_vars[0][2]
    assert variables["min_var"].shape == variables["max_var"].shape == (5,)


def test_weights_and_results_are_rounded_to_the_grid():
    """TFMOT's test starts from (-6, 6); here a weight has its own range, so -1 and 1 are exact."""
    kernel = np.float32([[-1.0, 0.3], [0.0, 1.0]])
    q_model = tfmot.quantize_model(chain(layers.Dense(2, use_bias=False, name="dense"), shape=(2,)))
    q_model.wrappers[0].layer.kernel.assign(kernel)
    rounded = np.round(kernel * 127) / 127
    ones = np.ones((1, 2), np.float32)
    step = 12 / 255
    qdq.calibrate(q_model, ones, verbose=False)
    q_model.activation_quantizers[0].enabled.assign(False)
    q_model.activation_quantizers[1].set_range(-6.0, 6.0)
    exact = rounded.sum(axis=0, keepdims=True)
    np.testing.assert_allclose(q_model(ones), np.round(exact / step) * step, rtol=1e-5)
    assert np.abs(np.asarray(q_model(ones)) - exact).max() > 1e-3


def test_configs_compare_by_value_and_survive_serialization():
    for config in (
        Default8BitQuantizeConfig(["kernel"], ["activation"], False),
        Default8BitConvQuantizeConfig(["kernel"], ["activation"], True),
        Default8BitActivationQuantizeConfig(),
        Default8BitOutputQuantizeConfig(False),
        NoOpQuantizeConfig(),
    ):
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(config))
        assert again == config
        assert hash(again) == hash(config)
    assert config != Default8BitOutputQuantizeConfig(False)
    assert Default8BitOutputQuantizeConfig(False) != Default8BitOutputQuantizeConfig(True)


def built_dense():
    layer = layers.Dense(2, name="dense")
    layer.build((None, 3))
    return layer


def test_a_config_gives_and_takes_weights_and_activations():
    layer, config = built_dense(), Default8BitQuantizeConfig(["kernel"], ["activation"], False)
    (weight, weight_quantizer), *rest = config.get_weights_and_quantizers(layer)
    assert weight is layer.kernel
    assert isinstance(weight_quantizer, quantizers.LastValueQuantizer)
    assert rest == []
    (activation, activation_quantizer), *rest = config.get_activations_and_quantizers(layer)
    assert activation is layer.activation
    assert isinstance(activation_quantizer, quantizers.MovingAverageQuantizer)
    assert rest == []
    config.set_quantize_activations(layer, [keras.activations.relu])
    assert layer.activation is keras.activations.relu
    assert config.get_output_quantizers(layer) == []
    (output,) = Default8BitQuantizeConfig([], [], True).get_output_quantizers(layer)
    assert isinstance(output, quantizers.MovingAverageQuantizer)


def test_a_config_refuses_values_that_do_not_fit_and_leaves_the_layer():
    layer, config = built_dense(), Default8BitQuantizeConfig(["kernel", "bias"], ["activation"], False)
    kernel, bias, activation = layer.kernel, layer.bias, layer.activation
    for values in ([], [kernel], [kernel, bias, bias]):
        with pytest.raises(SpecError, match=f"Received: {len(values)} values"):
            config.set_quantize_weights(layer, values)
    with pytest.raises(SpecError, match=r"shape \(2,\) for 'bias'.*Received: shape \(1, 2\)"):
        config.set_quantize_weights(layer, [kernel, np.ones((1, 2))])
    for values in ([], [keras.activations.relu] * 2):
        with pytest.raises(SpecError, match=f"Received: {len(values)} values"):
            config.set_quantize_activations(layer, values)
    assert (layer.kernel, layer.bias, layer.activation) == (kernel, bias, activation)


def test_the_config_of_activations_knows_eight():
    config = Default8BitActivationQuantizeConfig()
    found = {
        name: len(config.get_output_quantizers(layers.Activation(name)))
        for name in ("relu", "relu6", "swish", "gelu", "linear", "softmax", "sigmoid", "tanh")
    }
    assert list(found.values()) == [1, 1, 1, 1, 0, 0, 0, 0]
    for layer in (layers.Activation("selu"), layers.Activation(lambda x: x), layers.ReLU()):
        with pytest.raises(SpecError, match=f"Received: {type(layer).__name__}"):
            config.get_output_quantizers(layer)
    assert Default8BitActivationQuantizeConfig(False).get_output_quantizers(layers.Activation("relu")) == []


def test_one_quantizer_may_serve_several_layers():
    shared = quantizers.LastValueQuantizer(num_bits=8, per_axis=False, symmetric=False, narrow_range=False)

    class SharedConfig(Default8BitQuantizeConfig):
        def get_weights_and_quantizers(self, layer):
            return [(layer.kernel, shared)]

    config = SharedConfig(["kernel"], ["activation"], False)
    parts = [tfmot.quantize_annotate_layer(layers.Dense(size, name=f"dense{size}"), config) for size in (8, 5)]
    q_model = tfmot.quantize_apply(chain(*parts))
    first, second = (wrapper._weight_vars[0][2]["max_var"] for wrapper in q_model.wrappers)
    first.assign(9.0)
    assert float(second) != 9.0


def test_weights_alone_go_from_model_to_model(tmp_path):
    parts = [tfmot.quantize_model(chain(layers.Dense(4, activation="relu", name="a"))) for _ in range(2)]
    x = samples(parts[0])
    qdq.calibrate(parts[0], x, verbose=False)
    parts[0].save_weights(tmp_path / "q.weights.h5")
    assert not np.array_equal(parts[0](x), parts[1](x))
    parts[1].load_weights(tmp_path / "q.weights.h5")
    np.testing.assert_array_equal(parts[0](x), parts[1](x))
