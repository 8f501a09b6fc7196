"""What the tests of Sony's MCT assert about quantization after training, and no other test of ours does
(docs/peer_tests.md).
"""

import keras
import numpy as np
import pytest
from keras import layers, ops
from small_models import flat, samples, shake

import qdq_workbench as qdq
from qdq_workbench import mct
from qdq_workbench.export.litert.tflite_run import make_interpreter


def image_of(size=6, channels=3):
    return keras.Input((size, size, channels), name="image")


def quantized(model, **config):
    x = samples(model, 8)
    batch = keras.tree.flatten(x)
    return mct.keras_post_training_quantization(model, lambda: batch, 1, mct.QuantizationConfig(**config))


def difference(one, other, x):
    pairs = zip(flat(one(x)), flat(other(x)), strict=True)
    return max(float(np.abs(ours - theirs).max() / np.abs(theirs).max()) for ours, theirs in pairs)


# ---------------------------------------------------------------- graphs


def test_one_tensor_twice_in_a_sum():
    image = image_of()
    hidden = layers.Conv2D(4, 1, name="conv")(image)
    model = keras.Model(image, layers.Conv2D(2, 1, name="last")(layers.Add(name="add")([hidden, hidden])))
    q_model, info = quantized(model)
    (add,) = info.plan.graph.calls("add")
    assert add.inputs[0] == add.inputs[1]
    assert [tensor.name for tensor in info.plan.tensors if tensor.name.startswith("conv")] == ["conv", "conv/kernel"]
    assert difference(q_model, model, samples(model)) < 0.1


def inner_model():
    left, right = keras.Input((6, 6, 3), name="left"), keras.Input((6, 6, 3), name="right")
    deeper = keras.Sequential([keras.Input((6, 6, 3)), layers.Conv2D(3, 1, name="deep")], name="deeper")
    outputs = [layers.Conv2D(3, 1, name="a")(deeper(left)), layers.Conv2D(3, 1, name="b")(right)]
    return keras.Model([left, right], outputs, name="inner")


@pytest.mark.parametrize("used", ["both", "first"])
def test_models_inside_with_several_ends_are_laid_flat(used):
    image = image_of()
    first, second = inner_model()([image, layers.ReLU(name="relu")(image)])
    joined = layers.Concatenate(name="joined")([first, second]) if used == "both" else first
    model = keras.Model(image, layers.Conv2D(2, 1, name="last")(joined))
    q_model, info = quantized(model)
    assert not any(isinstance(layer, keras.Model) for layer in q_model.layers)
    weights = {tensor.name for tensor in info.plan.tensors if tensor.kind == "weight"}
    expected = {"inner.deeper.deep/kernel", "inner.a/kernel", "last/kernel"}
    assert weights == (expected | {"inner.b/kernel"} if used == "both" else expected)
    assert difference(q_model, model, samples(model)) < 0.1


def test_a_tensor_in_the_middle_is_returned_too():
    image = image_of()
    middle = layers.Conv2D(4, 3, name="middle")(image)
    model = keras.Model(image, [middle, layers.Conv2D(2, 1, name="last")(layers.ReLU(name="relu")(middle))])
    q_model, _ = quantized(model)
    assert [tuple(tensor.shape) for tensor in q_model.outputs] == [tuple(tensor.shape) for tensor in model.outputs]
    assert difference(q_model, model, samples(model)) < 0.1


