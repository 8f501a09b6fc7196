"""Options for models with custom code: `--import` for classes, `--unsafe` for the Python code of Lambda layers."""

from __future__ import annotations

import argparse
import contextvars
import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from qdq_workbench.errors import FileAccessError, QDQError, UnsupportedModelError, first_line, nearest_names

# Words of errors whose advice is Python code; the command line has options instead.
_IN_PYTHON = ("custom_objects", "register_keras_serializable", "unsafe_deserialization", "safe_mode")
_CLASSES = "On the command line, --import MODULE brings in the module with classes of your own"
_LAMBDAS = "--unsafe lets Lambda layers of files that you trust be loaded"
_unsafe = contextvars.ContextVar("unsafe", default=False)


def add_own_code_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --import and --unsafe, for commands that read Keras models."""
    group = parser.add_argument_group("models with code of their own")
    group.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this module, or .py file, before a model is loaded: its layers, models, initializers, "
        "regularizers and constraints are then known, and whatever it registers with Keras, such as functions; "
        "repeatable",
    )
    group.add_argument(
        "--unsafe",
        action="store_true",
        help="load Lambda layers too, which hold Python code (Keras's safe_mode=False); for files that you trust",
    )


def load_own_code(imports: Iterable[str], *, unsafe: bool) -> None:
    """Import the user's modules and register their classes with Keras; with `unsafe`, allow Lambda layers.

    `imports` are names of modules that can be imported from the current folder, or paths of `.py` files.
    """
    import keras

    for name in imports:
        classes = _keras_classes(_module(name))
        # Registered for the whole process rather than for one load, so that workers of a sweep get them too.
        keras.saving.get_custom_objects().update(classes)
    # Keras's own switch does not reach Lambda layers of HDF5 files, so `load_model` passes the mode explicitly.
    _unsafe.set(unsafe)
    if unsafe:
        keras.config.enable_unsafe_deserialization()  # for workers, which load copies of the model themselves


def safe_mode() -> bool:
    """Return whether Keras must reject Lambda layers when it loads a model."""
    return not _unsafe.get()


def with_options_named(error: QDQError) -> UnsupportedModelError | None:
    """Return the error of loading a model, extended by the command-line options; None if they would not help."""
    message = str(error)
    if not any(word in message for word in _IN_PYTHON):
        return None
    options = f"{_CLASSES}." if _unsafe.get() else f"{_CLASSES}; {_LAMBDAS}."
    what, _, value = message.rpartition(" Received: ")
    return UnsupportedModelError(f"{what} {options} Received: {value}" if what else f"{message} {options}")


def _module(name: str) -> ModuleType:
    """Return the module, imported with its folder, or the current one, first in `sys.path`."""
    is_file = name.endswith(".py")
    path = pathlib.Path(name).resolve()
    if is_file and not path.is_file():
        folder = path.parent if path.parent.is_dir() else pathlib.Path()
        hint = nearest_names(path.name, [entry.name for entry in folder.glob("*.py")])
        raise FileAccessError(f"There is no such file to import. {hint} Received: --import {name}")
    folder = path.parent if is_file else pathlib.Path.cwd()
    if str(folder) not in sys.path:
        sys.path.insert(
            0, str(folder)
        )  # for good: modules may import their neighbours later, workers the module itself
    # Python's import system caches listings of folders, which may be older than the module's file.
    importlib.invalidate_caches()
    try:
        return _file_as_module(path) if is_file else importlib.import_module(name)
    except ModuleNotFoundError as error:
        # What is missing may be a module that the user's module imports. The name itself is wrong only if it, or a
        # package in front of it, is missing.
        if is_file or not error.name or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error) from error
        raise FileAccessError(
            "There is no module of that name, neither in the present folder nor in this Python's packages. Give the "
            f"name as an import statement has it (package.module), or the path of a .py file. Received: --import {name}"
        ) from error
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error


def _file_as_module(path: pathlib.Path) -> ModuleType:
    """Import a file as the module of its name, or `<name>_of_model` if that name is taken in `sys.modules`."""
    taken = sys.modules.get(path.stem)
    if taken is not None and getattr(taken, "__file__", None) == str(path):
        # Imported already, by a neighbour say. A second copy would have other classes of the same names.
        return taken
    spec = importlib.util.spec_from_file_location(path.stem if taken is None else f"{path.stem}_of_model", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"Python cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    # Before the module runs, as an import statement does it: dataclasses and pickle look their module up there.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def _failed(name: str, error: BaseException) -> FileAccessError:
    """Return the error for a module that raises an error when it is imported."""
    return FileAccessError(
        "The module cannot be imported, because it raises an error; --debug shows where. A module for --import should "
        f"define classes and run nothing. It says: {type(error).__name__}: {first_line(error)}. "
        f"Received: --import {name}"
    )


def _keras_classes(module: ModuleType) -> dict[str, Any]:
    """Return the module's classes that Keras serializes by name, without those of Keras itself."""
    import keras

    kinds = (keras.Layer, keras.Initializer, keras.regularizers.Regularizer, keras.constraints.Constraint)
    return {
        value.__name__: value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, kinds) and value.__module__.partition(".")[0] != "keras"
    }
