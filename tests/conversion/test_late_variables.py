"""Copies of layers start from their source's values: nothing is drawn at random and nothing is lost."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import qdq_workbench as qdq
from qdq_workbench.conversion.engine import late_variables
from qdq_workbench.conversion.engine.late_variables import LateVariables


def net() -> keras.Model:
    """A network with kernels, a normalization with statistics, and a recurrent layer."""
    image = keras.Input((6, 6, 3), name="image")
    x = keras.layers.Conv2D(4, 3, name="conv")(image)
    x = keras.layers.ReLU(name="relu")(keras.layers.BatchNormalization(name="bn")(x))
    x = keras.layers.LSTM(3, name="lstm")(keras.layers.Reshape((16, 4), name="rows")(x))
    model = keras.Model(image, keras.layers.Dense(2, name="head")(x))
    generator = np.random.default_rng(0)
    model.set_weights([generator.uniform(0.1, 1.0, value.shape) for value in model.get_weights()])
    return model


@pytest.mark.parametrize("copy", [qdq.quantize_model, qdq.fold_batch_norm, lambda m: qdq.strip(qdq.quantize_model(m))])
def test_no_kernel_is_drawn_at_random(copy, monkeypatch):
    model, drawn = net(), []
    # A layer that refuses to be entered may leave variables that Keras draws when the next scope ends.
    with keras.StatelessScope():
        pass
    for name in ("RandomInitializer", "GlorotUniform", "Orthogonal", "OrthogonalInitializer"):
        kind = getattr(keras.initializers, name, None)
        if kind is None:
            continue
        original = kind.__call__

        def recorded(self, shape, *args, original=original, **kwargs):
            if tf.executing_eagerly():  # in a graph that only tells shapes nothing is computed
                drawn.append(tuple(shape))
            return original(self, shape, *args, **kwargs)

        monkeypatch.setattr(kind, "__call__", recorded)
    keras.layers.Dense(2).build((None, 5))
    assert drawn == [(5, 2)]  # drawing is noticed
    copied = copy(model)
    folded = {(3, 3, 3, 4)} if copy is qdq.fold_batch_norm else set()
    assert set(drawn[1:]) <= folded
    if copy is qdq.quantize_model:
        copied.quantization_enabled = False
    images = np.random.default_rng(1).normal(size=(2, 6, 6, 3)).astype(np.float32)
    np.testing.assert_allclose(copied(images), model(images), rtol=1e-5, atol=1e-6)


def test_copies_do_not_share_later_changes():
    model = net()
    before = [np.array(value) for value in model.get_weights()]
    q_model = qdq.quantize_model(model)
    q_model.get_layer("quant_conv").layer.kernel.assign_add(tf.ones((3, 3, 3, 4)))
    for value, kept in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, kept)
    kernel = model.get_layer("conv").kernel
    kernel.assign(tf.zeros_like(kernel))
    assert float(tf.reduce_min(q_model.get_layer("quant_conv").layer.kernel)) > 1.0


def test_a_layer_frozen_when_it_was_copied_learns_when_it_is_unfrozen():
    model = net()
    model.get_layer("head").trainable = False
    q_model = qdq.quantize_model(model)
    head = q_model.get_layer("quant_head")
    assert not head.layer.kernel.trainable
    assert not head.layer.trainable
    head.trainable = head.layer.trainable = True
    images = np.random.default_rng(1).normal(size=(2, 6, 6, 3)).astype(np.float32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(q_model(images, training=True))
    assert float(tf.reduce_max(tf.abs(tape.gradient(loss, head.layer.kernel.value)))) > 0.0


def test_statistics_of_normalizations_stay_not_trainable():
    q_model = qdq.quantize_model(net())
    bn = q_model.get_layer("bn")
    assert [v.trainable for v in bn.variables] == [True, True, False, False]
    assert [v.value.trainable for v in bn.variables] == [True, True, False, False]


class Scaled(keras.layers.Layer):
    """A layer that makes a variable of a value, which Keras refuses in a stateless scope."""

    def build(self, shape):
        self.factor = keras.Variable(np.full(shape[-1], 2.0, np.float32), name="factor")
        self.factor.assign(self.factor * 1.5)

    def call(self, inputs):
        return inputs * self.factor


def test_layers_of_the_users_own_are_built_as_always():
    image = keras.Input((3,))
    model = keras.Model(image, Scaled(name="scaled")(keras.layers.Dense(3, name="dense")(image)))
    model.get_layer("scaled").factor.assign([1.0, 2.0, 4.0])
    q_model = qdq.quantize_model(model)
    q_model.quantization_enabled = False
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(q_model(x), model(x))


def test_a_copy_of_another_shape_is_left_to_its_own_initializers():
    source = keras.layers.Dense(2, use_bias=False)
    source.build((None, 3))
    late, copy = LateVariables(), keras.layers.Dense(2)
    late.copied(source, copy)
    with late.building(copy):
        copy.build((None, 3))
    assert not late.has_values(copy)
    assert copy.kernel.shape == (3, 2)
    assert np.isfinite(copy.kernel.numpy()).all()


def test_the_private_attributes_of_keras_that_this_relies_on():
    """Read in Keras 3.10 to 3.15: if this fails, `LateVariables` copies by assigning, and is slower."""
    with keras.StatelessScope():
        variable = keras.Variable("ones", shape=(2,), dtype="float32")
        assert variable._value is None
        variable._initializer = lambda shape, dtype=None: tf.constant([3.0, 4.0])
    np.testing.assert_array_equal(variable.numpy(), [3.0, 4.0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.layers.LSTM(3, stateful=True),
        lambda: keras.layers.Bidirectional(keras.layers.GRU(2, stateful=True)),
        lambda: keras.layers.RNN([keras.layers.LSTMCell(3), keras.layers.GRUCell(2)], stateful=True),
    ],
    ids=["lstm", "bidirectional", "stacked"],
)
def test_recurrent_layers_that_keep_their_state_are_built_as_always(make):
    rows = keras.Input(batch_shape=(2, 4, 3), name="rows")
    model = keras.Model(rows, keras.layers.Dense(2, name="head")(make()(rows)))
    q_model = qdq.quantize_model(model)
    kernels = [value for value in model.get_weights() if value.ndim > 1]
    copies = [value for value in q_model.get_weights() if value.ndim > 1]
    assert all(any(np.array_equal(copy, kernel) for copy in copies) for kernel in kernels)
    qdq.calibrate(q_model, np.ones((4, 4, 3), np.float32), batch_size=2, verbose=False)
    assert not q_model.uncalibrated_tensors()


@pytest.mark.parametrize("built", [False, True])
def test_a_copy_lives_as_long_as_its_values_are_remembered(built):
    """Else a layer made later could have the identity of a copy that is gone, and start from another layer's values."""
    source, late = keras.layers.Dense(2, name="source"), LateVariables()
    source.build((None, 3))
    copy = keras.layers.Dense(2, name="copy")
    late.copied(source, copy)
    if built:
        with late.building(copy):
            copy.build((None, 3))
    assert late.has_values(copy) is built
    copy = weakref.ref(copy)
    gc.collect()
    assert copy() is not None
    del late
    gc.collect()
    assert copy() is None


@pytest.mark.parametrize("failing", [0, 1, 5])
def test_a_value_that_cannot_be_had_leaves_later_models_alone(failing, monkeypatch):
    """Keras goes on with the variables of the failed call in every scope that comes, unless they are worked off."""
    made, original = [], late_variables._value_of

    def value_of(source):
        made.append(source)
        if len(made) <= failing:
            return original(source)

        def fail(*_, **__):
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")

        return fail

    model = net()
    expected = [value.numpy() for value in qdq.quantize_model(model).variables]
    with monkeypatch.context() as patched, pytest.raises(tf.errors.ResourceExhaustedError):
        patched.setattr(late_variables, "_value_of", value_of)
        qdq.quantize_model(model)
    keras.layers.Dense(2).build((None, 3))
    again = [value.numpy() for value in qdq.quantize_model(model).variables]
    assert all(map(np.array_equal, again, expected))
