"""Reading the parts of files that Keras 2 wrote; files of TFMOT itself are in `tests/tfmot/test_trained.py`."""

import io
import json
import zipfile

import h5py
import keras
import numpy as np
import pytest

from qdq_workbench.conversion.files import keras2_files
from qdq_workbench.conversion.files.keras2_files import build_keras2, read_keras2
from qdq_workbench.errors import FileAccessError, UnsupportedModelError

DENSE = {"class_name": "Dense", "config": {"name": "head", "units": 1}}
CONFIG = {"class_name": "Sequential", "config": {"name": "net", "layers": [DENSE]}}


def hdf5(path, config=CONFIG, group="model_weights", layers=("head", "empty")):
    """Write a file as Keras 2 does: the names of layers and weights are bytes."""
    with h5py.File(path, "w") as file:
        if config is not None:
            file.attrs["model_config"] = json.dumps(config)
        root = file.create_group(group) if group else file
        root.attrs["layer_names"] = [name.encode() for name in layers]
        for name in layers:
            held = {"head/kernel:0": np.ones((2, 1)), "head/bias:0": np.zeros(1)} if name == "head" else {}
            root.create_group(name).attrs["weight_names"] = [weight.encode() for weight in held]
            for weight, values in held.items():
                root[name][weight] = values
    return path


def test_weights_are_found_by_the_last_part_of_their_names(tmp_path):
    found = read_keras2(str(hdf5(tmp_path / "model.h5")))
    assert found.config == CONFIG
    assert {layer: sorted(values) for layer, values in found.values.items()} == {
        "head": ["bias", "kernel"],
        "empty": [],
    }
    np.testing.assert_array_equal(found.values["head"]["kernel"], [[1.0], [1.0]])
    assert (found.path, found.numbered) == (str(tmp_path / "model.h5"), {})


def test_a_file_of_weights_alone_has_its_groups_at_the_root(tmp_path):
    found = read_keras2(hdf5(tmp_path / "weights.h5", config=None, group=""))
    assert found.config is None
    assert list(found.values) == ["head", "empty"]


def test_weights_that_are_numbered_are_refused_with_the_way_out(tmp_path):
    path = tmp_path / "name.weights.h5"
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = np.ones(1)
    with pytest.raises(UnsupportedModelError, match=r"numbers its weights.*model\.save\('model\.h5'\)"):
        read_keras2(path)


def test_what_is_not_there_or_of_another_kind_is_refused(tmp_path):
    with pytest.raises(FileAccessError, match=r"no such file or folder.*missing\.h5"):
        read_keras2(tmp_path / "missing.h5")
    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(UnsupportedModelError, match="are read from HDF5 files"):
        read_keras2(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "layer", [{"class_name": 3, "config": {}}, {"class_name": "Dense", "config": None}, {"config": {}}]
)
def test_a_layer_that_is_no_layer_makes_the_file_damaged(layer, tmp_path):
    config = {"class_name": "Sequential", "config": {"layers": [DENSE, layer]}}
    with pytest.raises(FileAccessError, match="The file is damaged, or holds no model"):
        read_keras2(hdf5(tmp_path / "model.h5", config))


@pytest.mark.parametrize("missing", ["keras_metadata.pb", "variables/variables.index"])
def test_a_folder_needs_metadata_and_variables(missing, tmp_path):
    for name in ("keras_metadata.pb", "variables/variables.index"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / missing).unlink()
    with pytest.raises(UnsupportedModelError, match="this folder lacks them"):
        read_keras2(tmp_path)


def field(number, content):
    return bytes([number << 3 | 2, *varint(len(content))]) + content


def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, *varint(value >> 7)])


def test_the_configuration_is_that_of_the_root_among_the_nodes(tmp_path):
    def node(path, config):
        text = json.dumps({"class_name": "Sequential", "config": config, "shared_object_id": 3}).encode()
        return field(1, bytes([2 << 3, 5]) + field(3, path) + field(5, text))

    path = tmp_path / "keras_metadata.pb"
    long = {"layers": [DENSE], "name": "n" * 200}  # the length takes two bytes
    path.write_bytes(field(2, b"version") + node(b"root.layer-0", {}) + node(b"root", long))
    assert keras2_files._config_of(path) == {"class_name": "Sequential", "config": long}
    path.write_bytes(node(b"root.layer-0", {}))
    with pytest.raises(ValueError, match="describes no model"):
        keras2_files._config_of(path)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**21])
