"""What several commands read: models, arrays, cases, specs and plans, by path or by name."""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

from qdq_workbench._files import read_text
from qdq_workbench.errors import (
    DataError,
    FileAccessError,
    SpecError,
    UnsupportedModelError,
    nearest_names,
)
from qdq_workbench.placement.targets import target_names

TARGETS = tuple(target_names())
METHODS = ("minmax", "moving_average", "percentile")


def add_planning_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that decide where Q/DQ pairs go: --spec, --case, --mode, --target."""
    parser.add_argument("--spec", metavar="FILE", help="a QuantizationSpec, YAML or JSON")
    parser.add_argument(
        "--case", action="append", default=[], metavar="CASE", help="a library case by class name; repeatable"
    )
    parser.add_argument("--mode", choices=("full", "partial"), default="full", help="default: full")
    parser.add_argument("--target", choices=TARGETS, default="tensorrt", help="default: tensorrt")


def planning_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of `plan_placement` and `quantize_model` that the options ask for."""
    import qdq_workbench as qdq

    return {
        "quantization_mode": options.mode,
        "quantization_spec": qdq.QuantizationSpec.load(options.spec) if options.spec else None,
        "custom_qdq_cases": load_cases(options.case) or None,
        "target": options.target,
    }


def load_cases(names: list[str]) -> list[Any]:
    """Return an instance of each library case.

    Args:
        names: Class names such as "ResNetV1QDQCase".

    Raises:
        SpecError: If there is no such case; the message shows the nearest names.
    """
    import qdq_workbench as qdq

    known = {name: getattr(qdq, name) for name in qdq.__all__ if name.endswith("QDQCase")}
    for name in names:
        if name not in known:
            raise SpecError(f"There is no library case of that name. {nearest_names(name, known)} Received: {name!r}")
    return [known[name]() for name in names]


def load_model(path: str) -> Any:
    """Return the Keras model of a .keras or .h5 file, uncompiled.

    Raises:
        FileAccessError: If there is no such file.
        UnsupportedModelError: If Keras cannot read it.
    """
    require_file(path)
    import keras

    import qdq_workbench  # noqa: F401 - registers our layers, so that quantized models load too

    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:
        raise UnsupportedModelError(
            "Keras cannot read the model. Expected a .keras file, or an .h5 file with its architecture, of a model "
            f"whose custom classes are registered. Keras says: {str(error).strip().splitlines()[0][:300]} "
            f"Received: path={path!r}"
        ) from error


def load_plan(path: str) -> Any:
    """Return the placement plan of a JSON file that `qdq-workbench plan -o` wrote.

    Raises:
        FileAccessError: If there is no such file.
        SpecError: If it is not JSON, or not a plan.
    """
    require_file(path)
    import qdq_workbench as qdq

    try:
        data = json.loads(read_text(path))
    except ValueError as error:
        raise SpecError(f"A plan is a JSON file; this one cannot be read: {error}. Received: path={path!r}") from error
    return qdq.PlacementPlan.from_dict(data)


def load_arrays(path: str) -> Any:
    """Return the model input that a file holds.

    Args:
        path: A .npy file, or a .npz file with one array, with an array called `x`, or with one array per model
            input under the input's name.

    Returns:
        One array, or a dictionary of arrays.

    Raises:
        FileAccessError: If there is no such file.
        DataError: If it is not a NumPy file, or holds Python objects.
    """
    require_file(path)
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        arrays = {name: loaded[name] for name in loaded.files if isinstance(loaded[name], np.ndarray)}
    except ValueError as error:
        raise DataError(
            f"NumPy cannot read the file as plain arrays: {error} Save it with numpy.save or numpy.savez. "
            f"Received: path={path!r}"
        ) from error
    if not arrays:
        raise DataError(f"The archive holds no array; make it with numpy.savez. Received: path={path!r}")
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    return arrays.get("x", arrays)


def require_file(path: str) -> None:
    """Refuse a path that is not a file.

    Raises:
        FileAccessError: With the nearest names of the folder.
    """
    file = pathlib.Path(path)
    if not file.is_file():
        folder = file.parent if file.parent.is_dir() else pathlib.Path()
        hint = nearest_names(file.name, [entry.name for entry in folder.iterdir() if entry.is_file()])
        raise FileAccessError(f"There is no such file. {hint} Received: path={path!r}")
