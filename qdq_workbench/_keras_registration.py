"""Making Keras know our classes, without importing Keras (and TensorFlow) ourselves.

`keras.models.load_model` finds a custom class only after the module that registers it was imported. Importing
`qdq_workbench` must stay light, so the registration waits for Keras: it happens at once where Keras is loaded
already, else right behind the user's own `import keras`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

_HOME = "qdq_workbench.conversion.quantized_model"  # imports every registered class


def register_with_keras() -> None:
    """Register our classes with Keras, now or as soon as it is imported."""
    if "keras" in sys.modules:
        _register(sys.modules["keras"])
    else:
        sys.meta_path.insert(0, _KerasFinder())


def _register(keras: Any) -> None:
    """Import every class that Keras must know; on another backend than TensorFlow there is nothing to load.

    Where one of our own modules is the one that imports Keras, it is not complete yet and cannot be imported
    again from here; `import_home` comes behind it.
    """
    if keras.config.backend() == "tensorflow" and not _is_importing_ourselves():
        importlib.import_module(_HOME)


def import_home(module: str) -> ModuleType:
    """Import one of our modules, and behind it the classes for Keras where that loaded Keras.

    Args:
        module: Its full name.
    """
    found = importlib.import_module(module)
    if "keras" in sys.modules:
        _register(sys.modules["keras"])
    return found


def _is_importing_ourselves() -> bool:
    """Return whether one of our modules is in the middle of its import."""
    package = __name__.partition(".")[0]
    return any(
        name.startswith(f"{package}.") and getattr(getattr(module, "__spec__", None), "_initializing", False)
        for name, module in list(sys.modules.items())
    )


class _KerasFinder(importlib.abc.MetaPathFinder):
    """Finds Keras once, and has our classes registered behind its import."""

    def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if fullname != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader)
        return spec


class _RegisteringLoader(importlib.abc.Loader):
    """Loads Keras with its own loader, then imports our classes."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _register(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
