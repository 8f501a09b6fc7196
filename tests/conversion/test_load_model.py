"""Models from files: today's, and those that Keras 2 wrote.

Files of Keras 2 are made from files of Keras 3 by putting into their configuration what Keras 2 has there; the
translation was checked against files that tf_keras itself wrote for some fifty layers.
"""

import json
import zipfile

import h5py
import keras
import numpy as np
import pytest
from keras import layers
from small_models import flat, residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.conversion.files.keras2 import hard_sigmoid_of_keras_2, translate
from qdq_workbench.errors import FileAccessError, UnsupportedModelError

pytestmark = pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")


def saved_by_keras_2(model, path, change=lambda config: config):
    """Save a model as HDF5 with a configuration such as Keras 2 wrote."""
    keras.saving.save_model(model, path)
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        for layer in config["config"]["layers"]:
            change(layer)
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = "2.15.0"
    return path


def image(shape=(8, 8, 3)):
    return keras.Input(shape, name="image")


GROUPED = {"DepthwiseConv2D": (3,), "SeparableConv2D": (4, 3), "Conv2DTranspose": (4, 3)}


@pytest.mark.parametrize("kind", GROUPED)
def test_the_key_groups_is_dropped_where_it_says_nothing(kind, tmp_path):
    x = image()
    model = keras.Model(x, getattr(layers, kind)(*GROUPED[kind])(x))

    def add_groups(layer):
        if layer["class_name"] == kind:
            layer["config"]["groups"] = 1

    path = saved_by_keras_2(model, tmp_path / "model.h5", add_groups)
    with pytest.raises(TypeError, match="groups"):
        keras.models.load_model(path, compile=False)
    before = path.read_bytes()
    loaded = qdq.load_model(path)
    assert path.read_bytes() == before
    assert type(loaded.layers[1]) is getattr(layers, kind)
    np.testing.assert_array_equal(flat(loaded(samples(model)))[0], flat(model(samples(model)))[0])


def test_groups_that_say_something_are_not_dropped():
    layer = {"class_name": "DepthwiseConv2D", "config": {"name": "conv", "groups": 2}}
    assert translate(layer)["config"]["groups"] == 2


def test_recurrent_layers_lose_their_time_axis_setting(tmp_path):
    x = image((5, 3))
    model = keras.Model(x, layers.LSTM(2)(x))
    path = saved_by_keras_2(model, tmp_path / "model.h5", lambda layer: layer["config"].update(time_major=False))
    loaded = qdq.load_model(path)
    np.testing.assert_array_equal(flat(loaded(samples(model)))[0], flat(model(samples(model)))[0])


