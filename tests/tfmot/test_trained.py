"""Models trained by TFMOT itself (make_trained.py): what comes out of their files predicts what TFMOT predicted."""

import json
import zipfile

import h5py
import keras
import numpy as np
import pytest
from keras import layers
from project import ROOT

import qdq_workbench as qdq
from qdq_workbench import tfmot
from qdq_workbench.errors import DataError, FileAccessError, SpecError, UnsupportedModelError

quantizers = tfmot.quantization.keras.quantizers


class FourBitDenseConfig(tfmot.quantization.keras.QuantizeConfig):
    """The class of make_trained.py, its import changed."""

    def get_weights_and_quantizers(self, layer):
        quantizer = quantizers.LastValueQuantizer(num_bits=4, symmetric=True, narrow_range=False, per_axis=False)
        return [(layer.kernel, quantizer)]

    def get_activations_and_quantizers(self, layer):
        quantizer = quantizers.MovingAverageQuantizer(6, per_axis=False, symmetric=False, narrow_range=False)
        return [(layer.activation, quantizer)]

    def set_quantize_weights(self, layer, quantize_weights):
        layer.kernel = quantize_weights[0]

    def set_quantize_activations(self, layer, quantize_activations):
        layer.activation = quantize_activations[0]

    def get_output_quantizers(self, layer):
        return []

    def get_config(self):
        return {}


OWN = {"FourBitDenseConfig": FourBitDenseConfig}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("trained")
    with zipfile.ZipFile(ROOT / "tests" / "tfmot" / "trained.zip") as archive:
        archive.extractall(target)
    return target


def recorded(folder, name):
    """Return the inputs and TFMOT's predictions."""
    arrays = np.load(folder / f"{name}.npz")
    return tuple([arrays[key] for key in sorted(arrays.files) if key.startswith(kind)] for kind in "xy")


def predictions(model, inputs):
    outputs = model(inputs if len(inputs) > 1 else inputs[0])
    return [np.asarray(output) for output in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]


def assert_predicts(model, folder, name):
    """Nothing of these data lies on a tie, where TFMOT rounds up: the predictions are equal but for float noise."""
    inputs, expected = recorded(folder, name)
    found = predictions(model, inputs)
    assert [output.shape for output in found] == [output.shape for output in expected]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    floats = predictions(qdq.strip(model), inputs)
    assert max(np.abs(a - b).max() for a, b in zip(floats, expected, strict=True)) > 1e-3  # it is quantized


@pytest.mark.parametrize(
    "file",
    [
        "sequential.h5",
        "sequential.keras",
        "sequential_saved_model",
        "residual.h5",
        "concatenated.h5",
        "partly.h5",
        "fixed.h5",
    ],
)
def test_predictions_are_tfmots(folder, file):
    q_model = tfmot.import_trained(folder / file, custom_objects=OWN)
    assert_predicts(q_model, folder, file.split(".")[0].removesuffix("_saved_model"))
    assert q_model.uncalibrated_tensors() == []


def test_widths_axes_and_ranges_are_the_files(folder):
    q_model = tfmot.import_trained(folder / "concatenated.h5")
    grids = {tensor.name: tensor.quantizer.label for tensor in q_model.plan.tensors if tensor.kind == "weight"}
    assert grids == {"left/kernel": "int4/axis 3", "right/kernel": "int4/axis 3", "head/kernel": "int4"}
    with h5py.File(folder / "concatenated.h5") as file:
        stored = file["model_weights"]["quant_left"]["quant_left"]
        _, _, ranges = next(w for w in q_model.wrappers if w.layer.name == "left")._weight_vars[0]
        np.testing.assert_array_equal(ranges["max_var"], stored["kernel_max:0"])
        left = next(layer for layer in q_model.activation_quantizers if layer.tensor == "left")
        assert left.range[1] == pytest.approx(float(stored["post_activation_max:0"][()]), abs=1e-7)


def test_own_configs_are_needed_and_found(folder):
    with pytest.raises(SpecError, match=r"'hidden' was quantized with FourBitDenseConfig.*custom_objects"):
        tfmot.import_trained(folder / "partly.h5")
    with tfmot.quantize_scope(OWN):
        # What else is given here does not hide it.
        q_model = tfmot.import_trained(folder / "partly.h5", custom_objects={"Other": layers.Dense})
    assert {tensor.name: tensor.quantizer.num_bits for tensor in q_model.plan.tensors} == {
        "hidden": 6, "hidden/kernel": 4, "head": 8, "head/kernel": 8,
    }  # fmt: skip


