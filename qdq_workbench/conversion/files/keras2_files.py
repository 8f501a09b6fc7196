"""Reading models that Keras 2 saved: the configuration, and the variables by the names that Keras 2 gave them.

`quant_conv/kernel_min` is the variable `kernel_min` of the layer `quant_conv`, and `conv/kernel` belongs to the layer
inside of it. HDF5 files and SavedModels hold these names; `.keras` archives only number the variables of each layer.
"""

from __future__ import annotations

import dataclasses
import io
import pathlib
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import h5py
import keras
import numpy as np
import tensorflow as tf

from qdq_workbench._documents import parse_json
from qdq_workbench._files import as_path
from qdq_workbench.conversion.files.keras2 import translate, unwrap_single_ends
from qdq_workbench.conversion.files.own_data import check_own_data
from qdq_workbench.errors import FileAccessError, UnsupportedModelError, first_line

_METADATA, _VARIABLES = "keras_metadata.pb", pathlib.Path("variables") / "variables"


@dataclasses.dataclass(frozen=True)
class Keras2File:
    """A model or weights that Keras 2 saved.

    Args:
        path: The path of the file or folder.
        config: The model's configuration in the form of Keras 2; None if the file holds weights only.
        values: Arrays by layer and variable. The variables of a layer inside a wrapper belong to the wrapper in HDF5
            files, and to the inner layer in SavedModels.
        numbered: Arrays by layer if the file has no names: those of the layer itself, and of the layer inside.
    """

    path: str
    config: dict[str, Any] | None
    values: dict[str, dict[str, np.ndarray]]
    numbered: dict[str, tuple[list[np.ndarray], list[np.ndarray]]] = dataclasses.field(default_factory=dict)


def build_keras2(config: dict[str, Any], path: str) -> keras.Model:
    """Return the Keras 3 model of a configuration, before its weights are set.

    Raises:
        UnsupportedModelError: If Keras 3 cannot build it.
    """
    config = unwrap_single_ends(translate(config))
    kind: Any = keras.Sequential if config["class_name"] == "Sequential" else keras.Model
    try:
        return kind.from_config(config["config"])
    except Exception as error:  # whatever a layer's constructor raises
        raise UnsupportedModelError(
            "Keras 3 cannot build the network of the file. Pass classes of your own as custom_objects, or build the "
            "network yourself and read the weights: model.save_weights('weights.h5') where it was trained, then "
            f"import_trained('weights.h5', model). Keras says: {first_line(error)}. Received: path={path!r}"
        ) from error


def read_keras2(path: str | pathlib.Path) -> Keras2File:
    """Read a model that Keras 2 saved: an HDF5 file, a folder with a SavedModel, or a `.keras` archive."""
    file = as_path(path, FileAccessError)
    if not file.exists():
        raise FileAccessError(f"There is no such file or folder. Received: path={str(path)!r}")
    try:
        found = _read(file)
        if found is not None and found.config is not None:
            _check_layers(found.config)
    except (FileAccessError, UnsupportedModelError):
        raise
    except Exception as error:  # h5py, zipfile and zlib may raise anything for a damaged file
        raise FileAccessError(
            f"The file is damaged, or holds no model: {error}. Save the trained model again: model.save('model.h5'). "
            f"Received: path={str(path)!r}"
        ) from error
    if found is not None:
        return found
    raise UnsupportedModelError(
        "Trained models are read from HDF5 files (.h5), folders with a SavedModel, and .keras archives. "
        f"Received: path={str(path)!r}"
    )


def _read(file: pathlib.Path) -> Keras2File | None:
    """Return the content of a file; None for another kind of file."""
    if file.is_dir():
        return _read_saved_model(file)
    if h5py.is_hdf5(file):
        with h5py.File(file, "r") as opened:
            check_own_data(opened, file)
            return _read_hdf5(file, opened)
    return _read_archive(file) if zipfile.is_zipfile(file) else None


def _check_layers(config: Any) -> None:
    """Refuse a configuration with layers that are not written as Keras writes them."""
    layers = config["config"].get("layers", []) if isinstance(config.get("config"), dict) else []
    for layer in layers:
        if not isinstance(layer["class_name"], str) or not isinstance(layer["config"], dict):
            raise TypeError(f"a layer is described by {layer}")


