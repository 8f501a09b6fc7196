import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from small_models import flat, nested_net, residual_net, samples, two_headed_net

import qdq_workbench as qdq
from qdq_workbench.errors import SpecError, UnsupportedModelError

MODELS = [residual_net, nested_net, two_headed_net]


def equal(ours, theirs):
    return all(np.array_equal(x, y) for x, y in zip(flat(ours), flat(theirs), strict=True))


@pytest.fixture(scope="module")
def q_model():
    q_model = qdq.quantize_model(residual_net(), custom_qdq_cases=[qdq.ResNetV1QDQCase()])
    qdq.calibrate(q_model, samples(q_model), verbose=False, freeze=True)
    return q_model


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
@pytest.mark.parametrize("make", MODELS)
def test_switched_off_it_equals_the_float_model_bit_for_bit(make, target):
    model = make()
    x = samples(model)
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, x, verbose=False)
    assert not equal(q_model(x), model(x))
    q_model.quantization_enabled = False
    assert not q_model.quantization_enabled
    assert equal(q_model(x), model(x))
    assert equal(q_model.predict(x, verbose=0), model.predict(x, verbose=0))
    q_model.quantization_enabled = True
    q_model.wrappers[0].enabled.assign(False)
    q_model.quantization_enabled = False  # what the property says already, and not what all layers do
    assert not any(bool(layer.enabled.numpy()) for layer in q_model.quantizing_layers)


def test_uncalibrated_activations_pass_and_weights_are_quantized():
    model = residual_net()
    x = samples(model)
    q_model = qdq.quantize_model(model)
    baked = qdq.strip(q_model, bake_weights=True)
    assert set(q_model.uncalibrated_tensors()) == {t.name for t in q_model.plan.tensors if t.kind == "activation"}
    np.testing.assert_allclose(flat(q_model(x))[0], flat(baked(x))[0], atol=1e-6)


@pytest.mark.parametrize("make", MODELS)
def test_the_users_model_and_spec_are_not_changed(make):
    model = make()
    before = [np.copy(w) for w in model.get_weights()]
    config = model.get_config()
    nodes = {layer.name: len(layer._inbound_nodes) for layer in model.layers}
    spec = qdq.QuantizationSpec()
    spec.add("Dense", is_keras_class=True)
    entries = [vars(entry).copy() for entry in spec.layers]
    q_model = qdq.quantize_model(model, quantization_spec=spec)
    q_model.compile("sgd", "mse", run_eagerly=True)
    x = samples(model)
    q_model.fit(
        x, keras.tree.map_structure(lambda y: np.zeros_like(keras.ops.convert_to_numpy(y)), model(x)), verbose=0
    )
    assert [vars(entry) for entry in spec.layers] == entries
    assert model.get_config() == config
    assert {layer.name: len(layer._inbound_nodes) for layer in model.layers} == nodes
    for ours, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("make", MODELS)
def test_pairs_are_layers_on_tensors_and_weights_are_wrapped(make):
    q_model = qdq.quantize_model(make())
    planned = {tensor.name for tensor in q_model.plan.tensors if tensor.kind == "activation"}
    assert {layer.tensor for layer in q_model.activation_quantizers} == planned
    assert len(q_model.activation_quantizers) == len(planned)
    weights = {f"{q_model.layer_paths[w.layer.name]}/{name}" for w in q_model.wrappers for name in w.weight_quantizers}
    assert weights == {tensor.name for tensor in q_model.plan.tensors if tensor.kind == "weight"}
    assert all(wrapper.name == f"quant_{wrapper.layer.name}" for wrapper in q_model.wrappers)


