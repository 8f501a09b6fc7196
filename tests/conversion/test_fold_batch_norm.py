import keras
import numpy as np
import onnx
import pytest
from keras import layers
from small_models import flat, nested_net, residual_net, samples, shake

import qdq_workbench as qdq
from qdq_workbench import fold_batch_norm
from qdq_workbench.conversion.engine.folding import batch_norm_gain, read_batch_norm


def folded_names(model):
    folded = fold_batch_norm(model)
    x = samples(model)
    np.testing.assert_allclose(flat(folded(x))[0], flat(model(x))[0], atol=1e-5)
    return [layer.name for layer in folded.layers if isinstance(layer, layers.BatchNormalization)]


@pytest.mark.parametrize(
    "layer",
    [
        lambda: layers.Conv1D(3, 2),
        lambda: layers.Conv1DTranspose(3, 2),
        lambda: layers.SeparableConv1D(3, 2),
        lambda: layers.DepthwiseConv1D(2, depth_multiplier=2),
        lambda: layers.Dense(3, use_bias=False),
    ],
)
def test_sequences(layer):
    image = keras.Input((6, 4))
    assert folded_names(shake(keras.Model(image, layers.BatchNormalization()(layer()(image))))) == []


@pytest.mark.parametrize(
    "layer",
    [
        lambda: layers.Conv2D(4, 3, groups=2, use_bias=False),
        lambda: layers.Conv2DTranspose(3, 3, strides=2),
        lambda: layers.DepthwiseConv2D(3, use_bias=False),
        lambda: layers.DepthwiseConv2D(3, depth_multiplier=2),
        lambda: layers.SeparableConv2D(3, 3, use_bias=False),
        lambda: layers.Dense(3),
    ],
)
@pytest.mark.parametrize("norm", [{}, {"scale": False}, {"center": False}])
def test_images(layer, norm):
    image = keras.Input((8, 8, 4))
    hidden = layer()(image)
    model = keras.Model(image, layers.BatchNormalization(**norm)(hidden))
    inner = model.layers[-1]
    inner.moving_mean.assign(np.linspace(-1, 1, hidden.shape[-1]))
    inner.moving_variance.assign(np.linspace(0.5, 2, hidden.shape[-1]))
    if inner.scale:
        inner.gamma.assign(np.linspace(-1, 1, hidden.shape[-1]))
    assert folded_names(model) == []


@pytest.mark.parametrize("make", [residual_net, nested_net])
def test_whole_models(make):
    assert folded_names(make()) == []


def test_what_cannot_be_folded_stays():
    image = keras.Input((8, 8, 3))
    activated = layers.BatchNormalization(name="behind_relu")(layers.Conv2D(3, 3, activation="relu")(image))
    conv = layers.Conv2D(3, 3)(activated)
    read_twice = layers.BatchNormalization(name="not_alone")(conv)
    other_axis = layers.BatchNormalization(axis=1, name="other_axis")(layers.Conv2D(3, 3, padding="same")(image))
    both = layers.Add()([conv, read_twice])
    model = shake(keras.Model(image, [both, other_axis]))
    assert sorted(folded_names(model)) == ["behind_relu", "not_alone", "other_axis"]


def tower(**settings):
    image = keras.Input((8, 8, 3))
    hidden = layers.BatchNormalization(name="norm")(layers.Conv2D(4, 3, name="conv", use_bias=False, **settings)(image))
    return keras.Model(image, layers.ReLU(name="relu")(hidden), name="tower")