CONSTANT = np.linspace(0.5, 2.0, 3, dtype="float32")


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: ops.add(x, CONSTANT),
        lambda x: ops.add(CONSTANT, x),
        lambda x: ops.subtract(CONSTANT, x),
        lambda x: ops.multiply(CONSTANT, x),
        lambda x: ops.divide(CONSTANT, ops.exp(x)),
        lambda x: ops.power(CONSTANT, x),
        lambda x: ops.matmul(x, np.outer(CONSTANT, CONSTANT)),
        lambda x: ops.concatenate([x, ops.multiply(x, 0.0) + CONSTANT], axis=-1),
        lambda x: x[:, 1:, ::2] * CONSTANT,
    ],
    ids=["add", "add left", "subtract", "multiply", "divide", "power", "matmul", "concatenate", "slice"],
)
def test_constants_keep_their_side_and_their_value(operation):
    image = image_of()
    model = keras.Model(image, operation(layers.Conv2D(3, 1, name="conv")(image)))
    q_model = qdq.quantize_model(model)
    x = samples(model)
    q_model.quantization_enabled = False
    np.testing.assert_array_equal(q_model(x), model(x))
    q_model.quantization_enabled = True
    qdq.calibrate(q_model, x, verbose=False)
    assert 0 < difference(q_model, model, x) < 0.1


# ---------------------------------------------------------------- folding and equalizing


def test_a_normalization_with_three_readers_is_folded_once():
    image = image_of()
    norm = layers.BatchNormalization(name="norm")(layers.Conv2D(3, 2, name="conv")(image))
    joined = layers.Concatenate()([layers.ReLU()(norm), norm, layers.Activation("tanh")(norm)])
    model = shake(keras.Model(image, joined))
    folded = qdq.fold_batch_norm(model)
    x = samples(model)
    np.testing.assert_allclose(folded(x), model(x), atol=1e-5)
    kernel, scale = model.get_layer("conv").kernel.numpy(), model.get_layer("norm")
    factor = np.asarray(scale.gamma) / np.sqrt(np.asarray(scale.moving_variance) + scale.epsilon)
    np.testing.assert_allclose(folded.get_layer("conv").kernel, kernel * factor, rtol=1e-5)
    assert "norm" not in {layer.name for layer in folded.layers}


