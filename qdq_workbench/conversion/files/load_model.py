"""`load_model`: a Keras model from a file, including files that Keras 2 wrote."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import h5py
import keras

from qdq_workbench._documents import parse_json
from qdq_workbench._files import as_path
from qdq_workbench._interrupts import interrupts_held
from qdq_workbench._pages import page
from qdq_workbench._scratch import check_room, scratch_folder
from qdq_workbench._warned_line import warn_caller
from qdq_workbench.conversion.engine.own_attributes import without_state
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.files.keras2 import translate, unwrap_single_ends
from qdq_workbench.conversion.files.model_archive import check_archive
from qdq_workbench.conversion.files.own_data import check_own_data
from qdq_workbench.errors import FileAccessError, UnsupportedModelError, first_line


def load_model(
    path: str | os.PathLike[str], *, custom_objects: Mapping[str, Any] | None = None, safe_mode: bool = True
) -> keras.Model:
    """Load a Keras model, uncompiled; HDF5 files of Keras 2 are translated to Keras 3.

    A quantized model is loaded as such. What Keras 2 wrote differently (a `groups` key in depthwise convolutions,
    `time_major` in recurrent layers, `x + y` as TFOpLambda layers, another `hard_sigmoid`...) is translated.

    Args:
        path: A `.keras` file, or an HDF5 file that includes the architecture.
        custom_objects: Classes and functions of your own, by name.
        safe_mode: False allows Lambda layers, which hold Python code; only for files that you trust.

    Returns:
        The model.

    Raises:
        FileAccessError: If there is no such file, or a file refers to data in others.
        UnsupportedModelError: If the file holds no model that Keras 3 can load; the message explains the remedy.

    Example:
        >>> import tempfile
        >>> image = keras.Input((2,), name="image")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "model.keras"
        ...     keras.Model(image, keras.layers.Dense(1, name="head")(image)).save(path)
        ...     [layer.name for layer in load_model(path).layers]
        ['image', 'head']
    """
    file = as_path(path, FileAccessError)
    if file.is_dir():
        raise UnsupportedModelError(f"{_SAVED_MODEL} Received: path={str(path)!r}")
    if not file.is_file():
        raise FileAccessError(f"There is no such file. Received: path={str(path)!r}")
    objects = dict(custom_objects or {})
    try:
        with interrupts_held():
            if h5py.is_hdf5(file):
                return _load_hdf5(file, objects, safe_mode=safe_mode)
            check_archive(file)
            return keras.models.load_model(file, custom_objects=objects, compile=False, safe_mode=safe_mode)
    except (UnsupportedModelError, FileAccessError):
        raise
    except Exception as error:
        lambdas = "; a Lambda layer needs safe_mode=False, for files that you trust" if safe_mode else ""
        raise UnsupportedModelError(
            "Keras cannot read the model. Expected a .keras file, or an HDF5 file with its architecture, of a model "
            "whose own classes are registered (keras.saving.register_keras_serializable) or passed as custom_objects"
            f"{lambdas}: {page('importing.md')}. Keras says: {first_line(error)}. {_reason(error)}"
            f"Received: path={str(path)!r}"
        ) from error


def _reason(error: BaseException) -> str:
    """Return a sentence about the root cause of Keras's error; empty if Keras's message begins with it."""
    first = error
    while (cause := first.__cause__ or first.__context__) is not None:
        first = cause
    if first is error or first_line(first) == first_line(error):
        return ""
    help_ = (
        " The code of a Lambda layer knows what was passed to it and no names around it, such as imported modules: "
        "import them inside the function, or put a registered function or a layer in its place, where the model is "
        "made, and save it again."
        if isinstance(first, NameError)
        else ""
    )
    said = first_line(first).partition(" Full object config: ")[0].rstrip(".")  # the rest is the layer's configuration
    return f"The reason: {type(first).__name__}: {said}.{help_} "


def _load_hdf5(file: pathlib.Path, objects: dict[str, Any], *, safe_mode: bool) -> keras.Model:
    with h5py.File(file, "r") as opened:
        check_own_data(opened, file)
        text = opened.attrs.get("model_config")
        version = str(opened.attrs.get("keras_version", ""))
    if text is None:
        raise UnsupportedModelError(
            "The file holds weights without an architecture. Build the network with Keras 3 and read the weights into "
            f"it: model.load_weights(path); more on {page('importing.md')}. Received: path={str(file)!r}"
        )
    config = parse_json(text)
    translated = unwrap_single_ends(config if version.startswith("3") else translate(config))
    if "own_class" in translated["config"]:
        translated = _without_own_state(translated)
    objects = {"QuantizedModel": QuantizedModel, **objects}  # HDF5 files hold the plain name
    if translated == config and file.suffix in (".h5", ".hdf5"):
        return keras.models.load_model(file, custom_objects=objects, compile=False, safe_mode=safe_mode)
    written = json.dumps(translated)
    with scratch_folder() as folder:  # the user's file is only read
        check_room(folder, file.stat().st_size + 2 * len(written) + (1 << 20))  # a full disk makes HDF5 end the process
        copy = folder / "model.h5"
        shutil.copyfile(file, copy)
        with h5py.File(copy, "r+") as opened:
            opened.attrs["model_config"] = written
        return keras.models.load_model(copy, custom_objects=objects, compile=False, safe_mode=safe_mode)


def _without_own_state(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a quantized model of a user's class without the attributes that the file lacks."""
    attributes = config["config"]["own_attributes"]
    kept = without_state(attributes)
    lost = [name for name in attributes if name not in kept]
    if lost:
        warn_caller(
            UserWarning(
                f"HDF5 files hold no weights outside of the graph; attributes of the model are lost: "
                f"{', '.join(lost)}. Set them again, and save the model as a .keras file, which holds them."
            )
        )
    return {**config, "class_name": "QuantizedModel", "config": {**config["config"], "own_attributes": kept}}


_SAVED_MODEL = (
    "The path is a folder: a TensorFlow SavedModel holds compiled functions and no layers, so there is nothing to "
    "quantize. Save the model as HDF5 where it was made (model.save('model.h5')), or build the network with Keras 3 "
    f"and copy the weights: {page('importing.md', 'Recipes')}."
)
