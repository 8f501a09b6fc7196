import keras
import numpy as np
import pytest
from keras import layers
from small_models import shake

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.cut import _can_take_out, _KeepMask, biases_behind, cut_model
from qdq_workbench.graph_builder import carries_mask


@pytest.fixture(scope="module")
def q_model():
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 2), name="image")
    x = layers.Conv2D(3, 3, name="conv")(image)
    x = layers.BatchNormalization(name="norm")(x)
    x = layers.TimeDistributed(layers.Dense(2), name="each")(x)
    x = layers.Conv2D(2, 1, use_bias=False, name="bare")(x)
    model = shake(keras.Model(image, [layers.Flatten(name="image_")(x), x], name="net"))
    found = qdq.quantize_model(model)
    qdq.calibrate(found, np.random.default_rng(0).normal(size=(2, 6, 6, 2)).astype(np.float32), verbose=False)
    return found


@pytest.fixture(scope="module")
def cut(q_model):
    return cut_model(q_model, fold=True, bake_weights=False)


def test_every_pair_has_two_open_ends_of_one_shape(q_model, cut):
    names = [pair.name for pair in q_model.plan.tensors if pair.kind == "activation"]
    assert list(cut.pairs) == names
    for source, placeholder in cut.pairs.values():
        assert (source.shape, source.dtype) == (placeholder.shape, placeholder.dtype)
        assert source._keras_history.operation.name.startswith("cast_of_source")
        assert isinstance(placeholder._keras_history.operation, layers.InputLayer)
    assert cut.pairs["image"][1].name == "dequantized.image"


def test_inputs_and_outputs_have_the_names_of_the_float_model(q_model, cut):
    assert list(cut.inputs) == ["image"]
    assert list(cut.outputs) == q_model.source_output_names
    assert [tuple(tensor.shape) for tensor in cut.outputs.values()] == [(None, 32), (None, 4, 4, 2)]


def test_an_output_with_the_name_of_an_input_gets_a_number():
    left, right = (keras.Input((2,), name=name) for name in ("a", "b"))
    model = keras.Model([left, right], [left, layers.Dense(2, name="head")(layers.Add()([left, right]))])
    found = cut_model(qdq.quantize_model(model), fold=False, bake_weights=False)
    assert list(found.inputs) == ["a", "b"]
    assert len({*found.inputs, *found.outputs}) == 4
    assert list(found.outputs)[1] == "head"


def test_weights_and_biases_are_the_variables_of_the_layers(cut):
    assert set(cut.weights) == {"conv/kernel", "each/layer/kernel", "bare/kernel"}
    assert cut.weights["each/layer/kernel"] is cut.layers["each"].layer.kernel
    assert set(cut.biases) == {"conv/kernel", "each/layer/kernel"}
    assert cut.biases["each/layer/kernel"] is cut.layers["each"].layer.bias


def test_normalizations_are_folded_only_when_asked(q_model, cut):
    assert [fold.batch_norm.name for fold in cut.folds] == ["norm"]
    assert "norm" not in {layer.name for layer in cut.layers.values() if hasattr(layer, "gamma")}
    whole = cut_model(q_model, fold=False, bake_weights=False)
    assert whole.folds == []
    source = next(wrapper.layer for wrapper in q_model.wrappers if wrapper.layer.name == "conv")
    np.testing.assert_array_equal(whole.weights["conv/kernel"], source.kernel)
    assert not np.array_equal(cut.weights["conv/kernel"], source.kernel)


def test_baked_weights_are_the_fake_quantized_ones(q_model):
    baked = cut_model(q_model, fold=False, bake_weights=True)
    integers = qdq.integer_weights(q_model)
    for name, variable in baked.weights.items():
        np.testing.assert_array_equal(variable, integers[name].dequantize())
    before = cut_model(q_model, fold=False, bake_weights=False)
    np.testing.assert_array_equal(baked.biases["conv/kernel"], before.biases["conv/kernel"])
    assert not np.array_equal(baked.weights["conv/kernel"], before.weights["conv/kernel"])


def test_biases_are_those_behind_quantized_kernels(q_model, cut):
    assert biases_behind(q_model.plan, cut.layers) == cut.biases
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_weight=False)
    plan = qdq.plan_placement(qdq.strip(q_model), quantization_spec=spec)
    assert list(biases_behind(plan, cut.layers)) == ["each/layer/kernel"]


class TestRecurrent:
    steps = keras.KerasTensor((None, 3, 2))

    @pytest.fixture
    def lstm(self):
        lstm = layers.LSTM(2, return_state=True)
        lstm.build((None, 3, 2))
        return lstm

    def test_a_call_without_mask_can_be_taken_out(self, lstm):
        state = keras.KerasTensor((None, 2))
        assert _can_take_out(lstm, (self.steps,), {})
        assert _can_take_out(lstm, (self.steps,), {"mask": None, "initial_state": [state, state]})
        assert _can_take_out(lstm, (self.steps, [state, state]), {})
        assert not _can_take_out(layers.Dense(2), (self.steps,), {})
        assert not _can_take_out(None, (self.steps,), {})

    def test_masks_and_constant_states_cannot(self, lstm):
        state, mask = keras.KerasTensor((None, 2)), keras.KerasTensor((None, 3), dtype="bool")
        assert not _can_take_out(lstm, (self.steps,), {"mask": mask})
        assert not _can_take_out(lstm, (self.steps, [state, state], mask), {})
        assert not _can_take_out(lstm, (self.steps,), {"initial_state": [state, np.zeros((1, 2))]})
        assert not _can_take_out(lstm, (self.steps, [np.zeros((1, 2)), state]), {})
        assert not _can_take_out(lstm, (self.steps, [np.zeros((1, 2)), np.zeros((1, 2))]), {})
        masked = layers.Masking()(keras.Input((3, 2)))
        assert carries_mask(masked)
        assert not _can_take_out(lstm, (masked,), {})

    def test_what_is_taken_out_is_a_placeholder_per_result(self):
        steps = keras.Input((3, 2), name="steps")
        model = keras.Model(steps, layers.Dense(1, name="head")(layers.LSTM(2, name="lstm")(steps)))
        q_model = qdq.quantize_model(model)
        assert cut_model(q_model, fold=True, bake_weights=False).recurrent == []
        (call,) = cut_model(q_model, fold=True, bake_weights=False, take_out_recurrent=True).recurrent
        assert call.layer == "lstm"
        assert [tuple(tensor.shape) for tensor in call.outputs] == [(None, 2)]


def test_readers_of_a_pair_see_the_mask_of_what_it_quantizes():
    steps = keras.Input((3, 2), name="steps")
    x = layers.LSTM(2, name="lstm")(layers.Masking(name="masking")(steps))
    q_model = qdq.quantize_model(keras.Model(steps, x))
    found = cut_model(q_model, fold=False, bake_weights=False)
    assert carries_mask(found.layers["lstm"]._inbound_nodes[-1].input_tensors[0])
    assert not carries_mask(found.pairs["masking"][1])


def test_a_placeholder_takes_the_mask_of_what_it_stands_for():
    layer = _KeepMask()
    masked, plain = layers.Masking()(keras.Input((3, 2))), keras.Input((3, 2))
    assert carries_mask(layer([plain, masked]))
    spec = layer.compute_output_spec([keras.KerasTensor((2, 3), dtype="float16"), None])
    assert (spec.shape, spec.dtype) == ((2, 3), "float16")
    x = np.float16([[1.0]])
    assert layer([x, np.float32([[2.0]])]).dtype == "float16"