@pytest.mark.parametrize("make", MODELS)
def test_save_load_and_clone_without_custom_objects(make, tmp_path):
    model = make()
    x = samples(model)
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, x, verbose=False)
    q_model.save(tmp_path / "q.keras")
    loaded = keras.models.load_model(tmp_path / "q.keras")
    assert equal(loaded(x), q_model(x))
    assert loaded.plan == q_model.plan
    assert loaded.recorded_ranges == q_model.recorded_ranges
    assert loaded.target == "onnxruntime"
    clone = keras.models.clone_model(q_model)
    clone.set_weights(q_model.get_weights())
    assert equal(clone(x), q_model(x))
    assert clone.plan == q_model.plan
    assert clone.recorded_ranges == q_model.recorded_ranges
    fresh = qdq.quantize_model(model, target="onnxruntime")
    q_model.save_weights(tmp_path / "q.weights.h5")
    fresh.load_weights(tmp_path / "q.weights.h5")
    assert equal(fresh(x), q_model(x))


def test_fit_trains_through_the_quantizers(q_model):
    copy = keras.models.clone_model(q_model)
    copy.set_weights(q_model.get_weights())
    x = samples(copy)
    copy.compile(keras.optimizers.SGD(0.05), "mse")
    target = np.ones((16, 3), "float32")
    history = copy.fit(x, target, epochs=6, verbose=0)
    assert history.history["loss"][-1] < 0.7 * history.history["loss"][0]
    assert copy.activation_ranges() == q_model.activation_ranges()  # frozen by calibrate


def test_training_gives_ranges_to_an_uncalibrated_model():
    q_model = qdq.quantize_model(residual_net())
    q_model.compile("sgd", "mse")
    q_model.fit(samples(q_model), np.zeros((16, 3)), verbose=0)
    assert q_model.uncalibrated_tensors() == []
    low, high = q_model.activation_ranges()["stem_relu"]
    assert low == 0.0 < high


def test_one_training_step_has_the_straight_through_gradient(q_model):
    x = samples(q_model)
    wrapper = q_model.get_layer("quant_head")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(q_model(x, training=False) ** 2)
    gradient = tape.gradient(loss, wrapper.layer.kernel.value)
    inputs = keras.Model(q_model.inputs[0], q_model.get_layer("qdq_pool").output)(x)
    expected = tf.transpose(inputs) @ (2.0 * q_model(x, training=False))
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5)


def test_frozen_layers_stay_frozen_with_their_ranges():
    model = residual_net()
    model.get_layer("conv").trainable = False
    q_model = qdq.quantize_model(model)
    assert not q_model.get_layer("quant_conv").trainable
    trainable = {variable.path for variable in q_model.trainable_variables}
    assert not any("quant_conv/" in path for path in trainable)
    assert any("quant_head/" in path for path in trainable)


def test_a_nested_model_called_with_training_false_keeps_its_statistics():
    model = nested_net()
    q_model = qdq.quantize_model(model)
    q_model.quantization_enabled = False
    x = samples(model)
    np.testing.assert_allclose(flat(q_model(x, training=True))[0], flat(model(x, training=True))[0], atol=1e-6)


def test_mixed_precision_and_jit():
    policy = keras.mixed_precision.DTypePolicy("mixed_bfloat16")
    image = keras.Input((8, 8, 2))
    hidden = layers.Conv2D(4, 3, dtype=policy)(image)
    model = keras.Model(image, layers.Dense(2, dtype="float32")(layers.Flatten(dtype=policy)(hidden)))
    q_model = qdq.quantize_model(model)
    x = samples(model)
    qdq.calibrate(q_model, x, verbose=False)
    assert q_model.wrappers[0].compute_dtype == "bfloat16"
    q_model.quantization_enabled = False
    assert equal(q_model(x), model(x))
    q_model.quantization_enabled = True
    q_model.compile("sgd", "mse", jit_compile=True)
    assert np.isfinite(q_model.fit(x, np.zeros((16, 2)), verbose=0).history["loss"][0])


def test_regularizers_are_counted_once():
    image = keras.Input((4,))
    model = keras.Model(image, layers.Dense(2, kernel_regularizer="l2", name="head")(image))
    q_model = qdq.quantize_model(model)
    q_model(np.ones((1, 4), "float32"))
    assert len(q_model.losses) == len(model.losses) == 1
    np.testing.assert_allclose(q_model.losses[0], model.losses[0])