KINDS = {
    "conv": lambda name: layers.Conv2D(3, 3, name=name),
    "transposed": lambda name: layers.Conv2DTranspose(3, 3, name=name),
    "depthwise": lambda name: layers.DepthwiseConv2D(3, name=name),
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_channels_between_all_kinds_of_convolutions_are_equalized(first, second, padded):
    image = image_of(9)
    hidden = layers.BatchNormalization(name="norm")(KINDS[first]("first")(image))
    hidden = layers.ReLU(name="relu")(hidden)
    hidden = layers.ZeroPadding2D()(hidden) if padded else hidden
    model = shake(keras.Model(image, KINDS[second]("second")(hidden)))
    norm = model.get_layer("norm")
    norm.gamma.assign(norm.gamma * [5.0, 0.2, 3.0])
    before, equalized = qdq.fold_batch_norm(model), qdq.equalize_scales(model, "moments")
    np.testing.assert_allclose(equalized(samples(model)), model(samples(model)), atol=1e-4)
    axes = {"conv": (2, 3), "transposed": (3, 2), "depthwise": (2, 2)}
    ratios = []
    for name, kind, end in (("first", first, 1), ("second", second, 0)):
        values = np.asarray(equalized.get_layer(name).kernel) / np.asarray(before.get_layer(name).kernel)
        ratios.append(np.moveaxis(values, axes[kind][end], 0).reshape(3, -1).mean(axis=1))
    np.testing.assert_allclose(ratios[0] * ratios[1], 1.0, rtol=1e-4)
    assert (ratios[0] <= 1 + 1e-5).all()
    assert ratios[0].min() < 0.5


# ---------------------------------------------------------------- thresholds and files


def chain(activation="softmax"):
    image = image_of()
    hidden = layers.Conv2D(4, 3, activation="relu", name="conv")(image)
    hidden = layers.DepthwiseConv2D(2, name="depthwise")(hidden)
    return keras.Model(image, layers.Dense(3, activation=activation, name="head")(layers.Flatten(name="flat")(hidden)))


@pytest.mark.parametrize("method", mct.QuantizationErrorMethod)
def test_known_ends_of_ranges_hold_under_every_error_method(method):
    q_model, _ = quantized(chain(), activation_error_method=method)
    ranges = q_model.activation_ranges()
    assert ranges["head"] == (0.0, 1.0)
    assert ranges["conv"][0] == 0.0 < ranges["conv"][1]
    assert ranges["image"][0] < 0.0 < ranges["image"][1]
    signs = {layer.tensor: layer.spec for layer in q_model.activation_quantizers}
    assert qdq.numerics.qparams_from_range(*ranges["conv"], signs["conv"]).zero_point == signs["conv"].qmin


def test_nothing_switched_on_gives_the_float_model_back():
    model = shake(keras.Model(image := image_of(), layers.BatchNormalization()(layers.Conv2D(4, 3)(image))))
    q_model, info = quantized(model, enable_activation_quantization=False, enable_weights_quantization=False)
    assert info.plan.tensors == ()
    assert info.steps == ("batch normalizations folded",)
    np.testing.assert_allclose(q_model(samples(model)), model(samples(model)), atol=1e-5)


def test_a_litert_file_has_powers_of_two_and_a_scale_per_channel(tmp_path):
    q_model, _ = quantized(chain(None), weights_n_bits=8)
    path = qdq.export_tflite(q_model, tmp_path / "model.tflite").path
    found = [
        detail for detail in make_interpreter(path.read_bytes()).get_tensor_details() if detail["dtype"] is np.int8
    ]
    grids = [detail["quantization_parameters"] for detail in found]
    activations = [grid["scales"][0] for grid in grids if len(grid["scales"]) == 1]
    exponents = np.log2(activations)
    assert len(exponents) >= 4
    np.testing.assert_allclose(exponents, np.round(exponents), atol=1e-6)
    weights = [grid for grid in grids if len(grid["scales"]) > 1]
    assert sorted(len(grid["scales"]) for grid in weights) == [3, 4, 4]
    assert not any(grid["zero_points"].any() for grid in weights)


@pytest.mark.parametrize("bits", [2, 3])
def test_every_channel_has_no_more_values_than_its_codes(bits):
    q_model, _ = quantized(chain(), weights_n_bits=bits)
    found = qdq.integer_weights(q_model)
    for name, axis in (("conv/kernel", 3), ("depthwise/kernel", 2), ("head/kernel", 1)):
        rows = np.moveaxis(found[name].codes, axis, 0)
        rows = rows.reshape(len(rows), -1)
        assert max(len(np.unique(row)) for row in rows) <= 2**bits
        assert len(np.unique(rows)) > 1


def test_no_pair_stands_inside_of_what_is_fused():
    image = image_of()
    shared = layers.Conv2D(3, 3, padding="same", name="shared")
    hidden = layers.ReLU(name="second")(shared(layers.ReLU(name="first")(shared(image))))
    hidden = layers.Activation("sigmoid", name="sigmoid")(layers.Conv2D(2, 3, name="conv")(hidden))
    hidden = layers.Dense(4, name="dense")(layers.Flatten(name="flat")(hidden))
    model = keras.Model(image, layers.Activation("swish", name="swish")(hidden))
    plan = qdq.plan_placement(model, framework_info=mct.DEFAULT_KERAS_INFO, target="onnxruntime")
    chosen = [p.tensor for p in plan.placements if p.site == "output" and p.author != "target"]
    assert chosen == ["image", "first", "second", "sigmoid", "swish"]


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt", "openvino", "litert"])
def test_a_kernel_that_is_a_constant_of_an_operation_stays_in_float(target):
    image = image_of()
    model = keras.Model(image, ops.relu(ops.conv(image, np.ones((3, 3, 3, 2), "float32"))))
    plan = qdq.plan_placement(model, target=target)
    assert [tensor.name for tensor in plan.tensors if tensor.kind == "weight"] == []
    (conv,) = (node.layer for node in plan.graph.nodes if node.is_a("Conv"))
    explained = qdq.explain(plan).for_layer(conv)
    assert explained.status == "float"
    assert "its kernel is a constant of the operation" in explained.reason
    assert explained.fix == ()