def float_network():
    parts = [
        keras.Input((8, 8, 2), name="image"),
        layers.Conv2D(3, 3, activation="relu", name="conv"),
        layers.MaxPooling2D(name="pool"),
        layers.Flatten(name="flat"),
        layers.Dense(3, activation="sigmoid", name="head"),
    ]
    return keras.Sequential(parts)


def test_weights_alone_need_the_network(folder):
    with pytest.raises(SpecError, match="weights without the network"):
        tfmot.import_trained(folder / "sequential_weights.h5")
    model = float_network()
    before = [np.array(weight) for weight in model.get_weights()]
    assert_predicts(tfmot.import_trained(folder / "sequential_weights.h5", model), folder, "sequential")
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    with pytest.raises(DataError, match="no quantized layer of this model"):
        tfmot.import_trained(
            folder / "sequential_weights.h5", keras.Sequential([keras.Input((2,)), layers.Dense(1, name="other")])
        )


def test_it_goes_on_as_any_quantized_model(folder, tmp_path):
    q_model = tfmot.import_trained(folder / "sequential.h5")
    (x,), (y,) = recorded(folder, "sequential")
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    qdq.verify_onnx(report.path, q_model, x).raise_if_failed()
    q_model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(x), y, atol=1e-5)
    again.compile(keras.optimizers.SGD(0.1), "mse")
    again.fit(x, np.zeros_like(y), verbose=0)
    assert np.abs(np.asarray(again(x)) - y).max() > 1e-3


def test_damage_is_explained(folder, tmp_path):
    with pytest.raises(FileAccessError, match="no such file"):
        tfmot.import_trained(tmp_path / "missing.h5")
    (tmp_path / "text.h5").write_text("no model")
    with pytest.raises(UnsupportedModelError, match="HDF5"):
        tfmot.import_trained(tmp_path / "text.h5")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnsupportedModelError, match="keras_metadata"):
        tfmot.import_trained(tmp_path / "empty")


def drop_weight_names(file):
    file["model_weights/quant_conv"].attrs["weight_names"] = ["conv/kernel:0"]


def rename_variable(file):
    file["model_weights/quant_conv/quant_conv"].move("kernel_min:0", "gone")


def make_it_subclassed(file):
    file.attrs["model_config"] = json.dumps({"class_name": "Mine", "config": {}})


def drop_layer_names(file):
    del file["model_weights"].attrs["layer_names"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (rename_variable, FileAccessError, "damaged"),
        (drop_weight_names, DataError, "no weight 'bias'"),
        (make_it_subclassed, UnsupportedModelError, "sequential and functional"),
        (drop_layer_names, UnsupportedModelError, "numbers its weights"),
    ],
)
def test_changed_files_are_explained(folder, tmp_path, change, error, message):
    path = tmp_path / "changed.h5"
    path.write_bytes((folder / "sequential.h5").read_bytes())
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(error, match=message):
        tfmot.import_trained(path)


@pytest.mark.parametrize(
    "config", ["[]", "3", '{"class_name": "Functional", "config": {"layers": [1]}}'], ids=["list", "number", "layers"]
)
@pytest.mark.parametrize("kind", ["h5", "keras"])
def test_a_configuration_that_is_none_counts_as_damage(tmp_path, kind, config):
    path = tmp_path / f"model.{kind}"
    with h5py.File(tmp_path / "model.h5", "w") as file:
        file.attrs["model_config"] = config
        file.create_group("model_weights").attrs["layer_names"] = []
    if kind == "keras":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", config)
            archive.write(tmp_path / "model.h5", "model.weights.h5")
    with pytest.raises(FileAccessError, match="damaged"):
        tfmot.import_trained(path)


def test_a_damaged_archive_is_explained(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    content = (tmp_path / "model.keras").read_bytes()
    (tmp_path / "model.keras").write_bytes(content.replace(b"{}", b"[]"))  # its checksum is wrong now
    with pytest.raises(FileAccessError, match=r"damaged.*CRC"):
        tfmot.import_trained(tmp_path / "model.keras")