def test_the_hard_sigmoid_of_keras_2_is_kept(tmp_path):
    x = image()
    model = keras.Model(x, layers.Activation("hard_sigmoid", name="gate")(layers.Conv2D(2, 1)(x)))
    loaded = qdq.load_model(saved_by_keras_2(model, tmp_path / "model.h5"))
    hidden = flat(keras.Model(model.input, model.layers[1].output)(samples(model)))[0]
    found = flat(loaded(samples(model)))[0]
    np.testing.assert_allclose(found, np.clip(0.2 * hidden + 0.5, 0.0, 1.0), atol=1e-6)
    assert np.abs(found - flat(model(samples(model)))[0]).max() > 0.01
    assert loaded.get_layer("gate").activation is hard_sigmoid_of_keras_2
    q_model = qdq.quantize_model(loaded)
    qdq.calibrate(q_model, samples(model), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(tmp_path / "model.onnx", q_model, samples(model)).raise_if_failed()


def operation(name, function, call):
    config = {"name": name, "trainable": True, "dtype": "float32", "function": function}
    return {"class_name": "TFOpLambda", "config": config, "name": name, "inbound_nodes": [call]}


def test_sums_and_activations_of_tensorflow_become_layers():
    added = translate(operation("add", "__operators__.add", ["a", 0, 0, {"y": ["b", 0, 0], "name": None}]))
    assert (added["class_name"], added["inbound_nodes"]) == ("Add", [[["a", 0, 0, {}], ["b", 0, 0, {}]]])
    relu = translate(operation("relu", "nn.relu", ["a", 0, 0, {"name": None}]))
    assert (relu["class_name"], relu["config"]["activation"]) == ("Activation", "relu")


def test_other_operations_are_named_with_the_way_out():
    mean = operation("mean", "math.reduce_mean", ["a", 0, 0, {"axis": 1}])
    scaled = operation("scaled", "math.multiply", ["a", 0, 0, {"y": 2.0}])
    with pytest.raises(UnsupportedModelError, match=r"mean \(math.reduce_mean\), scaled .*load_weights"):
        translate([mean, scaled])


def test_the_way_out_works(tmp_path):
    path = tmp_path / "model.h5"
    keras.saving.save_model(residual_net(seed=5), path)
    rebuilt = residual_net(seed=6)
    rebuilt.load_weights(path)
    np.testing.assert_array_equal(rebuilt.get_layer("conv").kernel, residual_net(seed=5).get_layer("conv").kernel)


def test_tensors_by_keyword_and_calls_of_nested_models_are_counted_as_keras_3_does():
    attention = {"class_name": "MultiHeadAttention", "config": {"name": "att", "query_shape": [None, 6, 4]}}
    attention["inbound_nodes"] = [[["x", 0, 0, {"value": ["y", 0, 0]}]]]
    call = translate(attention)["inbound_nodes"][0]
    assert call["kwargs"]["value"]["config"]["keras_history"] == ["y", 0, 0]
    for kind in ("Sequential", "Functional", "Model"):
        _check_counting(kind)


def _check_counting(kind):
    part = {"class_name": kind, "name": "part", "config": {"name": "part", "layers": []}}
    dense = {"class_name": "Dense", "name": "dense", "config": {}, "inbound_nodes": [[["part", 1, 0, {}]]]}
    model = {"layers": [part, dense], "output_layers": [["part", 2, 0]]}
    moved = translate(model)
    assert moved["output_layers"] == [["part", 1, 0]]
    assert moved["layers"][1]["inbound_nodes"] == [[["part", 0, 0, {}]]]


def test_a_backbone_inside_a_model_saved_by_keras_2(tmp_path):
    x = keras.Input((4,), name="inside")
    backbone = keras.Model(x, layers.Dense(3, name="dense")(x), name="backbone")
    y = keras.Input((4,), name="y")
    model = keras.Model(y, layers.Add(name="sum")([backbone(y), backbone(y)]))

    def counted_from_one(layer):
        calls = {
            "sum": [[["backbone", 1, 0, {}], ["backbone", 2, 0, {}]]],
            "backbone": [[["y", 0, 0, {}]], [["y", 0, 0, {}]]],
        }
        layer["inbound_nodes"] = calls.get(layer["name"], layer["inbound_nodes"])

    path = saved_by_keras_2(model, tmp_path / "model.h5", counted_from_one)
    data = np.ones((2, 4), "float32")
    np.testing.assert_array_equal(qdq.load_model(path).predict(data, verbose=0), model.predict(data, verbose=0))


def test_precisions_are_given_by_their_names():
    policy = {"module": "keras.mixed_precision", "class_name": "Policy", "config": {"name": "mixed_float16"}}
    found = translate({"class_name": "Dense", "config": {"name": "dense", "units": 2, "dtype": policy}})
    assert found["config"]["dtype"] == "mixed_float16"
    assert keras.layers.Dense.from_config(found["config"]).dtype_policy.name == "mixed_float16"


def test_renamed_layers(tmp_path):
    relu = translate({"class_name": "ThresholdedReLU", "config": {"name": "r", "theta": 0.5}})
    assert relu == {"class_name": "ReLU", "config": {"name": "r", "threshold": 0.5}}
    norm = translate({"class_name": "SyncBatchNormalization", "config": {"name": "n"}})
    assert norm == {"class_name": "BatchNormalization", "config": {"name": "n", "synchronized": True}}


def test_what_is_no_model_is_refused_by_name(tmp_path):
    with pytest.raises(FileAccessError, match="no such file"):
        qdq.load_model(tmp_path / "missing.keras")
    with pytest.raises(UnsupportedModelError, match=r"SavedModel.*model\.save\('model\.h5'\).*docs importing .Recipes"):
        qdq.load_model(tmp_path)
    weights = tmp_path / "weights.weights.h5"
    residual_net().save_weights(weights)
    with pytest.raises(UnsupportedModelError, match=r"model\.load_weights.*qdq-workbench docs importing"):
        qdq.load_model(weights)
    archive = tmp_path / "model.keras"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("metadata.json", json.dumps({"keras_version": "2.15.0"}))
    with pytest.raises(UnsupportedModelError, match=r"Keras 2\.15\.0.*model\.h5.*docs importing .Recipes"):
        qdq.load_model(archive)
    for name, text in {"model.onnx": b"x", "model.h5": b"x", "cut.keras": b"PK\x03\x04"}.items():
        (tmp_path / name).write_bytes(text)
        with pytest.raises(UnsupportedModelError, match="qdq-workbench docs importing"):
            qdq.load_model(tmp_path / name)
    with pytest.raises(FileAccessError, match="string or a pathlib"):
        qdq.load_model(7)


def test_models_of_today_and_quantized_ones_load(tmp_path):
    q_model = qdq.quantize_model(residual_net())
    q_model.save(tmp_path / "q.keras")
    assert qdq.load_model(tmp_path / "q.keras").plan == q_model.plan
    x = image()
    model = keras.Model(x, layers.Conv2D(2, 3)(x))
    keras.saving.save_model(model, tmp_path / "model.h5")
    assert [type(layer).__name__ for layer in qdq.load_model(tmp_path / "model.h5").layers][1] == "Conv2D"


def test_a_quantized_model_in_hdf5(tmp_path):
    model = residual_net()
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, samples(model), verbose=False)
    q_model.save(tmp_path / "q.h5")
    loaded = qdq.load_model(tmp_path / "q.h5")
    assert loaded.plan == q_model.plan
    assert loaded.recorded_ranges == q_model.recorded_ranges
    np.testing.assert_array_equal(flat(loaded(samples(model)))[0], flat(q_model(samples(model)))[0])


def test_the_model_of_mlperf_tiny(shared, tmp_path):
    model = qdq.load_model(shared / "models" / "mlperf_tiny_resnet8.h5")
    assert model.count_params() == 78_666
    plan = qdq.plan_placement(model)
    assert sum(tensor.kind == "weight" for tensor in plan.tensors) == 10