def siamese(part):
    left, right = keras.Input((8, 8, 3), name="left"), keras.Input((8, 8, 3), name="right")
    return shake(keras.Model([left, right], layers.Subtract(name="apart")([part(left), part(right)])))


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_a_part_that_is_called_twice(target, tmp_path):
    model = siamese(tower())
    assert folded_names(model) == []
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target=target)
    qdq.calibrate(q_model, samples(model), verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert report.folded == 1
    operations = [node.op_type for node in onnx.load(report.path).graph.node]
    assert operations.count("Conv") == 2
    assert not {"Mul", "BatchNormalization"} & set(operations)
    qdq.verify_onnx(report.path, q_model, samples(model)).raise_if_failed()
    rows = {row.layer: row for row in qdq.explain(q_model.plan).layers}
    assert rows["tower/conv"].status == "int8"
    assert rows["tower/norm"].rule.endswith("FUSED")


def test_shared_layers_that_do_not_go_together_stay():
    image = keras.Input((8, 8, 3))
    conv, norm = layers.Conv2D(3, 3, padding="same"), layers.BatchNormalization(name="shared_norm")
    two_norms = [layers.BatchNormalization(name=name)(conv(image)) for name in ("first_norm", "second_norm")]
    two_layers = [norm(layers.Conv2D(3, 3, padding="same")(image)), norm(layers.Conv2D(3, 3, padding="same")(image))]
    model = shake(keras.Model(image, layers.Add()([*two_norms, *two_layers])))
    assert sorted(folded_names(model)) == ["first_norm", "second_norm", "shared_norm"]


def test_a_call_that_cannot_fold_keeps_the_others():
    part = tower()
    left, right = keras.Input((8, 8, 3), name="left"), keras.Input((8, 8, 3), name="right")
    hidden = part.get_layer("conv")(right)
    again = part.get_layer("relu")(part.get_layer("norm")(hidden))
    model = shake(keras.Model([left, right], [part(left), again, layers.Conv2D(2, 1, name="reader")(hidden)]))
    assert folded_names(model) == ["norm"]
    explained = qdq.explain(qdq.plan_placement(model, target="onnxruntime")).for_layer("norm")
    assert "needed elsewhere too" in explained.reason


def test_a_layer_that_is_not_folded_is_copied_once(monkeypatch):
    image = keras.Input((4,), name="image")
    model = keras.Model(image, layers.Dense(3, name="head")(image))
    kernel, assigned = model.get_layer("head").kernel, []
    plain = type(kernel).assign
    monkeypatch.setattr(type(kernel), "assign", lambda self, value: assigned.append(self.path) or plain(self, value))
    folded = fold_batch_norm(model)
    assert not assigned  # its variables start with the values
    np.testing.assert_array_equal(folded.get_layer("head").kernel, kernel)


@pytest.mark.parametrize("regularized", ["conv", "norm"])
def test_an_activity_regularizer_sees_what_it_saw(regularized):
    given = {regularized: {"activity_regularizer": "l2"}}
    image = keras.Input((6, 6, 2), name="image")
    hidden = layers.Conv2D(4, 3, name="conv", **given.get("conv", {}))(image)
    hidden = layers.BatchNormalization(name="norm", **given.get("norm", {}))(hidden)
    model = shake(keras.Model(image, layers.BatchNormalization(name="last")(layers.Conv2D(3, 1, name="head")(hidden))))
    folded, x = fold_batch_norm(model), samples(model)
    assert [layer.name for layer in folded.layers] == ["image", "conv", "norm", "head"]
    np.testing.assert_allclose(folded(x), model(x), atol=1e-5)
    (ours,), (theirs,) = folded.losses, model.losses
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    # A file has no loss, so all of them are folded there.
    folds = qdq.plan_placement(model).lowering.folds
    assert {fold.batch_norm.layer for fold in folds} == {"norm", "last"}


def test_what_a_normalization_lacks_is_read_as_ones_and_zeros():
    norm = layers.BatchNormalization(axis=1, scale=False, center=False, epsilon=0.5)
    norm.build((None, 2, 3))
    norm.axis = [1]  # as Keras 2 has it
    norm.moving_mean.assign([1.0, -2.0])
    norm.moving_variance.assign([0.5, 3.5])
    read = read_batch_norm(norm)
    assert (read.gamma.tolist(), read.beta.tolist()) == ([1.0, 1.0], [0.0, 0.0])
    assert (read.mean.tolist(), read.variance.tolist()) == ([1.0, -2.0], [0.5, 3.5])
    assert (read.axis, read.epsilon, read.gamma.dtype) == (1, 0.5, np.float64)
    gain, shift = batch_norm_gain(norm)
    assert (gain.tolist(), shift.tolist()) == ([1.0, 0.5], [-1.0, 1.0])
