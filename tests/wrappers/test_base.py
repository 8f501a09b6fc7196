"""What a wrapper passes on to its layer."""

import keras
import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_workbench import WeightedBaseQuantizeWrapper


class Shifted(keras.layers.Layer):
    """Adds a number, which is 1 unless the caller says otherwise; None adds nothing."""

    def call(self, inputs, shift=1.0, scale=None):
        shifted = inputs if shift is None else inputs + shift
        return shifted if scale is None else shifted * scale


@pytest.mark.parametrize(
    "given", [{"scale": None}, {"shift": None}, {"shift": 2.0, "scale": None}, {"scale": 3.0}], ids=str
)
def test_arguments_without_tensors_reach_the_layer(given):
    """Keras 3.10 to 3.12 take {"scale": None} for tensors, and fail to find their shapes."""
    x = np.ones((2, 3), "float32")
    image = keras.Input((3,), name="image")
    wrapper = WeightedBaseQuantizeWrapper(Shifted(name="shifted"), quantize_inputs=False)
    model = keras.Model([image], wrapper(image, **given))
    np.testing.assert_array_equal(model([x]), Shifted()(x, **given))
    again = keras.Model.from_config(model.get_config(), custom_objects={"Shifted": Shifted})
    np.testing.assert_array_equal(again([x]), model([x]))
    by_name = wrapper(x, plain_arguments=given)  # as in models that were saved with an earlier version
    np.testing.assert_array_equal(by_name, model([x]))


def test_a_layer_that_was_called_with_mask_none_is_quantized_and_saved(tmp_path):
    steps = keras.Input((3, 2))
    model = keras.Model([steps], keras.layers.TimeDistributed(keras.layers.Dense(2), name="each")(steps, mask=None))
    q_model = qdq.quantize_model(model)
    q_model.save(tmp_path / "q.keras")
    loaded = keras.models.load_model(tmp_path / "q.keras")
    x = np.random.default_rng(0).normal(size=(2, 3, 2)).astype("float32")
    np.testing.assert_array_equal(loaded([x]), q_model([x]))


class Mixed(keras.layers.Layer):
    """A product with a weight of a name of its own."""

    def build(self, shape):
        self.mix = self.add_weight(shape=(shape[-1], 4), initializer="ones", name="mix")

    def call(self, inputs):
        return inputs @ self.mix


def test_the_weight_of_a_layer_that_no_table_knows_is_quantized_over_its_last_axis():
    wrapper = WeightedBaseQuantizeWrapper(Mixed(name="mixed"), kernel_type="mix", quantize_inputs=False)
    keras.Model(image := keras.Input((3,)), wrapper(image))
    ((name, _, spec),) = wrapper.weights_by_values()
    assert (name, spec.axis, spec.narrow_range) == ("mix", 1, True)


@pytest.mark.parametrize(
    ("layer", "shape", "sources"),
    [
        (lambda: keras.layers.Dense(2, name="head"), (None, 3), ["head/input 0"]),
        (lambda: keras.layers.Add(name="sum"), [(None, 3), (None, 3)], ["sum/input 0", "sum/input 1"]),
    ],
    ids=["one", "two"],
)
def test_a_wrapper_that_was_never_called_is_built_from_shapes(layer, shape, sources):
    wrapper = WeightedBaseQuantizeWrapper(layer())
    wrapper.build(shape)

    assert [pair.tensor for pair in wrapper._input_quantizers] == sources
    assert wrapper.built
