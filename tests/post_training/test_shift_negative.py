"""Shifting keeps the function exactly and leaves no negative values."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import qdq_workbench as qdq
from qdq_workbench.correction import shift_negative
from qdq_workbench.errors import SpecError
from qdq_workbench.post_training.shift_negative import LOWEST, shifted


def network(activation, strides=1, padding="same", size=9):
    keras.utils.set_random_seed(0)
    image = keras.Input((size, size, 3), name="image")
    hidden = layers.Activation(activation, name="act")(layers.Conv2D(4, 3, name="first")(image))
    hidden = layers.DepthwiseConv2D(3, strides=strides, padding=padding, depth_multiplier=2, name="depthwise")(hidden)
    hidden = ops.silu(hidden) if activation == "silu" else layers.Activation(activation, name="act2")(hidden)
    hidden = layers.Conv2D(4, 3, strides=strides, padding=padding, use_bias=False, name="second")(hidden)
    hidden = layers.Flatten()(hidden) if size else layers.GlobalAveragePooling2D()(hidden)
    hidden = layers.Activation(activation, name="act3")(layers.Dense(4, name="third")(hidden))
    return keras.Model(image, layers.Dense(2, name="head")(hidden))


def images():
    return 3 * np.random.default_rng(0).normal(size=(8, 9, 9, 3)).astype("float32")


@pytest.mark.parametrize(
    ("activation", "strides", "padding"),
    [
        ("silu", 1, "same"),
        ("silu", 2, "same"),
        ("silu", 1, "valid"),
        ("gelu", 1, "same"),
        ("hard_silu", 1, "same"),
        ("elu", 2, "same"),
        ("selu", 1, "same"),
    ],
)
def test_the_function_stays(activation, strides, padding):
    model, x = network(activation, strides, padding), images()
    shifted = shift_negative(model)
    expected = np.asarray(model(x))
    assert np.abs(np.asarray(shifted(x)) - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())
    readers = [shifted.get_layer(name) for name in ("depthwise", "second", "head")]
    assert all(layer.use_bias for layer in readers)
    values = keras.Model(shifted.inputs[0], [layer.input for layer in readers])(x)
    assert all(float(ops.min(value)) >= 0 for value in values)
    assert not model.get_layer("second").use_bias


@pytest.mark.parametrize("size", [None, 9])
def test_unknown_sizes(size):
    model = network("silu", size=size)
    np.testing.assert_allclose(shift_negative(model)(images()), model(images()), atol=1e-5)
    strided = network("silu", strides=2, size=size)
    np.testing.assert_allclose(shift_negative(strided)(images()), strided(images()), atol=1e-5)


def test_layers_that_compute_with_constants_of_their_own_stay_what_they_are():
    image = keras.Input((4,), name="image")
    norm = layers.Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[4.0, 9.0, 16.0, 25.0], name="norm")
    adapted = layers.Normalization(name="adapted")
    adapted.adapt(np.random.default_rng(0).normal(3.0, 2.0, (32, 4)))
    hidden = layers.Activation("silu", name="act")(layers.Dense(4, name="first")(adapted(norm(image))))
    head = layers.Dense(2, use_bias=False, bias_initializer="ones", name="head")
    model = keras.Model(image, head(hidden))
    head.enable_lora(2)  # its variables stand behind the bias that is added
    head.lora_kernel_b.assign(ops.ones_like(head.lora_kernel_b))
    head.trainable = False
    x = np.random.default_rng(1).normal(size=(8, 4)).astype("float32")
    shifted = shift_negative(model)
    np.testing.assert_allclose(shifted(x), model(x), atol=1e-5)
    assert not shifted.get_layer("head").trainable


def test_layers_called_as_the_operations_that_shift_and_pad():
    keras.utils.set_random_seed(0)
    image = keras.Input((9, 9, 3), name="image")
    first = layers.Activation("silu", name="add")(layers.Conv2D(4, 3, padding="same", name="pad")(image))
    second = layers.Activation("silu", name="add_1")(layers.Conv2D(4, 3, padding="same", name="pad_1")(first))
    model = keras.Model(image, layers.Conv2D(2, 3, padding="same", name="add_shift")(second))
    keras.backend.clear_session()  # Keras counts the names of its operations anew
    shifted = shift_negative(model)
    np.testing.assert_allclose(shifted(images()), model(images()), atol=1e-5)
    assert {"add", "add_1", "pad", "pad_1", "add_shift"} < {layer.name for layer in shifted.operations}


def test_bounds_hold():
    x = np.linspace(-30, 30, 2_000_001).astype("float32")
    for name, lowest in LOWEST.items():
        function = keras.activations.get(name)
        assert lowest <= float(ops.min(function(x)))
        assert lowest >= float(ops.min(function(x))) - 2e-4
    assert LOWEST["gelu"] <= float(ops.min(ops.gelu(x, approximate=True)))


def test_what_cannot_be_taken_back_stays():
    image = keras.Input((4,), name="image")
    hidden = layers.Activation("silu", name="act")(layers.Dense(4, name="first")(image))
    model = keras.Model(image, [layers.Dense(2, name="head")(hidden), hidden])
    assert [layer.name for layer in shift_negative(model).layers] == [layer.name for layer in model.layers]


def test_ratio():
    model = network("silu")
    names = {}
    for ratio in (0.01, 1.0):
        shifted = shift_negative(model, ratio, largest=lambda tensor: 5.0)
        names[ratio] = sum(operation.name.endswith("_shift") for operation in shifted.operations)
    assert names == {0.01: 0, 1.0: 3}


def test_powers_of_two_get_twice_the_levels():
    image = keras.Input((4,), name="image")
    model = keras.Model(image, layers.Dense(2, name="head")(layers.Activation("silu", name="act")(image)))
    x = np.linspace(-5.0, 1.5, 400).reshape(100, 4)
    scales = {}
    for name, version in (("plain", model), ("shifted", shift_negative(model))):
        q_model = qdq.quantize_model(version, target="onnxruntime")
        ranges = qdq.calibrate(q_model, x, power_of_two="scale", verbose=False).ranges
        low, high = ranges[q_model.plan.graph.node("head").inputs[0]]
        scales[name] = (high - low) / 255
    assert scales == {"plain": 2 / 128, "shifted": 2 / 256}


def test_the_whole_way(tmp_path):
    q_model = qdq.quantize_model(shift_negative(network("silu")), target="onnxruntime")
    qdq.calibrate(q_model, images(), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "shifted.onnx")
    qdq.verify_onnx(tmp_path / "shifted.onnx", q_model, images()).raise_if_failed()


@pytest.mark.parametrize("ratio", [-0.1, float("nan"), True, "all"])
def test_ratios_that_are_none_are_refused(ratio):
    with pytest.raises(SpecError, match="from 0 on"):
        shift_negative(network("silu"), ratio)


def test_what_is_inserted_is_told_whatever_it_is_called():
    """The user's own operations may have names with the same ends, also after nested models are flattened."""
    inside = keras.Input((8, 8, 3))
    inner = keras.Model(inside, keras.layers.Identity(name="own_shift")(inside), name="inner")
    image = keras.Input((8, 8, 3), name="image")
    hidden = keras.layers.Activation("silu", name="silu")(inner(image))
    hidden = keras.layers.Conv2D(2, 3, padding="same", name="conv")(hidden)
    hidden = keras.layers.Identity(name="silu_shift")(hidden)
    model, inserted = shifted(keras.Model(image, hidden), 1.0, None)
    assert sorted(inserted.values()) == ["pad", "shift"]
    names = {node.name: node.class_name for node in qdq.build_graph(model).nodes}
    assert {names[name] for name in inserted} == {"Add", "Pad"}