def _read_hdf5(file: pathlib.Path, opened: h5py.File) -> Keras2File:
    text = opened.attrs.get("model_config")
    # A file of weights alone has the groups of the layers at its root.
    group = opened.get("model_weights", opened)
    if "layer_names" not in group.attrs:
        raise UnsupportedModelError(
            "The file numbers its weights instead of naming them, as save_weights('name.weights.h5') does, so ranges "
            "and weights cannot be told apart. Save the whole model where it was trained: model.save('model.h5'). "
            f"Received: path={str(file)!r}"
        )
    values: dict[str, dict[str, np.ndarray]] = {}
    for layer in (_text(name) for name in group.attrs["layer_names"]):
        names = [_text(name) for name in group[layer].attrs["weight_names"]]
        values[layer] = {_last(name): group[layer][name][()] for name in names}
    return Keras2File(str(file), None if text is None else _plain(parse_json(_text(text))), values)


def _read_saved_model(folder: pathlib.Path) -> Keras2File:
    if not (folder / _METADATA).is_file() or not (folder / _VARIABLES).with_suffix(".index").is_file():
        raise UnsupportedModelError(
            f"A SavedModel is read through its {_METADATA} and variables/, which Keras 2 writes with "
            "model.save(folder, save_format='tf'); this folder lacks them. Save the trained model as HDF5 instead: "
            f"model.save('model.h5'). Received: path={str(folder)!r}"
        )
    return Keras2File(str(folder), _config_of(folder / _METADATA), _checkpoint(str(folder / _VARIABLES)))


def _checkpoint(prefix: str) -> dict[str, dict[str, np.ndarray]]:
    """Return the variables of a checkpoint by layer and name, as in the program that saved them."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    reader = tf.train.load_checkpoint(prefix)
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    values: dict[str, dict[str, np.ndarray]] = {}
    for attribute in (attribute for node in graph.nodes for attribute in node.attributes):
        layer, _, name = attribute.full_name.rpartition("/")
        if name and reader.has_tensor(attribute.checkpoint_key):
            values.setdefault(layer, {})[name] = np.asarray(reader.get_tensor(attribute.checkpoint_key))
    return values


def _config_of(path: pathlib.Path) -> dict[str, Any]:
    """Return the model's configuration from the metadata: a list of nodes (field 1), each with JSON text (field 5)."""
    for number, node in _fields(path.read_bytes()):
        if number != 1:
            continue
        parts = dict(_fields(node))
        # Field 3 is the path of the object in the SavedModel; that of the model is `root`.
        if parts.get(3) == b"root":
            metadata = parse_json(parts[5])
            return _plain({"class_name": metadata["class_name"], "config": metadata["config"]})
    raise ValueError(f"{_METADATA} describes no model")


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the length-delimited fields of a protocol buffer; varint fields are skipped."""
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        key = _varint(stream)
        if key & 7 == 0:
            _varint(stream)
        elif key & 7 == 2:  # a field with a length
            yield key >> 3, stream.read(_varint(stream))
        else:
            raise ValueError("a protocol buffer has a field of an unexpected kind")


def _varint(stream: io.BytesIO) -> int:
    value = shift = 0
    while True:
        (byte,) = stream.read(1) or (0,)
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:  # the highest bit is set if another byte follows
            return value


def _read_archive(file: pathlib.Path) -> Keras2File:
    with zipfile.ZipFile(file) as archive:
        config = parse_json(archive.read("config.json"))
        weights = io.BytesIO(archive.read("model.weights.h5"))
    counts: dict[str, int] = {}
    numbered = {}
    with h5py.File(weights, "r") as opened:
        check_own_data(opened, file)
        for layer in config["config"]["layers"]:
            # Folders of one class are numbered from the second on: conv2d, conv2d_1.
            kind = _snake_case(layer["class_name"])
            count = counts[kind] = counts.get(kind, -1) + 1
            group = opened.get(f"layers/{kind}_{count}" if count else f"layers/{kind}")
            numbered[layer["config"]["name"]] = (_in_order(group, "vars"), _in_order(group, "layer/vars"))
    return Keras2File(str(file), _plain(config), {}, numbered)


def _in_order(group: Any, name: str) -> list[np.ndarray]:
    found = None if group is None else group.get(name)
    return [] if found is None else [found[str(index)][()] for index in range(len(found))]


def _plain(value: Any) -> Any:
    """Return a configuration as in Keras 2's HDF5 files, without the module names and tuple markers of others."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("class_name") == "__tuple__":
        return _plain(value["items"])
    extra = ("module", "registered_name", "build_config", "compile_config")
    return {key: _plain(item) for key, item in value.items() if "class_name" not in value or key not in extra}


def _snake_case(name: str) -> str:
    """Return a class name as Keras 2 writes it in the paths of an archive: MaxPooling2D is max_pooling2d."""
    return re.sub(r"(?<!^)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _last(name: str) -> str:
    return name.rpartition("/")[2].partition(":")[0]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
