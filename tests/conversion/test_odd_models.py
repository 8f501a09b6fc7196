"""Models that are unusual but legal: names, structures, layers and precisions that once broke a step."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.errors import UnsupportedModelError


def inputs(shape=(8, 8, 3), name="image", **kwargs):
    return keras.Input(shape, name=name, **kwargs)


def sequential_without_input():
    model = keras.Sequential([layers.Conv2D(4, 3), layers.ReLU(), layers.Flatten(), layers.Dense(3)])
    model.build((None, 8, 8, 3))
    return model


def names_like_ours():
    x = inputs(name="x")
    y = layers.ReLU(name="quant_conv")(layers.Conv2D(4, 3, name="conv")(x))
    y = layers.Conv2D(4, 1, name="quant_quant_conv")(layers.ReLU(name="qdq_x")(y))
    return keras.Model(x, layers.ReLU(name="qdq_qdq_x")(y))


def names_like_the_operations_that_come_in():
    x = inputs()
    y = layers.Conv2D(4, 3, name="cast")(x)
    for name in ("cast_1", "identity", "add", "pad", "clip", "cast_of_source", "reader_of_an_input"):
        y = layers.Conv2D(3, 1, name=name)(y)
    model = keras.Model(x, y)
    keras.backend.clear_session()  # Keras counts the names of its operations anew
    return model


def names_that_meet_when_flat():
    inner = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(4, 3, name="b")], name="a")
    x = inputs(name="a b")
    y = layers.Conv2D(3, 1, name="a.b")(inner(x))
    return keras.Model(x, layers.Conv2D(3, 1, name="a_b")(y))


def one_layer_three_times():
    dense = layers.Dense(8, name="dense")
    x = inputs((8,))
    return keras.Model(x, dense(dense(dense(x))))


def a_lambda_with_a_global():
    x = inputs()
    y = layers.Lambda(lambda t: ops.abs(t) * FACTOR, output_shape=lambda shape: shape)(layers.Conv2D(4, 3)(x))
    return keras.Model(x, layers.Conv2D(2, 1)(y))


FACTOR = 7.0


def functions_without_a_name():
    x = inputs((4, 6))
    y = layers.LSTM(5, activation=lambda t: ops.tanh(t) / FACTOR, return_sequences=True)(x)
    return keras.Model(x, layers.Dense(3, activation=lambda t: ops.abs(t) * FACTOR)(y))


def an_adapted_normalization():
    layer = layers.Normalization(name="normalization")
    layer.adapt(np.random.default_rng(1).normal(3.0, 2.0, (50, 8)).astype("float32"))
    x = inputs((8,))
    return keras.Model(x, layers.Dense(2)(layer(x)))


def bordered_with_zeros():
    x = inputs()
    y = layers.Conv2D(4, 3)(layers.ZeroPadding2D(((1, 0), (0, 2)))(x))
    y = layers.DepthwiseConv2D(3, strides=2)(ops.pad(y, ((0, 0), (1, 1), (1, 1), (0, 0))))
    return keras.Model(x, y)


def bordered_at_open_sizes():
    x = inputs((None, None, 3))
    return keras.Model(x, layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(layers.ZeroPadding2D(2)(x))))


def a_fixed_batch():
    x = keras.Input(batch_shape=(2, 8, 8, 3), name="image")
    return keras.Model(x, layers.Dense(2)(layers.Flatten()(layers.Conv2D(4, 3)(x))))


def in_half_precision():
    x = inputs()
    y = layers.BatchNormalization(dtype="mixed_bfloat16")(layers.Conv2D(4, 3, dtype="mixed_bfloat16")(x))
    return keras.Model(x, layers.Activation("linear", dtype="float32")(y))


def a_half_precision_input():
    x = inputs((8,), dtype="float16")
    return keras.Model(x, layers.Dense(3, dtype="mixed_float16")(x))


def in_double_precision():
    x = inputs((8,), dtype="float64")
    return keras.Model(x, layers.Dense(3, dtype="float64")(x))


@keras.saving.register_keras_serializable(package="test_odd_models")
class ScaledDense(layers.Dense):
    def call(self, inputs, scale=1.0, training=None):
        return super().call(inputs, training=training) * scale


def a_call_with_an_argument():
    x = inputs((8,))
    return keras.Model(x, ScaledDense(4, name="scaled")(x, scale=3.0))


def names_beyond_ascii():
    x = inputs((4,), name="eingäbe 入力")
    h = layers.Dense(3, name="слой " + "x" * 300 + "<b>")(x)
    return keras.Model(x, layers.Dense(2, name="🚀")(h), name="мод ель")


def an_empty_tensor():
    x = inputs()
    y = layers.Conv2D(2, 3)(x)
    return keras.Model(x, layers.Dense(2)(layers.Flatten()(ops.concatenate([y, y[:, :0]], axis=1))))


MODELS = [
    an_empty_tensor,
    sequential_without_input,
    names_like_ours,
    names_like_the_operations_that_come_in,
    names_that_meet_when_flat,
    one_layer_three_times,
    a_lambda_with_a_global,
    functions_without_a_name,
    an_adapted_normalization,
    bordered_with_zeros,
    bordered_at_open_sizes,
    a_fixed_batch,
    in_half_precision,
    a_half_precision_input,
    in_double_precision,
    a_call_with_an_argument,
]


def data_of(model, count=4):
    generator = np.random.default_rng(0)
    shape = [9 if size is None else size for size in model.inputs[0].shape[1:]]
    return generator.normal(size=(count, *shape)).astype(model.inputs[0].dtype)


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")  # Keras, of the float model too
@pytest.mark.parametrize("make", MODELS)
def test_the_whole_way(make, tmp_path):
    keras.utils.set_random_seed(1)
    model = make()
    x = data_of(model)
    expected = model(x[:2])
    for target in ("tensorrt", "onnxruntime"):
        q_model = qdq.quantize_model(model, target=target)
        q_model.quantization_enabled = False
        np.testing.assert_array_equal(q_model(x[:2]), expected)
        q_model.quantization_enabled = True
        qdq.calibrate(q_model, x, batch_size=2, verbose=False)
        np.testing.assert_array_equal(qdq.strip(q_model)(x[:2]), expected)
        planned = {p.layer for p in q_model.plan.placements if p.site == "weight"}
        wrapped = {q_model.layer_paths[wrapper.layer.name] for wrapper in q_model.wrappers if wrapper.weight_quantizers}
        assert wrapped == planned
        qdq.export_onnx(q_model, tmp_path / "model.onnx")
        qdq.verify_onnx(tmp_path / "model.onnx", q_model, x).raise_if_failed()


def test_the_names_of_a_model_may_be_any(tmp_path):
    model = names_beyond_ascii()
    x = data_of(model)
    q_model = qdq.quantize_model(model)  # the float model itself can only be called, not run in a graph
    qdq.calibrate(q_model, x, verbose=False)
    q_model.predict(x, verbose=0)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, x).raise_if_failed()


@pytest.mark.parametrize("make", [a_fixed_batch, bordered_at_open_sizes])
def test_verification_finds_samples_that_fit(make, tmp_path):
    model = make()
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, data_of(model), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    for data in (None, data_of(model, 3), data_of(model, 1)):
        qdq.verify_onnx(tmp_path / "model.onnx", q_model, data).raise_if_failed()


def test_the_report_says_that_the_file_is_in_float32(tmp_path):
    model = in_half_precision()
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, data_of(model), verbose=False)
    assert "float32" in qdq.export_onnx(q_model, tmp_path / "model.onnx").summary()


def test_layers_that_cannot_be_copied_are_named():
    class Scale(layers.Layer):
        def __init__(self, size, **kwargs):
            super().__init__(**kwargs)
            self.factor = size

        def get_config(self):
            return super().get_config()

        def call(self, inputs):
            return inputs * self.factor

    x = inputs((8,))
    model = keras.Model(x, layers.Dense(2)(Scale(2.0, name="scale")(x)))
    with pytest.raises(UnsupportedModelError, match=r"'scale' cannot be copied.*get_config"):
        qdq.quantize_model(model)


def test_a_layer_with_several_tensor_arguments_keeps_them(tmp_path):
    @keras.saving.register_keras_serializable(package="test_odd_models")
    class GatedDense(layers.Dense):
        def build(self, inputs_shape, gate_shape=None):
            super().build(inputs_shape)

        def call(self, inputs, gate):
            return super().call(inputs) * gate

        def compute_output_shape(self, inputs_shape, gate_shape=None):
            return super().compute_output_shape(inputs_shape)

    x = inputs((4,))
    model = keras.Model(x, GatedDense(4, name="gated")(x, x))
    data = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    q_model = qdq.quantize_model(model)
    assert [p.tensor for p in q_model.plan.placements if p.site == "weight"] == ["gated/kernel"]
    q_model.quantization_enabled = False
    np.testing.assert_array_equal(q_model(data), model(data))
    q_model.quantization_enabled = True
    qdq.calibrate(q_model, data, verbose=False)
    q_model.save(tmp_path / "gated.keras")
    loaded = keras.models.load_model(tmp_path / "gated.keras")
    np.testing.assert_array_equal(loaded(data), q_model(data))
    assert not np.array_equal(q_model(data), model(data))


def test_a_layer_may_leave_its_name_out_of_its_configuration(tmp_path):
    class Nameless(layers.Layer):
        def get_config(self):
            return {}

        def call(self, inputs):
            return inputs * 2.0

    x = inputs((8,))
    model = keras.Model(x, layers.Dense(2)(Nameless(name="twice")(x)))
    q_model = qdq.quantize_model(model)
    assert [layer.name for layer in q_model.layers][1] == "twice"
    q_model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects={"Nameless": Nameless})
    with pytest.raises(UnsupportedModelError, match="get_config"):
        qdq.calibrate(loaded, np.ones((1, 8), "float32"), verbose=False)


def test_an_input_is_quantized_where_its_output_is_named():
    spec = qdq.QuantizationSpec()
    spec.add("image", quantize_output=True)
    spec.add("stem", quantize_input=False)
    model = residual_net()
    q_model = qdq.quantize_model(model, quantization_spec=spec)
    assert q_model.plan.for_layer("image").quantize_output
    assert "qdq_image" in [layer.name for layer in q_model.layers]
    assert qdq.calibrate(q_model, samples(model), verbose=False).ranges["image"] == q_model.activation_ranges()["image"]


def test_a_model_with_nothing_to_quantize_keeps_its_plan(tmp_path):
    x = inputs()
    q_model = qdq.quantize_model(keras.Model(x, layers.ReLU()(x)))
    qdq.calibrate(q_model, data_of(q_model), verbose=False)
    q_model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.plan == q_model.plan
    assert loaded.recorded_ranges == q_model.recorded_ranges
    qdq.export_onnx(loaded, tmp_path / "model.onnx")
    qdq.verify_onnx(tmp_path / "model.onnx", loaded).raise_if_failed()


def test_masks_travel_through_pairs_and_wrappers(tmp_path):
    x = inputs((6,), dtype="int32")
    y = layers.Dense(3, name="dense")(layers.Embedding(10, 4, mask_zero=True, name="embedding")(x))
    model = keras.Model(x, layers.GlobalAveragePooling1D(name="pool")(y))
    words = np.array([[1, 2, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0]], "int32")
    q_model = qdq.quantize_model(model)
    q_model.quantization_enabled = False
    np.testing.assert_array_equal(q_model(words), model(words))
    q_model.quantization_enabled = True
    qdq.calibrate(q_model, words, verbose=False)
    for _ in range(3):  # the converter numbers nodes of one name differently from run to run
        qdq.export_onnx(q_model, tmp_path / "model.onnx")
        qdq.verify_onnx(tmp_path / "model.onnx", q_model, words).raise_if_failed()


def test_calls_of_a_shared_layer_keep_their_names_when_a_model_is_built_again(tmp_path):
    """Pairs on one branch only make Keras order the four calls differently from the float model."""
    inner_input = keras.Input((8, 8, 4), name="inner_input")
    conv = layers.Conv2D(4, 3, padding="same", name="conv")
    hidden = layers.ReLU(name="relu")(layers.BatchNormalization(name="norm")(conv(inner_input)))
    inner = keras.Model(inner_input, conv(hidden), name="inner")
    image = keras.Input((8, 8, 4), name="image")
    total = layers.Add(name="add")([inner(image), inner(layers.Conv2D(4, 1, name="before")(image))])
    model = keras.Model(image, layers.Dense(3, name="head")(layers.Flatten()(total)))
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    x = np.random.default_rng(0).normal(size=(4, 8, 8, 4)).astype("float32")
    qdq.calibrate(q_model, x, verbose=False)

    again = qdq.retarget(q_model, "tensorrt")

    for quantized in (q_model, again):
        seen = {call.node.name: call.args for call in float_view(quantized).calls}
        assert {name: [ref.name for ref in keras.tree.flatten(args)] for name, args in seen.items()} == {
            node.name: list(node.inputs) for node in model_graph_nodes(model)
        }
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx", target="tensorrt").path
    qdq.verify_onnx(path, again, x).raise_if_failed()
    swept = qdq.sensitivity(q_model, x, verbose=False)
    assert {entry.layer for entry in swept.entries} >= {"before", "inner/conv", "head"}


def model_graph_nodes(model):
    """Return the nodes of a model but its inputs."""
    return [node for node in qdq.build_graph(model).nodes if node.class_name != "InputLayer"]


def test_calls_of_one_layer_at_one_depth_are_numbered_as_they_were_made():
    """Keras keeps calls of one depth in no particular order; nested models came the other way round."""
    part_input = inputs((4,), name="part_input")
    part = keras.Model(part_input, layers.Dense(2, name="dense")(part_input), name="part")
    left, right, third = inputs((4,), name="left"), inputs((4,), name="right"), inputs((4,), name="third")
    after = layers.ReLU(name="after")
    model = keras.Model([third, right, left], layers.Concatenate()([after(part(x)) for x in (left, right, third)]))

    reads = {node.name: node.inputs for node in qdq.build_graph(model).nodes}

    assert [reads[name][0] for name in ("part/dense", "part/dense#1", "part/dense#2")] == ["left", "right", "third"]
    assert [reads[name][0] for name in ("after", "after#1")] == ["part/dense", "part/dense#1"]
