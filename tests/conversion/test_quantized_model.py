import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.quantized_model import (
    BEGINS_ANEW,
    QuantizedModel,
    check_quantized,
    colliding_names,
    quantized_class,
)
from qdq_workbench.errors import NotQuantizedError, UnsupportedModelError

DATA = np.random.default_rng(0).uniform(0, 1, (4, 3)).astype(np.float32)


def net():
    keras.utils.set_random_seed(0)
    image = keras.Input((3,), name="image")
    hidden = layers.Dense(3, name="hidden", activation="relu")(image)
    return keras.Model(image, layers.Dense(2, name="head")(hidden), name="net")


@pytest.fixture
def q_model():
    return qdq.quantize_model(net(), target="onnxruntime")


def bare():
    """Return a model of the class that was not made by `quantize_model`."""
    made = net()
    return QuantizedModel(made.inputs, made.outputs, name="bare")


class TestPlans:
    def test_what_has_no_plan_is_refused_by_name(self):
        for given, name in ((net(), "net"), (bare(), "bare"), ("model.keras", "str")):
            with pytest.raises(NotQuantizedError, match=rf"quantize_model\(model\).*Received: model '{name}'"):
                check_quantized(given)
        assert not bare().has_plan
        for attribute in ("plan", "target", "layer_paths", "recorded_ranges", "calibration"):
            with pytest.raises(NotQuantizedError, match="this one has no plan"):
                getattr(bare(), attribute)

    def test_what_is_given_out_is_a_copy(self, q_model):
        assert check_quantized(q_model) is q_model
        assert q_model.layer_paths["hidden"] == "hidden"
        q_model.layer_paths.clear()
        q_model.source_output_names.clear()
        q_model.calibration["more"] = 1
        assert q_model.layer_paths
        assert q_model.source_output_names == ["head"]
        assert q_model.calibration == {}

    def test_a_record_holds_plain_numbers(self, q_model):
        q_model.record({"image": (np.float32(-1), np.float32(2))}, {"method": "min_max"})
        assert q_model.recorded_ranges == {"image": (-1.0, 2.0)}
        assert all(type(end) is float for end in q_model._data()["recorded_ranges"]["image"])
        assert q_model.calibration == {"method": "min_max"}

    def test_a_copy_knows_the_plan_and_the_record(self, q_model):
        q_model.record({"image": (-1.0, 2.0)}, {"method": "min_max"})
        copy = keras.models.clone_model(q_model)
        assert isinstance(copy, QuantizedModel)
        assert (copy.plan, copy.recorded_ranges, copy.target) == (q_model.plan, q_model.recorded_ranges, "onnxruntime")


class TestRanges:
    def test_pairs_without_a_range_are_listed(self, q_model):
        assert q_model.uncalibrated_tensors() == ["image", "hidden"]
        assert q_model.activation_ranges() == {}
        q_model.activation_quantizers[0].set_range(0.0, 1.0)
        assert q_model.uncalibrated_tensors() == ["hidden"]
        assert list(q_model.activation_ranges()) == ["image"]

    def test_a_layer_computes_all_pairs_of_its_scale_group(self):
        image = keras.Input((4, 4, 2), name="image")
        x = layers.Conv2D(2, 1, name="conv")(image)
        x = layers.MaxPooling2D(name="pool")(x)
        model = qdq.quantize_model(keras.Model(image, layers.Conv2D(2, 1, name="next")(x)), target="onnxruntime")
        layer = next(layer for layer in model.activation_quantizers if layer.tensor == "conv")
        assert model.pairs_of(layer) == model.tensors_of(layer) == ["conv", "pool"]
        layer.set_range(0.0, 1.0)
        assert set(model.activation_ranges()) == {"conv", "pool"}
        assert layer in model.layers_behind_inputs()

    def test_the_pairs_of_inputs_are_not_behind_them(self, q_model):
        assert [layer.tensor for layer in q_model.layers_behind_inputs()] == ["hidden"]

    def test_weights_of_a_users_own_function_have_no_grid(self, q_model):
        assert set(q_model.weight_qparams()) == {"hidden/kernel", "head/kernel"}
        for wrapper in q_model.wrappers:
            wrapper.has_grid = lambda name: False
        assert q_model.weight_qparams() == {}


class TestTraining:
    def train(self, q_model):
        q_model.compile("sgd", "mse")
        q_model.make_train_function()
        return q_model.uncalibrated_tensors()

    def calibrated(self, q_model, **record):
        qdq.calibrate(q_model, DATA, verbose=False, freeze=False)
        q_model.record({}, {"method": "m", **record})
        return q_model

    def test_ranges_begin_anew_once_where_the_calibration_says_so(self, q_model):
        model = self.calibrated(q_model, **{BEGINS_ANEW: True})
        assert self.train(model) == ["hidden"]
        assert model.calibration == {"method": "m"}
        qdq.calibrate(model, DATA, verbose=False, freeze=False)
        assert self.train(model) == []

    def test_they_stay_without_it_and_where_they_are_frozen_or_not_trained(self, q_model):
        assert self.train(self.calibrated(q_model)) == []
        hidden = self.calibrated(q_model, **{BEGINS_ANEW: True}).layers_behind_inputs()[0]
        hidden.frozen.assign(True)
        assert self.train(q_model) == []
        hidden.frozen.assign(False)
        hidden.trainable = False
        q_model.record({}, {BEGINS_ANEW: True})
        assert self.train(q_model) == []

    def test_all_quantizers_are_switched_together(self, q_model):
        qdq.calibrate(q_model, DATA, verbose=False)
        floats = net()(DATA)
        assert q_model.quantization_enabled
        q_model.wrappers[0].enabled.assign(False)
        assert not q_model.quantization_enabled
        q_model.quantization_enabled = False
        assert all(layer.bypassed for layer in q_model.quantizing_layers)
        np.testing.assert_array_equal(q_model(DATA), floats)
        q_model.quantization_enabled = True
        assert q_model.quantization_enabled
        assert not np.array_equal(q_model(DATA), floats)


def test_what_is_kept_is_made_once_and_belongs_to_one_model(q_model):
    made = []
    for _ in range(2):
        assert q_model.kept("key", lambda: made.append(1) or len(made)) == 1
    assert q_model.kept("other", lambda: None) is None
    assert keras.models.clone_model(q_model).kept("key", lambda: "new") == "new"


class TestOwnClasses:
    def test_names_that_both_classes_define_are_found(self):
        class Mine(keras.Model):
            plan = "mine"

            def wrappers(self):
                return 1

            def save(self, *args, **kwargs):  # of keras.Model: it calls ours by super()
                return super().save(*args, **kwargs)

        made = net()
        model = Mine(made.inputs, made.outputs)
        model.target = 3
        model.other = 4
        assert colliding_names(model) == ["plan", "target", "wrappers"]
        assert colliding_names(made) == []

    def test_a_class_that_keras_does_not_know_is_asked_for(self, q_model):
        config = {**q_model.get_config(), "own_class": "Package>Mine"}
        with pytest.raises(
            UnsupportedModelError, match=r"custom_objects=\{'Package>Mine': \.\.\.\}.*own_class='Package>Mine'"
        ):
            QuantizedModel.from_config(config)

    def test_one_class_is_made_per_class(self):
        class Mine(keras.Model):
            pass

        made = quantized_class(Mine)
        assert quantized_class(Mine) is made
        assert made.__name__ == "QuantizedMine"
        assert made.own_class is Mine
        assert issubclass(made, Mine)
        assert issubclass(made, QuantizedModel)
