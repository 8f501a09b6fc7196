"""Activations behind the layers that held them: the same function, and convolutions that run on integers."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from small_models import flat, samples, shake

import qdq_workbench as qdq


def gated_block(x, name, activation="swish"):
    """An inverted bottleneck of EfficientNet: expand, depthwise, squeeze-and-excite with both activations inside."""
    x = layers.Conv2D(8, 1, use_bias=False, name=f"{name}_expand")(x)
    x = layers.BatchNormalization(name=f"{name}_norm")(x)
    x = layers.Activation(activation, name=f"{name}_act")(x)
    x = layers.DepthwiseConv2D(3, padding="same", name=f"{name}_depthwise")(x)
    gate = layers.GlobalAveragePooling2D(name=f"{name}_squeeze", keepdims=True)(x)
    gate = layers.Conv2D(2, 1, activation=activation, name=f"{name}_reduce")(gate)
    gate = layers.Conv2D(8, 1, activation="sigmoid", name=f"{name}_excite")(gate)
    return layers.Conv2D(4, 1, name=f"{name}_project")(layers.Multiply(name=f"{name}_gate")([x, gate]))


def efficient_net():
    """Two blocks with a residual between them."""
    keras.utils.set_random_seed(5)
    image = keras.Input((8, 8, 4), name="image")
    first = gated_block(image, "first")
    second = layers.Add(name="add")([gated_block(first, "second"), first])
    pooled = layers.GlobalAveragePooling2D(name="pool")(second)
    return shake(keras.Model(image, layers.Dense(3, activation="softmax", name="head")(pooled), name="efficient_net"))


def odd_net():
    """Shared, nested and sequential parts; activations that are layers or stay inside; a name that is taken."""
    keras.utils.set_random_seed(6)
    nested = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.SeparableConv2D(3, 3, padding="same", activation="gelu", name="sep")],
        name="nested",
    )
    shared = layers.Conv2D(3, 3, padding="same", activation="tanh", bias_initializer="normal", name="shared")
    image = keras.Input((8, 8, 3), name="image")
    x = nested(shared(shared(image)))
    x = layers.ReLU(name="leaky_activation")(x)
    x = layers.Conv2D(3, 1, activation=layers.LeakyReLU(0.3), name="leaky")(x)
    x = layers.Conv2D(3, 1, activation=layers.PReLU(alpha_initializer="normal"), name="prelu")(x)
    x = layers.Conv2DTranspose(3, 3, activation="elu", trainable=False, name="up")(x)
    x = layers.Conv2D(3, 1, activation="relu6", name="clipped")(x)
    x = layers.Conv2D(3, 1, activation=ops.relu, name="plain")(x)
    x = layers.EinsumDense("abcd,de->abce", (None, None, 2), activation="sigmoid", name="einsum")(x)
    model = keras.Model(image, x, name="odd_net")
    model(samples(model))  # what is an activation of a layer is built by the first call with values
    return model


@pytest.mark.parametrize("build", [efficient_net, odd_net])
def test_the_copy_computes_the_same_and_so_does_its_file(build, tmp_path):
    model = build()
    split = qdq.split_activations(model)
    data = samples(model)
    np.testing.assert_array_equal(flat(split(data))[0], flat(model(data))[0])
    split.save(tmp_path / "split.keras")
    loaded = keras.saving.load_model(tmp_path / "split.keras")
    np.testing.assert_array_equal(flat(loaded(data))[0], flat(model(data))[0])


def test_layers_keep_their_names_and_activations_are_called_after_them():
    model = odd_net()
    split = qdq.split_activations(model)
    assert [layer.name for layer in split.layers] == [
        "image",
        "shared",
        "shared_activation",
        "nested.sep",
        "nested.sep_activation",
        "leaky_activation",
        "leaky",
        "leaky_activation_2",
        "prelu",
        "up",
        "up_activation",
        "clipped",
        "plain",
        "einsum",
        "einsum_activation",
    ]
    assert split.get_layer("shared").activation is keras.activations.linear
    assert not split.get_layer("up").trainable
    assert split.get_layer("shared").trainable
    assert len(split.trainable_variables) == len(model.trainable_variables)
    # The source is only read.
    assert model.get_layer("shared").activation is keras.activations.tanh


def test_a_sequential_model_whose_precision_is_mixed():
    keras.utils.set_random_seed(7)
    dense = layers.Dense(4, activation="swish", dtype="mixed_float16", name="dense")
    model = keras.Sequential([keras.Input((5,)), dense, layers.Dense(2, dtype="float32", name="head")])
    split = qdq.split_activations(model)
    data = np.random.default_rng(0).normal(size=(16, 5)).astype("float32")
    np.testing.assert_array_equal(flat(split(data))[0], flat(model(data))[0])
    assert split.get_layer("dense_activation").compute_dtype == "float16"


def test_a_regularizer_of_the_result_still_sees_the_result():
    keras.utils.set_random_seed(8)
    numbers = keras.Input((5,), name="numbers")
    dense = layers.Dense(4, activation="tanh", activity_regularizer=keras.regularizers.L2(0.1), name="dense")
    model = keras.Model(numbers, dense(numbers))
    split = qdq.split_activations(model)
    data = samples(model)
    model(data), split(data)
    assert float(split.losses[0]) == float(model.losses[0]) > 0
    assert len(split.losses) == 1


def test_every_convolution_of_gated_blocks_runs_on_integers(tmp_path):
    model = efficient_net()
    data = samples(model)
    convolutions, explained = {}, {}
    for either in (model, qdq.split_activations(model)):
        case = qdq.AutoQDQCase("onnxruntime")
        q_model = qdq.quantize_model(either, custom_qdq_cases=[case], target="onnxruntime")
        qdq.calibrate(q_model, data, verbose=False)
        report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
        verification = qdq.verify_onnx(report.path, q_model, data)
        assert verification.passed, verification.summary()
        convolutions[either is model] = verification.figures["integer_kernels"]["Conv"]
        explained[either is model] = qdq.explain(q_model)
    assert convolutions == {True: [6, 10], False: [10, 10]}
    assert "split_activations(model)" in explained[True].for_layer("first_reduce").advice
    assert explained[False].for_layer("first_reduce").rule == "ORT-INTEGER"
    assert explained[False].for_layer("first_gate").status == "int8"


def test_the_explanation_for_litert_names_the_way_too():
    keras.utils.set_random_seed(9)
    image = keras.Input((8, 8, 4), name="image")
    model = keras.Model(image, gated_block(image, "only"))
    explanation = qdq.explain(qdq.plan_placement(model, target="litert"))
    assert "split_activations(model)" in explanation.for_layer("only_reduce").advice
