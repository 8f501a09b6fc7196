"""Quantized models in HDF5 files, as docs/layer_families.md says to read them."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench import tfmot
from qdq_workbench.cli.main import main
from qdq_workbench.errors import UnsupportedModelError

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


def test_tensors_may_be_called_like_functions_of_keras(tmp_path):
    x = keras.Input((3, 8), name="x")
    y = layers.Dense(8, name="first")(x)
    model = keras.Model(x, layers.Dense(2, name="head")(layers.Add(name="add")([layers.Dense(8, name="dot")(y), y])))
    q_model = qdq.quantize_model(model)
    assert {tensor.name for tensor in q_model.plan.tensors} >= {"add"}
    q_model.save(tmp_path / "q.h5")
    loaded = qdq.load_model(tmp_path / "q.h5")
    assert loaded.plan == q_model.plan
    np.testing.assert_array_equal(loaded(samples(q_model, 4)), q_model(samples(q_model, 4)))


OPERATIONS = {
    "add": lambda x, y: x + y,
    "multiply": lambda x, _: x * 2.0,
    "maximum": ops.maximum,
    "relu": lambda x, _: ops.relu(x),
    "mean": lambda x, _: ops.mean(x, 1),
    "reshape": lambda x, _: ops.reshape(x, (-1, 24)),
    "slice": lambda x, _: x[:, 0],
    "softmax": lambda x, _: ops.softmax(x),
    "concatenate": lambda x, y: ops.concatenate([x, y], -1),
}


def with_operation(name):
    x = keras.Input((3, 8), name="x")
    found = OPERATIONS[name](layers.Dense(8, name="first")(x), x)
    return qdq.quantize_model(keras.Model(x, layers.Dense(2, name="head")(found)))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_model_that_keras_could_not_load_from_the_file_is_not_written(name, tmp_path):
    q_model, path = with_operation(name), tmp_path / "q.h5"
    keras.Model.save(q_model, tmp_path / "theirs.h5")
    with tfmot.quantize_scope():
        try:
            loaded = keras.models.load_model(tmp_path / "theirs.h5", compile=False)
        except Exception:  # noqa: BLE001 - whatever Keras comes upon
            with pytest.raises(UnsupportedModelError, match=r"Save it as \.keras: model\.save\('q\.keras'\)"):
                q_model.save(path)
            assert not path.exists()
            return
    q_model.save(path)
    data = samples(q_model, 4)
    np.testing.assert_array_equal(loaded(data), q_model(data))


def test_operations_of_models_inside_are_seen(tmp_path):
    x = keras.Input((3, 8), name="x")
    td = layers.TimeDistributed(keras.Model(inner := keras.Input((8,)), layers.Dense(4)(inner) * 2.0))
    q_model = qdq.quantize_model(keras.Model(x, layers.Dense(2)(td(x))))
    with pytest.raises(UnsupportedModelError, match="operations Multiply"):
        q_model.save(tmp_path / "q.h5")


def test_a_command_refuses_before_it_trains(tmp_path, capsys):
    q_model = with_operation("add")
    qdq.calibrate(q_model, samples(q_model, 8), verbose=False)
    q_model.save(tmp_path / "q.keras")
    np.savez(tmp_path / "data.npz", x=samples(q_model, 8), y=np.zeros((8, 3, 2), "float32"))
    files = [str(tmp_path / "q.keras"), "--data", str(tmp_path / "data.npz"), "-o", str(tmp_path / "trained.h5")]
    for command in (["finetune", *files, "--loss", "mse"], ["learn-rounding", *files]):
        assert main(command) == 2
        assert "nothing was written" in capsys.readouterr().err
