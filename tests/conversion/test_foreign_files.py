"""Files that are no model, or no longer whole, and HDF5 files that would read other files of this machine."""

import pathlib
import zipfile

import h5py
import numpy as np
import pytest
from small_models import residual_net

import qdq_workbench as qdq
from qdq_workbench.conversion.files.own_data import check_own_data
from qdq_workbench.errors import FileAccessError, UnsupportedModelError


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    model = residual_net()
    model.save(folder / "model.keras")
    qdq.save_integer_weights(qdq.quantize_model(model), folder / "weights.h5")
    qdq.save_integer_weights(qdq.quantize_model(model), folder / "weights.npz")
    return folder


def test_a_model_that_is_cut_off_is_called_so(saved, tmp_path):
    content = (saved / "model.keras").read_bytes()
    path = tmp_path / "model.keras"
    for share in (0.9, 0.5, 0.01):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(UnsupportedModelError, match=r"cut off.*Received: path="):
            qdq.load_model(path)
    path.write_bytes(b"")
    with pytest.raises(UnsupportedModelError, match="is empty"):
        qdq.load_model(path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model.onnx", r"ONNX model.*lint_onnx.*import_qdq"),
        ("model.tflite", "LiteRT model"),
        ("plan.json", "is JSON"),
        ("spec.yaml", "is YAML"),
        ("x.npz", "holds NumPy arrays"),
        ("model.pt", "PyTorch"),
        ("model.keras", "neither a .keras archive nor HDF5"),
    ],
)
def test_files_of_another_kind_are_called_by_it(name, says, tmp_path):
    (tmp_path / name).write_bytes(b"something else than a model")
    with pytest.raises(UnsupportedModelError, match=says):
        qdq.load_model(tmp_path / name)


def test_an_archive_that_claims_more_than_it_holds(saved, tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", bytes(90_000_000))
    with pytest.raises(UnsupportedModelError, match="claims to hold 90,000,000 bytes"):
        qdq.load_model(tmp_path / "bomb.keras")
    with zipfile.ZipFile(tmp_path / "other.keras", "w") as archive:
        archive.writestr("word/document.xml", "<a/>")
    with pytest.raises(UnsupportedModelError, match="without a model"):
        qdq.load_model(tmp_path / "other.keras")


def external_storage(file, secret):
    file.create_dataset("head/kernel/values", (16,), "u1", external=[(str(secret), 0, 16)])


def external_link(file, secret):
    file["head/kernel"] = h5py.ExternalLink(str(secret.with_suffix(".h5")), "/data")


def virtual_dataset(file, secret):
    layout = h5py.VirtualLayout((16,), "u1")
    layout[:] = h5py.VirtualSource(str(secret.with_suffix(".h5")), "data", shape=(16,))
    file.create_virtual_dataset("head/kernel/values", layout)


def shape_bomb(file, secret):
    file.create_dataset("head/kernel/values", (10**13,), "u1", chunks=(1024,))


PLANTED = [external_storage, external_link, virtual_dataset, shape_bomb]


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"sixteen letters!")
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        file["data"] = np.frombuffer(path.read_bytes(), "u1")
    return path


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_integer_weights_come_from_their_own_file(plant, secret, tmp_path):
    path = tmp_path / "weights.h5"
    with h5py.File(path, "w") as file:
        plant(file, secret)
    with pytest.raises(FileAccessError, match=r"does not hold its own data: '/head/kernel.*Received: path="):
        qdq.load_integer_weights(path)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_models_come_from_their_own_file(plant, secret, saved, tmp_path):
    with h5py.File(tmp_path / "model.h5", "w") as file:
        file.attrs["model_config"] = "{}"
        plant(file, secret)
    with pytest.raises(FileAccessError, match="its own data"):
        qdq.load_model(tmp_path / "model.h5")
    with zipfile.ZipFile(saved / "model.keras") as good, zipfile.ZipFile(tmp_path / "model.keras", "w") as bad:
        for name in ("metadata.json", "config.json"):
            bad.writestr(name, good.read(name))
        bad.write(tmp_path / "model.h5", "model.weights.h5")
    with pytest.raises(FileAccessError, match="its own data"):
        qdq.load_model(tmp_path / "model.keras")


def test_links_within_a_file_are_fine(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/values"] = np.zeros(3)
        file["a/again"] = file["/"]
        file["b"] = h5py.SoftLink("/a/values")
        file.create_dataset("packed", data=np.zeros(3_000_000), compression="gzip")
        check_own_data(file, "x.h5")


@pytest.mark.parametrize("name", ["weights.h5", "weights.npz"])
def test_damaged_integer_weights_are_named(name, saved, tmp_path):
    content = (saved / name).read_bytes()
    path = tmp_path / name
    broken = bytearray(content)
    broken[len(broken) // 4 : len(broken) // 2] = bytes(len(broken) // 2 - len(broken) // 4)
    for bad in (content[: len(content) // 2], bytes(broken), b"", b"\x93NUMPY\x01\x00v\x00{'descr'"):
        path.write_bytes(bad)
        with pytest.raises(qdq.QDQError, match="Received: path="):
            qdq.load_integer_weights(path)
    with pytest.raises(FileAccessError, match="path must be") as caught:
        qdq.load_integer_weights(pathlib.Path("/".join(["folder"] * 800)) / "weights.npz")
    assert len(str(caught.value)) < 400
