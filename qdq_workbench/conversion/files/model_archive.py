"""Checks of a file that should be a `.keras` archive, before Keras calls it "not found"."""

from __future__ import annotations

import io
import pathlib
import zipfile

import h5py

from qdq_workbench._documents import parse_json
from qdq_workbench._pages import page
from qdq_workbench.conversion.files.own_data import check_own_data
from qdq_workbench.errors import UnsupportedModelError

_WEIGHTS = "model.weights.h5"
_FREE = 1 << 26
_COMPRESSION = 100  # Keras does not compress; other tools may, but not by that much

_OTHERS = {
    ".onnx": (
        "The file is an ONNX model, and a Keras model is expected. qdq.lint_onnx(path) checks its Q/DQ pairs, "
        "qdq.import_qdq(path, model) reads them for a Keras model of the same network (on the command line: lint and "
        "import)"
    ),
    ".tflite": (
        "The file is a LiteRT model, which holds no layers to quantize; give the Keras model that it was made from"
    ),
    ".json": (
        "The file is JSON, and a Keras model is expected. A plan or a specification goes with the model's file: "
        "qdq.quantize_model(model, plan=...), or --spec on the command line"
    ),
    ".npz": "Keras cannot read the model: the file holds NumPy arrays, and data are given beside a model",
    ".pt": "The file is a model of PyTorch, and a Keras model is expected; build the network with Keras 3",
}
_OTHERS |= dict.fromkeys((".npy",), _OTHERS[".npz"])
_OTHERS |= dict.fromkeys((".pth", ".safetensors"), _OTHERS[".pt"])
_OTHERS |= dict.fromkeys((".yaml", ".yml"), _OTHERS[".json"].replace("is JSON", "is YAML"))


def check_archive(file: pathlib.Path) -> None:
    """Refuse a file, known not to be HDF5, unless it is a complete `.keras` archive of Keras 3 with its own data.

    The message says what the file is. BadZipFile is raised for a damaged part.
    """
    if file.suffix.lower() in _OTHERS:
        raise UnsupportedModelError(
            f"{_OTHERS[file.suffix.lower()]}; more on {page('importing.md')}. Received: path={str(file)!r}"
        )
    if not zipfile.is_zipfile(file):
        raise UnsupportedModelError(
            f"{_what_it_is(file)}; more on {page('importing.md')}. Received: path={str(file)!r}"
        )
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        claimed = sum(member.file_size for member in archive.infolist())
        if claimed > _FREE + _COMPRESSION * file.stat().st_size:
            raise UnsupportedModelError(
                f"The archive claims to hold {claimed:,} bytes, which no model packs into {file.stat().st_size:,}. "
                f"Save the model again where it was made. Received: path={str(file)!r}"
            )
        _refuse_keras_2(archive, file)
        if "config.json" not in names:
            raise UnsupportedModelError(
                "The file is an archive without a model: it has no config.json. Save the model with "
                f"model.save('model.keras'). Received: path={str(file)!r}"
            )
        parse_json(archive.read("config.json"))  # Keras ends the process with one that is nested too deeply
        if _WEIGHTS in names:  # Keras checks this itself from 3.15 on
            with h5py.File(io.BytesIO(archive.read(_WEIGHTS)), "r") as weights:
                check_own_data(weights, file)


def _what_it_is(file: pathlib.Path) -> str:
    with file.open("rb") as opened:
        start = opened.read(8)
    if not start:
        return "The file is empty; save the model again: model.save('model.keras')"
    if start.startswith(b"PK\x03\x04"):
        return (
            "The file is a .keras archive that is cut off: its end is missing, as after an interrupted download or a "
            "full disk. Copy it again, or save the model again: model.save('model.keras')"
        )
    return (
        "Keras cannot read the model: the file is neither a .keras archive nor HDF5. Save the model with "
        "model.save('model.keras')"
    )


def _refuse_keras_2(archive: zipfile.ZipFile, file: pathlib.Path) -> None:
    """Refuse a `.keras` file of Keras 2, which has other module names and another layout of the weights."""
    if "metadata.json" not in archive.namelist():
        return
    version = str(parse_json(archive.read("metadata.json")).get("keras_version", ""))
    if version.startswith("2"):
        raise UnsupportedModelError(
            f"The file was written by Keras {version}, whose .keras files Keras 3 cannot read. Save it as HDF5 there, "
            "in an environment with TensorFlow and tf_keras: "
            "tf_keras.models.load_model('model.keras').save('model.h5'); the HDF5 file loads here. "
            f"More on {page('importing.md', 'Recipes')}. "
            f"Received: path={str(file)!r}"
        )
