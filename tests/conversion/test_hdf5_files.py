"""Quantized models in HDF5 files, as docs/layer_families.md says to read them."""

import keras
import numpy as np
import pytest
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench import tfmot

pytestmark = pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")


@pytest.fixture
def q_model():
    q_model = qdq.quantize_model(residual_net())
    qdq.calibrate(q_model, samples(q_model, 8), verbose=False)
    return q_model


def test_all_ways_of_the_documentation_give_the_model_back(q_model, tmp_path):
    q_model.save(tmp_path / "q.h5")
    with_the_class = {"QuantizedModel": qdq.QuantizedModel}
    with tfmot.quantize_scope():
        in_the_scope = keras.models.load_model(tmp_path / "q.h5")
    for loaded in (
        in_the_scope,
        qdq.load_model(tmp_path / "q.h5"),
        keras.models.load_model(tmp_path / "q.h5", custom_objects=with_the_class),
    ):
        assert isinstance(loaded, qdq.QuantizedModel)
        assert loaded.plan == q_model.plan
        assert loaded.activation_ranges() == q_model.activation_ranges()
        np.testing.assert_array_equal(loaded(samples(q_model, 8)), q_model(samples(q_model, 8)))


def test_the_plain_name_is_left_to_classes_of_other_programs(tmp_path):
    """Registering it with Keras would take precedence over a class of that name that a user passes."""

    class QuantizedModel(keras.Model):
        pass

    x = keras.Input((3,))
    QuantizedModel(x, keras.layers.Dense(2)(x)).save(tmp_path / "theirs.h5")
    loaded = keras.models.load_model(tmp_path / "theirs.h5", custom_objects={"QuantizedModel": QuantizedModel})
    assert type(loaded) is QuantizedModel