def test_numbers_of_any_length_are_read(value):
    assert keras2_files._varint(io.BytesIO(varint(value))) == value


def test_a_number_that_is_cut_off_ends():
    assert keras2_files._varint(io.BytesIO(b"\x81")) == 1


def test_fields_of_other_kinds_are_refused():
    assert list(keras2_files._fields(bytes([1 << 3, 130, 1]) + field(2, b"ab"))) == [(2, b"ab")]
    with pytest.raises(ValueError, match="unexpected kind"):
        list(keras2_files._fields(bytes([1 << 3 | 5, 0, 0, 0, 0])))


def test_an_archive_numbers_the_layers_of_each_class(tmp_path):
    inner = io.BytesIO()
    with h5py.File(inner, "w") as file:
        file["layers/dense/vars/0"] = np.float32([0])
        file["layers/dense_1/vars/0"] = np.float32([1])
        file["layers/dense_1/vars/1"] = np.float32([2])
        for index in range(11):  # in the order of the numbers, not of their texts
            file[f"layers/quantize_wrapper_v2/layer/vars/{index}"] = np.float32([index])
    kinds = {"a": "Dense", "b": "Dense", "none": "ReLU", "quant": "QuantizeWrapperV2"}
    layers = [{"class_name": kind, "config": {"name": name}, "module": "m"} for name, kind in kinds.items()]
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("config.json", json.dumps({"class_name": "Functional", "config": {"layers": layers}}))
        archive.writestr("model.weights.h5", inner.getvalue())
    found = read_keras2(tmp_path / "model.keras")
    shown = {name: tuple([float(v[0]) for v in each] for each in pair) for name, pair in found.numbered.items()}
    assert shown == {"a": ([0.0], []), "b": ([1.0, 2.0], []), "none": ([], []), "quant": ([], list(range(11)))}
    assert found.values == {}
    assert found.config["config"]["layers"][0] == {"class_name": "Dense", "config": {"name": "a"}}


def test_module_names_and_tuple_markers_are_taken_out_at_any_depth():
    tuples = {"class_name": "__tuple__", "items": [1, {"class_name": "__tuple__", "items": []}]}
    given = {
        "class_name": "Dense",
        "module": "keras",
        "registered_name": None,
        "config": {"module": "mine", "s": tuples},
    }
    expected = {"class_name": "Dense", "config": {"module": "mine", "s": [1, []]}}
    assert keras2_files._plain([{**given, "build_config": {}, "compile_config": {}}]) == [expected]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("MaxPooling2D", "max_pooling2d"),
        ("Conv2D", "conv2d"),
        ("LSTM", "lstm"),
        ("QuantizeWrapperV2", "quantize_wrapper_v2"),
        ("ReLU", "re_lu"),
        ("BatchNormalization", "batch_normalization"),
        ("GlobalAveragePooling2D", "global_average_pooling2d"),
    ],
)
def test_folders_are_named_as_keras_2_names_them(name, path):
    assert keras2_files._snake_case(name) == path


def test_a_sequential_and_a_functional_model_are_built():
    built = build_keras2({**CONFIG, "config": {**CONFIG["config"], "build_input_shape": [None, 2]}}, "model.h5")
    assert isinstance(built, keras.Sequential)
    image = {"class_name": "InputLayer", "name": "x", "inbound_nodes": []}
    image["config"] = {"name": "x", "batch_shape": [None, 2]}
    head = {**DENSE, "name": "head", "inbound_nodes": [[["x", 0, 0, {}]]]}
    ends = {"input_layers": [["x", 0, 0]], "output_layers": [["head", 0, 0]]}
    model = build_keras2({"class_name": "Functional", "config": {"name": "net", "layers": [image, head], **ends}}, "m")
    assert not isinstance(model, keras.Sequential)
    assert model.output.shape == (None, 1)  # a tensor, no list of one


def test_a_network_that_keras_3_cannot_build_is_refused_with_the_way_out():
    unknown = {"class_name": "Mine", "config": {"name": "mine"}}
    with pytest.raises(UnsupportedModelError, match=r"custom_objects.*import_trained.*Received: path='model\.h5'"):
        build_keras2({"class_name": "Sequential", "config": {"name": "net", "layers": [unknown]}}, "model.h5")