def test_a_plan_may_be_passed_instead_of_its_parts():
    model = residual_net()
    plan = qdq.plan_placement(model, custom_qdq_cases=[qdq.ResNetV1QDQCase()], target="onnxruntime")
    q_model = qdq.quantize_model(model, plan=qdq.PlacementPlan.from_dict(plan.to_dict()))
    assert q_model.plan == plan
    with pytest.raises(SpecError, match="either plan"):
        qdq.quantize_model(model, "partial", plan=plan)
    with pytest.raises(SpecError, match="another model"):
        qdq.quantize_model(two_headed_net(), plan=plan)
    with pytest.raises(SpecError, match=r"PlacementPlan\.load.*'plan\.json' of type str"):
        qdq.quantize_model(model, plan="plan.json")
    with pytest.raises(SpecError, match=r"plan is made for one target.*'openvino', a plan for 'onnxruntime'"):
        qdq.quantize_model(model, plan=plan, target="openvino")
    assert qdq.quantize_model(model, plan=plan, target="onnxruntime").target == "onnxruntime"


def test_a_scale_group_shares_one_range():
    image = keras.Input((8, 8, 2), name="image")
    hidden = layers.Conv2D(2, 3, name="conv", activation="relu")(image)
    hidden = layers.MaxPooling2D(name="pool")(hidden)
    model = keras.Model(image, layers.Conv2D(2, 3, name="next")(hidden))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    assert [layer.tensor for layer in q_model.activation_quantizers] == ["image", "conv", "next"]
    qdq.calibrate(q_model, samples(model), verbose=False)
    ranges = q_model.activation_ranges()
    assert ranges["conv"] == ranges["pool"]


def test_retarget_equals_quantizing_for_the_other_target():
    model = residual_net()
    x = samples(model)
    source = qdq.quantize_model(model, custom_qdq_cases=[qdq.ResNetV1QDQCase()], target="tensorrt")
    qdq.calibrate(source, x, verbose=False)
    direct = qdq.quantize_model(model, custom_qdq_cases=[qdq.ResNetV1QDQCase()], target="onnxruntime")
    qdq.calibrate(direct, x, verbose=False)
    other = qdq.retarget(source, "onnxruntime")
    assert other.plan == direct.plan
    assert equal(other(x), direct(x))
    with pytest.raises(qdq.errors.UncalibratedError, match="whose range is unknown"):
        qdq.retarget(qdq.quantize_model(model), "onnxruntime")


def test_strip_returns_the_float_model(q_model):
    x = samples(q_model)
    stripped = qdq.strip(q_model)
    assert [layer.name for layer in stripped.layers] == [layer.name for layer in residual_net().layers]
    reference = keras.models.clone_model(q_model)
    reference.set_weights(q_model.get_weights())
    reference.quantization_enabled = False
    assert equal(stripped(x), reference(x))
    with pytest.raises(qdq.errors.NotQuantizedError):
        qdq.strip(stripped)


def test_a_quantized_model_is_not_quantized_again(q_model):
    image = keras.Input((8, 8, 2))
    around = keras.Model(image, layers.Dense(2)(q_model(image)))
    for model in (q_model, around):
        with pytest.raises(UnsupportedModelError, match=r"quantized already.*strip\(q_model\)"):
            qdq.quantize_model(model)


def test_a_plan_notes_no_settings_that_planning_does_not_look_at():
    """Each further one would make every saved plan one "of another model"."""
    x = keras.Input((5, 4), name="x")
    y = keras.layers.MultiHeadAttention(2, 3, name="attention")(keras.layers.BatchNormalization(name="norm")(x), x)
    plan = qdq.plan_placement(keras.Model(x, keras.layers.LayerNormalization(name="layer_norm")(y)))
    described = [item for node in plan.graph.nodes for item in (node, *node.parts)]
    assert not [item.name for item in described if "scale" in item.settings]
